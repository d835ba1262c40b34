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
"""CheckIndices: raise an error for an index out of range, before a kernel uses it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.s_tir import SBlock, SBlockRealize

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from ...target.cpu import is_cpu
from ...tirx.util import OPAQUE, assertion_failure, checked_copy, count_of, extern, unravel
from ..analysis import operator_calls
from ..index_ranges import Ranges
from ..ir import relax_functions
from ..legalize.indices import is_at_most, source_from_start

_PART = 4096
"""The number of indices that the check covers per loop."""


def CheckIndices() -> tvm.transform.Pass:
    """Check the indices of gathers and scatters that are not provably in range.

    A kernel copies the indices as non-negative int64, and the operator reads the copy.  For an
    index out of range the kernel raises an ``AssertionError`` that names the operator, the index,
    the axis and its extent.  Before::

        lv = R.take(x, i, axis=0)

    and after, where ``check_indices`` is a PrimFunc::

        checked = R.call_tir(cls.check_indices, (i,), out_ty=R.Tensor((3,), "int64"))
        lv = R.take(x, checked, axis=0)

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU target: a GPU kernel cannot raise, and accesses the nearest element.
        No check is needed for indices that are provably in range at compile time: constants,
        results of ``arange`` or ``argmax``, and values computed from these.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        if not is_cpu(target) or not switches.enabled(FIX_ID) or not _has_indices(mod):
            return mod
        checks = _Checks(mod)
        for global_var, function in relax_functions(mod).items():
            checks.ranges = Ranges(checks.lookup_binding)
            checks.builder_.update_func(global_var, checks.visit_expr(function))
        return checks.builder_.get() if checks.count else mod

    return tvm.transform.module_pass(run, opt_level=0, name="CheckIndices")


def _has_indices(mod: tvm.IRModule) -> bool:
    names = {binding.value.op.name for _, binding in operator_calls(mod)}
    return not names.isdisjoint({*_OPERANDS, _TOP})


Operand = tuple[int, int | None, list[int]]
"""The position of the argument with the indices, its tuple field, and the axes they index."""


def _axis_operands(call: relax.Call) -> list[Operand]:
    axis, rank = call.attrs.axis, call.args[0].ty.ndim
    return [(1, None, [0 if axis is None else int(axis) % rank])]


def _take_operands(call: relax.Call) -> list[Operand]:
    return _axis_operands(call) if str(call.attrs.mode) == "fast" else []


def _row_operands(call: relax.Call) -> list[Operand]:
    """Each row of indices, along their last axis, indexes the axes after the batch dims."""
    shape = call.args[1].ty.shape
    if not isinstance(shape, relax.ShapeExpr) or not isinstance(shape.values[-1], tirx.IntImm):
        return []
    first = int(getattr(call.attrs, "batch_dims", 0))
    return [(1, None, list(range(first, first + int(shape.values[-1]))))]


def _tuple_operands(call: relax.Call) -> list[Operand]:
    return [(1, axis, [axis]) for axis in range(len(call.args[1].ty.fields))]


def _target_operands(call: relax.Call) -> list[Operand]:
    """Targets index the class axis: axis 1, or 0 if there is no batch."""
    data = _DATA.get(call.op.name, 0)
    return [(data + 1, None, [min(1, int(call.args[data].ty.ndim) - 1)])]


def _take_backward_operands(call: relax.Call) -> list[Operand]:
    axis, data = call.attrs.axis, call.args[1]
    if axis is None and data.ty.ndim != 1:
        return []
    return [(2, None, [0 if axis is None else int(axis) % data.ty.ndim])]


_OPERANDS = {
    "relax.take": _take_operands,
    "relax.gather_elements": _axis_operands,
    "relax.scatter_elements": _axis_operands,
    "relax.gather_nd": _row_operands,
    "relax.scatter_nd": _row_operands,
    "relax.index_tensor": _tuple_operands,
    "relax.index_put": _tuple_operands,
    "relax.nn.nll_loss": _target_operands,
    "relax.grad.nll_loss_backward": _target_operands,
    "relax.grad.take_backward": _take_backward_operands,
}

_DATA = {"relax.grad.nll_loss_backward": 1, "relax.grad.take_backward": 1}
"""The position of the indexed argument, if it is not the first one."""

_TOP = "relax.topk"

_ROWS = frozenset({"gather_nd", "scatter_nd"})
"""The operators whose indices have one row, with an index per axis, for each element."""


@mutator
class _Checks(PyExprMutator):
    count = 0
    ranges: Ranges

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        if name not in _OPERANDS and name != _TOP:
            return call
        data, args = call.args[_DATA.get(name, 0)], list(call.args)
        if not isinstance(data.ty.shape, relax.ShapeExpr) or data.ty.vdevice is not None:
            return call
        if name == _TOP:
            return self._check_top(call)
        is_loss = _OPERANDS[name] is _target_operands
        ignored = int(call.attrs.ignore_index) if is_loss else None
        for place, field, axes in _OPERANDS[name](call):
            holder = args[place] = self._as_tensors(args[place])
            own = holder if field is None else holder.fields[field]
            checked = self._check(name, own, axes, data.ty.shape.values, ignored)
            if field is None:
                args[place] = checked
            else:
                fields = [checked if i == field else f for i, f in enumerate(holder.fields)]
                args[place] = relax.Tuple(fields)
        if all(old.same_as(new) for old, new in zip(call.args, args, strict=True)):
            return call
        return relax.Call(call.op, args, call.attrs, call.ty_args, call.span)

    def _as_tensors(self, indices: relax.Expr) -> relax.Expr:
        """Write a tuple as its fields, and a scalar as a tensor."""
        emit = self.builder_.emit
        if isinstance(indices.ty, relax.TupleType) and not isinstance(indices, relax.Tuple):
            count = len(indices.ty.fields)
            return relax.Tuple([emit(relax.TupleGetItem(indices, i)) for i in range(count)])
        if isinstance(indices, tirx.IntImm):
            return relax.const(int(indices), "int64")
        if isinstance(indices.ty, tvm.ir.PrimType):
            return emit(self.builder_.call_te(_scalar, indices, primfunc_name_hint="index"))
        return indices

    def _check(
        self,
        name: str,
        indices: relax.Expr,
        axes: list[int],
        shape: Sequence[tirx.Expr],
        ignored: int | None,
    ) -> relax.Expr:
        ty, extents = indices.ty, [shape[axis] for axis in axes]
        is_tensor = isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
        if not is_tensor or "int" not in str(ty.dtype):
            return indices
        source = source_from_start(indices, self.lookup_binding)
        if ignored is None and self.ranges.are_within(indices, extents):
            return indices if source is None else source
        self.count += 1
        operator = name.removeprefix("relax.")
        checked = self.builder_.call_te(
            _checked,
            indices if source is None else source,
            operator,
            operator in _ROWS,
            list(axes),
            ignored,
            source is not None,
            *extents,
            primfunc_name_hint="check_indices",
            primfunc_attrs={"op_pattern": OPAQUE},
        )
        return self.builder_.emit(checked)

    def _check_top(self, call: relax.Call) -> relax.Expr:
        """Check that the axis has at least `k` elements."""
        axis = int(call.attrs.axis) % call.args[0].ty.ndim
        extent, count = call.args[0].ty.shape.values[axis], int(call.attrs.k)
        if count < 1 or isinstance(extent, tirx.IntImm):
            return call
        if is_at_most(tirx.const(count, "int64"), extent):
            return call
        self.count += 1
        top = self.builder_.emit(call)

        def checked(part: relax.Expr) -> relax.Expr:
            return self.builder_.emit(
                self.builder_.call_te(
                    _checked_top,
                    part,
                    count,
                    axis,
                    extent,
                    primfunc_name_hint="check_topk",
                    primfunc_attrs={"op_pattern": OPAQUE},
                )
            )

        if isinstance(call.ty, relax.TupleType):
            parts = [self.builder_.emit(relax.TupleGetItem(top, place)) for place in range(2)]
            return relax.Tuple([checked(part) for part in parts])
        return checked(top)


def _scalar(value: tirx.Expr) -> te.Tensor:
    return te.compute((), lambda: value.astype("int64"), name="index")


def _checked_top(top: te.Tensor, count: int, axis: int, extent: tirx.Expr) -> te.Tensor:
    """A copy of `top`, after a check that the axis has at least `count` elements."""
    message = f"topk: k is {count}, but axis {axis} has only {{}} elements"
    check = tirx.IfThenElse(extent < count, assertion_failure(message, extent), None)
    return checked_copy("check_topk", top, [check])


def _checked(
    indices: te.Tensor,
    operator: str,
    in_rows: bool,
    axes: Sequence[int],
    ignored: int | None,
    is_from_start: bool,
    *extents: tirx.Expr,
) -> te.Tensor:
    """A checked copy of the indices as non-negative int64.

    If `in_rows`, each row of the last axis has one index per axis. For a loss, `ignored` is a valid
    index, and negative indices do not count from the end; neither do they if `is_from_start`.
    """
    shape, dtype = list(indices.shape), str(indices.dtype)
    outer = shape[:-1] if in_rows else shape

    def body(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        count_buffer = tirx.decl_buffer([1], "int64", "found", layout=None)
        first = [tirx.const(0, "int64")]

        def copy(index: tirx.Var) -> list[tirx.Stmt]:
            """Store the indices as int64: a wrapped index may not fit into its own dtype."""
            stmts: list[tirx.Stmt] = []
            for at, _value, place, is_out, _fail in columns(index):
                count = tirx.BufferLoad(count_buffer, first) + is_out.astype("int64")
                stmts += [
                    tirx.BufferStore(outs[0], place, at),
                    tirx.BufferStore(count_buffer, count, first),
                ]
            return stmts

        def check(index: tirx.Var) -> list[tirx.Stmt]:
            return [tirx.IfThenElse(is_out, fail, None) for *_, is_out, fail in columns(index)]

        def columns(index: tirx.Var) -> Iterator[tuple[Any, ...]]:
            position = unravel(index, outer)
            for column, (axis, extent) in enumerate(zip(axes, extents, strict=True)):
                at = [*position, tirx.const(column, "int64")] if in_rows else position
                value = tirx.BufferLoad(ins[0], at)
                place = value.astype("int64")
                if not dtype.startswith("uint") and ignored is None and not is_from_start:
                    place = place + (place < 0).astype("int64") * extent
                is_out = tirx.any(place < 0, place >= extent)
                if ignored is not None:
                    is_out = tirx.all(is_out, place != ignored)
                message = f"{operator}: index {{}} is out of range for axis {axis} of {{}} elements"
                fail = assertion_failure(message, value.astype("int64"), extent)
                yield at, value, place, is_out, fail

        is_any = tirx.BufferLoad(count_buffer, first) > 0
        return _in_parts(count_of(outer), copy, check, is_any, count_buffer, (ins[0], outs[0]))

    return extern("check_indices", [indices], indices.shape, "int64", body)


def _in_parts(
    count: tirx.Expr,
    copy: Callable[[tirx.Var], list[tirx.Stmt]],
    check: Callable[[tirx.Var], list[tirx.Stmt]],
    is_any: tirx.Expr,
    count_buffer: tirx.Buffer,
    accessed: tuple[tirx.Buffer, tirx.Buffer],
) -> tirx.Stmt:
    """For each part: a loop without calls, which LLVM vectorizes, then one that raises."""
    part, size = tirx.Var("part", "int64"), tirx.const(_PART, "int64")
    zero = tirx.const(0, "int64")
    left = tirx.min(size, count - part * size)

    def loop(stmts: Callable[[tirx.Var], list[tirx.Stmt]]) -> tirx.Stmt:
        step = tirx.Var("i", "int64")
        body = stmts(part * size + step)
        each = body[0] if len(body) == 1 else tirx.SeqStmt(body)
        return tirx.For(step, zero, left, tirx.ForKind.SERIAL, each)

    begin = tirx.BufferStore(count_buffer, zero, [zero])
    within = tirx.SeqStmt([begin, loop(copy), tirx.IfThenElse(is_any, loop(check), None)])
    parts = tirx.floordiv(count + (_PART - 1), size)
    whole = tirx.For(part, zero, parts, tirx.ForKind.SERIAL, within)
    source, result = (
        tirx.BufferRegion(buffer, [tvm.ir.Range(0, extent) for extent in buffer.shape])
        for buffer in accessed
    )
    block = SBlock([], [source], [result], "root", whole, alloc_buffers=[count_buffer])
    return SBlockRealize([], True, block)
