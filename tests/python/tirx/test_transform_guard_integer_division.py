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
"""Divisions of integers by 0 and -1, in kernels and in shapes."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.grids import few
from helpers.relax_modules import build, call, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches
from tvm_fixes.tirx.transform import GuardIntegerDivision
from tvm_fixes.tirx.transform.guard_integer_division import FIX_ID

op = relax.op
MESSAGE = "integer division by zero"
OPERATORS = ("divide", "floor_divide", "mod", "floor_mod")


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


EXPECTED = {
    "divide": truncated,
    "floor_divide": lambda a, b: a // b,
    "mod": lambda a, b: a - b * truncated(a, b),
    "floor_mod": lambda a, b: a % b,
}


def built(mod: tvm.IRModule) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(mod, "llvm", relax_pipeline=pipeline()), tvm.cpu())


@few(2)
@pytest.mark.parametrize("dtype", ("int8", "int32", "int64", "uint8", "uint64"))
def test_quotients_wrap_and_zero_is_an_error(dtype: str) -> None:
    size, info = 130, np.iinfo(dtype)
    rng = np.random.default_rng(0)
    a = rng.integers(info.min, info.max, size, dtype, endpoint=True)
    b = rng.integers(max(info.min, -3), 4, size).astype(dtype)
    b[b == 0] = 2
    a[0], b[0] = info.min, info.max if info.min == 0 else -1
    every = lambda builder, x, y: relax.Tuple(  # noqa: E731
        [builder.emit(getattr(op, name)(x, y)) for name in OPERATORS]
    )
    vm = built(build({"a": tensor(size, dtype=dtype), "b": tensor(size, dtype=dtype)}, every))
    for name, got in zip(OPERATORS, call(vm, "main", a, b), strict=True):
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        exact = [EXPECTED[name](x, y) for x, y in pairs]
        count = info.max - info.min + 1
        wrapped = [(value - info.min) % count + info.min for value in exact]
        np.testing.assert_array_equal(got, np.array(wrapped, dtype), err_msg=name)
    b[77] = 0
    with pytest.raises(RuntimeError, match=MESSAGE):
        call(vm, "main", a, b)


def test_in_a_fused_kernel() -> None:
    def emit(builder, x, y):
        quotient = builder.emit(op.divide(builder.emit(op.multiply(x, x)), y))
        return op.where(op.greater(x, y), quotient, x)

    inputs = {"x": tensor(4, 64, dtype="int32"), "y": tensor(dtype="int32")}
    vm = built(build(inputs, emit))
    x = np.arange(256, dtype="int32").reshape(4, 64)
    np.testing.assert_array_equal(
        call(vm, "main", x, np.array(3, "int32")), np.where(x > 3, x * x // 3, x)
    )
    with pytest.raises(RuntimeError, match=MESSAGE):
        call(vm, "main", x, np.array(0, "int32"))


def test_of_constants_at_compile_time() -> None:
    """Unfoldable divisions run at run time."""
    a, b = (relax.const(np.array(numbers, "int32")) for numbers in ([4, 5], [0, 3]))
    mod = build({"x": tensor(2, dtype="int32")}, lambda bb, x: op.add(x, bb.emit(op.mod(a, b))))
    with pytest.raises(RuntimeError, match=MESSAGE):
        run(mod, np.ones(2, "int32"), pipeline=pipeline(), target="llvm")


def test_of_extents() -> None:
    n, m = (tirx.Var(name, "int64") for name in "nm")
    mod = build(
        {"x": tensor(n), "y": tensor(n, m, dtype="int32")},
        lambda bb, x, y: relax.Tuple(
            [bb.emit(op.zeros((n // m,), "float32")), bb.emit(op.mean(y, 1))]
        ),
    )
    vm = built(mod)
    got, mean = call(vm, "main", np.zeros(6, "float32"), np.full((6, 3), 7, "int32"))
    assert got.shape == (2,)
    np.testing.assert_array_equal(mean, [7] * 6)
    with pytest.raises(RuntimeError, match=MESSAGE):
        call(vm, "main", np.zeros(6, "float32"), np.zeros((6, 0), "int32"))


@I.ir_module
class Harmless:
    """Division by a constant, by a positive value, and of indices."""

    @T.prim_func
    def main(x: T.Buffer((64,), "int32"), y: T.Buffer((64,), "int32"), n: T.int64):
        for i in T.serial(64):
            y[i // n] = T.truncdiv(x[i % n], 3) + x[i] // T.max(x[0], 1) + x[i] // -1


def test_extents_of_arguments_are_checked_before() -> None:
    """The tail of a vectorized row of such an extent; guarded there, it did not build."""
    n, m = (tirx.Var(name, "int64") for name in "nm")
    x, y = tensor(3, n), tensor(m)

    def emit(builder, x, _y):
        rows = builder.emit(op.reshape(x, (m, n * 3 // m)))
        return op.add(rows, relax.const(1.0, "float32"))

    vm = built(build({"x": x, "y": y}, emit))
    for columns, rows in ((8, 4), (7, 3), (1, 1), (4, 12)):
        data = np.arange(3.0 * columns, dtype="float32").reshape(3, columns)
        got = call(vm, "main", data, np.zeros(rows, "float32"))
        np.testing.assert_array_equal(got, data.reshape(rows, -1) + 1)
    with pytest.raises(RuntimeError, match=MESSAGE):
        call(vm, "main", np.zeros((3, 4), "float32"), np.zeros(0, "float32"))


@I.ir_module
class Guarded:
    """A divisor that is read under a condition."""

    @T.prim_func
    def main(x: T.Buffer((64,), "int32"), y: T.Buffer((64,), "int32")):
        for i in T.serial(64):
            y[i] = T.if_then_else(x[i] > 0, T.truncdiv(64, x[i]), 0)


def lower(mod: tvm.IRModule) -> tvm.IRModule:
    with tvm.target.Target("llvm"):
        return GuardIntegerDivision()(mod)


def test_divisions_that_cannot_trap_are_left() -> None:
    assert lower(Harmless).same_as(Harmless)


def test_unevaluated_divisions_are_not_checked() -> None:
    kernel = tvm.compile(lower(Guarded), "llvm")
    x = np.arange(-2, 62, dtype="int32")
    y = tvm.runtime.tensor(np.zeros(64, "int32"))
    kernel["main"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), [64 // v if v > 0 else 0 for v in x.tolist()])


def test_the_switch_leaves_divisions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lower(Guarded).same_as(Guarded)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert lower(Guarded).same_as(Guarded)


if __name__ == "__main__":
    tvm.testing.main()
