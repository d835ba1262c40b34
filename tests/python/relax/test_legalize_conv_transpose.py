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
"""``relax.nn.conv2d_transpose`` is lowered in every plain layout, to the right numbers."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax.transform import AnnotateTIROpPattern, FoldConstant, FuseOps, FuseTIR, LegalizeOps
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_fixes
from conv_transpose_cases import EDGES, GRID, Case, numpy_dtype, random_cases
from coverage_tables import CoverageTables
from grids import sample
from references import conv_transpose as reference
from relax_helpers import build, call, calls, merge, run, tensor

CPU = tvm.target.Target("llvm")
FUNCTIONS_PER_BUILD = 64


def names(cases: Sequence[Case]) -> list[str]:
    return ["main"] if len(cases) == 1 else [f"case{i}" for i in range(len(cases))]


def module(*cases: Case, constant_kernel: np.ndarray | None = None) -> tvm.IRModule:
    """Each call in a function of its own, all in one module; one alone is called ``main``."""

    def single(case: Case) -> tvm.IRModule:
        inputs = case.inputs()
        if constant_kernel is None:
            return build(inputs, lambda _builder, data, kernel: case.call(data, kernel))
        kernel = relax.const(constant_kernel, case.dtype)
        return build({"data": inputs["data"]}, lambda _builder, data: case.call(data, kernel))

    return merge({name: single(case) for case, name in zip(cases, names(cases), strict=True)})


def legalized(mod: tvm.IRModule, target: tvm.target.Target | None) -> tvm.IRModule:
    if target is None:
        return LegalizeOps()(mod)
    with target:
        return LegalizeOps()(mod)


def prim_func(mod: tvm.IRModule) -> tirx.PrimFunc:
    """The one lowered transposed convolution in `mod`."""
    (found,) = (f for v, f in mod.functions.items() if v.name_hint.startswith("conv2d_transpose"))
    return found


def allocations(func: tirx.PrimFunc) -> list[tirx.Buffer]:
    found: list[tirx.Buffer] = []
    tvm_ffi.structural_walk(
        func, (tvm.s_tir.SBlock, lambda block: found.extend(block.alloc_buffers) or None)
    )
    return found


def operators(mod: tvm.IRModule) -> list[str]:
    """The names of what ``main`` calls, in order: an operator's, or that of call_tir's function."""
    return [
        found.args[0].name_hint if found.op.name == "relax.call_tir" else found.op.name
        for found in calls(mod)
    ]


def assert_close(case: Case, got: np.ndarray, data: np.ndarray, kernel: np.ndarray) -> None:
    """Compare with the float64 reference, within the error that the arithmetic itself can make.

    A sum of n products, in any order, is off by at most (n + 1) * eps * sum|products|, where eps is
    that of the dtype summed in, which is float32 for 16-bit floats (Higham, Accuracy and Stability
    of Numerical Algorithms, section 3.1); rounding the sum to the output's dtype adds half a unit
    in its last place. Nothing is granted beyond that.
    """
    expected = reference(data, kernel, **case.geometry())
    magnitude = reference(np.abs(data), np.abs(kernel), **case.geometry())
    wide = "float64" in (case.dtype, case.result_dtype)
    terms = case.channels // case.groups * case.kernel[0] * case.kernel[1]
    bound = (terms + 1) * np.finfo("float64" if wide else "float32").eps * magnitude
    out = ml_dtypes.finfo(numpy_dtype(case.result_dtype))
    bound += float(out.eps) / 2 * (np.abs(expected) + bound) + float(out.smallest_subnormal)
    assert got.dtype == numpy_dtype(case.result_dtype)
    assert got.shape == expected.shape
    error = np.abs(got.astype("float64") - expected)
    assert (error <= bound).all(), f"{case}: off by {error.max()}, {(error / bound).max()} bounds"


def assert_computes(
    cases: list[Case], tables: CoverageTables | None = None, *, scheduled: bool = True
) -> None:
    """Build all `cases` at once, run each, compare it with the reference."""
    mod = module(*cases)
    if not scheduled:
        mod = legalized(mod, None)
    vm = relax.VirtualMachine(relax.build(mod, CPU), tvm.cpu())
    for case, name in zip(cases, names(cases), strict=True):
        data, kernel = case.arrays()
        got = call(vm, name, data, kernel)
        with (tables or CoverageTables())("conv2d_transpose").case(
            data=case.data_layout,
            kernel=case.kernel_layout,
            out=case.out_layout,
            dtype=case.dtype,
            shape="dynamic" if case.dynamic else "static",
        ):
            assert_close(case, got, data, kernel)


def torch_result(case: Case, data: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The same in PyTorch, in float64."""
    data = data.astype("float64").transpose([case.data_layout.index(a) for a in "NCHW"])
    kernel = kernel.astype("float64").transpose([case.kernel_layout.index(a) for a in "IOHW"])
    top, left, bottom, right = case.padding
    symmetric = (top, left) == (bottom, right)
    out = torch.nn.functional.conv_transpose2d(
        torch.from_numpy(data.copy()),
        torch.from_numpy(kernel.copy()),
        stride=case.stride,
        padding=(top, left) if symmetric else 0,
        output_padding=case.output_padding,
        dilation=case.dilation,
        groups=case.groups,
    ).numpy()
    if not symmetric:  # PyTorch has none; its padding is a crop
        out = out[:, :, top : out.shape[2] - bottom, left : out.shape[3] - right]
    return out.transpose(["NCHW".index(a) for a in case.out_layout])


def _batches(cases: list[Case]) -> list:
    size = FUNCTIONS_PER_BUILD
    starts = range(0, len(cases), size)
    return [pytest.param(cases[i : i + size], id=f"{i}-{i + size - 1}") for i in starts]


@pytest.mark.parametrize("cases", _batches(sample(GRID, 40)))
def test_grid(cases: list[Case], coverage_table: CoverageTables) -> None:
    assert_computes(cases, coverage_table)


@pytest.mark.parametrize(
    "cases", _batches(sample([c for c in GRID if c.kernel_layout == "HWIO"], 12))
)
def test_grid_without_target(cases: list[Case]) -> None:
    """LegalizeOps outside of any target makes no schedule, and the same numbers."""
    assert_computes(cases, scheduled=False)


@pytest.mark.parametrize("scheduled", [True, False])
def test_edges(scheduled: bool) -> None:
    assert_computes(list(EDGES.values()), scheduled=scheduled)


def test_reference_equals_pytorch() -> None:
    cases = [c for c in sample(GRID, 400, seed=2) if c.dtype == "float64"]
    cases += [case for case in EDGES.values() if case.batch]
    for case in cases:
        data, kernel = case.arrays()
        np.testing.assert_allclose(
            reference(data, kernel, **case.geometry()),
            torch_result(case, data, kernel),
            rtol=1e-12,
            atol=1e-12,
            err_msg=str(case),
        )


def test_gaps_are_zero() -> None:
    case = Case(kernel=(1, 1), stride=(3, 2))
    data, kernel = case.arrays()
    got = run(module(case), data, kernel)
    hit = np.zeros(got.shape, bool)
    hit[:, :, ::3, ::2] = True
    assert (got[~hit] == 0).all() and (got[hit] != 0).all()


def test_infinite_kernel_meets_no_inserted_zero() -> None:
    case = Case(padding=(1, 1, 1, 1))
    data, kernel = np.ones_like(case.arrays()[0]), np.full_like(case.arrays()[1], np.inf)
    assert not np.isnan(run(module(case), data, kernel)).any()


@given(case=random_cases(), scheduled=st.booleans())
def test_random(case: Case, scheduled: bool) -> None:
    data, kernel = case.arrays()
    np.testing.assert_allclose(
        reference(data, kernel, **case.geometry()),
        torch_result(case, data, kernel),
        rtol=1e-12,
        atol=1e-12,
    )
    assert_computes([case], scheduled=scheduled)


def test_lowered_form() -> None:
    """Kernel equal to stride: no guard, no buffer, one multiplication an output and channel."""

    @I.ir_module(s_tir=True)
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 3, 3, 4), "float32"), w: R.Tensor((2, 2, 4, 5), "float32")
        ) -> R.Tensor((1, 6, 6, 5), "float32"):
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
            x: T.Buffer((T.int64(1), T.int64(3), T.int64(3), T.int64(4)), "float32"),
            w: T.Buffer((T.int64(2), T.int64(2), T.int64(4), T.int64(5)), "float32"),
            out: T.Buffer((T.int64(1), T.int64(6), T.int64(6), T.int64(5)), "float32"),
        ):
            T.func_attr({"tirx.noalias": True})
            for i0, i1, i2, i3, th, tw, i in T.grid(
                T.int64(1), T.int64(6), T.int64(6), T.int64(5), T.int64(1), T.int64(1), T.int64(4)
            ):
                with T.sblock("conv_transpose"):
                    n, y, x_, o, _th, _tw, c = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, th, tw, i])
                    with T.init():
                        out[n, y, x_, o] = T.float32(0)
                    out[n, y, x_, o] = out[n, y, x_, o] + (
                        x[n, T.Div(y, T.int64(2)), T.Div(x_, T.int64(2)), c]
                        * w[T.truncmod(y, T.int64(2)), T.truncmod(x_, T.int64(2)), c, o]
                    )

        @R.function
        def main(
            x: R.Tensor((1, 3, 3, 4), "float32"), w: R.Tensor((2, 2, 4, 5), "float32")
        ) -> R.Tensor((1, 6, 6, 5), "float32"):
            cls = Expected
            with R.dataflow():
                gv = R.call_tir(
                    cls.conv2d_transpose, (x, w), out_ty=R.Tensor((1, 6, 6, 5), "float32")
                )
                R.output(gv)
            return gv

    tvm.ir.assert_structural_equal(LegalizeOps()(Before), Expected)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_no_copy_of_the_data(layout: str, dtype: str) -> None:
    """Nothing but sums is buffered: no dilated or padded data, no flipped kernel."""
    case = Case(data_layout=layout, out_layout=layout, kernel_layout="HWIO", dtype=dtype)
    buffers = allocations(prim_func(legalized(module(case), None)))
    assert [buffer.dtype for buffer in buffers] == ([] if dtype == "float32" else ["float32"])

    # For the CPU the sums are in channel-last order; those of a tile of columns live at once.
    tile_of_sums = 8 * case.group_out
    compacted = tvm.transform.Sequential(
        [
            tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            tvm.s_tir.transform.ConvertBlocksToOpaque(),
            tvm.s_tir.transform.CompactBufferAllocation(),
        ]
    )(legalized(module(case), CPU))
    buffers = allocations(prim_func(compacted))
    in_place = dtype == "float32" and layout == "NHWC"
    assert [b.dtype for b in buffers] == ([] if in_place else ["float32"])
    assert all(np.prod([int(e) for e in b.shape]) <= tile_of_sums for b in buffers)


@pytest.mark.parametrize("kernel_layout", ["IOHW", "OIHW", "HWIO", "HWOI"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_constant_kernel_is_transformed_at_compile_time(kernel_layout: str, dtype: str) -> None:
    case = Case("NHWC", kernel_layout, "NHWC", dtype=dtype)
    data, kernel = case.arrays()
    mod = FoldConstant()(legalized(module(case, constant_kernel=kernel), CPU))
    assert operators(mod) == ["conv2d_transpose"]
    assert_close(case, run(mod, data), data, kernel)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("target", [None, CPU])
def test_bias_and_relu_fuse(layout: str, dtype: str, target: tvm.target.Target | None) -> None:
    case = Case(layout, "IOHW", layout, padding=(1, 1, 1, 1), dtype=dtype)
    bias_shape = [case.group_out if axis == "C" else 1 for axis in layout]
    mod = build(
        case.inputs() | {"bias": tensor(*bias_shape, dtype=dtype)},
        lambda _builder, data, kernel, bias: relax.op.nn.relu(case.call(data, kernel) + bias),
    )
    mod = legalized(mod, target)
    mod = tvm.transform.Sequential([AnnotateTIROpPattern(), FuseOps(), FuseTIR()])(mod)
    assert len(operators(mod)) == 2  # the transform of the kernel and the rest

    data, kernel = case.arrays()
    bias = np.linspace(-1, 1, case.group_out).astype(dtype).reshape(bias_shape)
    plain = run(module(case), data, kernel)
    np.testing.assert_array_equal(
        run(mod, data, kernel, bias), np.maximum(plain + bias, 0).astype(dtype)
    )


def test_types_are_kept() -> None:
    """The lowered call has the type that the operator had, symbolic dimensions included."""
    for case in sample(GRID, 100, seed=3):
        before = module(case)["main"].body.ty
        after = legalized(module(case), None)["main"].body.ty
        tvm.ir.assert_structural_equal(after, before, map_free_vars=True)


def test_equal_calls_share_one_function() -> None:
    with CPU:
        mod = LegalizeOps()(module(Case(), Case()))
    assert prim_func(mod)


def _with_symbolic_channels(case: Case) -> tvm.IRModule:
    inputs = case.inputs()
    shape = list(inputs["data"].shape)
    shape[case.data_layout.index("C")] = tirx.Var("c", "int64")
    inputs["data"] = tensor(*shape, dtype=case.dtype)
    return build(inputs, lambda _builder, data, kernel: case.call(data, kernel))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_symbolic_channels_are_checked_at_run_time(layout: str) -> None:
    case = Case(layout, "IOHW", layout)
    mod = _with_symbolic_channels(case)
    data, kernel = case.arrays()
    assert_close(case, run(mod, data, kernel), data, kernel)
    axis = layout.index("C")
    message = rf"\(2 vs\. 4\) .*match_cast error, *shape\[{axis}\] mismatch"
    with pytest.raises(RuntimeError, match=message):
        run(mod, np.take(data, [0, 1], axis), kernel)


def _packed() -> tvm.IRModule:
    layouts = {"data_layout": "NCHW4c", "kernel_layout": "IOHW", "out_layout": "NCHW"}
    return build(
        {"data": tensor(1, 1, 5, 5, 4), "kernel": tensor(4, 4, 3, 3)},
        lambda _builder, *operands: relax.op.nn.conv2d_transpose(*operands, **layouts),
    )


def test_packed_layouts_are_left_to_others() -> None:
    tvm.ir.assert_structural_equal(LegalizeOps()(_packed()), _packed())


def test_unknown_shapes_are_left_to_others() -> None:
    mod = build(
        {name: relax.TensorType(dtype="float32", ndim=4) for name in ("data", "kernel")},
        lambda _builder, *operands: relax.op.nn.conv2d_transpose(*operands, data_layout="NHWC"),
    )
    tvm.ir.assert_structural_equal(LegalizeOps()(mod), mod)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_FIXES_DISABLE", "conv2d-transpose-legalize")
    nhwc = module(Case("NHWC", "IOHW", "NHWC"))
    tvm.ir.assert_structural_equal(LegalizeOps()(nhwc), nhwc)
    # TVM's own lowering, with its dilated data, padded data and flipped kernel
    assert len(allocations(prim_func(LegalizeOps()(module(Case()))))) >= 3


def test_register_again_is_harmless() -> None:
    tvm_fixes.relax.legalize.conv_transpose.register()
    assert operators(LegalizeOps()(module(Case("NHWC", "HWIO", "NHWC")))) == ["conv2d_transpose"]


def test_no_cpu_schedule_for_a_gpu() -> None:
    mod = module(Case("NHWC", "HWIO", "NHWC"))
    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    tvm.ir.assert_structural_equal(legalized(mod, gpu), legalized(mod, None))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case(dilation=(1, 0)), r"conv2d_transpose: dilation must be at least 1, got \[1, 0\]"),
        (Case(padding=(9, 0, 9, 0)), r"conv2d_transpose: padding .*extent in H would be -7"),
    ],
)
def test_what_cannot_be_lowered_is_named(case: Case, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LegalizeOps()(module(case))


if __name__ == "__main__":
    tvm.testing.main()
