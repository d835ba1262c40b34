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
"""Lowering of ``relax.max``, ``min``, ``argmax``, ``argmin``, ``mean``, ``variance`` and ``std``.

Mechanism
    A maximum begins with the lowest finite number, and an argmax also with the index -1, which wins
    a tie; comparisons with a NaN are false, so the order of the operands decides which one is kept.
    Sums have the dtype of the data.
"""

import math
from collections.abc import Callable, Sequence

from tvm import relax, te, tirx
from tvm.sym import Analyzer
from tvm.tirx import all as all_of
from tvm.tirx import any as any_of

from ...fixes.elements import REDUCTION_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import count_of, is_zero
from .long_reductions import parts_of, positions_like, reduce_parts, rows_of
from .override import Legalize, legalizes
from .targets import schedules_for_cpu

_INDEXED = ("relax.argmax", "relax.argmin")
_STATISTICS = ("relax.mean", "relax.variance", "relax.std")
_SUMS = (*_STATISTICS, "relax.sum", "relax.prod")

# Dtypes whose sums are computed in float32.
_NARROW = ("float16", "bfloat16")


def _is_beyond(operator: str, a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Whether `a` beats `b` in a max or min; a NaN beats all numbers, as in PyTorch."""
    beyond = a > b if operator.endswith("max") else a < b
    return any_of(beyond, all_of(_is_nan(a), tirx.Not(_is_nan(b))))


def _is_tie(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    # TVM rewrites the negation of a > b to a <= b, which is false for a NaN.
    return any_of(a == b, all_of(_is_nan(a), _is_nan(b)))


def _is_nan(value: tirx.Expr) -> tirx.Expr:
    # TVM folds `value != value`, but not isnan.
    return tirx.isnan(value) if "float" in str(value.ty) else tirx.const(False, "bool")


class _Reduction:
    """The reduction axes and element positions of a reduction over `axes` of `data`."""

    def __init__(self, data: te.Tensor, axes: Sequence[int], keepdims: bool) -> None:
        extents = {axis: data.shape[axis] for axis in sorted(axes)}
        self._data, self._keepdims = data, keepdims
        self._along = {a: te.reduce_axis((0, extent), f"k{a}") for a, extent in extents.items()}
        self.shape = [
            1 if axis in extents else extent
            for axis, extent in enumerate(data.shape)
            if keepdims or axis not in extents
        ]

    @property
    def along(self) -> list[tirx.IterVar]:
        # A reduction needs an axis, even over a single element.
        return list(self._along.values()) or [te.reduce_axis((0, 1), "k")]

    def element(self, at: Sequence[tirx.Expr]) -> tirx.Expr:
        """The reduced element of the data, for the element `at` of the result."""
        kept = iter(at)
        position = []
        for axis in range(len(self._data.shape)):
            if self._keepdims or axis not in self._along:
                index = next(kept)
            position.append(self._along[axis].var if axis in self._along else index)
        return self._data(*position)

    def index(self, dtype: str) -> tirx.Expr:
        """The index of the reduced element among those of its row, in row-major order."""
        index = tirx.const(0, dtype)
        for axis, along in self._along.items():
            extent = tirx.Cast(dtype, self._data.shape[axis])
            index = index * extent + tirx.Cast(dtype, along.var)
        return index


def extremum_reducer(operator: str) -> Callable[..., tirx.Expr]:
    """A reducer to the largest or smallest element, or to a NaN if there is one.

    Parameters
    ----------
    operator : str
        A name that ends in ``max`` or ``min``.

    Returns
    -------
    callable
        A reducer like :func:`tvm.te.max` and :func:`tvm.te.min`, for the dtypes that
        :func:`comparable` returns.
    """
    is_max = operator.endswith("max")

    def combine(kept: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
        # A NaN is kept: both comparisons with it are false.
        beyond = other > kept if is_max else other < kept
        return tirx.Select(any_of(beyond, _is_nan(other)), other, kept)

    reducer: Callable[..., tirx.Expr] = te.comm_reducer(
        combine, lambda dtype: identity(operator, dtype), name="extremum"
    )
    return reducer


def identity(operator: str, dtype: str) -> tirx.Expr:
    """The maximum or minimum of no elements, for the dtypes that :func:`comparable` returns."""
    is_max = operator.endswith("max")
    if "float" in str(dtype):
        return tirx.const(float("-inf" if is_max else "inf"), dtype)
    return tirx.const(0 if is_max else 1, dtype)


def extremum(data: te.Tensor, operator: str, axes: Sequence[int], keepdims: bool) -> te.Tensor:
    """Compute the largest or smallest elements along `axes`.

    Parameters
    ----------
    data : te.Tensor
        Floating-point or boolean data.
    operator : str
        ``relax.max`` or ``relax.min``.
    axes : sequence of int
        The reduced axes, not negative.
    keepdims : bool
        Whether to keep the reduced axes with extent 1.

    Returns
    -------
    te.Tensor
        The extrema: NaN if one of the elements is NaN; an infinity, false or true if there are no
        elements.
    """
    reducer = extremum_reducer(operator)
    over = _Reduction(comparable(data), axes, keepdims)
    along = over.along
    extremes = te.compute(over.shape, lambda *at: reducer(over.element(at), along), name="extremum")
    if extremes.dtype == data.dtype:
        return extremes
    return te.compute(over.shape, lambda *at: extremes(*at).astype(data.dtype), name="narrowed")


def comparable(data: te.Tensor) -> te.Tensor:
    """Cast `data` to a dtype whose elements LLVM can compare, even in a reduction.

    LLVM cannot compare booleans and floats other than those of IEEE 754.

    Parameters
    ----------
    data : te.Tensor
        Data of any dtype.

    Returns
    -------
    te.Tensor
        `data` itself if it needs no cast, else `data` in uint8 or float32.
    """
    dtype = str(data.dtype)
    comparable_dtype = "uint8" if dtype == "bool" else "float32" if "float" in dtype else dtype
    if comparable_dtype == dtype or dtype in ("float16", "float64"):
        return data
    return te.compute(data.shape, lambda *at: data(*at).astype(comparable_dtype), name="widened")


def arg_extremum_reducer(operator: str) -> Callable[..., tuple[tirx.Expr, tirx.Expr]]:
    """A reducer of pairs of an index and a value to the first of the largest or smallest values.

    A pair with a negative index never wins.
    """

    def combine(
        lhs: tuple[tirx.Expr, tirx.Expr], rhs: tuple[tirx.Expr, tirx.Expr]
    ) -> tuple[tirx.Expr, tirx.Expr]:
        is_first = all_of(_is_tie(lhs[1], rhs[1]), lhs[0] < rhs[0])
        wins = any_of(_is_beyond(operator, lhs[1], rhs[1]), is_first)
        keeps = any_of(rhs[0] < 0, all_of(lhs[0] >= 0, wins))
        return tirx.Select(keeps, lhs[0], rhs[0]), tirx.Select(keeps, lhs[1], rhs[1])

    reducer: Callable[..., tuple[tirx.Expr, tirx.Expr]] = te.comm_reducer(
        combine,
        lambda index, value: (tirx.const(-1, index), tirx.const(0, value)),
        name="arg_extremum",
    )
    return reducer


def arg_extremum(
    data: te.Tensor, operator: str, axes: Sequence[int], keepdims: bool, dtype: str
) -> te.Tensor:
    """Compute the indices of the largest or smallest elements along `axes`, the first if equal.

    Parameters
    ----------
    data, operator, axes, keepdims
        As for :func:`extremum`, with any dtype, and ``relax.argmax`` or ``relax.argmin``.
    dtype : str
        The integer dtype of the result.

    Returns
    -------
    te.Tensor
        Indices in the row-major order of `axes`; that of the first NaN if there is one.
    """
    reducer = arg_extremum_reducer(operator)
    over = _Reduction(comparable(data), axes, keepdims)
    along = over.along
    indices, _ = te.compute(
        over.shape,
        lambda *at: reducer((over.index(dtype), over.element(at)), along),
        name="arg_extremum",
    )
    return indices


def _first_extremum(
    data: te.Tensor, operator: str, axes: Sequence[int], keepdims: bool, dtype: str
) -> te.Tensor:
    """The result of :func:`arg_extremum` in two reductions, which a CPU vectorizes.

    First the largest or smallest elements; then the smallest indices of elements equal to them.
    """
    widened = comparable(data)
    if "float" in str(widened.dtype):
        best = extremum(widened, operator, axes, keepdims)
    else:
        over = _Reduction(widened, axes, keepdims)
        reduce = te.max if operator.endswith("max") else te.min
        best = te.compute(over.shape, lambda *at: reduce(over.element(at), over.along))
    again = _Reduction(widened, axes, keepdims)
    count = count_of([data.shape[axis] for axis in axes])
    is_short = isinstance(count, tirx.IntImm) and count.value < 1 << 31
    narrow = "int32" if is_short else "int64"
    beyond = tirx.max_value(narrow)

    def index(*at: tirx.Var) -> tirx.Expr:
        is_best = _is_tie(again.element(at), best(*at))
        return te.min(tirx.Select(is_best, again.index(narrow), beyond), again.along)

    first = te.compute(again.shape, index, name="first")
    return te.compute(again.shape, lambda *at: first(*at).astype(dtype), name="index")


def _in_steps(
    bb: relax.BlockBuilder, call: relax.Call, data: relax.Expr, parts: Sequence[int]
) -> relax.Expr:
    """The result of a max, min, argmax or argmin by partial results; see ``parts_of``."""
    operator, axes = str(call.op.name), _axes(call)
    name = operator.rpartition(".")[2]
    is_indexed = operator in _INDEXED
    reducer = (arg_extremum_reducer if is_indexed else extremum_reducer)(operator)
    count = math.prod(int(data.ty.shape.values[axis]) for axis in axes)

    def first(data: te.Tensor) -> list[te.Tensor]:
        widened = comparable(data)
        padding = tirx.const(0, widened.dtype) if is_indexed else identity(operator, widened.dtype)
        rows = rows_of(widened, axes, parts[0], padding)
        positions = [positions_like(rows, count, str(call.ty.dtype))] if is_indexed else []
        return reduce_parts([*positions, rows], reducer, parts[0])

    def emit(compute: Callable[..., list[te.Tensor]], *operands: relax.Expr) -> list[relax.Expr]:
        reduced = bb.emit_te(compute, *operands, primfunc_name_hint=f"{name}_of_parts")
        return (
            [bb.emit(relax.TupleGetItem(reduced, i)) for i in range(2)] if is_indexed else [reduced]
        )

    reduced = emit(first, data)
    for number in (*parts[1:], 1):
        reduced = emit(lambda *operands, n=number: reduce_parts(operands, reducer, n), *reduced)
    y = bb.emit(relax.op.reshape(reduced[0], call.ty.shape))
    return y if y.ty.dtype == call.ty.dtype else relax.op.astype(y, call.ty.dtype)


@legalizes(*_INDEXED, *_SUMS, "relax.max", "relax.min")
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    (data,), operator = call.args, str(call.op.name)
    if not _needs_fix(call):
        return stock(bb, call)
    switches.note(FIX_ID)
    axes, keepdims, dtype = _axes(call), bool(call.attrs.keepdims), str(data.ty.dtype)
    name = operator.rpartition(".")[2]
    if operator in _INDEXED:
        data = _check_has_elements(bb, data, axes)
    parts = [] if operator in _SUMS else parts_of(call, axes)
    if parts:
        return _in_steps(bb, call, data, parts)
    if operator in _INDEXED:
        compute = _first_extremum if schedules_for_cpu(call) else arg_extremum
        return bb.call_te(
            compute, data, operator, axes, keepdims, call.ty.dtype, primfunc_name_hint=name
        )
    if operator not in _SUMS:
        return bb.call_te(extremum, data, operator, axes, keepdims, primfunc_name_hint=name)
    if "float" not in dtype:
        return relax.op.astype(bb.emit(stock(bb, call)), dtype)
    if dtype in _NARROW and not _has_empty_axis(call):
        in_float32 = bb.emit(relax.op.astype(data, "float32"))
        return relax.op.astype(bb.emit(relax.Call(call.op, [in_float32], call.attrs)), dtype)
    nan, shape = tirx.const(float("nan"), dtype), call.ty.shape.values
    return bb.call_te(lambda: te.compute(shape, lambda *_: nan), primfunc_name_hint=name)


def _needs_fix(call: relax.Call) -> bool:
    """Whether TVM's lowering of a call is wrong, and the fix is on."""
    (data,), operator = call.args, str(call.op.name)
    if not switches.enabled(FIX_ID) or not isinstance(data.ty.shape, relax.ShapeExpr):
        return False
    if operator in _INDEXED:
        return True
    dtype = str(data.ty.dtype)
    if operator not in _SUMS:
        return "float" in dtype or dtype == "bool"
    if operator == "relax.mean" and "float" not in dtype and dtype != "int64":
        return True  # TVM divides by an int64, which changes the dtype
    is_empty_mean = operator in _STATISTICS and _has_empty_axis(call) and "float" in dtype
    return is_empty_mean or (dtype in _NARROW and not _has_empty_axis(call))


def _has_empty_axis(call: relax.Call) -> bool:
    """Whether a reduced axis is known to have no elements."""
    extents = [call.args[0].ty.shape.values[axis] for axis in _axes(call)]
    return any(map(is_zero, extents))


def _axes(call: relax.Call) -> list[int]:
    axes, rank = call.attrs.axis, call.args[0].ty.ndim
    if axes is None:
        return list(range(rank))
    listed = axes if isinstance(axes, Sequence) else [axes]
    return [int(axis) % rank for axis in listed]


def _check_has_elements(
    bb: relax.BlockBuilder, data: relax.Expr, axes: Sequence[int]
) -> relax.Expr:
    """Check at run time that `data` has elements along `axes`, unless that is proven."""
    analyzer, shape = Analyzer(), list(data.ty.shape.values)
    unknown = [axis for axis in axes if not analyzer.can_prove(shape[axis] > 0)]
    if not unknown:
        return data
    for axis in unknown:
        if isinstance(shape[axis], tirx.IntImm):
            raise ValueError(f"axis {axis} has no elements; expected at least one")
        shape[axis] = tirx.max(shape[axis], tirx.const(1, "int64"))
    return bb.match_cast(data, relax.TensorType(shape, data.ty.dtype, data.ty.vdevice))
