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
"""Convolutions with small groups, vectorized along the columns."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx

from helpers.conv_cases import AXES, Case
from helpers.conv_checks import (
    CPU,
    allocations,
    assert_close,
    assert_computes,
    assert_reference_equals_pytorch,
    legalized,
    live_allocations,
    loops,
    module,
    operators,
    prim_func,
)
from helpers.grids import batched, few, is_full, sample
from helpers.relax_modules import build, call, cpu, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.attributes import LAST_COLUMNS

# 4 lanes of SSE2, 8 of AVX, 16 of AVX-512.
WIDTHS = (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 50, 80, 112)


def depthwise(width: int, **changes: object) -> Case:
    """A depthwise call with `width` columns."""
    case = Case(
        kernel_layout="OIHW",
        stride=(1, 1),
        kernel=(3, 3),
        padding=(1, 1, 1, 1),
        groups=4,
        channels=4,
        group_out=1,
        extent=(5, width),
        transposed=False,
    )
    return replace(case, **changes)


GEOMETRIES = [
    {},
    {"kernel": (7, 7), "padding": (3, 3, 3, 3)},
    {"kernel": (5, 1), "padding": (2, 0, 2, 0), "stride": (2, 1)},
    {"kernel": (1, 4), "padding": (0, 3, 0, 1)},
    {"dilation": (2, 3), "padding": (2, 3, 2, 3)},
    {"stride": (3, 1), "padding": (0, 1, 2, 1), "extent": (11, 9)},
    {"stride": (2, 2), "extent": (9, 9)},
    {"stride": (1, 2), "kernel": (2, 5), "dilation": (1, 3), "padding": (0, 6, 1, 7)},
    {"stride": (2, 2), "groups": 2, "channels": 6, "group_out": 3, "kernel": (1, 1)},
    {"groups": 2, "channels": 6, "group_out": 2},
    {"groups": 2, "channels": 20, "group_out": 7},
    {"groups": 3, "channels": 3, "group_out": 4},
]


def has_vectors_of_columns(case: Case) -> bool:
    """Whether the columns, the last axis of channels-first data, are vectorized."""
    func = prim_func(legalized(module(case), CPU))
    vectors = [loop for loop in loops(func) if loop.kind == tirx.ForKind.VECTORIZED]
    _, padded = live_allocations(func)
    return bool(vectors) and int(padded.shape[1]) == case.channels // case.groups


@few(4)
@pytest.mark.parametrize("changes", GEOMETRIES, ids=str)
def test_widths_around_those_of_vectors(changes: dict) -> None:
    widths = WIDTHS
    if changes:
        some = sample(WIDTHS[:-1], 1, seed=GEOMETRIES.index(changes))
        widths = (*some, WIDTHS[-1])
    changes = dict(changes)
    height = changes.pop("extent", (5, 0))[0]
    cases = [depthwise(width, extent=(height, width), **changes) for width in widths]
    assert has_vectors_of_columns(cases[-1])
    assert_computes(cases)


def channels_last(**changes: object) -> Case:
    """A call with channels last, 9 columns and as many groups of channels as stated."""
    return depthwise(9, data_layout="NHWC", out_layout="NHWC", **changes)


@few(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"group_out": 2},
        {"channels": 12, "group_out": 3, "stride": (2, 2)},
        {"channels": 16, "group_out": 7, "dilation": (1, 2), "dtype": "float64"},
    ],
    ids=str,
)
def test_small_groups_with_channels_last_are_transposed(changes: dict) -> None:
    """TVM would take twenty times as long."""
    case = channels_last(**changes)
    callees = operators(legalized(module(case), CPU))
    assert callees == ["transpose", "conv2d", "transpose1"]
    assert_computes([case, replace(case, dynamic=True)])


def test_depthwise_with_channels_last_is_not_transposed() -> None:
    """A vector of channels is full."""
    cases = [
        channels_last(groups=groups, channels=groups, **changes)
        for groups in ((16, 24, 40) if is_full() else (16, 40))
        for changes in ({}, {"stride": (2, 2), "kernel": (5, 5), "padding": (2, 2, 2, 2)})
    ]
    for case in cases:
        lowered = legalized(module(case), CPU)
        assert operators(lowered)[-1] == "conv2d"
        scheduled = loops(prim_func(lowered))
        assert any(loop.kind == tirx.ForKind.VECTORIZED for loop in scheduled)
    assert_computes([*cases, replace(cases[0], dynamic=True)])


def test_whole_tiles_of_unknown_columns_are_stored_apart() -> None:
    """Only the last tile has conditions, so that an activation of the others is vectorized."""
    case = depthwise(9, dynamic=True)
    annotated = [
        loop for loop in loops(prim_func(legalized(module(case), CPU))) if loop.annotations
    ]
    assert [list(loop.annotations) for loop in annotated] == [[LAST_COLUMNS]]

    kernel = np.random.default_rng(0).normal(size=(4, 1, 3, 3)).astype("float32")
    h, w = (tirx.Var(name, "int64") for name in "hw")

    def emit(builder, x):
        weight = relax.const(kernel)
        sums = builder.emit(relax.op.nn.conv2d(x, weight, padding=[1, 1], groups=4))
        return builder.emit(relax.op.nn.relu(sums))

    mod = build({"x": tensor(1, 4, h, w)}, emit)
    executable = relax.build(mod, cpu(), relax_pipeline=pipeline())
    machine = relax.VirtualMachine(executable, tvm.cpu())
    for extent in itertools.product((1, 2, 9), (1, 15, 16, 17, 40)):
        x = np.random.default_rng(extent).normal(size=(1, 4, *extent)).astype("float32")
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        expected = np.maximum(np.einsum("nchwij,cij->nchw", windows, kernel[:, 0]), 0)
        np.testing.assert_allclose(call(machine, "main", x), expected, rtol=1e-5, atol=1e-5)


@few(4)
@pytest.mark.parametrize("mcpu", ["x86-64", "haswell", "skylake-avx512"])
@pytest.mark.parametrize("extent", [(14, 14), (1, 56), (57, 200)], ids=str)
def test_sums_stay_in_registers(mcpu: str, extent: tuple[int, int]) -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu})
    func = prim_func(legalized(module(depthwise(0, extent=extent)), target))
    sums, _ = live_allocations(func)
    size = np.prod([int(e) for e in sums.shape]) * 4
    registers = {"x86-64": 16 * 16, "haswell": 16 * 32, "skylake-avx512": 32 * 64}[mcpu]
    assert size < min(registers, 1024)


@pytest.mark.parametrize("mcpu", ["x86-64", "haswell", "skylake-avx512"])
@pytest.mark.parametrize("width", [40, 80, 96, 112, 150, None])
def test_lanes_are_powers_of_two(mcpu: str, width: int | None) -> None:
    """LLVM scalarizes other lanes, such as 112 columns."""
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu})
    case = depthwise(width or 40, dynamic=width is None)
    func = prim_func(legalized(module(case), target))
    lanes = [int(loop.extent) for loop in loops(func) if loop.kind == tirx.ForKind.VECTORIZED]
    assert lanes
    assert all(count.bit_count() == 1 for count in lanes)


DTYPES = list(itertools.product(["float16", "bfloat16", "float32", "float64"], [False, True], AXES))


@few(2)
@pytest.mark.parametrize("dtype, dynamic, rank", DTYPES if is_full() else DTYPES[::5])
def test_ranks_and_dtypes(rank: int, dynamic: bool, dtype: str) -> None:
    cases = [
        depthwise(
            width,
            data_layout=f"NC{AXES[rank]}",
            kernel_layout=f"OI{AXES[rank]}",
            out_layout=f"NC{AXES[rank]}",
            stride=(2, 1, 2)[3 - rank :],
            dilation=(1,) * rank,
            output_padding=(0,) * rank,
            kernel=(2, 3, 5)[3 - rank :],
            padding=((0, 1, 2)[3 - rank :]) * 2,
            extent=(3, 6, width)[3 - rank :],
            dynamic=dynamic,
            dtype=dtype,
        )
        for width in ((1, 8, 13, 40) if is_full() else (1, 13, 40))
    ]
    assert_computes(cases)


@batched(5 if is_full() else 15)
@given(data=st.data())
def test_random(data: st.DataObject) -> None:
    def draw_case() -> Case:
        number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
        groups, group_in = number(2, 5), number(1, 3)
        extent, kernel = (number(1, 20), number(1, 40)), (number(1, 5), number(1, 7))
        dilation = (number(1, 2), number(1, 3))
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        before = number(0, reach[0]), number(0, reach[1])
        after = [
            max(r - e - b, 0) + number(0, 2) for r, e, b in zip(reach, extent, before, strict=True)
        ]
        return depthwise(
            0,
            groups=groups,
            channels=groups * group_in,
            group_out=number(1, 4),
            extent=extent,
            kernel=kernel,
            dilation=dilation,
            stride=(number(1, 3), number(1, 3)),
            padding=(*before, *after),
            dynamic=number(0, 3) == 0,
            dtype=data.draw(st.sampled_from(["float32", "float64", "bfloat16"])),
        )

    cases = [draw_case() for _ in range(5)]
    assert_reference_equals_pytorch(cases)
    assert_computes(cases)


def test_transposed() -> None:
    """With a stride of 1 it is a convolution like any other."""
    cases = [
        depthwise(width, transposed=True, kernel_layout="IOHW", kernel=kernel, padding=(1, 1, 0, 1))
        for width, kernel in itertools.product((4, 9, 20), [(3, 3), (2, 5)])
    ]
    assert has_vectors_of_columns(cases[-1])
    assert_computes(cases)


def test_infinity_and_nan_stay_where_they_are() -> None:
    case = depthwise(20)
    data, kernel = case.arrays()
    data[0, 1, 2, 7], data[1, 3, 0, 19] = np.nan, np.inf
    got, expected = run(module(case), data, kernel), case.reference(data, kernel)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))


def test_constant_kernel() -> None:
    case = depthwise(20)
    data, kernel = case.arrays()
    assert_close(case, run(module(case, constant_kernel=kernel), data), data, kernel)


def test_a_copy_of_padding_is_not_made() -> None:
    """A dilated kernel reads mostly padding."""
    case = depthwise(8, dilation=(300, 200), padding=(300, 200, 300, 200))
    assert allocations(prim_func(legalized(module(case), CPU))) == []
    assert_computes([case])


def test_columns_of_large_strides_are_left_to_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = module(depthwise(20, stride=(1, 3)))
    ours = legalized(mod, CPU)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "conv-legalize")
    tvm.ir.assert_structural_equal(ours, legalized(mod, CPU))


if __name__ == "__main__":
    tvm.testing.main()
