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
"""Reductions, scans and Einstein summation."""

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx, topi

from ...extents import Extent
from ..call import Call, converts
from ..values.extents import with_extents
from .broadcasting import common_extent, expanded, operands
from .elementwise import first_input, input_dtype, integer_range, is_float, require

REDUCTIONS: dict[str, Callable[..., relax.Expr]] = {
    name: getattr(relax.op, name) for name in ("max", "min", "prod", "sum")
}

REDUCTIONS_OF_BOOLS: dict[str, Callable[..., te.Tensor]] = {
    **{"all": topi.all, "min": topi.all, "prod": topi.all},
    **{"any": topi.any, "max": topi.any, "sum": topi.any},
}


def reduced_axes(call: Call) -> list[int]:
    """Return the axes that a reduction removes, in order; may be empty."""
    ndim = len(call.input_types[0].shape)
    axes = (
        {axis % ndim for axis in call.ints("axis")}
        if call.attributes["axis"] is not None
        else set()
    )
    exclude = bool(call.attributes["exclude"]) and bool(axes)
    return [axis for axis in range(ndim) if not axes or (axis in axes) != exclude]


@converts(*sorted(set(REDUCTIONS) | set(REDUCTIONS_OF_BOOLS)))
def reduction(call: Call) -> relax.Expr:
    """Reduce by an associative operation, in the dtype of the input."""
    axes, keepdims = reduced_axes(call), bool(call.attributes["keepdims"])
    if input_dtype(call) != "bool" and call.operator in ("all", "any"):
        require(call, "bool")
    if not axes:
        return first_input(call)
    if input_dtype(call) == "bool":
        return call.emit_te(REDUCTIONS_OF_BOOLS[call.operator], first_input(call), axes, keepdims)
    return call.emit(REDUCTIONS[call.operator](first_input(call), axes, keepdims))


@converts("argmax", "argmin")
def arg_reduction(call: Call) -> relax.Expr:
    """The index of the extremum: into the flattened axes, if several are reduced."""
    axes, keepdims = reduced_axes(call), bool(call.attributes["keepdims"])
    require(call, "float", "int")
    if not axes:
        raise call.fail("no axis is left to reduce")
    select_last = bool(call.attributes["select_last_index"])
    if len(axes) == 1 and not select_last:
        index = call.emit(getattr(relax.op, call.operator)(first_input(call), axes[0], keepdims))
    else:
        function = getattr(topi, call.operator)
        index = call.emit_te(function, first_input(call), axes, keepdims, select_last)
    return call.emit(relax.op.astype(index, str(call.type.dtype)))


@converts("mean")
def mean(call: Call) -> relax.Expr:
    """The sum divided by the number of elements; float16 is summed up in float32."""
    axes, keepdims = reduced_axes(call), bool(call.attributes["keepdims"])
    dtype = require(call, "float", "int")
    if not axes:
        return first_input(call)
    if dtype == "float16":
        widened = call.emit(relax.op.astype(first_input(call), "float32"))
        return call.emit(relax.op.astype(call.emit(relax.op.mean(widened, axes, keepdims)), dtype))
    if is_float(dtype):
        return call.emit(relax.op.mean(first_input(call), axes, keepdims))
    check_count(call, axes, dtype)
    total = call.emit(relax.op.sum(first_input(call), axes, keepdims))
    return divide_by_count(call, total, axes)


def check_count(call: Call, axes: list[int], dtype: str) -> None:
    """Raise an error if the number of elements does not fit the integer dtype to average in."""
    shape = call.input_types[0].shape
    count = math.prod(shape[axis] for axis in axes if isinstance(shape[axis], int))
    if count > integer_range(dtype)[1]:
        raise call.fail(f"the number of elements to average, {count}, does not fit {dtype}")


def divide_by_count(call: Call, total: relax.Expr, axes: list[int], less: int = 0) -> relax.Expr:
    """Divide each sum by the number of its elements minus `less`."""
    extents = [call.input_types[0].shape[axis] for axis in axes]
    if all(isinstance(extent, int) for extent in extents):
        count = relax.const(math.prod(extents) - less, total.ty.dtype)
        return call.emit(relax.op.divide(total, count))

    def te_divide(total: te.Tensor, data: te.Tensor) -> te.Tensor:
        count: Any = tirx.const(1, "int64")
        for axis in axes:
            count = count * data.shape[axis]
        divisor = (count - less).astype(total.dtype)
        return te.compute(total.shape, lambda *index: tirx.div(total(*index), divisor))

    return call.emit_te(te_divide, total, first_input(call))


@converts("variance")
def variance(call: Call) -> relax.Expr:
    """The mean of the squared distances from the second input; float16 is summed in float32."""
    data, center = operands(call, *call.operands)
    dtype = require(call, "float")
    axes = reduced_axes(call)
    if not axes:
        raise call.fail("no axis is left to reduce")
    distance = call.emit(relax.op.subtract(data, center))
    square = call.emit(relax.op.multiply(distance, distance))
    if dtype == "float16":
        square = call.emit(relax.op.astype(square, "float32"))
    total = call.emit(relax.op.sum(square, axes, bool(call.attributes["keepdims"])))
    less = int(bool(call.attributes["unbiased"]))
    result = divide_by_count(call, total, axes, less)
    return call.emit(relax.op.astype(result, dtype)) if dtype == "float16" else result


@converts("cumprod", "cumsum")
def scan(call: Call) -> relax.Expr:
    """Cumulative sums or products, which may be exclusive."""
    dtype = str(call.type.dtype)
    if dtype == "bool":
        raise call.fail("expected a result of numbers, found dtype bool")
    axis = call.attributes["axis"]
    function = getattr(relax.op, call.operator)
    exclusive = bool(call.attributes["exclusive"])
    return call.emit(
        function(first_input(call), None if axis is None else int(axis), dtype, exclusive)
    )


@converts("einsum")
def einsum(call: Call) -> relax.Expr:
    """Einstein summation."""
    equation = str(call.attributes["equation"]).replace(" ", "")
    terms = equation.split("->")[0].split(",")
    shaped = [with_extents(call, field) for field in call.operands[0]]
    labels = [labels_of(term, len(shape)) for term, (_, shape) in zip(terms, shaped, strict=True)]
    common: dict[str, Extent] = {}
    for names, (_, shape) in zip(labels, shaped, strict=True):
        for name, extent in zip(names, shape, strict=True):
            common[name] = common_extent(call, common.get(name, 1), extent)
    fields = [
        expanded(call, expr, shape, [common[name] for name in names])
        for names, (expr, shape) in zip(labels, shaped, strict=True)
    ]
    return call.emit(relax.op.einsum(fields, equation))


def labels_of(term: str, rank: int) -> list[str]:
    """Return a name for each axis of an operand; those of an ellipsis count from its end."""
    before, *after = term.split("...")
    if not after:
        return list(term)
    covered = rank - len(before) - len(after[0])
    return [*before, *(f"...{i}" for i in reversed(range(covered))), *after[0]]
