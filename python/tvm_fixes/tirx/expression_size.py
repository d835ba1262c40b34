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
"""The size of expressions, which limits how many steps of a kernel are inlined into each other."""

from collections.abc import Callable

import tvm
from tvm import tirx
from tvm_ffi import structural_map, structural_walk

MAX_NODES = 512
"""The maximum number of nodes: a value that is read twice doubles with each step."""

MAX_VISITS = 50_000
"""The maximum number of nodes that TVM's simplifier visits."""

# The number of times that TVM's simplifier visits the condition of a Select; for a condition in a
# condition, the numbers multiply.
_VISITS_OF_CONDITION = 15

Weight = Callable[[tirx.Expr], int]
"""The number of nodes that a node is lowered to."""


def is_large(value: tirx.Expr, weight: Weight = lambda _: 1) -> bool:
    """Whether an expression exceeds :data:`MAX_NODES` or :data:`MAX_VISITS`."""
    return node_count(value, weight) > MAX_NODES or _visits(value, weight, MAX_VISITS) > MAX_VISITS


def node_count(value: tirx.Expr, weight: Weight = lambda _: 1) -> int:
    """The sum of the weights of all nodes."""
    weights: list[int] = []
    structural_walk(value, (tirx.Expr, lambda node: weights.append(weight(node))))
    return sum(weights)


def _visits(value: tirx.Expr, weight: Weight, limit: int) -> int:
    """The number of nodes that the simplifier visits; a lower bound if it exceeds `limit`."""
    visits = [node_count(value, weight)]

    def visit(choice: tirx.Select) -> None:
        left = (limit - sum(visits)) // _VISITS_OF_CONDITION
        condition = _visits(choice.condition, weight, left) if left > 0 else 1
        visits.append(_VISITS_OF_CONDITION * condition)

    structural_walk(value, (tirx.Select, visit))
    return sum(visits)


def with_values(value: tirx.Expr, values: dict[tirx.Buffer, tirx.Expr]) -> tirx.Expr:
    """Replace the loads from some buffers by expressions, whose indices are not adapted."""
    return structural_map(value, (tvm.ir.TensorLoad, lambda load: values.get(load.source, load)))
