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
"""Conditions that compare extents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx

from ..values.known import Extent, KnownValues, Value

__all__ = ["Condition", "condition_of"]


@dataclass(frozen=True)
class Condition:
    """Whether two extents are equal, or whether they differ.

    Attributes
    ----------
    a, b : Extent
    is_equal : bool
    """

    a: Extent
    b: Extent
    is_equal: bool = True

    def verdict(self, known: KnownValues) -> bool | None:
        """Whether the condition holds; None if that is unknown."""
        equal = known.equal(self.a, self.b)
        return None if equal is None else equal == self.is_equal

    def assume(self, known: KnownValues, holds: bool) -> None:
        """Assume in `known` that the condition holds, or that it does not."""
        if holds == self.is_equal:
            known.assume_equal(self.a, self.b)
        else:
            known.assume_unequal(self.a, self.b)


_SAME_CONDITION = frozenset({"Cast", "Identity", "Not", "Reshape", "Squeeze", "Unsqueeze"})
"""The operators whose result is the condition that they read, or its negation."""


def condition_of(
    node: onnx.NodeProto,
    operands: Sequence[Any],
    known: KnownValues,
    conditions: Mapping[str, Condition],
) -> dict[str, Condition]:
    """The meaning of the result of a node by its name; empty if it compares no extents.

    Parameters
    ----------
    operands : sequence
        The operands of the node: Relax expressions and values.
    conditions : mapping
        The meanings of the results of earlier nodes.
    """
    if node.op_type == "Equal":
        values = [x if isinstance(x, Value) else known.of(x) for x in operands]
        extents = [v.extents() for v in values if v is not None and v.is_integer]
        if list(map(len, extents)) == [1, 1]:
            return {node.output[0]: Condition(extents[0][0], extents[1][0])}
    elif node.op_type in _SAME_CONDITION and node.input[0] in conditions:
        condition = conditions[node.input[0]]
        if node.op_type == "Not":
            condition = replace(condition, is_equal=not condition.is_equal)
        return {node.output[0]: condition}
    return {}
