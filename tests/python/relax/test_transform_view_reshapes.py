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
"""ViewReshapes."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.relax_modules import build, calls, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.analysis import bindings
from tvm_fixes.relax.transform import ViewReshapes
from tvm_fixes.relax.transform.view_reshapes import FIX_ID
from tvm_fixes.support import switches

op = relax.op


def legalized(inputs, emit):
    return relax.transform.LegalizeOps()(build(inputs, emit))


def reshapes(mod):
    """The shapes of the views that a module makes."""
    return [list(map(int, call.ty.shape.values)) for call in calls(mod, "relax.reshape")]


def kernels(mod):
    values = [binding.value for binding in bindings(mod["main"])]
    named = [value.args[0] for value in values if isinstance(value, relax.Call) and value.args]
    return [str(kernel.name_hint) for kernel in named if isinstance(kernel, tvm.ir.GlobalVar)]


@pytest.mark.parametrize(
    "reshape, shape",
    [
        (lambda x: op.reshape(x, (6, 4)), [6, 4]),
        (lambda x: op.expand_dims(x, [1]), [2, 1, 3, 4]),
        (lambda x: op.flatten(x), [24]),
    ],
)
def test_kernels_read_views(reshape, shape, monkeypatch):
    mod = legalized(
        {"x": tensor(2, 3, 4)}, lambda builder, x: op.exp(builder.emit(reshape(op.negative(x))))
    )
    after = ViewReshapes()(mod)
    assert reshapes(after) == [shape]
    assert len(kernels(after)) == len(kernels(mod)) - 1
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert ViewReshapes()(mod).same_as(mod)


def test_results_are_copies():
    """A result that shares memory with an input would change with it."""

    def emit(builder, x):
        rows = builder.emit(op.reshape(x, (6, 4)))
        pair = builder.emit(relax.Tuple([builder.emit(op.exp(rows)), rows]))
        return pair

    mod = legalized({"x": tensor(2, 3, 4)}, emit)
    assert not reshapes(ViewReshapes()(mod))
    single = legalized({"x": tensor(2, 3, 4)}, lambda _, x: op.reshape(x, (6, 4)))
    assert ViewReshapes()(single).same_as(single)


def test_a_copy_that_is_reshaped_for_a_result_is_kept():
    """The copy keeps the result from sharing memory with the input."""

    def emit(builder, x):
        copied = builder.emit_te(
            lambda a: tvm.te.compute(a.shape, lambda *i: a(*i), name="copy"), x
        )
        return op.reshape(copied, (6, 4))

    mod = build({"x": tensor(2, 3, 4)}, emit)
    assert ViewReshapes()(mod).same_as(mod)


def test_other_kernels_are_kept():
    moves = (
        lambda x: op.permute_dims(x, [0, 2, 1]),
        lambda x: op.strided_slice(x, [0], [0], [1]),
        lambda x: op.astype(x, "float16"),
        lambda x: op.reshape(x, (0, 4)),
    )
    for move in moves:
        extent = 0 if move is moves[-1] else 2
        mod = legalized({"x": tensor(extent, 3, 4)}, lambda b, x, m=move: op.exp(b.emit(m(x))))
        assert ViewReshapes()(mod).same_as(mod)


def test_updated_inputs_are_not_viewed():
    """The view would show the new elements to a kernel that reads the old ones."""
    increment = tvm.te.create_prim_func(
        [(a := tvm.te.placeholder((24,), name="a")), tvm.te.compute((24,), lambda i: a[i] + 1)]
    )
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor(24))
    variable = builder.add_func(increment, "increment")
    with builder.function("main", [x]):
        with builder.dataflow():
            rows = builder.emit(op.reshape(x, (6, 4)))
            new = builder.emit(op.call_tir_inplace(variable, (x,), [0], [x.ty]))
            out = builder.emit_output(relax.Tuple([builder.emit(op.exp(rows)), new]))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    assert ViewReshapes()(mod).same_as(mod)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_numbers(size):
    n = tirx.Var("n", "int64")

    def emit(builder, x):
        rows = builder.emit(op.reshape(op.expand_dims(x, [0]), (n * 3, 4)))
        return op.add(builder.emit(op.nn.softmax(rows)), rows)

    mod = build({"x": tensor(n, 3, 4)}, emit)
    with tvm.target.Target("llvm"):
        assert len(calls(ViewReshapes()(relax.transform.LegalizeOps()(mod)), "relax.reshape")) >= 1
    x = np.random.default_rng(0).standard_normal((size, 3, 4)).astype("float32")
    got = run(mod, x, pipeline=pipeline())
    rows = x.reshape(-1, 4)
    powers = np.exp(rows)
    expected = powers / powers.sum(1, keepdims=True) + rows
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
