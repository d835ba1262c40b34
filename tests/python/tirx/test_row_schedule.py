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
"""Row schedules."""

import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, LegalizeOps
from tvm.script import tirx as T

from helpers.relax_modules import build, cpu, tensor
from tvm_fixes.tirx.row_schedule import schedule_rows


def kernel(emit, *shapes: tuple) -> tirx.PrimFunc:
    """The only kernel of `emit` on tensors of these shapes."""
    inputs = {f"x{index}": tensor(*shape) for index, shape in enumerate(shapes)}
    mod = build(inputs, lambda builder, *values: builder.normalize(emit(*values)))
    steps = (LegalizeOps(), AnnotateTIROpPattern(), FuseOps(), FuseTIR())
    mod = tvm.transform.Sequential(steps)(mod)
    (function,) = (f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))
    return function


def test_all_steps_of_a_row_come_before_the_next_row():
    """The exponentials are stored in the result's buffer."""

    @T.prim_func(private=True, s_tir=True)
    def before(
        x: T.Buffer((T.int64(3), T.int64(5)), "float32"),
        out: T.Buffer((T.int64(3), T.int64(5)), "float32"),
    ):
        e = T.sblock_alloc_buffer((T.int64(3), T.int64(5)))
        total = T.sblock_alloc_buffer((T.int64(3),))
        for i, j in T.grid(T.int64(3), T.int64(5)):
            with T.sblock("e"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                e[v_i, v_j] = T.exp(x[v_i, v_j])
        for i, k in T.grid(T.int64(3), T.int64(5)):
            with T.sblock("total"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    total[v_i] = T.float32(0.0)
                total[v_i] = total[v_i] + e[v_i, v_k]
        for i, j in T.grid(T.int64(3), T.int64(5)):
            with T.sblock("out"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                out[v_i, v_j] = e[v_i, v_j] / total[v_i]

    @T.prim_func(private=True, s_tir=True)
    def expected(
        x: T.Buffer((T.int64(3), T.int64(5)), "float32"),
        out: T.Buffer((T.int64(3), T.int64(5)), "float32"),
    ):
        total = T.sblock_alloc_buffer((T.int64(3),))
        for i in range(T.int64(3)):
            for ax0, ax1 in T.grid(T.int64(1), T.int64(5)):
                with T.sblock("e"):
                    v_i = T.axis.spatial(T.int64(3), i + ax0)
                    v_j = T.axis.spatial(T.int64(5), ax1)
                    out[v_i, v_j] = T.exp(x[v_i, v_j])
            for ax0, ax1 in T.grid(T.int64(1), T.int64(5)):
                with T.sblock("total"):
                    v_i = T.axis.spatial(T.int64(3), i + ax0)
                    v_k = T.axis.reduce(T.int64(5), ax1)
                    with T.init():
                        total[v_i] = T.float32(0.0)
                    total[v_i] = total[v_i] + out[v_i, v_k]
            for j in range(T.int64(5)):
                with T.sblock("out"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    out[v_i, v_j] = out[v_i, v_j] / total[v_i]

    got = schedule_rows(before)
    assert tvm.s_tir.analysis.verify_well_formed(got)
    tvm.ir.assert_structural_equal(got.without_attr("global_symbol"), expected)


def outermost(function: tirx.PrimFunc) -> tirx.For:
    return function.body.block.body


def test_groups_of_channels_are_rows():
    """Group norm with both orders of the axes."""
    norm = relax.op.nn.group_norm
    for shape, axis, averaged in (((2, 32, 64, 64), 1, [2, 3]), ((2, 64, 64, 32), 3, [1, 2])):
        function = kernel(
            lambda x, gamma, axis=axis, averaged=averaged: norm(x, gamma, gamma, 4, axis, averaged),
            shape,
            (32,),
        )
        loop = outermost(schedule_rows(function))
        assert (loop.kind, loop.extent) == (tirx.ForKind.PARALLEL, 2 * 4)


def test_few_elements_are_no_work_for_threads():
    for rows, kind in ((2, tirx.ForKind.SERIAL), (4096, tirx.ForKind.PARALLEL)):
        function = kernel(lambda x: relax.op.nn.softmax(x, 1), (rows, 64))
        assert outermost(schedule_rows(function)).kind == kind


def test_an_inner_axis_is_scheduled_by_columns():
    function = kernel(lambda x: relax.op.nn.softmax(x, 1), (3, 5, 7))
    # The loop over columns is not the outermost one.
    assert outermost(schedule_rows(function)).extent == 3
    assert len(schedule_rows(kernel(lambda x: relax.op.mean(x, 0), (3, 7))).body.block.body) == 2


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("follow", [lambda x: x, relax.op.exp], ids=["alone", "exp"])
def test_elements_that_windows_share_are_computed_once(batch, follow):
    """All windows along a row are computed together: the maxima of columns serve several."""

    def pooled(x):
        return follow(relax.op.nn.max_pool2d(x, (3, 3), layout="NHWC"))

    with cpu():
        function = kernel(pooled, (batch, 66, 66, 64))
    assert outermost(schedule_rows(function)).extent == batch * 64


@pytest.mark.parametrize("reduce", [relax.op.mean, relax.op.variance])
def test_a_scalar_computed_from_a_reduction_of_all_elements(reduce):
    assert schedule_rows(kernel(reduce, (40, 50))) is not None


def test_other_kernels_are_left():
    nn = relax.op.nn
    for function in (
        kernel(lambda x: relax.op.exp(x), (3, 5)),
        kernel(lambda x: nn.avg_pool2d(x, (2, 2), (2, 2)), (1, 3, 8, 8)),
        kernel(lambda x, y: relax.op.matmul(x, y), (3, 5), (5, 7)),
        kernel(lambda x, w: nn.conv2d(x, w), (1, 3, 8, 8), (4, 3, 3, 3)),
    ):
        assert schedule_rows(function) is None


if __name__ == "__main__":
    tvm.testing.main()
