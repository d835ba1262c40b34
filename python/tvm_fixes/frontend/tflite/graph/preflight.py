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
"""The operators of a model, without an import."""

from collections.abc import Iterator

from ...operators import Operator as Counted
from ...operators import counted
from ..call import CONVERTERS
from ..file.model import Model, Operator, SubGraph

__all__ = ["needed_operators", "operators_of", "problem_of"]


def needed_operators(graph: SubGraph) -> list[tuple[str, Operator]]:
    """The operators that the outputs depend on, with their places, in the order of the file."""
    needed = set(graph.outputs)
    operators: list[tuple[str, Operator]] = []
    for index in reversed(range(len(graph.operators))):
        operator = graph.operators[index]
        if needed.isdisjoint(operator.outputs):
            continue
        needed.update(operator.inputs)
        operators.append((place_of(graph, index), operator))
    return operators[::-1]


def place_of(graph: SubGraph, index: int) -> str:
    """The place of an operator, for messages."""
    names = [graph.tensors[output].name for output in graph.operators[index].outputs[:1]]
    named = f" ({names[0]!r})" if names and names[0] else ""
    return f"operator {index}{named} of subgraph {graph.name or 'main'!r}"


def operators_of(model: Model) -> list[Counted]:
    """The operators that the outputs of a model need; one with a converter is supported."""

    def calls() -> Iterator[tuple[str, str, str]]:
        for place, operator in needed_operators(model.main):
            yield operator.name, place, problem_of(operator)

    return counted(calls())


def problem_of(operator: Operator) -> str:
    """Why an operator is unsupported; empty if it is supported."""
    if operator.is_custom:
        return "a custom operator"
    return "" if CONVERTERS.has(operator.name) else "no converter"
