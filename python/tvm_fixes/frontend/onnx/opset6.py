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

from tvm import relax

from .broadcast import BROADCASTING
from .node import Node

__all__ = ["as_opset_7"]


def as_opset_7(node: Node) -> Node:
    """A node of opset 6 or older in the form of opset 7.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attribute ``axis`` is not an axis from which the second operand broadcasts.
    """
    if node.operator == "Upsample" and "height_scale" in node.attributes:
        scales = [1.0, 1.0, node.attributes["height_scale"], node.attributes["width_scale"]]
        return node.with_attributes(scales=scales)
    if node.operator == "PRelu":
        return _aligned(node, 1)
    if node.operator in BROADCASTING and node.attributes.get("broadcast"):
        axis = node.attributes.get("axis")
        node = node.with_attributes(removed=("axis", "broadcast"))
        return node if axis is None else _aligned(node, axis)
    return node


def _aligned(node: Node, axis: int) -> Node:
    """The node with a second operand whose first axis is `axis` of the first operand."""
    data, other = node.operands
    rank, count = data.ty.ndim, other.ty.ndim
    if rank < 0 or count < 0:
        raise node.invalid("ranks of the operands", [rank, count], "expected known ranks")
    first = axis + rank if axis < 0 else axis
    if node.operator == "PRelu" and (count != 1 or rank < 2):
        return node
    if not 0 <= first <= rank - count:
        reason = f"expected an axis of the first operand with {count} axes from there on"
        raise node.invalid("attribute axis", axis, reason)
    added = rank - count - first
    if not added:
        return node
    moved = relax.op.expand_dims(other, list(range(count, count + added)))
    return node.with_operands(data, node.emit(moved))
