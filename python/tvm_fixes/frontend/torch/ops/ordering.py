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
"""Searches in sorted tensors, running extrema and running sums of exponentials."""

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T

from ....fixes.torch_importer import DECOMPOSITIONS as FIX_ID
from ....support import switches
from ....tirx.loop_kernels import Outputs, cast, local, loops, nest, when
from ...dtypes import dtype_of
from ..call import Call, converts


@converts("cummax.default", "cummin.default", fix=FIX_ID, noted=True)
def convert_running_extremum(call: Call) -> relax.Expr:
    """Convert ``cummax`` and ``cummin``; of equal elements, the last one wins."""
    x, axis = call.arguments(input=None, dim=None)
    emit, dtype = call.emit, dtype_of(x)
    if x.ty.ndim == 0:
        return relax.Tuple([x, relax.const(0, "int64")])
    axis, name = axis % x.ty.ndim, call.operator.partition(".")[0]
    values = call.astype(x, "int8") if dtype == "bool" else x

    def outputs(tensor: te.Tensor) -> Outputs:
        return [(tensor.shape, tensor.dtype), (tensor.shape, "int64")]

    def body(source: Any, best: Any, places: Any) -> None:
        _run_extrema(source, best, places, axis, name == "cummax")

    result = call.builder.emit_te(loops(name, outputs, body), values, primfunc_name_hint=name)
    best, places = (emit(relax.TupleGetItem(result, i)) for i in range(2))
    return relax.Tuple([call.astype(best, dtype), places])


@converts("logcumsumexp.default", fix=FIX_ID, noted=True)
def convert_log_sums(call: Call) -> relax.Expr:
    """Convert running sums of exponentials, as logarithms."""
    x, axis = call.arguments(input=None, dim=None)
    if x.ty.ndim == 0:
        return x
    axis %= x.ty.ndim

    def outputs(tensor: te.Tensor) -> Outputs:
        return [(tensor.shape, tensor.dtype)]

    def body(source: Any, sums: Any) -> None:
        _run_log_sums(source, sums, axis)

    kernel = loops("logcumsumexp", outputs, body)
    sums = call.builder.emit_te(
        kernel, call.astype(x, "float64"), primfunc_name_hint="logcumsumexp"
    )
    return call.astype(sums, dtype_of(x))


@converts("searchsorted.Scalar", "searchsorted.Tensor", fix=FIX_ID)
def convert_search(call: Call) -> relax.Expr:
    """Convert a search of numbers in sorted rows."""
    names = {"sorted_sequence": None, "input": None}
    options = {"out_int32": False, "right": False, "side": None, "sorter": None}
    rows, sought, _, right, side, sorter = call.arguments(**names, **options)
    if not isinstance(sought, relax.Expr):
        sought = relax.const(sought, dtype_of(rows))
    if sorter is not None:
        rows = call.emit(relax.op.gather_elements(rows, sorter, axis=rows.ty.ndim - 1))
    return _places(call, rows, sought, right or side == "right")


@converts("bucketize.Tensor", fix=FIX_ID)
def convert_bucketize(call: Call) -> relax.Expr:
    """Convert a search of numbers in one sorted row."""
    sought, rows, _, right = call.arguments(
        input=None, boundaries=None, out_int32=False, right=False
    )
    return _places(call, rows, sought, right)


def _places(call: Call, rows: relax.Expr, sought: relax.Expr, is_after: bool) -> relax.Expr:
    """Emit a search of each number of `sought` in its sorted row."""
    switches.note(FIX_ID)
    emit = call.emit
    dtype = call.dtype

    def outputs(_: te.Tensor, numbers: te.Tensor) -> Outputs:
        return [(numbers.shape, dtype)]

    def body(sequence: Any, numbers: Any, places: Any) -> None:
        _search(sequence, numbers, places, is_after)

    shape: Sequence[Any] = sought.ty.shape.values
    sought = sought if shape else emit(relax.op.reshape(sought, (1,)))
    places = call.builder.emit_te(
        loops("searchsorted", outputs, body), rows, sought, primfunc_name_hint="searchsorted"
    )
    return places if shape else emit(relax.op.reshape(places, ()))


def _is_nan(value: Any, dtype: str) -> Any:
    number = cast(value, "float32") if dtype == "bfloat16" else value
    return tirx.isnan(number) if "float" in dtype else tirx.const(False, "bool")


def _run_extrema(source: Any, best: Any, places: Any, axis: int, largest: bool) -> None:
    extents, dtype = list(source.shape), str(source.dtype)
    with nest(extents[:axis] + extents[axis + 1 :]) as others:
        position = local("int64", 0)
        with T.serial(0, extents[axis]) as i:
            at = (*others[:axis], i, *others[axis:])
            element = source[at]
            extremum = source[(*others[:axis], position[0], *others[axis:])]
            reaches = element >= extremum if largest else element <= extremum
            is_larger = tirx.all(tirx.Not(_is_nan(extremum, dtype)), reaches)
            with when(tirx.any(_is_nan(element, dtype), is_larger)):
                position[0] = cast(i, "int64")
            best[at] = source[(*others[:axis], position[0], *others[axis:])]
            places[at] = position[0]


def _run_log_sums(source: Any, sums: Any, axis: int) -> None:
    extents = list(source.shape)
    infinity = tirx.const(math.inf, "float64")
    with nest(extents[:axis] + extents[axis + 1 :]) as others:
        total = local("float64", -math.inf)
        with T.serial(0, extents[axis]) as i:
            at = (*others[:axis], i, *others[axis:])
            large = tirx.Select(total[0] > source[at], total[0], source[at])
            small = tirx.Select(total[0] > source[at], source[at], total[0])
            finite = large + tirx.log(tirx.exp(small - large) + 1.0)
            # The difference of infinities is NaN.
            number = tirx.Select(tirx.abs(large) == infinity, large, finite)
            is_nan = tirx.any(tirx.isnan(total[0]), tirx.isnan(source[at]))
            total[0] = tirx.Select(is_nan, total[0] + source[at], number)
            sums[at] = total[0]


def _search(sequence: Any, numbers: Any, places: Any, is_after: bool) -> None:
    """Find the first element that is not smaller than a number, or with `is_after` is larger."""
    extent = sequence.shape[-1]
    is_shared = len(sequence.shape) == 1
    with nest(numbers.shape) as at:
        low, high = local("int64", 0), local("int64", extent)
        with T.While(low[0] < high[0]):
            middle = local("int64", (low[0] + high[0]) // 2)
            element = sequence[middle[0]] if is_shared else sequence[(*at[:-1], middle[0])]
            # NaN comes after all numbers.
            is_found = element > numbers[at] if is_after else element >= numbers[at]
            with T.If(is_found):
                with T.Then():
                    high[0] = middle[0]
                with T.Else():
                    low[0] = middle[0] + 1
        places[at] = cast(low[0], str(places.dtype))
