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
"""4-bit and 2-bit integers, which tensors carry in int8 or uint8, one per byte.

Trigger
    Inputs, outputs, initializers, constants and casts of INT4, UINT4, INT2, UINT2 and FLOAT4E2M1.
Mechanism
    ONNX's arrays have one element per byte; TVM's tensors of these dtypes are packed, and its
    kernels cannot compute with them.

A tensor of int8, uint8 or float32 carries these elements, even as an input or output of the model.
Every element is in the range of its narrow dtype, so most operators need not know that dtype: the
elements of an input are cast to it first. The importer records the narrow dtype of a value by its
name. It determines the range to which QuantizeLinear clips, and the number of bits that a cast
keeps.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from tvm import relax

from ....fixes.onnx_importer import QUANTIZED
from ....support import switches
from ...dtypes import dtype_of
from ..call import Call, converts
from .small_floats import FLOAT4, from_small, is_small_float, to_small

__all__ = [
    "carried",
    "carrier_of",
    "check_output",
    "limits_of",
    "narrow_dtype",
    "narrow_inputs",
    "narrow_result",
    "to_narrow",
]

_BITS = {"int2": 2, "int4": 4, "uint2": 2, "uint4": 4}

_DTYPES = {TensorProto.DataType.Value(name.upper()): name for name in _BITS} | {
    TensorProto.FLOAT4E2M1: FLOAT4
}

# These operators move elements without computing: the result has the dtype of the first operand.
_MOVING = frozenset(
    {
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)

# These operators convert their operands to other dtypes.
_CONVERTING = frozenset(
    {
        "Cast",
        "CastLike",
        "DequantizeLinear",
        "QuantizeLinear",
        "Shape",
        "Size",
        "com.microsoft.DequantizeLinear",
        "com.microsoft.GatherBlockQuantized",
        "com.microsoft.QuantizeLinear",
    }
)


def narrow_dtype(element_type: int) -> str | None:
    """The dtype of an element type of fewer than 8 bits, e.g. ``"int4"``; None for any other."""
    return _DTYPES.get(element_type)


def carrier_of(dtype: str) -> str:
    """The dtype of the tensors that carry elements of `dtype`; itself for 8 bits or more."""
    if dtype == FLOAT4:
        return "float32"
    return dtype.rstrip("24") + "8" if dtype in _BITS else dtype


def limits_of(dtype: str) -> tuple[int, int]:
    """The smallest and the largest integer of `dtype`."""
    if dtype not in _BITS:
        limits = np.iinfo(dtype)
        return int(limits.min), int(limits.max)
    bits = _BITS[dtype]
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def carried(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """`tensor` in the dtype of its carrier if its elements have fewer than 8 bits."""
    dtype = narrow_dtype(tensor.data_type)
    if dtype is None:
        return tensor
    array = numpy_helper.to_array(tensor).reshape(tuple(tensor.dims))
    return numpy_helper.from_array(array.astype(carrier_of(dtype)), tensor.name)


def narrow_result(
    operator: str, attributes: Mapping[str, Any], operands: Sequence[str | None]
) -> str | None:
    """The narrow dtype of a node's first output, or None.

    Parameters
    ----------
    operator : str
        The operator; see :func:`tvm_fixes.frontend.onnx.call.operator_of`.
    attributes : mapping
        The attributes of the node.
    operands : sequence
        The narrow dtype of each operand, or None.

    Raises
    ------
    ValueError
        If an operand has a narrow dtype that the operator does not support.
    """
    zero_point_dtype = operands[2] if len(operands) > 2 else None
    match operator:
        case "Cast":
            return narrow_dtype(attributes["to"])
        case "CastLike":
            return operands[1]
        case "Constant" | "ConstantOfShape":
            value = attributes.get("value")
            return narrow_dtype(value.data_type) if isinstance(value, TensorProto) else None
        case "QuantizeLinear" | "com.microsoft.QuantizeLinear":
            return zero_point_dtype or narrow_dtype(attributes.get("output_dtype", 0))
        case _ if operator in _MOVING:
            return operands[0]
    narrow = next(filter(None, operands), None)
    if narrow is not None and operator not in _CONVERTING:
        raise ValueError(f"an operand is of dtype {narrow}; expected 8 bits or more")
    return None


def narrow_inputs(graph: onnx.GraphProto) -> dict[str, str]:
    """The narrow dtypes of the inputs that have one, by name."""
    initializers = {tensor.name for tensor in graph.initializer}
    dtypes = {v.name: narrow_dtype(v.type.tensor_type.elem_type) for v in graph.input}
    return {
        name: dtype
        for name, dtype in dtypes.items()
        if dtype is not None and name not in initializers
    }


def check_output(name: str, dtype: str | None) -> None:
    """Reject an output of a branch or loop body with a narrow dtype.

    Raises
    ------
    ValueError
        If `dtype` is not None.
    """
    if dtype is not None:
        raise ValueError(
            f"output {name!r} of a branch: element type is {dtype.upper()}; expected real numbers "
            "of 8 bits or more"
        )


@converts("Cast", "CastLike", place="narrow", fix=QUANTIZED)
def convert_narrow_cast(call: Call) -> relax.Expr:
    """Convert a Cast or CastLike to fewer than 8 bits.

    As in ONNX Runtime, floats are rounded half away from zero to integers, and the lowest bits are
    kept.
    """
    if call.operator == "Cast":
        target = narrow_dtype(call.attributes["to"])
    else:
        target = call.dtype(1) if call.dtype(1) in _DTYPES.values() else None
    if target is None:
        return call.proceed()
    switches.note(QUANTIZED)
    value = call.operands[0]
    if is_small_float(dtype_of(value)):
        value = from_small(call.builder, value)
    return to_narrow(call.builder, value, target)


def to_narrow(builder: relax.BlockBuilder, value: relax.Expr, target: str) -> relax.Expr:
    """A tensor cast to a narrow dtype, in its carrier."""
    if target == FLOAT4:
        return to_small(builder, value, target, saturate=True)
    op = relax.op
    if dtype_of(value).startswith(("float", "bfloat")):
        whole = builder.emit(op.trunc(value))
        rest = builder.emit(op.subtract(value, whole))
        value = builder.emit(op.add(whole, op.trunc(op.add(rest, rest))))
    bits = builder.emit(op.astype(value, "int32"))
    kept = builder.emit(op.bitwise_and(bits, relax.const(2 ** _BITS[target] - 1, "int32")))
    if not target.startswith("u"):
        # Flipping the sign bit and subtracting it extends the sign.
        sign = relax.const(2 ** (_BITS[target] - 1), "int32")
        kept = builder.emit(op.subtract(op.bitwise_xor(kept, sign), sign))
    return op.astype(kept, carrier_of(target))
