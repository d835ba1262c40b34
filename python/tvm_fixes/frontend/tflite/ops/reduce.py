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
"""Reductions, positions of extrema, sums along an axis, and the largest elements."""

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from ...fixed_point import fixed_point
from ..call import Array, Call, Value, converts, is_quantized
from ..values.fixed_point import rescaled

_MOVING: dict[str, Callable[..., relax.Expr]] = {
    "REDUCE_MAX": relax.op.max,
    "REDUCE_MIN": relax.op.min,
}

_SUMS: dict[str, Callable[..., relax.Expr]] = {"MEAN": relax.op.mean, "SUM": relax.op.sum}

# An int32 holds the sum of as many 16-bit integers.
_MAX_SUMMED = 1 << 15

_OF_KNOWN: dict[str, Callable[..., Array]] = {"REDUCE_PROD": np.prod, "SUM": np.sum}


def _axes(call: Call) -> list[int]:
    """The axes to reduce, each of them once."""
    rank = call.rank(0)
    return sorted({call.axis(axis, rank) for axis in call.ints(1, "the axes")})


@converts(*_SUMS)
def summed(call: Call) -> Value:
    """The sum or the mean along axes; quantized elements are summed as integers."""
    known = _evaluated(call)
    if known is not None:
        return known
    data, out = call.input(0), call.outputs[0]
    axes, keeps = _axes(call), call.option("keep_dims")
    if not is_quantized(data):
        if call.operator == "MEAN" and data.dtype != "float32":
            raise call.fail(f"operands of {data.dtype} are not supported")
        return _SUMS[call.operator](call.operand(0), axis=axes, keepdims=keeps)
    source, target = call.quantization(data), call.quantization(out)
    shape = call.shape(0)
    count = math.prod(int(shape[axis]) for axis in axes if isinstance(shape[axis], int))
    if not all(isinstance(shape[axis], int) for axis in axes) or not 0 < count < _MAX_SUMMED:
        raise call.fail(f"the axes are {axes}, of data of shape {shape}")
    value = call.emit(relax.op.astype(call.operand(0), "int32"))
    if source.zero_point[0]:
        zero = relax.const(int(source.zero_point[0]), "int32")
        value = call.emit(relax.op.subtract(value, zero))
    value = call.emit(relax.op.sum(value, axis=axes, keepdims=keeps))
    factor, exponent = fixed_point(float(source.scale[0]) / float(target.scale[0]))
    if call.operator == "MEAN":
        # The division is part of the factor.
        shift = min(count.bit_length() - 1, 32, 31 + exponent)
        factor, exponent = (factor << shift) // count, exponent - shift
    return call.saturated(rescaled(call, value, factor, exponent))


def _evaluated(call: Call) -> Array | None:
    """The result, if the operand is a shape."""
    known, function = call.known_integers(), _OF_KNOWN.get(call.operator)
    if known is None or function is None:
        return None
    value = known[0]
    result = function(value, axis=tuple(_axes(call)), keepdims=call.option("keep_dims"))
    return np.asarray(result, value.dtype)


@converts("REDUCE_PROD")
def reduce_prod(call: Call) -> Value:
    """The product along axes."""
    known = _evaluated(call)
    if known is not None:
        return known
    call.reject_quantized(call.input(0))
    return relax.op.prod(call.operand(0), axis=_axes(call), keepdims=call.option("keep_dims"))


@converts(*_MOVING)
def reduce_extremum(call: Call) -> relax.Expr:
    """The largest or the smallest element along axes."""
    call.require_same_quantization()
    function = _MOVING[call.operator]
    return function(call.operand(0), axis=_axes(call), keepdims=call.option("keep_dims"))


@converts("REDUCE_ANY", "REDUCE_ALL")
def reduce_bool(call: Call) -> relax.Expr:
    """Whether any or all elements along axes are true."""
    call.require_dtype(0, "bool")
    value = call.emit(relax.op.astype(call.operand(0), "int8"))
    function = relax.op.max if call.operator == "REDUCE_ANY" else relax.op.min
    extremum = call.emit(function(value, axis=_axes(call), keepdims=call.option("keep_dims")))
    return relax.op.astype(extremum, "bool")


@converts("ARG_MAX", "ARG_MIN")
def arg_extremum(call: Call) -> relax.Expr:
    """The position of the first largest or smallest element along an axis."""
    [axis] = call.ints(1, "the axis")
    function = relax.op.argmax if call.operator == "ARG_MAX" else relax.op.argmin
    axis, dtype = call.axis(axis, call.rank(0)), call.outputs[0].dtype
    position = call.emit(function(call.operand(0), axis=axis, keepdims=False))
    return position if dtype == "int64" else relax.op.astype(position, dtype)


@converts("CUMSUM")
def cumsum(call: Call) -> relax.Expr:
    """The sums of the elements up to each one along an axis."""
    call.reject_quantized(call.input(0))
    [axis] = call.ints(1, "the axis")
    axis = call.axis(axis, call.rank(0))
    value = call.operand(0)
    reverse = call.option("reverse")
    if reverse:
        value = call.emit(relax.op.flip(value, axis))
    value = call.emit(
        relax.op.cumsum(value, axis, exclusive=call.option("exclusive"), dtype=call.input(0).dtype)
    )
    return relax.op.flip(value, axis) if reverse else value


@converts("TOPK_V2")
def topk_v2(call: Call) -> list[relax.Expr]:
    """The largest elements along the last axis, and their positions."""
    call.require_same_quantization()
    [count] = call.ints(1, "the number of elements")
    pair = call.emit(relax.op.topk(call.operand(0), count, axis=-1, dtype=call.outputs[1].dtype))
    return [call.emit(relax.TupleGetItem(pair, index)) for index in range(2)]
