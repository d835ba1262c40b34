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
"""Lowering of ``relax.nn.conv*d`` where TVM's is missing or wrong."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax.transform import LegalizeOps
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from helpers.conv_cases import (
    EDGES,
    Case,
    geometry_grid,
    layout_grid,
    random_cases,
    unknown_columns,
)
from helpers.conv_checks import (
    CPU,
    allocations,
    assert_close,
    assert_computes,
    assert_grid,
    assert_layouts,
    assert_reference_equals_pytorch,
    assert_types_are_kept,
    batches,
    legalized,
    live_allocations,
    loops,
    module,
    operators,
    prim_func,
)
from helpers.coverage_tables import CoverageTables
from helpers.emulated_cpu import emulated_cpu
from helpers.grids import batched, few, is_full, sample
from helpers.relax_modules import UNOPTIMIZED_CPU, build, count, run, tensor
from tvm_fixes import pipeline

RANKS = (1, 2, 3)
GRID = [case for rank in RANKS for case in sample(geometry_grid(rank, transposed=False), 3)]
PACKED = Case(
    "NCHW4c",
    "OIHW4i4o",
    "NCHW8c",
    padding=(1, 1, 1, 1),
    channels=8,
    group_out=16,
    transposed=False,
)
# Changes for edge cases that are invalid for forward convolutions: a window larger than the data,
# kernel blocks larger than a group.
_CHANGES = {
    "spatial-1": {"kernel": (1, 1)},
    "stride-and-dilation-4": {"extent": (13, 9)},
    "kernel-beyond-data": {"extent": (4, 9)},
    "packed-depthwise": {"kernel_layout": "IOHW4o"},
    "packed-depthwise-plain-out": {"kernel_layout": "IOHW8o"},
    "blocks-across-groups": {"kernel_layout": "2iIOHW4o"},
}
FORWARD_EDGES = [
    replace(
        case,
        transposed=False,
        output_padding=(0,) * len(case.stride),
        **_CHANGES.get(name, {}),
    )
    for name, case in EDGES.items()
] + [
    replace(PACKED, stride=(3, 4), kernel=(1, 2)),
    replace(PACKED, extent=(3, 3), kernel=(3, 3), padding=(0, 0, 0, 0)),
    replace(PACKED, dilation=(2, 3), padding=(5, 0, 0, 7)),
    replace(PACKED, padding=(4, 4, 4, 4)),  # outputs that read only padding
    replace(PACKED, dtype="float16", out_dtype="float32"),
    replace(PACKED, dtype="bfloat16", dynamic=True),
    replace(PACKED, out_dtype="float16"),
]


@few(1)
@pytest.mark.parametrize(
    "cases",
    [b for rank in RANKS for b in batches(sample(layout_grid(rank, transposed=False), 5))],
)
def test_layouts(cases: list[Case], coverage_table: CoverageTables) -> None:
    assert_layouts(cases, coverage_table, "conv_layouts")


@pytest.mark.parametrize("cases", batches(GRID))
def test_grid(cases: list[Case], coverage_table: CoverageTables) -> None:
    assert_grid(cases, coverage_table, "conv")


@pytest.mark.parametrize("cases", batches(sample(GRID, 3)))
def test_grid_without_target(cases: list[Case]) -> None:
    assert_computes(
        [case for case in cases if case.data_layout != case.out_layout or "c" in case.data_layout],
        scheduled=False,
        target=UNOPTIMIZED_CPU,
    )


def test_edges() -> None:
    assert_computes(FORWARD_EDGES)


def test_reference_equals_pytorch() -> None:
    grids = [geometry_grid(rank, transposed=False) for rank in RANKS]
    assert_reference_equals_pytorch([case for grid in grids for case in sample(grid, 8, seed=2)])
    assert_reference_equals_pytorch([case for case in FORWARD_EDGES if case.batch])


@batched(5 if is_full() else 15)
@given(cases=st.lists(random_cases(transposed=False), min_size=5, max_size=5))
def test_random(cases: list[Case]) -> None:
    assert_reference_equals_pytorch(cases)
    assert_computes(cases)
    assert_types_are_kept(cases)


def test_lowered_form() -> None:
    """A pointwise convolution of blocks: no guard, no copy, one multiplication each."""

    @I.ir_module(s_tir=True)
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3, 5, 6, 4), "float32"), w: R.Tensor((1, 1, 12, 8), "float32")
        ) -> R.Tensor((2, 2, 5, 6, 4), "float32"):
            with R.dataflow():
                gv = R.nn.conv2d(
                    x, w, data_layout="NCHW4c", kernel_layout="HWIO", out_layout="NCHW4c"
                )
                R.output(gv)
            return gv

    @I.ir_module(s_tir=True)
    class Expected:
        @T.prim_func(private=True, s_tir=True)
        def conv2d(
            x: T.Buffer((T.int64(2), T.int64(3), T.int64(5), T.int64(6), T.int64(4)), "float32"),
            w: T.Buffer((T.int64(1), T.int64(1), T.int64(12), T.int64(8)), "float32"),
            out: T.Buffer((T.int64(2), T.int64(2), T.int64(5), T.int64(6), T.int64(4)), "float32"),
        ):
            T.func_attr({"tirx.noalias": True})
            for i0, i1, i2, i3, i4, th, tw, i in T.grid(
                T.int64(2),
                T.int64(2),
                T.int64(5),
                T.int64(6),
                T.int64(4),
                T.int64(1),
                T.int64(1),
                T.int64(12),
            ):
                with T.sblock("convolution"):
                    n, co, y, x_, ci, _th, _tw, c = T.axis.remap(
                        "SSSSSRRR", [i0, i1, i2, i3, i4, th, tw, i]
                    )
                    with T.init():
                        out[n, co, y, x_, ci] = T.float32(0)
                    out[n, co, y, x_, ci] = out[n, co, y, x_, ci] + (
                        x[n, T.Div(c, T.int64(4)), y, x_, T.truncmod(c, T.int64(4))]
                        * w[T.int64(0), T.int64(0), c, co * T.int64(4) + ci]
                    )

        @R.function
        def main(
            x: R.Tensor((2, 3, 5, 6, 4), "float32"), w: R.Tensor((1, 1, 12, 8), "float32")
        ) -> R.Tensor((2, 2, 5, 6, 4), "float32"):
            cls = Expected
            with R.dataflow():
                gv = R.call_tir(cls.conv2d, (x, w), out_ty=R.Tensor((2, 2, 5, 6, 4), "float32"))
                R.output(gv)
            return gv

    tvm.ir.assert_structural_equal(LegalizeOps()(Before), Expected)


def test_copy_of_the_data() -> None:
    """Only the CPU schedule copies padded data, channels-last, and keeps the sums of one tile."""
    case = replace(PACKED, out_layout="NCHW4c")
    assert allocations(prim_func(legalized(module(case), None))) == []
    sums, padded = live_allocations(prim_func(legalized(module(case), CPU)))
    assert int(padded.shape[-1]) == case.channels
    assert np.prod([int(extent) for extent in sums.shape]) <= 8 * 16


@pytest.mark.parametrize("dynamic", [False, True])
def test_no_copy_where_an_element_is_read_once(dynamic: bool) -> None:
    case = replace(PACKED, out_layout="NCHW4c", kernel=(1, 1), padding=(0, 0, 0, 0))
    case = replace(case, dynamic=dynamic)
    (sums,) = live_allocations(prim_func(legalized(module(case), CPU)))
    assert np.prod([int(extent) for extent in sums.shape]) <= 8 * 16


UNFILLED = list(itertools.product(["NCHW", "NHWC"], [3, 10, 21], [True, False]))


@few(1)
@pytest.mark.parametrize("layout, group_out, constant", UNFILLED if is_full() else UNFILLED[::5])
def test_channels_that_fill_no_vector(layout: str, group_out: int, constant: bool) -> None:
    """The kernel is padded with zero channels; the output is not."""
    case = Case(
        layout,
        "OIHW",
        layout,
        channels=12,
        group_out=group_out,
        kernel=(3, 3),
        padding=(1, 1, 1, 1),
        transposed=False,
    )
    data, kernel = case.arrays()
    mod = legalized(module(case, constant_kernel=kernel if constant else None), CPU)
    kinds = [tirx.ForKind(loop.kind) for loop in loops(prim_func(mod))]
    assert tirx.ForKind.VECTORIZED in kinds
    assert_close(case, run(mod, *([data] if constant else [data, kernel])), data, kernel)


@few(1)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_constant_kernel_is_transformed_at_compile_time(dtype: str) -> None:
    case = replace(PACKED, dtype=dtype)
    data, kernel = case.arrays()
    mod = legalized(module(case, constant_kernel=kernel), CPU)
    assert operators(mod) == ["conv2d"]
    assert_close(case, run(mod, data), data, kernel)


@few(2)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_sums_of_16_bit_do_not_stop_growing(dtype: str, layout: str) -> None:
    """With 11 bits of significand 2048 + 1 is 2048, with 8 bits 256 + 1 is 256."""
    case = Case(
        layout,
        "OIHW",
        layout,
        stride=(1, 1),
        channels=4096,
        group_out=1,
        kernel=(1, 1),
        dtype=dtype,
        transposed=False,
    )
    got = run(module(case), *map(np.ones_like, case.arrays()))
    assert (got.astype("float32") == 4096).all()


@few(2)
@pytest.mark.parametrize(
    ("data", "kernel", "out"),
    [
        ("NCWH", "OIHW", "NCWH"),
        ("NCHW", "OIWH", "NCHW"),
        ("NWHC", "WHIO", "NWHC"),
        ("NCHW", "OIHW", "NHWC"),
    ],
)
def test_plain_layouts_that_tvm_leaves_or_gets_wrong(data: str, kernel: str, out: str) -> None:
    case = Case(
        data, kernel, out, stride=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2), transposed=False
    )
    assert_computes([case])
    assert_computes([case], scheduled=False)


MANY_OUTPUTS = list(
    itertools.product(
        [
            {"group_out": 16},
            {"group_out": 13, "stride": (2, 1), "padding": (1, 0, 2, 1)},
            {"channels": 8, "groups": 2, "group_out": 8, "dilation": (1, 2)},
            {"group_out": 32, "extent": (1, 1), "kernel": (1, 1)},
            {"group_out": 24, "dynamic": True},
        ],
        ["float32", "float64"],
    )
)


@few(2)
@pytest.mark.parametrize(
    ("changes", "dtype"), MANY_OUTPUTS if is_full() else MANY_OUTPUTS[::3], ids=str
)
def test_many_output_channels_are_vectorized(changes: dict, dtype: str) -> None:
    case = Case(kernel_layout="OIHW", transposed=False, dtype=dtype, **changes)
    assert_computes([case])
    scheduled = loops(prim_func(legalized(module(case), CPU)))
    assert any(loop.kind == tirx.ForKind.VECTORIZED for loop in scheduled)


SHARED = [
    Case("NCHW", "OIHW", "NCHW", group_out=64, extent=(6, 15), kernel=(3, 3)),
    Case("NHWC", "HWIO", "NHWC", group_out=48, extent=(5, 31), kernel=(1, 2)),
    Case("NCHW", "OIHW", "NCHW16c", group_out=32, extent=(4, 14), kernel=(1, 1)),
    Case("NCHW16c", "OIHW", "NHWC", channels=32, group_out=40, extent=(4, 19)),
    Case("NCHW", "OIHW", "NCHW", channels=8, groups=2, group_out=32, extent=(4, 19)),
    Case("NCHW", "OIHW", "NCHW", group_out=64, dynamic=True),
]
SHARED = [
    *(replace(case, transposed=False) for case in SHARED),
    Case("NCHW", "IOHW", "NCHW", channels=5, group_out=96, extent=(5, 9)),
]


@few(2)
@pytest.mark.parametrize("case", SHARED if is_full() else SHARED[::2], ids=str)
def test_several_vectors_of_channels_share_the_data(case: Case) -> None:
    """On a CPU with 32 registers of 64 bytes."""
    with emulated_cpu(vector_bytes=64, vector_registers=32):
        sums, *_ = live_allocations(prim_func(legalized(module(case), CPU)))
        *_, columns, vectors, lanes = (int(extent) for extent in sums.shape)
        assert vectors > 1 and lanes in (8, 16) and 8 <= columns * vectors <= 28
        data, kernel = case.arrays()
        assert_close(case, run(module(case), data, kernel, pipeline=pipeline()), data, kernel)


LANES = [(8, 8), (16, 16), (24, 16), (20, 16), (40, 16)]


@pytest.mark.parametrize(("group_out", "lanes"), LANES if is_full() else LANES[:3:2], ids=str)
def test_a_vector_fills_a_register(group_out: int, lanes: int) -> None:
    """With registers of 64 bytes, 24 channels are two vectors of 16, not three of 8."""
    case = Case("NCHW", "OIHW", "NCHW", group_out=group_out, extent=(4, 14), transposed=False)
    with emulated_cpu(vector_bytes=64, vector_registers=32):
        sums, *_ = live_allocations(prim_func(legalized(module(case), CPU)))
        assert int(sums.shape[-1]) == lanes
        data, kernel = case.arrays()
        assert_close(case, run(module(case), data, kernel, pipeline=pipeline()), data, kernel)


@pytest.mark.parametrize("layout", ("NCHW", "NHWC", "NCHW16c"))
def test_an_axis_of_one_output_has_no_columns(layout: str) -> None:
    """A 1-D convolution with an axis of extent 1 after its own: columns are along its own."""
    case = Case(layout, "OIHW", layout, channels=16, group_out=32, extent=(29, 1), kernel=(5, 1))
    case = replace(case, stride=(1, 1), transposed=False)
    sums, *_ = live_allocations(prim_func(legalized(module(case), CPU)))
    assert max(int(extent) for extent in list(sums.shape)[1:-1]) > 1  # columns
    changes = [{}, {"stride": (2, 1)}, {"padding": (2, 0, 1, 0)}, {"dynamic": True}]
    if not is_full():
        changes = changes[1:] if layout == "NHWC" else changes[::3]
    assert_computes([replace(case, **changed) for changed in changes])


def test_columns_are_adjacent_in_memory() -> None:
    """The kernel for NCWH is that for NCHW with the names of the axes exchanged."""

    def kernel(layout: str, taps: tuple[int, int], padding: list[int]) -> tirx.PrimFunc:
        mod = build(
            {"x": tensor(1, 12, 9, 32), "w": tensor(12, 12, *taps)},
            lambda _, x, w: relax.op.nn.conv2d(
                x, w, padding=padding, data_layout=layout, kernel_layout="OIHW"
            ),
        )
        with tvm.target.Target({"kind": "llvm", "mcpu": "znver4", "mtriple": "x86_64-linux-gnu"}):
            return LegalizeOps()(mod)["conv2d"]

    swapped, plain = kernel("NCWH", (5, 1), [2, 0]), kernel("NCHW", (1, 5), [0, 2])

    def extents(func: tirx.PrimFunc) -> list[int]:
        loop_extents: list[int] = []
        structural_walk(func.body, (tirx.For, lambda loop: loop_extents.append(int(loop.extent))))
        return loop_extents

    assert extents(swapped) == extents(plain)


def test_blocks_of_a_depthwise_convolution_are_outermost() -> None:
    """Each block of the data is read from front to back."""
    case = Case("NCHW8c", "OIHW", "NCHW8c", channels=24, groups=24, group_out=1, transposed=False)
    case = replace(case, extent=(7, 9), kernel=(3, 3), padding=(1, 1, 1, 1))
    large = prim_func(legalized(module(replace(case, extent=(64, 64))), CPU))
    (parallel,) = (loop for loop in loops(large) if loop.kind == tirx.ForKind.PARALLEL)
    assert int(parallel.extent) % (3 * 64) == 0  # the blocks, and the rows of the output
    assert_computes([case, replace(case, stride=(2, 2)), replace(case, dynamic=True)])


@pytest.mark.parametrize("begin", range(0, 32, 8) if is_full() else (0, 24))
def test_unknown_columns_are_computed_in_whole_tiles(begin: int) -> None:
    cases = unknown_columns(transposed=False)[begin : begin + 8]
    sums, *_ = live_allocations(prim_func(legalized(module(cases[0]), CPU)))
    assert np.prod([int(extent) for extent in sums.shape]) * 4 < 1024
    assert_computes(cases)


def test_pointwise_convolution_of_unknown_columns() -> None:
    """The last tile reads the last column again; data without columns has none."""
    case = Case(kernel=(1, 1), channels=4, group_out=64, dynamic=True, transposed=False)
    widths = (0, 1, 2, 3, 4, 5, 6, 7, 8, 31) if is_full() else (0, 1, 5, 8, 31)
    assert_computes([replace(case, extent=(3, width)) for width in widths])
    assert_computes([replace(case, extent=(3, width), stride=(2, 2)) for width in widths])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_correct_lowerings_are_left_to_tvm(
    monkeypatch: pytest.MonkeyPatch, layout: str, dtype: str
) -> None:
    mod = module(Case(layout, "OIHW", layout, dtype=dtype, transposed=False))
    ours = legalized(mod, CPU)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "conv-legalize")
    tvm.ir.assert_structural_equal(ours, legalized(mod, CPU))


@pytest.mark.parametrize("changes", [{"groups": 4, "group_out": 8, "channels": 4}, {}], ids=str)
def test_many_output_channels_are_left_to_tvm_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch, changes: dict
) -> None:
    mod = module(Case(kernel_layout="OIHW", transposed=False, **{"group_out": 16} | changes))
    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    ours = legalized(mod, gpu), legalized(mod, None)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "conv-legalize")
    tvm.ir.assert_structural_equal(ours, (legalized(mod, gpu), legalized(mod, None)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_is_left_to_tvm_for_a_gpu(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    mod = module(Case(kernel_layout="OIHW", dtype=dtype, transposed=False))
    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    ours = legalized(mod, gpu)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "conv-legalize")
    tvm.ir.assert_structural_equal(ours, legalized(mod, gpu))


@pytest.mark.parametrize(
    "case", [PACKED, Case(kernel_layout="OIHW", group_out=16, transposed=False)], ids=str
)
def test_integers(case: Case) -> None:
    case = replace(case, dtype="int8", out_dtype="int32")
    data, kernel = (np.round(3 * array).astype("int8") for array in case.arrays())
    got = run(module(case), data, kernel)
    np.testing.assert_array_equal(got, case.reference(data, kernel))


@pytest.mark.parametrize("groups", [1, 2])
def test_symbolic_channels_are_checked_at_run_time(groups: int) -> None:
    case = replace(PACKED, channels=16, groups=groups, kernel_layout="OIHW")
    inputs = case.inputs()
    inputs["data"] = tensor(2, tirx.Var("c", "int64"), 5, 4, 4)
    mod = build(inputs, lambda _builder, data, kernel: case.call(data, kernel))
    data, kernel = case.arrays()
    assert_close(case, run(mod, data, kernel), data, kernel)
    with pytest.raises(RuntimeError, match=r"\(2 vs\. 4\) .*shape\[1\] mismatch"):
        run(mod, data[:, :2].copy(), kernel)


def test_unknown_shapes_are_left_to_others() -> None:
    mod = build(
        {
            "data": relax.TensorType(dtype="float32", ndim=5),
            "kernel": relax.TensorType(dtype="float32", ndim=4),
        },
        lambda _builder, *operands: relax.op.nn.conv2d(*operands, data_layout="NCHW4c"),
    )
    tvm.ir.assert_structural_equal(LegalizeOps()(mod), mod)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_FIXES_DISABLE", "conv-legalize")
    tvm.ir.assert_structural_equal(LegalizeOps()(module(PACKED)), module(PACKED))


def test_no_cpu_schedule_for_a_gpu() -> None:
    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    tvm.ir.assert_structural_equal(legalized(module(PACKED), gpu), legalized(module(PACKED), None))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (replace(PACKED, dilation=(1, 0)), r"conv2d: dilation must be at least 1, got \[1, 0\]"),
        (
            replace(PACKED, kernel=(9, 2), stride=(1, 1), padding=(0, 0, 0, 0)),
            r"conv2d: padding \[0, 0, 0, 0\] gives the output extent -3 along axis H",
        ),
    ],
)
def test_unsupported_calls_are_named(case: Case, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LegalizeOps()(module(case))


def test_indices_of_an_unknown_batch() -> None:
    """TVM takes seconds for a kernel whose indices are quotients of a symbol."""
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    operands = {"x": tensor(n, 64, h, w), "k": tensor(128, 64, 3, 3)}
    mod = build(operands, lambda _builder, x, k: relax.op.nn.conv2d(x, k, (2, 2), (1, 1)))
    with CPU:
        mod = pipeline("cpu")(mod)
    divisors: list[tirx.Expr] = []
    for function in mod.functions.values():
        if isinstance(function, tirx.PrimFunc):
            for kind in (tirx.FloorDiv, tirx.FloorMod):
                structural_walk(function.body, (kind, lambda node: divisors.append(node.b)))
    assert divisors
    assert not [b for b in divisors if isinstance(b, tirx.Var) and b.name == "n"]


def test_blocks_are_left_to_adreno() -> None:
    mod = module(PACKED)
    adreno = tvm.target.Target("qcom/adreno-opencl")
    assert count(legalized(mod, adreno), "relax.nn.conv2d") == 1
    assert count(legalized(mod, CPU), "relax.nn.conv2d") == 0


if __name__ == "__main__":
    tvm.testing.main()
