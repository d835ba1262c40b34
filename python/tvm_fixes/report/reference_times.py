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
"""The times of kernels and of the nodes that they compute in ONNX Runtime or PyTorch."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from ..errors import summarize
from ..relax.source_nodes import SourceNode
from ..source import Source
from ..source.onnx import OnnxSource
from ..source.torch import TorchSource
from ..support.isolate import OutcomeKind, run_forked
from .node_times import Groups, NodeTime, ReferenceTimes

# The reference may load a large model first.
_MAX_SECONDS = 600.0


@dataclass(frozen=True)
class Match:
    """Kernels and the reference's time for what they compute.

    Attributes
    ----------
    kernels : tuple of int
        The places of the kernels; several if the reference or one of them computes parts of what
        the others compute, so that only the sums can be compared.
    nodes : tuple of SourceNode
        The nodes that the reference runs for them.
    runs : str
        What the reference runs, such as ``Gemm``.
    seconds : float
        The reference's time.
    """

    kernels: tuple[int, ...]
    nodes: tuple[SourceNode, ...]
    runs: str
    seconds: float


@dataclass(frozen=True)
class ReferenceProfile:
    """The times of the reference.

    Attributes
    ----------
    name : str
        Such as ``ONNX Runtime 1.31.1``.
    run_seconds : float
        The median time of a run without instruments.
    node_seconds : float
        The time of its nodes.
    matches : tuple of Match
    unmatched : tuple of NodeTime
        What it runs for nodes that no kernel computes.
    """

    name: str
    run_seconds: float
    node_seconds: float
    matches: tuple[Match, ...]
    unmatched: tuple[NodeTime, ...]

    @property
    def matched(self) -> float:
        """The share of the nodes' time that is matched."""
        known = sum(match.seconds for match in self.matches)
        return known / self.node_seconds if self.node_seconds else 1.0

    def to_dict(self) -> dict[str, Any]:
        """The times as plain values, including the computed ones."""
        return asdict(self) | {"matched": self.matched}

    def by_kernel(self, count: int) -> list[Match | None]:
        """The match of each of `count` kernels."""
        found: list[Match | None] = [None] * count
        for match in self.matches:
            for place in match.kernels:
                found[place] = match
        return found


def reference_times(
    source: Source, inputs: Sequence[np.ndarray], seconds: float, name: str, run_seconds: float
) -> ReferenceTimes | str:
    """Measure the nodes of a model in its reference, in a forked child, for `seconds`.

    A run of the reference, whose `name` is given, takes `run_seconds`.

    Returns
    -------
    times : ReferenceTimes or str
        Or why it cannot be measured, in one line.
    """
    measure: Callable[..., list[NodeTime]]
    if isinstance(source, OnnxSource):
        from .onnx_times import onnx_node_times as measure
    elif isinstance(source, TorchSource):
        from .torch_times import torch_node_times as measure
    else:
        return "no other runtime can run this model"

    def run() -> ReferenceTimes | str:
        try:
            nodes = measure(source, inputs, seconds, run_seconds)
            return ReferenceTimes(name, run_seconds, tuple(nodes))
        except Exception as error:
            return summarize(error)

    outcome = run_forked(run, timeout=_MAX_SECONDS + seconds)
    if outcome.kind is OutcomeKind.VALUE:
        return cast(ReferenceTimes | str, outcome.value)
    return " ".join(str(outcome).split())


def match_nodes(
    kernels: Sequence[Sequence[SourceNode]],
    reads: Sequence[Sequence[int]],
    times: ReferenceTimes,
) -> ReferenceProfile:
    """Match kernels with the reference's nodes.

    Parameters
    ----------
    kernels : sequence of sequence of SourceNode
        The nodes that each kernel computes.
    reads : sequence of sequence of int
        The places of the kernels whose results each kernel reads.
    times : ReferenceTimes
    """
    computing: dict[SourceNode, list[int]] = defaultdict(list)
    for place, nodes in enumerate(kernels):
        for node in nodes:
            before = computing[node]
            # A kernel that does not read the results of the others repeats their computation.
            if not before or set(reads[place]).intersection(before):
                before.append(place)
    groups = Groups(len(kernels))
    unmatched, matched = [], []
    for time in times.nodes:
        places = [place for node in time.nodes for place in computing.get(node, ())]
        groups.join(places)
        if places:
            matched.append((places[0], time))
        else:
            unmatched.append(time)
    by_group: dict[int, list[NodeTime]] = defaultdict(list)
    for place, time in matched:
        by_group[groups.of(place)].append(time)
    members: dict[int, list[int]] = defaultdict(list)
    for place in range(len(kernels)):
        members[groups.of(place)].append(place)
    matches = (
        Match(
            tuple(members[group]),
            tuple(dict.fromkeys(node for time in found for node in time.nodes)),
            ", ".join(dict.fromkeys(time.runs for time in found)),
            sum(time.seconds for time in found),
        )
        for group, found in by_group.items()
    )
    return ReferenceProfile(
        times.name, times.run_seconds, times.node_seconds, tuple(matches), tuple(unmatched)
    )
