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
"""Lowering of ``relax.nn.conv*d_transpose`` in every layout."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax.transform import AnnotateTIROpPattern, FoldConstant, FuseOps, FuseTIR, LegalizeOps
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_fixes
from helpers import references
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
from helpers.grids import batched, few, is_full, sample
from helpers.relax_modules import UNOPTIMIZED_CPU, build, run, tensor

RANKS = (1, 2, 3)
GRID = [case for rank in RANKS for case in sample(geometry_grid(rank), 3)]
PACKED = Case("NCHW4c", "IOHW4i4o", "NCHW8c", padding=(1, 1, 1, 1), channels=8, group_out=16)
# A row of whole tiles, in each rank.
ROWS = [
    Case("NWC", "WIO", "NWC", (2,), (0, 0), (0,), (1,), extent=(16,), kernel=(2,)),
    Case("NCHW", "IOHW", "NCHW", extent=(4, 16), kernel=(2, 2)),
    Case(
        "NCDHW4c",
        "IODHW",
        "NCDHW4c",
        (2, 2, 2),
        (0,) * 6,
        (0, 0, 0),
        (1, 1, 1),
        extent=(2, 3, 8),
        kernel=(2, 2, 2),
    ),
    replace(PACKED, extent=(4, 16), kernel=(4, 4)),
]
CPUS = ("x86-64", "haswell", "skylake-avx512")


@few(1)
@pytest.mark.parametrize(
    "cases", [b for rank in RANKS for b in batches(sample(layout_grid(rank), 5))]
)
def test_layouts(cases: list[Case], coverage_table: CoverageTables) -> None:
    assert_layouts(cases, coverage_table, "conv_transpose_layouts")


@pytest.mark.parametrize("cases", batches(GRID))
def test_grid(cases: list[Case], coverage_table: CoverageTables) -> None:
    assert_grid(cases, coverage_table, "conv_transpose")


@pytest.mark.parametrize("cases", batches(sample(GRID, 4)))
def test_grid_without_target(cases: list[Case]) -> None:
    """Without a target, LegalizeOps does not schedule; the numbers are the same."""
    assert_computes(cases, scheduled=False, target=UNOPTIMIZED_CPU)


def test_edges() -> None:
    assert_computes(list(EDGES.values()))
    cases = list(EDGES.values()) if is_full() else list(EDGES.values())[::5]
    assert_computes(cases, scheduled=False, target=UNOPTIMIZED_CPU)


def test_reference_equals_pytorch() -> None:
    cases = [case for rank in RANKS for case in sample(geometry_grid(rank), 8, seed=2)]
    cases += [case for rank in RANKS for case in sample(layout_grid(rank), 10)]
    cases += [case for case in EDGES.values() if case.batch]
    assert_reference_equals_pytorch(cases)


def test_gaps_are_zero() -> None:
    case = Case(kernel=(1, 1), stride=(3, 2))
    data, kernel = case.arrays()
    got = run(module(case), data, kernel)
    hit = np.zeros(got.shape, bool)
    hit[:, :, ::3, ::2] = True
    assert (got[~hit] == 0).all() and (got[hit] != 0).all()


@pytest.mark.parametrize("case", [Case(padding=(1, 1, 1, 1)), PACKED], ids=["plain", "packed"])
def test_infinite_kernel_meets_no_inserted_zero(case: Case) -> None:
    data, kernel = np.ones_like(case.arrays()[0]), np.full_like(case.arrays()[1], np.inf)
    assert not np.isnan(run(module(case), data, kernel)).any()


@batched(5 if is_full() else 10)
@given(cases=st.lists(random_cases(), min_size=5, max_size=5), scheduled=st.booleans())
def test_random(cases: list[Case], scheduled: bool) -> None:
    assert_reference_equals_pytorch(cases)
    assert_computes(cases, scheduled=scheduled)
    assert_types_are_kept(cases)


def test_lowered_form() -> None:
    """Kernel equal to stride: no guard, no buffer, one multiplication per output and channel."""

    @I.ir_module(s_tir=True)
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3, 3, 4), "float32"), w: R.Tensor((2, 2, 4, 5), "float32")
        ) -> R.Tensor((2, 6, 6, 5), "float32"):
            with R.dataflow():
                gv = R.nn.conv2d_transpose(
                    x, w, strides=[2, 2], data_layout="NHWC", kernel_layout="HWIO"
                )
                R.output(gv)
            return gv

    @I.ir_module(s_tir=True)
    class Expected:
        @T.prim_func(private=True, s_tir=True)
        def conv2d_transpose(
            x: T.Buffer((T.int64(2), T.int64(3), T.int64(3), T.int64(4)), "float32"),
            w: T.Buffer((T.int64(2), T.int64(2), T.int64(4), T.int64(5)), "float32"),
            out: T.Buffer((T.int64(2), T.int64(6), T.int64(6), T.int64(5)), "float32"),
        ):
            T.func_attr({"tirx.noalias": True})
            for i0, i1, i2, i3, th, tw, i in T.grid(
                T.int64(2), T.int64(6), T.int64(6), T.int64(5), T.int64(1), T.int64(1), T.int64(4)
            ):
                with T.sblock("convolution"):
                    n, y, x_, o, _th, _tw, c = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, th, tw, i])
                    with T.init():
                        out[n, y, x_, o] = T.float32(0)
                    out[n, y, x_, o] = out[n, y, x_, o] + (
                        x[n, T.Div(y, T.int64(2)), T.Div(x_, T.int64(2)), c]
                        * w[T.truncmod(y, T.int64(2)), T.truncmod(x_, T.int64(2)), c, o]
                    )

        @R.function
        def main(
            x: R.Tensor((2, 3, 3, 4), "float32"), w: R.Tensor((2, 2, 4, 5), "float32")
        ) -> R.Tensor((2, 6, 6, 5), "float32"):
            cls = Expected
            with R.dataflow():
                gv = R.call_tir(
                    cls.conv2d_transpose, (x, w), out_ty=R.Tensor((2, 6, 6, 5), "float32")
                )
                R.output(gv)
            return gv

    tvm.ir.assert_structural_equal(LegalizeOps()(Before), Expected)


@few(3)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_no_dilated_copy_of_the_data(layout: str, dtype: str) -> None:
    """Only sums are buffered and, on a CPU, the padded data; there is no flipped kernel."""
    case = Case(data_layout=layout, out_layout=layout, kernel_layout="HWIO", dtype=dtype)
    buffers = allocations(prim_func(legalized(module(case), None)))
    assert [buffer.dtype for buffer in buffers] == ([] if dtype == "float32" else ["float32"])

    # On a CPU the sums are channels-last vectors, those of one tile live at a time.
    sums, padded = live_allocations(prim_func(legalized(module(case), CPU)))
    assert sums.dtype == padded.dtype == "float32"
    assert np.prod([int(extent) for extent in sums.shape]) * 4 < 1024
    height, width = case.extent
    # 2 of the 3 kernel rows contribute to an output, so there is one more row at both ends.
    assert [int(extent) for extent in padded.shape] == [2, height + 2, width, case.channels]


def test_no_copy_of_data_that_one_element_of_the_kernel_reads() -> None:
    case = Case(kernel=(1, 1), stride=(2, 2))
    (sums,) = live_allocations(prim_func(legalized(module(case), CPU)))
    assert np.prod([int(extent) for extent in sums.shape]) * 4 < 1024


@pytest.mark.parametrize("begin", range(0, 32, 8) if is_full() else (0, 24))
def test_unknown_columns_are_computed_in_whole_tiles(begin: int) -> None:
    cases = unknown_columns(transposed=True)[begin : begin + 8]
    sums, *_ = live_allocations(prim_func(legalized(module(cases[0]), CPU)))
    assert np.prod([int(extent) for extent in sums.shape]) * 4 < 1024
    assert_computes(cases)


@few(2)
@pytest.mark.parametrize(
    ("mcpu", "case"),
    list(itertools.product(CPUS, ROWS)) if is_full() else list(zip(itertools.cycle(CPUS), ROWS)),
    ids=lambda value: getattr(value, "data_layout", value),
)
def test_cpu_schedule(mcpu: str, case: Case) -> None:
    """A tile's sums are in registers, vectorized over channels; rows run in parallel."""
    case = replace(case, channels=16, group_out=64)
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu})
    func = prim_func(legalized(module(case), target))
    columns, lanes = {"x86-64": (4, 8), "haswell": (4, 16), "skylake-avx512": (8, 16)}[mcpu]
    # A vector of channels is one register with AVX-512.  Two share the data, unless they are in
    # different layout blocks.
    vectors = 2 if mcpu == "skylake-avx512" and not case.data_layout.endswith("4c") else 1
    kinds = {kind: [] for kind in tirx.ForKind}
    for loop in loops(func):
        kinds[tirx.ForKind(loop.kind)].append(int(loop.extent))
    copies = {"C": [], "c": [4]}.get(case.data_layout[-1], [16])
    # The loops that copy data, and that initialize, update and write sums.
    assert kinds[tirx.ForKind.VECTORIZED][: len(copies) + 2] == [*copies, lanes, lanes]
    unrolled = [columns, columns] if vectors == 1 else [2, columns, 2, columns, 2]
    assert sorted(kinds[tirx.ForKind.UNROLLED]) == sorted(unrolled)
    assert kinds[tirx.ForKind.PARALLEL][-1] >= 8
    sums, *_ = live_allocations(func)
    assert np.prod([int(extent) for extent in sums.shape]) == columns * lanes * vectors
    assert_computes([case])


@few(3)
@pytest.mark.parametrize(
    ("dtype", "kernel_layout"),
    sample(
        list(
            itertools.product(
                ("float16", "bfloat16", "float32", "float64"),
                ("IOHW", "OIHW", "HWIO", "HWOI", "IOHW4i4o", "OIHW4i"),
            )
        ),
        8,
    ),
)
def test_constant_kernel_is_transformed_at_compile_time(kernel_layout: str, dtype: str) -> None:
    case = Case("NHWC", kernel_layout, "NHWC", dtype=dtype, group_out=16)
    data, kernel = case.arrays()
    mod = FoldConstant()(legalized(module(case, constant_kernel=kernel), CPU))
    assert operators(mod) == ["conv2d_transpose"]
    assert_close(case, run(mod, data), data, kernel)


@few(3)
@pytest.mark.parametrize(
    ("target", "group_out", "dtype", "layout"),
    [
        (target, *channels, layout)
        for target in (None, CPU)
        for channels, layout in sample(
            list(
                itertools.product(
                    ((4, "float32"), (16, "float32"), (16, "float16")), ("NCHW", "NHWC", "NCHW4c")
                )
            ),
            3,
        )
    ],
)
def test_bias_and_relu_fuse(
    target: tvm.target.Target | None, group_out: int, dtype: str, layout: str
) -> None:
    case = Case(layout, "IOHW", layout, padding=(1, 1, 1, 1), dtype=dtype, group_out=group_out)
    bias_shape = references.packed_shape({"N": 1, "C": group_out, "H": 1, "W": 1}, layout)
    mod = build(
        case.inputs() | {"bias": tensor(*bias_shape, dtype=dtype)},
        lambda _builder, data, kernel, bias: relax.op.nn.relu(case.call(data, kernel) + bias),
    )
    mod = legalized(mod, target)
    mod = tvm.transform.Sequential([AnnotateTIROpPattern(), FuseOps(), FuseTIR()])(mod)
    assert len(operators(mod)) == 2  # the transform of the kernel and the rest

    data, kernel = case.arrays()
    bias = np.linspace(-1, 1, group_out).astype(dtype).reshape(bias_shape)
    plain = run(module(case), data, kernel)
    np.testing.assert_array_equal(
        run(mod, data, kernel, bias), np.maximum(plain + bias, 0).astype(dtype)
    )


def test_types_are_kept() -> None:
    for rank in RANKS:
        assert_types_are_kept(sample(geometry_grid(rank), 5, seed=3))
        assert_types_are_kept(sample(layout_grid(rank), 5, seed=3))


def test_equal_calls_share_one_function() -> None:
    with CPU:
        mod = LegalizeOps()(module(Case(), Case()))
    assert prim_func(mod)


def _with_symbolic_channels(case: Case, *, kernel: bool = False) -> tvm.IRModule:
    """A case with symbolic channels of the data and, optionally, the kernel."""
    inputs = case.inputs()
    for name, layout, axis in (
        ("data", case.data_layout, "C"),
        *([("kernel", case.kernel_layout, "I")] if kernel else []),
    ):
        shape = list(inputs[name].shape)
        letters = [letter for letter in layout if letter.isalpha()]
        shape[letters.index(axis)] = tirx.Var(axis.lower(), "int64")
        inputs[name] = tensor(*shape, dtype=case.dtype)
    return build(inputs, lambda _builder, data, kernel: case.call(data, kernel))


@pytest.mark.parametrize(
    ("layout", "kernel_layout", "kernel", "message"),
    [
        ("NCHW", "IOHW", False, r"\(4 vs\. 8\) .*shape\[1\] mismatch"),
        ("NHWC", "IOHW", False, r"\(4 vs\. 8\) .*shape\[3\] mismatch"),
        # TVM treats the two symbols as one; the lowered function compares them.
        ("NHWC", "IOHW", True, r"expected to match kernel\.shape\[0\]"),
        ("NCHW4c", "IOHW8i", False, r"\(1 vs\. 2\) .*shape\[1\] mismatch"),
        # The channels of the data are whole blocks; whether those of the kernel are is unknown.
        ("NCHW4c", "IOHW", True, r"\(8 vs\. 4\) .*shape\[0\] mismatch"),
    ],
)
def test_symbolic_channels_are_checked_at_run_time(
    layout: str, kernel_layout: str, kernel: bool, message: str
) -> None:
    case = Case(layout, kernel_layout, layout, channels=8)
    mod = _with_symbolic_channels(case, kernel=kernel)
    data, weight = case.arrays()
    assert_close(case, run(mod, data, weight), data, weight)
    narrow = replace(case, channels=4, kernel_layout="IOHW").arrays()[0]
    # Kernels for this target check their arguments in every tier.
    with pytest.raises((RuntimeError, ValueError), match=message):
        run(mod, narrow, weight, target="llvm")


def test_channels_that_cannot_be_checked_are_left_to_others() -> None:
    """That i blocks of 3 equal c blocks of 4 cannot be expressed by a match_cast."""
    inputs = {
        "data": tensor(1, tirx.Var("c", "int64"), 5, 5, 4),
        "kernel": tensor(tirx.Var("i", "int64"), 4, 3, 3, 3),
    }
    mod = build(
        inputs,
        lambda _builder, *operands: relax.op.nn.conv2d_transpose(
            *operands, data_layout="NCHW4c", kernel_layout="IOHW3i"
        ),
    )
    tvm.ir.assert_structural_equal(LegalizeOps()(mod), mod)


def test_symbolic_kernel() -> None:
    """A kernel with symbolic extents, which the type rule also accepts."""
    case = Case("NCHW4c", "IOHW", "NHWC", padding=(1, 0, 0, 1))
    inputs = case.inputs()
    inputs["kernel"] = tensor(case.channels, *(tirx.Var(a, "int64") for a in "ohw"))
    mod = build(inputs, lambda _builder, data, kernel: case.call(data, kernel))
    data, kernel = case.arrays()
    assert_close(case, run(mod, data, kernel), data, kernel)


@few(1)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers(dtype: str) -> None:
    case = replace(PACKED, dtype=dtype, out_dtype="int32" if dtype == "int8" else None)
    data, kernel = (np.round(3 * array).astype(dtype) for array in case.arrays())
    got = run(module(case), data, kernel)
    assert got.dtype == (case.out_dtype or dtype)
    np.testing.assert_array_equal(got, case.reference(data, kernel))


def _unknown_shapes() -> tvm.IRModule:
    return build(
        {name: relax.TensorType(dtype="float32", ndim=4) for name in ("data", "kernel")},
        lambda _builder, *operands: relax.op.nn.conv2d_transpose(*operands, data_layout="NHWC"),
    )


def test_unknown_shapes_are_left_to_others() -> None:
    tvm.ir.assert_structural_equal(LegalizeOps()(_unknown_shapes()), _unknown_shapes())
    message = r"no lowering for relax.nn.conv2d_transpose in 'main': .*data_layout=\"NHWC\""
    with pytest.raises(tvm_fixes.CompileError, match=message):
        relax.build(_unknown_shapes(), CPU, relax_pipeline=tvm_fixes.pipeline())


@pytest.mark.parametrize("case", [Case("NHWC", "IOHW", "NHWC"), PACKED], ids=["NHWC", "packed"])
def test_switched_off(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    monkeypatch.setenv("TVM_FIXES_DISABLE", "conv-transpose-legalize")
    tvm.ir.assert_structural_equal(LegalizeOps()(module(case)), module(case))
    # TVM's own lowering, with its dilated data, padded data and flipped kernel
    assert len(allocations(prim_func(LegalizeOps()(module(Case()))))) >= 3


def test_register_again_is_harmless() -> None:
    tvm_fixes.relax.legalize.register()
    assert operators(LegalizeOps()(module(Case("NHWC", "HWIO", "NHWC")))) == ["conv2d_transpose"]


@pytest.mark.parametrize("case", [Case("NHWC", "HWIO", "NHWC"), PACKED], ids=["NHWC", "packed"])
def test_no_cpu_schedule_for_a_gpu(case: Case) -> None:
    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    tvm.ir.assert_structural_equal(legalized(module(case), gpu), legalized(module(case), None))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case(dilation=(1, 0)), r"conv2d_transpose: dilation must be at least 1, got \[1, 0\]"),
        (Case(padding=(9, 0, 9, 0)), r"conv2d_transpose: padding .*extent -7 along axis H"),
        (
            replace(PACKED, padding=(0, 9, 0, 9)),
            r"conv2d_transpose: padding \[0, 9, 0, 9\] .*extent -10 along axis W",
        ),
    ],
)
def test_unsupported_calls_are_named(case: Case, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LegalizeOps()(module(case))


def test_no_element_of_the_kernel_meets_one_of_the_data() -> None:
    """No overlap along the columns, so that the result is 0."""
    shapes = {"x": (1, 3, 2, 1), "w": (3, 1, 2, 2)}
    mod = build(
        {name: tensor(*shape) for name, shape in shapes.items()},
        lambda _, x, w: relax.op.nn.conv2d_transpose(
            x, w, strides=[3, 3], padding=[1, 1, 1, 1], dilation=[2, 2]
        ),
    )
    x, w = (np.ones(shape, "float32") for shape in shapes.values())
    got = run(mod, x, w, pipeline=tvm_fixes.pipeline())
    np.testing.assert_array_equal(got, np.zeros((1, 1, 4, 1)))


if __name__ == "__main__":
    tvm.testing.main()
