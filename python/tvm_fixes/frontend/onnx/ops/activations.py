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
"""Activations: Elu, Selu, Celu, ThresholdedRelu, Shrink, Sign, Clip and Hardmax.

Trigger
    Elu, Selu, Celu and ThresholdedRelu of a dtype other than float32, or near zero; Celu of rank 0;
    ThresholdedRelu and Shrink of infinities and NaN; Shrink of integers; Sign and Clip of NaN;
    Softmax, LogSoftmax and Hardmax of opset 12 and older of symbolic dims, or of a reversed slice.
Mechanism
    Constants are float32; 1 is subtracted from exponentials; the result of a comparison is cast to
    a number and multiplied; the maximum of NaN and a number is the number.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import relax, te, tirx

from ....fixes.onnx_importer import ACTIVATIONS
from ....relax.legalize.reductions import arg_extremum
from ....support import switches
from ...dtypes import dtype_of
from ...elementary import Elementary
from ...extents import expression
from ..call import Call, converts, extents_of
from .shape_operands import axes_of, shaped

__all__ = ["of_last_axes"]


# The default alpha and gamma of Selu.
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


def _number(call: Call, attribute: str, default: float) -> float:
    """An attribute or its default, rounded to float32."""
    return float(np.float32(call.attributes.get(attribute, default)))


@converts("Celu", "Elu", "Selu", fix=ACTIVATIONS)
def convert_elu(call: Call) -> relax.Expr:
    """Convert an Elu, Selu or Celu."""
    switches.note(ACTIVATIONS)
    data, elementary = call.operands[0], Elementary(call.emit)
    alpha = _number(call, "alpha", _SELU[0] if call.operator == "Selu" else 1.0)
    if call.operator == "Celu":
        return elementary.elu(data, alpha, 1.0, 1.0 / alpha)
    scale = _number(call, "gamma", _SELU[1]) if call.operator == "Selu" else 1.0
    return elementary.elu(data, alpha, scale, 1.0)


@converts("ThresholdedRelu", fix=ACTIVATIONS)
def convert_thresholded_relu(call: Call) -> relax.Expr:
    """Convert a ThresholdedRelu: X where it is greater than alpha, else 0, even for NaN."""
    switches.note(ACTIVATIONS)
    data = call.operands[0]
    dtype = dtype_of(data)
    alpha = relax.const(_number(call, "alpha", 1.0), dtype)
    return relax.op.where(relax.op.greater(data, alpha), data, relax.const(0, dtype))


@converts("Shrink", fix=ACTIVATIONS)
def convert_shrink(call: Call) -> relax.Expr:
    """Convert a Shrink; its result for integers is truncated."""
    switches.note(ACTIVATIONS)
    data, op = call.operands[0], relax.op
    dtype = dtype_of(data)
    wide = dtype if "float" in dtype else "float64"
    x = call.emit(op.astype(data, wide)) if wide != dtype else data
    bound, bias = (_number(call, name, value) for name, value in (("lambd", 0.5), ("bias", 0.0)))
    limits = [relax.const(limit, wide) for limit in (-bound, bound)]
    offset = relax.const(bias, wide)
    above = op.where(op.greater(x, limits[1]), op.subtract(x, offset), relax.const(0, wide))
    result = op.where(op.less(x, limits[0]), op.add(x, offset), call.emit(above))
    return result if wide == dtype else op.astype(call.emit(result), dtype)


@converts("Sign", fix=ACTIVATIONS)
def convert_sign(call: Call) -> relax.Expr:
    """Convert a Sign; the sign of NaN is NaN."""
    data = call.operands[0]
    dtype = dtype_of(data)
    if dtype.startswith("uint"):
        switches.note(ACTIVATIONS)
        return relax.op.minimum(data, relax.const(1, dtype))
    if "float" not in dtype:
        return call.proceed()
    switches.note(ACTIVATIONS)
    return relax.op.where(relax.op.isnan(data), data, relax.op.sign(data))


@converts("Clip", fix=ACTIVATIONS)
def convert_clip(call: Call) -> relax.Expr:
    """Convert a Clip.

    As in ONNX Runtime, NaN stays NaN, a NaN bound has no effect, a missing bound is the extreme
    finite number, and the upper bound wins if the lower one is greater.
    """
    data, op = call.operands[0], relax.op
    dtype = dtype_of(data)
    if "float" not in dtype and call.version < 11:
        return call.proceed()
    switches.note(ACTIVATIONS)
    if "float" not in dtype:
        # TVM's converter emits kernels, whose symbolic extents FuseTIR may not match.
        for index, bounded in ((1, op.maximum), (2, op.minimum)):
            if call.operand(index) is not None:
                data = call.emit(bounded(data, _scalar(call, call.operand(index))))
        return data
    low, high = _limit(call, 1, "min", dtype), _limit(call, 2, "max", dtype)
    if low is not None and high is not None:
        return op.clip(data, min(low, high), high)
    result = data
    for index, number, bounded in ((1, low, op.less), (2, high, op.greater)):
        bound = call.operand(index) if number is None else relax.const(number, dtype)
        bound = _scalar(call, bound)
        # A comparison with NaN is false, so NaN stays NaN and a NaN bound has no effect.
        result = call.emit(op.where(bounded(result, bound), bound, result))
    return result


def _scalar(call: Call, bound: relax.Expr) -> relax.Expr:
    """A bound of a Clip in rank 0, if it has one element."""
    is_single = math.prod(extents_of(bound) or [1]) == 1 and bound.ty.ndim
    return call.emit(relax.op.reshape(bound, ())) if is_single else bound


def _limit(call: Call, index: int, name: str, dtype: str) -> float | None:
    """A bound of a Clip, None if it is not constant; before opset 11, it is an attribute."""
    extreme = {"min": tirx.min_value, "max": tirx.max_value}[name](dtype).value
    if call.version < 11:
        number = float(call.attributes.get(name, extreme))
    elif call.operand(index) is None:
        return extreme
    else:
        array = call.constant(index)
        if array is None or array.size != 1:
            return None
        number = float(array.reshape(()))
    if math.isnan(number):
        return math.copysign(math.inf, extreme)  # no bound
    # TVM rejects a literal outside the range of the dtype.
    return number if abs(number) <= abs(extreme) else math.copysign(math.inf, number)


@converts("LogSoftmax", "Softmax", fix=ACTIVATIONS)
def convert_softmax(call: Call) -> relax.Expr:
    """Convert a Softmax or LogSoftmax of opset 12 and older.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown, or the axis is out of range.
    """
    if call.version >= 13:
        return call.proceed()
    switches.note(ACTIVATIONS)
    data, extents = shaped(call, 0, "input")
    (axis,) = axes_of(call, [call.attributes.get("axis", 1)], len(extents))
    function = relax.op.nn.softmax if call.operator == "Softmax" else relax.op.nn.log_softmax
    return of_last_axes(call, data, axis, function)


def of_last_axes(
    call: Call, data: relax.Expr, axis: int, function: Callable[[relax.Expr, int], relax.Expr]
) -> relax.Expr:
    """Apply a function of data and an axis to all axes from `axis` on, as if they were one."""
    extents = call.known.extents(data) or []
    if axis == len(extents) - 1:
        return function(data, axis)
    joined = call.known.simplify(math.prod(extents[axis:]))
    flat = call.emit(relax.op.reshape(data, relax.ShapeExpr([*extents[:axis], joined])))
    return relax.op.reshape(call.emit(function(flat, axis)), relax.ShapeExpr(extents))


@converts("Hardmax", fix=ACTIVATIONS)
def convert_hardmax(call: Call) -> relax.Expr:
    """Convert a Hardmax: 1 at the first maximum along an axis, else 0.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown, or the axis is out of range.
    """
    data, extents = shaped(call, 0, "input")
    default = -1 if call.version >= 13 else 1
    (axis,) = axes_of(call, [call.attributes.get("axis", default)], len(extents))
    switches.note(ACTIVATIONS)
    if call.version >= 13:
        return _hardmax(call, data, axis)
    return of_last_axes(call, data, axis, partial(_hardmax, call))


def _hardmax(call: Call, data: relax.Expr, axis: int) -> relax.Expr:
    extents, dtype = call.known.extents(data) or [], dtype_of(data)
    if isinstance(extents[axis], int) and extents[axis] > 0:
        first_maximum = call.emit(relax.op.argmax(data, axis, keepdims=True))
    else:
        # Unlike for an argmax, no elements are not an error.
        arguments = data, "relax.argmax", [axis], True, "int64"
        first_maximum = call.builder.emit_te(arg_extremum, *arguments)

    def one_hot(index: te.Tensor, *shape: tirx.Expr) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            first = index(*at[:axis], tirx.const(0, "int64"), *at[axis + 1 :])
            is_first = first == at[axis].astype("int64")
            return tirx.Select(is_first, tirx.const(1, dtype), tirx.const(0, dtype))

        return te.compute(shape, element, name="hardmax")

    return call.builder.emit_te(one_hot, first_maximum, *map(expression, extents))
