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

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.relax_modules import build, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.support import switches
from tvm_fixes.tirx.transform import DecomposeReduction
from tvm_fixes.tirx.transform.decompose_reduction import FIX_ID


@I.ir_module(s_tir=True)
class Before:
    @T.prim_func(private=True, s_tir=True)
    def total(data: T.handle, out: T.Buffer((T.int64(2),), "float32")):
        n = T.int64()
        x = T.match_buffer(data, (T.int64(2), n), "float32")
        for i, k in T.grid(T.int64(2), n):
            with T.sblock("total"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    out[v_i] = T.float32(1.0)
                out[v_i] = out[v_i] * x[v_i, v_k]


@I.ir_module(s_tir=True)
class Expected:
    @T.prim_func(private=True, s_tir=True)
    def total(data: T.handle, out: T.Buffer((T.int64(2),), "float32")):
        n = T.int64()
        x = T.match_buffer(data, (T.int64(2), n), "float32")
        for i in range(T.int64(2)):
            with T.sblock("total_init"):
                v_i = T.axis.spatial(T.int64(2), i)
                out[v_i] = T.float32(1.0)
            for k in range(n):
                with T.sblock("total_update"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    out[v_i] = out[v_i] * x[v_i, v_k]


def reduced(emit, *shapes):
    inputs = {f"x{index}": tensor(*shape) for index, shape in enumerate(shapes)}
    return build(inputs, lambda _, *arrays: emit(*arrays))


def var(name):
    return tvm.tirx.Var(name, "int64")


def zeros(*shape):
    return np.zeros(shape, "float32")


def test_the_initial_value_is_set_outside():
    tvm.ir.assert_structural_equal(DecomposeReduction()(Before), Expected)


def test_nonempty_reductions_are_kept():
    n = var("n")
    for shape in ((n, 3), (2, 3)):
        mod = relax.transform.LegalizeOps()(reduced(lambda x: relax.op.sum(x, 1), shape))
        tvm.ir.assert_structural_equal(DecomposeReduction()(mod), mod)


@pytest.mark.parametrize("is_known", [False, True])
def test_no_elements(is_known):
    """Two empty reductions in one kernel, and one over two axes."""
    n, m = (0, 0) if is_known else (var("n"), var("m"))
    op = relax.op
    cases = [
        (lambda x: op.prod(x, 1), [(2, n)], np.ones(2)),
        (lambda x: op.prod(x), [(n, m)], np.ones(())),
        (lambda x: op.min(x, 0, keepdims=True), [(n, 2)], np.full((1, 2), np.inf)),
        (lambda x: op.max(op.exp(x), 1), [(2, n)], np.full(2, -np.inf)),
        (lambda x, y: op.add(op.matmul(x, y), op.prod(x)), [(2, n), (n, 3)], np.ones((2, 3))),
        (lambda x, y: op.matmul(x, y), [(4, 2, n), (4, n, 3)], np.zeros((4, 2, 3))),
    ]
    for emit, shapes, expected in cases:
        arrays = [
            zeros(*(extent if extent in (1, 2, 3, 4) else 0 for extent in shape))
            for shape in shapes
        ]
        got = run(reduced(emit, *shapes), *arrays, pipeline=pipeline())
        np.testing.assert_array_equal(got, expected.astype("float32"))


def test_extents_that_are_symbols_and_some_elements():
    n, m = var("n"), var("m")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, shape).astype("float32") for shape in ((5, 7), (7, 3)))
    mod = reduced(lambda x, y: relax.op.sum(relax.op.matmul(x, y), 0), (n, m), (m, 3))
    np.testing.assert_array_equal(run(mod, x, y, pipeline=pipeline()), (x @ y).sum(0))


def test_extents_that_a_schedule_cannot_bound():
    """The extent of a window that may end beyond the data is an if_then_else."""
    k = var("k")
    mod = build(
        {"x": tensor(1, 3, k, k)},
        lambda _, x: relax.op.nn.avg_pool2d(
            x, (3, 1), strides=(1, 2), padding=(2, 0, 0, 0), ceil_mode=True, count_include_pad=True
        ),
    )
    assert run(mod, np.ones((1, 3, 5, 5), "float32"), pipeline=pipeline()).shape == (1, 3, 5, 3)


def test_extents_of_rounded_floats():
    """As those of a Resize by a scale that is not an integer."""
    k, n = var("k"), var("n")
    columns = (n.astype("float32") * tirx.const(0.3, "float32")).astype("int64")
    x = np.random.default_rng(1).random((2, 2, 20), "float32")

    def emit(bb, data):
        total = bb.emit(relax.op.sum(data, 2, keepdims=True))
        ones = bb.emit(relax.op.ones((k, k, columns), "float32"))
        return relax.op.nn.softmax(bb.emit(relax.op.multiply(ones, total)), 1)

    got = run(build({"x": tensor(k, k, n)}, emit), x, pipeline=pipeline())
    exponential = np.exp(x.sum(2, keepdims=True))
    expected = exponential / exponential.sum(1, keepdims=True)
    np.testing.assert_allclose(got, np.broadcast_to(expected, (2, 2, 6)), rtol=1e-5)


def test_intermediate_extents_of_rounded_floats():
    n = var("n")
    count = (n.astype("float32") * tirx.const(0.3, "float32")).astype("int64")

    def emit(bb, data):
        twos = bb.emit(relax.op.full((count,), relax.const(2.0), "float32"))
        return relax.op.sum(bb.emit(relax.op.multiply(twos, bb.emit(relax.op.sum(data)))))

    mod = build({"x": tensor(n)}, emit)
    for extent in (0, 3, 10):
        got = run(mod, np.ones(extent, "float32"), pipeline=pipeline())
        assert got == 2 * extent * (extent * 3 // 10)


def test_softmax_of_no_columns():
    n = var("n")
    mod = reduced(lambda x: relax.op.nn.softmax(x, 1), (2, n))
    assert run(mod, zeros(2, 0), pipeline=pipeline()).shape == (2, 0)


def test_switch_leaves_the_module(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert DecomposeReduction()(Before).same_as(Before)


if __name__ == "__main__":
    tvm.testing.main()
