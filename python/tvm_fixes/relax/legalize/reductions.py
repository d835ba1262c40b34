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

Versions
    Seen in 0.27.0.post1.
Trigger
    Rows of infinities or with a NaN; an argmax of rows that hold the least number of their dtype
    alone, such as zeros of uint8; statistics over axes that are known to be empty; sums, products
    and statistics of 16-bit floats.
Symptom
    Wrong numbers, silently: the largest of negative infinities is the least finite number, a NaN is
    found or not by where it lies, an argmax is -1.  A mean of no elements is a "Divide by zero"
    while it is built.  A sum of 4096 float16 ones is 2048, the mean of 40000 threes infinite.
Mechanism
    A reduction begins with the least finite number, and an argmax with the index -1 beside it,
    which wins a tie; comparisons with a NaN are false, and which operand is kept then is left to
    chance.  Sums are in the dtype of the data.
How to remove
    When TVM passes the tests of this file, delete it, its test and the fix id
    ``reduction-legalize``.
"""

import functools
from collections.abc import Callable, Sequence

from tvm import relax, te, tirx
from tvm.sym import Analyzer
from tvm.tirx import all as all_of
from tvm.tirx import any as any_of

from ...fixes.elements import REDUCTION_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import is_zero
from .override import Legalize, override

_INDEXED = ("relax.argmax", "relax.argmin")
_STATISTICS = ("relax.mean", "relax.variance", "relax.std")
_SUMS = (*_STATISTICS, "relax.sum", "relax.prod")

# Sums of these are in float32.
_NARROW = ("float16", "bfloat16")


def _is_beyond(operator: str, a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Whether `a` is greater or less than `b`; a NaN is beyond all numbers, as in PyTorch."""
    beyond = a > b if operator.endswith("max") else a < b
    return any_of(beyond, all_of(_is_nan(a), tirx.Not(_is_nan(b))))


def _is_tie(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    # TVM takes the negation of a > b for a <= b, which is false where one is a NaN.
    return any_of(a == b, all_of(_is_nan(a), _is_nan(b)))


def _is_nan(value: tirx.Expr) -> tirx.Expr:
    # Unlike a comparison with itself it is not simplified.
    return tirx.isnan(value) if "float" in str(value.ty) else tirx.const(False, "bool")


class _Reduction:
    """The positions that a reduction over `axes` of `data` joins for each element of its result."""

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
        # A reduction has an axis, even that of a single element.
        return list(self._along.values()) or [te.reduce_axis((0, 1), "k")]

    def element(self, at: Sequence[tirx.Expr]) -> tirx.Expr:
        """The element of the data that is joined at `at`."""
        kept = iter(at)
        position = []
        for axis in range(len(self._data.shape)):
            if self._keepdims or axis not in self._along:
                index = next(kept)
            position.append(self._along[axis].var if axis in self._along else index)
        return self._data(*position)

    def index(self, dtype: str) -> tirx.Expr:
        """Which of the joined elements it is, in row-major order."""
        index = tirx.const(0, dtype)
        for axis, along in self._along.items():
            extent = tirx.Cast(dtype, self._data.shape[axis])
            index = index * extent + tirx.Cast(dtype, along.var)
        return index


def extremum_reducer(operator: str) -> Callable[..., tirx.Expr]:
    """Make the reduction to the largest or smallest element, or to a NaN where there is one.

    Parameters
    ----------
    operator : str
        A name that ends in ``max`` or ``min``.

    Returns
    -------
    callable
        As :func:`tvm.te.max` and :func:`tvm.te.min` are called, with an element of a dtype of
        :func:`comparable`.
    """
    least = operator.endswith("max")

    def identity(dtype: str) -> tirx.Expr:
        if "float" in str(dtype):
            return tirx.const(float("-inf" if least else "inf"), dtype)
        return tirx.const(0 if least else 1, dtype)

    def combine(kept: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
        # A NaN that is kept stays, since nothing is beyond it.
        beyond = other > kept if least else other < kept
        return tirx.Select(any_of(beyond, _is_nan(other)), other, kept)

    reducer: Callable[..., tirx.Expr] = te.comm_reducer(combine, identity, name="extremum")
    return reducer


def extremum(data: te.Tensor, operator: str, axes: Sequence[int], keepdims: bool) -> te.Tensor:
    """Compute the largest or smallest elements along `axes`.

    Parameters
    ----------
    data : te.Tensor
        Of floating-point numbers or booleans.
    operator : str
        ``relax.max`` or ``relax.min``.
    axes : sequence of int
        None is negative.
    keepdims : bool
        Whether the result has them with extent 1.

    Returns
    -------
    te.Tensor
        NaN where one is among them; an infinity, false or true where there are none.
    """
    reducer = extremum_reducer(operator)
    over = _Reduction(comparable(data), axes, keepdims)
    along = over.along
    found = te.compute(over.shape, lambda *at: reducer(over.element(at), along), name="extremum")
    if found.dtype == data.dtype:
        return found
    return te.compute(over.shape, lambda *at: found(*at).astype(data.dtype), name="narrowed")


def comparable(data: te.Tensor) -> te.Tensor:
    """Cast `data` to a dtype of which the elements can be compared, in a reduction too.

    Of booleans and of floats other than IEEE 754's LLVM has no comparison.

    Parameters
    ----------
    data : te.Tensor
        Of any dtype.

    Returns
    -------
    te.Tensor
        `data` itself where it needs no cast, and else in uint8 or float32.
    """
    dtype = str(data.dtype)
    wide = "uint8" if dtype == "bool" else "float32" if "float" in dtype else dtype
    if wide == dtype or dtype in ("float16", "float64"):
        return data
    return te.compute(data.shape, lambda *at: data(*at).astype(wide), name="widened")


def arg_extremum(
    data: te.Tensor, operator: str, axes: Sequence[int], keepdims: bool, dtype: str
) -> te.Tensor:
    """Compute where the largest or smallest elements along `axes` are, the first of equal ones.

    Parameters
    ----------
    data, operator, axes, keepdims
        As of :func:`extremum`; the dtype is any, the operator ``relax.argmax`` or ``relax.argmin``.
    dtype : str
        Of the result, an integer.

    Returns
    -------
    te.Tensor
        Indices in the row-major order of `axes`: that of the first NaN where there is one.
    """

    def combine(
        lhs: tuple[tirx.Expr, tirx.Expr], rhs: tuple[tirx.Expr, tirx.Expr]
    ) -> tuple[tirx.Expr, tirx.Expr]:
        is_first = all_of(_is_tie(lhs[1], rhs[1]), lhs[0] < rhs[0])
        wins = any_of(_is_beyond(operator, lhs[1], rhs[1]), is_first)
        keeps = any_of(rhs[0] < 0, all_of(lhs[0] >= 0, wins))
        return tirx.Select(keeps, lhs[0], rhs[0]), tirx.Select(keeps, lhs[1], rhs[1])

    reducer = te.comm_reducer(
        combine,
        lambda index, value: (tirx.const(-1, index), tirx.const(0, value)),
        name="arg_extremum",
    )
    over = _Reduction(comparable(data), axes, keepdims)
    along = over.along
    indices, _ = te.compute(
        over.shape,
        lambda *at: reducer((over.index(dtype), over.element(at)), along),
        name="arg_extremum",
    )
    return indices


def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    (data,), operator = call.args, str(call.op.name)
    if not _is_ours(call):
        return stock(bb, call)
    switches.note(FIX_ID)
    axes, keepdims, dtype = _axes(call), bool(call.attrs.keepdims), str(data.ty.dtype)
    name = operator.rpartition(".")[2]
    if operator in _INDEXED:
        data = _with_elements(bb, data, axes)
        return bb.call_te(
            arg_extremum, data, operator, axes, keepdims, call.ty.dtype, primfunc_name_hint=name
        )
    if operator not in _SUMS:
        return bb.call_te(extremum, data, operator, axes, keepdims, primfunc_name_hint=name)
    if "float" not in dtype:
        return relax.op.astype(bb.emit(stock(bb, call)), dtype)
    if dtype in _NARROW and not _has_empty_axis(call):
        wide = bb.emit(relax.op.astype(data, "float32"))
        return relax.op.astype(bb.emit(relax.Call(call.op, [wide], call.attrs)), dtype)
    nan, shape = tirx.const(float("nan"), dtype), call.ty.shape.values
    return bb.call_te(lambda: te.compute(shape, lambda *_: nan), primfunc_name_hint=name)


def _is_ours(call: relax.Call) -> bool:
    """Whether TVM's lowering of a call does not do what is right."""
    (data,), operator = call.args, str(call.op.name)
    if not switches.enabled(FIX_ID) or not isinstance(data.ty.shape, relax.ShapeExpr):
        return False
    if operator in _INDEXED:
        return True
    dtype = str(data.ty.dtype)
    if operator not in _SUMS:
        return "float" in dtype or dtype == "bool"
    if operator == "relax.mean" and "float" not in dtype and dtype != "int64":
        return True  # TVM divides by an int64
    is_empty_mean = operator in _STATISTICS and _has_empty_axis(call) and "float" in dtype
    return is_empty_mean or (dtype in _NARROW and not _has_empty_axis(call))


def _has_empty_axis(call: relax.Call) -> bool:
    """Whether it is known that there are no elements to join."""
    extents = [call.args[0].ty.shape.values[axis] for axis in _axes(call)]
    return any(map(is_zero, extents))


def _axes(call: relax.Call) -> list[int]:
    axes, rank = call.attrs.axis, call.args[0].ty.ndim
    if axes is None:
        return list(range(rank))
    listed = axes if isinstance(axes, Sequence) else [axes]
    return [int(axis) % rank for axis in listed]


def _with_elements(bb: relax.BlockBuilder, data: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    """`data`, checked at run time to have elements along `axes` if that is unknown now."""
    analyzer, shape = Analyzer(), list(data.ty.shape.values)
    unknown = [axis for axis in axes if not analyzer.can_prove(shape[axis] > 0)]
    if not unknown:
        return data
    for axis in unknown:
        if isinstance(shape[axis], tirx.IntImm):
            raise ValueError(f"axis {axis} has no elements; expected at least one")
        shape[axis] = tirx.max(shape[axis], tirx.const(1, "int64"))
    return bb.match_cast(data, relax.TensorType(shape, data.ty.dtype, data.ty.vdevice))


@functools.cache
def register() -> None:
    """Put the lowering in force. A second call does nothing."""
    for operator in (*_INDEXED, *_SUMS, "relax.max", "relax.min"):
        override(operator, _legalize)
