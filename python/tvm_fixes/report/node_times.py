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
"""The times of a model's nodes in ONNX Runtime or PyTorch."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..relax.source_nodes import SourceNode


@dataclass(frozen=True)
class NodeTime:
    """The time of nodes that the reference runs as one.

    Attributes
    ----------
    nodes : tuple of SourceNode
        The nodes of the model; empty if unknown.
    runs : str
        What the reference runs for them, such as ``Gemm`` or ``Conv, ReorderOutput``.
    seconds : float
    """

    nodes: tuple[SourceNode, ...]
    runs: str
    seconds: float


@dataclass(frozen=True)
class ReferenceTimes:
    """The times of a model in its reference.

    Attributes
    ----------
    name : str
        Such as ``ONNX Runtime 1.31.1``.
    run_seconds : float
        The median time of a run without instruments.
    nodes : tuple of NodeTime
        In the order of a run.
    """

    name: str
    run_seconds: float
    nodes: tuple[NodeTime, ...]

    @property
    def node_seconds(self) -> float:
        """The time of all nodes."""
        return sum(node.seconds for node in self.nodes)


class Groups:
    """A partition of the numbers below `count`, at first into single ones."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def of(self, number: int) -> int:
        """One of the numbers in the group of `number`, the same for all of them."""
        while self._parents[number] != number:
            self._parents[number] = number = self._parents[self._parents[number]]
        return number

    def join(self, numbers: Iterable[int]) -> None:
        """Make one group of the groups of `numbers`."""
        roots = [self.of(number) for number in numbers]
        for root in roots[1:]:
            self._parents[root] = roots[0]
