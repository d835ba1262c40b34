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
"""LowerScan: lower cumulative sums and products, including empty ones."""

from collections.abc import Callable, Sequence

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from ...support.dtypes import accumulation_dtype
from ...target.cpu import is_cpu
from ...target.gpu import is_gpu
from ...tirx.gpu_scan import scan_kernel
from ...tirx.parallel import is_worth_threads
from ...tirx.util import OPAQUE, count_of, extern, is_zero, unravel
from ..analysis import operator_calls
from ..rewrite import rewrite_functions

_SCANS: dict[str, tuple[int, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]]] = {
    "relax.cumsum": (0, lambda total, value: total + value),
    "relax.cumprod": (1, lambda total, value: total * value),
}
"""The initial value of each scan, and its combination of the running value with an element."""


def LowerScan() -> tvm.transform.Pass:
    """Lower ``R.cumsum`` and ``R.cumprod`` for a CPU or a GPU.

    TVM's kernel for a CPU writes the first element of each line without checking that it exists:
    for an empty line it overwrites another tensor or the heap's metadata. Its kernels for a GPU do
    not build for some symbolic or empty shapes, and without lines they write beyond the result. All
    of them round each 16-bit partial sum or product; PyTorch accumulates in float32 and rounds only
    the results.

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU or GPU target.  Run it before ``DispatchSortScan``.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        has_scan = any(binding.value.op.name in _SCANS for _, binding in operator_calls(mod))
        if not (is_cpu(target) or is_gpu(target)) or not has_scan or not switches.enabled(FIX_ID):
            return mod
        lowering = _Lowering(mod, is_gpu(target))
        return rewrite_functions(lowering, mod)

    return tvm.transform.module_pass(run, opt_level=0, name="LowerScan")


@mutator
class _Lowering(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, for_gpu: bool) -> None:
        super().__init__(mod)
        self.lower = self._for_gpu if for_gpu else self._for_cpu

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name not in _SCANS:
            return call
        data = call.args[0]
        if not isinstance(data.ty.shape, relax.ShapeExpr) or data.ty.vdevice is not None:
            return call
        switches.note(FIX_ID)
        axis, dtype = call.attrs.axis, str(call.ty.dtype)
        if any(map(is_zero, data.ty.shape)):
            return relax.op.zeros(call.ty.shape, dtype)
        inner = accumulation_dtype(dtype)
        if inner != dtype != str(data.ty.dtype):
            data = self.builder_.emit(relax.op.astype(data, dtype))
        axis = None if axis is None else int(axis) % data.ty.ndim
        scanned = self.lower(data, call.op.name, axis, inner, bool(call.attrs.exclusive))
        return scanned if inner == dtype else relax.op.astype(self.builder_.emit(scanned), dtype)

    def _for_cpu(
        self, data: relax.Expr, operator: str, axis: int | None, dtype: str, is_exclusive: bool
    ) -> relax.Expr:
        name = operator.removeprefix("relax.")
        arguments = (operator, axis, dtype, is_exclusive)
        # Not fused: kernels fuse only if they agree in the expressions of extents.
        return self.builder_.call_te(
            _scan,
            data,
            *arguments,
            primfunc_name_hint=name,
            primfunc_attrs={"op_pattern": OPAQUE},
        )

    def _for_gpu(
        self, data: relax.Expr, operator: str, axis: int | None, dtype: str, is_exclusive: bool
    ) -> relax.Expr:
        shape = [count_of(data.ty.shape)] if axis is None else list(data.ty.shape)
        line = 0 if axis is None else axis
        around = [count_of(shape[:line]), shape[line], count_of(shape[line + 1 :])]
        kernel = scan_kernel(
            str(data.ty.dtype),
            dtype,
            *_SCANS[operator],
            is_exclusive=is_exclusive,
            length=int(shape[line]) if isinstance(shape[line], tirx.IntImm) else None,
        )
        function = self.builder_.add_func(kernel, operator.removeprefix("relax."))
        lines = self.builder_.emit(relax.op.reshape(data, around))
        call = relax.call_tir(function, [lines], relax.TensorType(around, dtype))
        return relax.op.reshape(self.builder_.emit(call), shape)


def _scan(
    data: te.Tensor, operator: str, axis: int | None, dtype: str, is_exclusive: bool
) -> te.Tensor:
    first, combine = _SCANS[operator]
    shape = [count_of(data.shape)] if axis is None else list(data.shape)
    line = 0 if axis is None else axis
    others = [extent for place, extent in enumerate(shape) if place != line]

    def body(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        lines, index = tirx.Var("line", "int64"), tirx.Var("i", "int64")
        position = unravel(lines, others)

        def at(place: tirx.Expr) -> list[tirx.Expr]:
            return [*position[:line], place, *position[line:]]

        def value(place: tirx.Expr) -> tirx.Expr:
            where = unravel(place, data.shape) if axis is None else at(place)
            return tirx.BufferLoad(ins[0], where).astype(dtype)

        before = index - 1
        total = tirx.BufferLoad(outs[0], at(before))
        start = tirx.const(first, dtype) if is_exclusive else value(index)
        next_ = combine(total, value(before if is_exclusive else index))
        # Not a Select, which evaluates both sides and reads before the line.
        element = tirx.IfThenElse(
            index.equal(tirx.const(0, "int64")),
            tirx.BufferStore(outs[0], start, at(index)),
            tirx.BufferStore(outs[0], next_, at(index)),
        )
        zero = tirx.const(0, "int64")
        inner = tirx.For(index, zero, shape[line], tirx.ForKind.SERIAL, element)
        is_small = not is_worth_threads(count_of(shape))
        kind = tirx.ForKind.SERIAL if is_small else tirx.ForKind.PARALLEL
        return tirx.For(lines, zero, count_of(others), kind, inner)

    return extern("scan", [data], shape, dtype, body)
