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
"""Operators of opset 6 and older, whose operands broadcast from an axis that an attribute names."""

from typing import Any

from tvm import relax

from ...convert import EVERY
from ..call import Call, converts
from .broadcast import BROADCASTING


@converts(EVERY, place="old opsets", until=7)
def convert_as_opset_7(call: Call) -> Any:
    """Convert a call of opset 6 or older in the form of opset 7.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attribute ``axis`` is not an axis from which the second operand broadcasts.
    """
    return _as_opset_7(call).proceed()


def _as_opset_7(call: Call) -> Call:
    """A call of opset 6 or older in the form of opset 7."""
    if call.operator == "Upsample" and "height_scale" in call.attributes:
        scales = [1.0, 1.0, call.attributes["height_scale"], call.attributes["width_scale"]]
        return call.with_attributes(scales=scales)
    if call.operator == "PRelu":
        return _aligned(call, 1)
    if call.operator in BROADCASTING and call.attributes.get("broadcast"):
        axis = call.attributes.get("axis")
        call = call.with_attributes(removed=("axis", "broadcast"))
        return call if axis is None else _aligned(call, axis)
    return call


def _aligned(call: Call, axis: int) -> Call:
    """The node with a second operand whose first axis is `axis` of the first operand."""
    data, other = call.operands
    rank, count = data.ty.ndim, other.ty.ndim
    if rank < 0 or count < 0:
        raise call.invalid("ranks of the operands", [rank, count], "expected known ranks")
    first = axis + rank if axis < 0 else axis
    if call.operator == "PRelu" and (count != 1 or rank < 2):
        return call
    if not 0 <= first <= rank - count:
        reason = f"expected an axis of the first operand with {count} axes from there on"
        raise call.invalid("attribute axis", axis, reason)
    added = rank - count - first
    if not added:
        return call
    moved = relax.op.expand_dims(other, list(range(count, count + added)))
    return call.with_operands(data, call.emit(moved))
