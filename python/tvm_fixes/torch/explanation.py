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
"""The description of what is compiled, and of what PyTorch runs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Explanation", "Graph"]


@dataclass(frozen=True)
class Graph:
    """A graph that Dynamo traced.

    Attributes
    ----------
    partitions : tuple of int
        The number of operators of each compiled partition.
    eager : mapping of str to str
        The operators that PyTorch runs, by node, as text with the reason.
    skipped : str
        Why PyTorch runs the whole graph; empty if it does not.
    """

    partitions: tuple[int, ...] = ()
    eager: dict[str, str] = field(default_factory=dict)
    skipped: str = ""

    def lines(self) -> Iterator[str]:
        """The graph as text."""
        if self.skipped:
            yield f"PyTorch runs the whole graph: {self.skipped}"
            return
        count, number, left = sum(self.partitions), len(self.partitions), len(self.eager)
        operators, partitions = _plural(count, "operator"), _plural(number, "partition")
        yield f"{operators} compiled in {partitions}; PyTorch runs {left}"
        for reason, times in Counter(self.eager.values()).most_common():
            yield f"  {reason}" + (f" ({times} times)" if times > 1 else "")


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass
class Explanation:
    """The result of :func:`tvm_fixes.torch.explain`.

    Attributes
    ----------
    graphs : list of Graph
    breaks : list of str
        Why Dynamo broke the model into several graphs.
    """

    graphs: list[Graph] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = []
        for place, graph in enumerate(self.graphs):
            first, *rest = graph.lines()
            lines += [f"graph {place}: {first}", *rest]
        lines += [f"graph break: {reason}" for reason in self.breaks]
        return "\n".join(lines or ["no graph: PyTorch runs the whole model"])
