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
"""Helpers for the tests of convolution lowerings: modules of cases, and comparisons."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.transform import LegalizeOps

import tvm_fixes  # noqa: F401  (puts the lowerings in force)
from helpers import references
from helpers.conv_cases import Case, has_blocks, numpy_dtype
from helpers.coverage_tables import CoverageTables
from helpers.relax_modules import UNOPTIMIZED_CPU, build, call, calls, cpu, merge

CPU = tvm.target.Target("llvm")
# The number of functions per module: building many small modules takes longer.
FUNCTIONS_PER_BUILD = 64


def names(cases: Sequence[Case]) -> list[str]:
    return ["main"] if len(cases) == 1 else [f"case{i}" for i in range(len(cases))]


def module(*cases: Case, constant_kernel: np.ndarray | None = None) -> tvm.IRModule:
    """One module with a function per call; a single one is called ``main``."""

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
    """The only lowered convolution in `mod`."""
    (found,) = (f for v, f in mod.functions.items() if v.name_hint.startswith("conv"))
    return found


def allocations(func: tirx.PrimFunc) -> list[tirx.Buffer]:
    found: list[tirx.Buffer] = []
    tvm_ffi.structural_walk(
        func, (tvm.s_tir.SBlock, lambda block: found.extend(block.alloc_buffers) or None)
    )
    return found


def live_allocations(func: tirx.PrimFunc) -> list[tirx.Buffer]:
    """The buffers, compacted to the live region."""
    passes = [
        tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        tvm.s_tir.transform.ConvertBlocksToOpaque(),
        tvm.s_tir.transform.CompactBufferAllocation(),
    ]
    return allocations(tvm.transform.Sequential(passes)(tvm.IRModule({"main": func}))["main"])


def loops(func: tirx.PrimFunc) -> list[tirx.For]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(func, (tirx.For, lambda loop: found.append(loop)))
    return found


def operators(mod: tvm.IRModule) -> list[str]:
    """The callees of ``main`` in order: operators, and the functions of call_tir."""
    return [
        found.args[0].name_hint if found.op.name == "relax.call_tir" else found.op.name
        for found in calls(mod)
    ]


def batches(cases: Sequence[Case]) -> list:
    """Test parameters: batches of cases that fit in one module."""
    starts = range(0, len(cases), FUNCTIONS_PER_BUILD)
    ends = [min(i + FUNCTIONS_PER_BUILD, len(cases)) for i in starts]
    return [
        pytest.param(cases[i:end], id=f"{cases[i].operator}-{i}-{end - 1}")
        for i, end in zip(starts, ends, strict=True)
    ]


def assert_layouts(cases: Sequence[Case], tables: CoverageTables, table: str) -> None:
    """Check cases of a layout grid; count them in `table` by operator and kinds of layouts."""
    kind = lambda layout: "blocks" if has_blocks(layout) else "permuted"  # noqa: E731
    assert_computes(
        cases,
        lambda case: tables(table).case(
            operator=case.operator,
            data=kind(case.data_layout),
            kernel=kind(case.kernel_layout),
            out=kind(case.out_layout),
            groups=case.groups,
        ),
        target=UNOPTIMIZED_CPU,
    )


def assert_grid(cases: Sequence[Case], tables: CoverageTables, table: str) -> None:
    """Check a geometry grid; count cases in `table` by operator, layouts, dtype and shapes."""
    assert_computes(
        cases,
        lambda case: tables(table).case(
            operator=case.operator,
            data=case.data_layout,
            out=case.out_layout,
            dtype=case.dtype,
            shape="dynamic" if case.dynamic else "static",
        ),
    )


def assert_close(case: Case, got: np.ndarray, data: np.ndarray, kernel: np.ndarray) -> None:
    """Compare with the float64 reference, within the error bound of the arithmetic.

    A sum of n products, in any order, is off by at most (n + 1) * eps * sum|products|, where eps is
    that of the dtype summed in, which is float32 for 16-bit floats (Higham, Accuracy and Stability
    of Numerical Algorithms, section 3.1); rounding the sum to the output's dtype adds half a unit
    in its last place. No other tolerance is allowed.
    """
    expected = case.reference(data, kernel)
    magnitude = case.reference(np.abs(data), np.abs(kernel))
    wide = "float64" in (case.dtype, case.result_dtype)
    bound = (case.terms + 1) * np.finfo("float64" if wide else "float32").eps * magnitude
    out = ml_dtypes.finfo(numpy_dtype(case.result_dtype))
    bound += float(out.eps) / 2 * (np.abs(expected) + bound) + float(out.smallest_subnormal)
    assert got.dtype == numpy_dtype(case.result_dtype)
    assert got.shape == expected.shape
    error = np.abs(got.astype("float64") - expected)
    assert (error <= bound).all(), f"{case}: off by {error.max()}, {(error / bound).max()} bounds"


def assert_computes(
    cases: Sequence[Case],
    count: Callable[[Case], AbstractContextManager[None]] = lambda _case: nullcontext(),
    *,
    scheduled: bool = True,
    target: tvm.target.Target | None = None,
) -> None:
    """Build all `cases` in one module, run each, and compare it with the reference.

    The comparison of a case runs within what `count` returns for it.
    """
    mod = module(*cases)
    if not scheduled:
        mod = legalized(mod, None)
    vm = relax.VirtualMachine(relax.build(mod, target or cpu()), tvm.cpu())
    for case, name in zip(cases, names(cases), strict=True):
        data, kernel = case.arrays()
        got = call(vm, name, data, kernel)
        with count(case):
            assert_close(case, got, data, kernel)


def assert_reference_equals_pytorch(cases: Sequence[Case]) -> None:
    for case in cases:
        data, kernel = case.arrays()
        np.testing.assert_allclose(
            case.reference(data, kernel),
            torch_result(case, data, kernel),
            rtol=1e-12,
            atol=1e-12,
            err_msg=str(case),
        )


def assert_types_are_kept(cases: Sequence[Case]) -> None:
    """The lowered calls have the types that the operators had, symbolic dimensions included."""
    mod = module(*cases)
    lowered = legalized(mod, None)
    for name in names(cases):
        before, after = mod[name].body.ty, lowered[name].body.ty
        tvm.ir.assert_structural_equal(after, before, map_free_vars=True)


def torch_result(case: Case, data: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The same in PyTorch, in float64."""
    rank = len(case.axes)
    kernel_axes = ("IO" if case.transposed else "OI") + case.axes
    data = references.plain(data, case.data_layout, "NC" + case.axes).astype("float64")
    kernel = references.plain(kernel, case.kernel_layout, kernel_axes).astype("float64")
    before, after = case.padding[:rank], case.padding[rank:]
    arguments = {"stride": case.stride, "dilation": case.dilation, "groups": case.groups}
    if case.transposed:
        arguments["output_padding"] = case.output_padding
    # PyTorch pads both sides equally; otherwise pad the data or crop the output here.
    alike = before == after
    arguments["padding"] = before if alike else (0,) * rank
    if not alike and not case.transposed:
        data = np.pad(data, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    function = getattr(torch.nn.functional, case.operator.replace("d_transpose", "d"), None)
    if case.transposed:
        function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    out = function(torch.tensor(data), torch.tensor(kernel), **arguments).numpy()
    if not alike and case.transposed:
        ends = [size - high for size, high in zip(out.shape[2:], after, strict=True)]
        out = out[(..., *map(slice, before, ends))]
    return references.laid_out(out, "NC" + case.axes, case.out_layout)
