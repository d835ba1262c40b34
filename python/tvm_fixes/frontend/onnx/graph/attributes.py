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
"""The attributes of a node."""

from typing import Any

import onnx

__all__ = ["attributes_of"]

_NOT_VALUES = frozenset({"doc_string", "name", "ref_attr_name", "type"})

_LISTS = (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS, onnx.AttributeProto.STRINGS)


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes by name: ints, floats, bytes, protobuf messages, or tuples of these.

    Raises
    ------
    ValueError
        If an attribute has no value, or values of several types.
    """
    return {attribute.name: _value_of(attribute) for attribute in node.attribute}


def _value_of(attribute: onnx.AttributeProto) -> Any:
    values = [
        value
        if isinstance(value, int | float | bytes) or hasattr(value, "ListFields")
        else tuple(value)
        for field, value in attribute.ListFields()
        if field.name not in _NOT_VALUES
    ]
    if not values and attribute.type in _LISTS:
        return ()
    if len(values) != 1:
        raise ValueError(
            f"attribute {attribute.name!r} has {len(values)} values; expected one of its type"
        )
    return values[0]
