# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.
"""GuardFloatCasts: each cast of a float to an integer has one value, in and out of range."""

import math
import time

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.grids import few, is_full
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.tirx.transform import GuardFloatCasts
from tvm_fixes.tirx.transform.guard_float_casts import wrapped

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED, UNSIGNED = (tuple(f"{kind}{bits}" for bits in (8, 16, 32, 64)) for kind in ("int", "uint"))
INTEGERS = (*SIGNED, *UNSIGNED)
TARGETS = ("native", {"kind": "llvm", "mcpu": "haswell"})

_POWERS = [2.0**power + delta for power in (7, 8, 15, 16, 31, 32, 53) for delta in (-1, 0, 1, 300)]
VALUES = [0.0, 0.5, 0.99, 1.5, 2.0, 300.7, 70000.0, *_POWERS, 2.0**63, 2.0**63 + 2.0**40, 2.0**64]
VALUES = [*VALUES, *(-value for value in VALUES), 1e30, -1e30, math.inf, -math.inf, math.nan]


def values(dtype):
    """An odd number of elements, so that a kernel has a vector and a tail."""
    return torch.tensor([*VALUES, 1.0][: len(VALUES) // 2 * 2 + 1], dtype=torch.float64).to(dtype)


class Casts(torch.nn.Module):
    """Casts to every integer dtype, of the input itself and of a computed value."""

    def forward(self, x):
        dtypes = [getattr(torch, name) for name in (*INTEGERS, "bool")]
        return [value.to(dtype) for value in (x, x.abs() - x) for dtype in dtypes]


def elements(tensor, dtype):
    """The casts of single elements, by PyTorch's scalar code."""
    flat = tensor.double().tolist()
    single = torch.stack([tensor[i].to(getattr(torch, dtype)) for i in range(len(flat))])
    return single.numpy()


@few(2)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (source, target)
        for index, source in enumerate(FLOATS)
        for target in (TARGETS if is_full() else TARGETS[index % 2 :][:1])
    ],
)
def test_every_pair_is_as_in_pytorch(source, target):
    x = values(getattr(torch, source))
    model = compile_model((Casts().eval(), (x,)), target=target, compare=False)
    results = iter(model.run(x))
    for value in (x, x.abs() - x):
        for dtype in (*INTEGERS, "bool"):
            expected = elements(value, dtype)
            np.testing.assert_array_equal(next(results).numpy(), expected, err_msg=dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_constants(dtype):
    """The rule in Python, which folds casts of numbers, is that of PyTorch."""
    x = values(torch.float64)
    expected = elements(x, dtype).tolist()
    assert [wrapped(value, dtype) for value in x.tolist()] == expected

    class Fill(torch.nn.Module):
        def forward(self, y):
            return torch.full((7,), -2.0).to(getattr(torch, dtype)), y

    if is_full() or dtype == "uint64":
        model = compile_model((Fill().eval(), (torch.zeros(7),)))
        assert model.report.equal


def casts_of(function):
    """The casts of a PrimFunc from floats to integers, before and after the pass."""
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    with tvm.target.Target("llvm"):
        return mod, GuardFloatCasts()(mod)


def test_before_and_after():
    @I.ir_module
    class Before:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "uint8")):
            for i in range(8):
                with T.sblock("y"):
                    v = T.axis.spatial(8, i)
                    y[v] = T.Cast("uint8", x[v])

    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "uint8")):
            for i in range(8):
                with T.sblock("y"):
                    v = T.axis.spatial(8, i)
                    y[v] = T.Cast(
                        "uint8",
                        T.Select(
                            T.fabs(x[v]) < T.float32(2147483648.0),
                            T.Cast("int32", x[v]),
                            T.int32(0),
                        ),
                    )

    with tvm.target.Target("llvm"):
        after = GuardFloatCasts()(Before)
    tvm.ir.assert_structural_equal(after, Expected)


X = tirx.Var("x", "float32")
ZERO, LARGEST = tirx.const(0.0, "float32"), tirx.const(255.0, "float32")
CLIPPED = tirx.Select(X > LARGEST, LARGEST, X)


def returning(value, dtype):
    out = tirx.decl_buffer((1,), dtype, name="out")
    store = tirx.BufferStore(out, tirx.Cast(dtype, value), [0])
    return tirx.PrimFunc([X, out], store)


@pytest.mark.parametrize(
    "value",
    [
        tirx.Max(tirx.Min(tirx.round(X) + tirx.const(3.0, "float32"), LARGEST), ZERO),
        tirx.round(tirx.Max(tirx.Min(X, LARGEST), ZERO)),
        tirx.Cast("float32", tirx.Var("n", "uint8")),
    ],
)
def test_a_cast_in_range_does_not_change(value):
    function = returning(value, "uint8")
    if isinstance(value, tirx.Cast):
        function = tirx.PrimFunc([value.value, *function.params[1:]], function.body)
    before, after = casts_of(function)
    tvm.ir.assert_structural_equal(before, after)


def test_a_clip_to_the_value_of_nan_is_a_maximum():
    _, after = casts_of(returning(tirx.Select(CLIPPED < ZERO, ZERO, CLIPPED), "uint8"))
    assert "T.max(" in str(after)
    assert "T.fabs" not in str(after)


@pytest.mark.parametrize("dtype, clip", [(torch.uint8, (0, 255)), (torch.int8, (-128, 127))])
def test_nan_after_a_clip(dtype, clip):
    class Quantize(torch.nn.Module):
        def forward(self, x):
            return (x * 10).round().clamp(*clip).to(dtype)

    x = torch.tensor([math.nan, 1.0, -math.inf, math.inf, 1e10, -0.4] * 7)
    model = compile_model((Quantize().eval(), (x,)))
    np.testing.assert_array_equal(model.run(x).numpy(), Quantize()(x).numpy())


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16] if is_full() else [torch.bfloat16]
)
def test_a_chain_of_casts(dtype):
    """Each cast reads its operand twice, but a chain of them does not grow as a power of two."""

    class Chain(torch.nn.Module):
        def __init__(self, steps):
            super().__init__()
            self.steps = steps

        def forward(self, x):
            for _ in range(self.steps):
                x = (x * 2).to(torch.int16).to(x.dtype)
            return x.to(torch.uint8)

    x = values(dtype)
    seconds = []
    for steps in (3, 12) if is_full() else (2, 8):
        start = time.process_time()
        model = compile_model((Chain(steps).eval(), (x,)), compare=False)
        seconds.append(time.process_time() - start)
        np.testing.assert_array_equal(model.run(x).numpy(), Chain(steps)(x).numpy())
    assert seconds[1] < 8 * seconds[0] + 2


def test_relax():
    """A cast in a Relax module has the same rule."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((37,), "float32"))
    with builder.function("main", [x]):
        doubled = builder.emit(relax.op.multiply(x, relax.const(2.0, "float32")))
        builder.emit_func_output(builder.emit(relax.op.astype(doubled, "uint8")))
    model = compile_model(builder.get(), compare=False)
    data = np.linspace(-400, 400, 37, dtype="float32")
    np.testing.assert_array_equal(model.run(data), (2 * data).astype("int32").astype("uint8"))


if __name__ == "__main__":
    tvm.testing.main()
