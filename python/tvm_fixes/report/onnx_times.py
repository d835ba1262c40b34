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
"""The times of ONNX nodes in ONNX Runtime, which fuses nodes and inserts its own.

ONNX Runtime's profiler measures the nodes of the optimized model.  What the optimized model reads
and computes under the names of the original tells which original nodes each of them stands for.
"""

import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ..frontend.onnx.call import operator_of
from ..frontend.onnx.graph.liveness import names_read
from ..frontend.onnx.graph.node_errors import name_of
from ..relax.source_nodes import SourceNode
from ..source.onnx import OnnxSource
from .node_times import Groups, NodeTime

# The profiler writes about a kilobyte for each node of each run.
_MAX_EVENTS = 20_000

# The most that the profiler takes for a node, in seconds.
_MAX_OVERHEAD = 1e-5

# Steps of a search for it by halving.
_STEPS = 20

_WARM_UP = 3

_MIN_RUNS = 3

# Nodes that change the layout of a value, not the value.
_REORDERS = ("ReorderInput", "ReorderOutput")

_BLOCKED = "_nchwc"

# The name of a node in the model that the profiler measures, which tells its place.
_NODE = "tvm_fixes_node_"


def onnx_node_times(
    source: OnnxSource, inputs: Sequence[np.ndarray], seconds: float, run_seconds: float
) -> list[NodeTime]:
    """Measure the nodes of the main graph in ONNX Runtime for `seconds`."""
    feed = {spec.name: array for spec, array in zip(source.inputs, inputs, strict=True)}
    model = source.model
    events, graph = _profiled(source, feed, seconds)
    times = _without_overhead(_node_seconds(events, graph), run_seconds)
    found = []
    for run, places in _Coverage(model.graph, graph).covered():
        known = [node for node in run if node.name in times]
        if known:
            originals = (model.graph.node[place] for place in places)
            nodes = tuple(SourceNode(name_of(node), operator_of(node)) for node in originals)
            runs_text = ", ".join(dict.fromkeys(node.op_type for node in known))
            found.append(NodeTime(nodes, runs_text, sum(times[node.name] for node in known)))
    return found


def _profiled(
    source: OnnxSource, inputs: Mapping[str, np.ndarray], seconds: float
) -> tuple[list[dict[str, Any]], onnx.GraphProto]:
    """The events of some runs, and the optimized graph, whose nodes have the same names."""
    named = onnx.ModelProto()
    named.CopyFrom(source.model)
    for place, node in enumerate(named.graph.node):
        node.name = f"{_NODE}{place}"
    with tempfile.TemporaryDirectory(prefix="tvm-fixes-") as folder:
        optimized = Path(folder) / "optimized.onnx"

        def configure(options: Any) -> None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder) / "profile")
            options.optimized_model_filepath = str(optimized)
            # A model of more than 2 GiB needs a second file.
            entry = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(entry, "optimized.bin")

        _, session = source.session(named, configure)
        end = time.perf_counter() + seconds
        runs = 0
        while runs < _WARM_UP + _MIN_RUNS or (
            time.perf_counter() < end and runs * len(named.graph.node) < _MAX_EVENTS
        ):
            session.run(None, inputs)
            runs += 1
        events = json.loads(Path(session.end_profiling()).read_text())
        return events, onnx.load(optimized, load_external_data=False).graph


def _node_seconds(events: list[dict[str, Any]], graph: onnx.GraphProto) -> dict[str, float]:
    """The median time of each node of the optimized main graph, by name."""
    names = {node.name for node in graph.node}
    taken: dict[str, list[float]] = defaultdict(list)
    for event in events:
        name = event["name"].removesuffix("_kernel_time")
        if event.get("cat") == "Node" and name in names:
            taken[name].append(1e-6 * event["dur"])
    return {name: statistics.median(all_[_WARM_UP:]) for name, all_ in taken.items()}


def _without_overhead(times: dict[str, float], run_seconds: float) -> dict[str, float]:
    """The times less what the profiler takes for each node, which is about the same for all.

    It is chosen so that the nodes together take as long as a run without the profiler.
    """
    low, high = 0.0, _MAX_OVERHEAD
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_more = sum(max(0.0, own - middle) for own in times.values()) > run_seconds
        low, high = (middle, high) if is_more else (low, middle)
    return {name: max(0.0, own - low) for name, own in times.items()}


class _Coverage:
    """Nodes of the optimized graph, grouped so that the original has each group's results.

    Parameters
    ----------
    original, optimized : onnx.GraphProto
        The names of the nodes that remain tell their places in the original.
    """

    def __init__(self, original: onnx.GraphProto, optimized: onnx.GraphProto) -> None:
        self._nodes, self._optimized = original.node, list(optimized.node)
        self._producer = {
            name: place for place, node in enumerate(original.node) for name in node.output if name
        }
        self._readers: dict[str, list[int]] = defaultdict(list)
        for place, node in enumerate(original.node):
            for name in names_read(node):
                self._readers[name].append(place)
        self._inputs = {value.name for value in original.input}
        self._alias: dict[str, str] = {}
        for node in self._optimized:
            self._name_results(node)
        for node in self._optimized:
            if node.op_type == "ReorderInput" and self._is_known(node.input[0]):
                self._alias[node.output[0]] = self._original(node.input[0])
            elif node.op_type == "ReorderOutput" and self._is_known(node.output[0]):
                self._alias[node.input[0]] = node.output[0]

    def covered(self) -> Iterator[tuple[list[onnx.NodeProto], list[int]]]:
        """The groups, each with the places of the original nodes that it computes."""
        groups = self._grouped()
        by_group: dict[int, list[onnx.NodeProto]] = defaultdict(list)
        for place, node in enumerate(self._optimized):
            by_group[groups[place]].append(node)
        results = {
            group: {self._original(name) for node in nodes for name in node.output if name}
            for group, nodes in by_group.items()
        }
        computed = set().union(*results.values())
        for group, nodes in by_group.items():
            read = {self._original(name) for node in nodes for name in names_read(node)}
            own = results[group] & self._producer.keys()
            yield nodes, self._between(own, ((computed - results[group]) | (read - own)))

    def _between(self, results: set[str], stops: set[str]) -> list[int]:
        """The original nodes that compute `results` from `stops`."""
        found: set[int] = set()
        stack = list(results)
        while stack:
            name = stack.pop()
            place = self._producer.get(name)
            if place is None or place in found or (name in stops and name not in results):
                continue
            found.add(place)
            stack += names_read(self._nodes[place])
        return sorted(found)

    def _original(self, name: str) -> str:
        return self._alias.get(name, name)

    def _is_known(self, name: str) -> bool:
        name = self._original(name)
        return name in self._producer or name in self._inputs

    def _name_results(self, node: onnx.NodeProto) -> None:
        """Find the original names of results that ONNX Runtime has renamed."""
        place = node.name.removeprefix(_NODE)
        if place != node.name and place.isdigit():
            kept = self._nodes[int(place)]
            if kept.op_type == node.op_type:
                self._alias.update(
                    (new, old)
                    for new, old in zip(node.output, kept.output, strict=False)
                    if new and old and new not in self._producer
                )
        elif _BLOCKED in node.name:
            # The name of a node with blocked channels begins with that of its result.
            name = node.name[: node.name.rindex(_BLOCKED)]
            if name in self._producer and node.output[0] not in self._producer:
                self._alias[node.output[0]] = self._after_fusion(name, node)

    def _after_fusion(self, name: str, node: onnx.NodeProto) -> str:
        """The result of a convolution with the addition and activation that it was fused with."""
        has_sum = len(node.input) > 3 and node.input[3]
        is_plain = self._nodes[self._producer[name]].op_type == "Conv"
        is_active = any(attribute.name == "activation" for attribute in node.attribute)
        for _ in range(bool(has_sum) + (is_active and is_plain)):
            readers = self._readers[name]
            if len(readers) != 1:
                break
            name = self._nodes[readers[0]].output[0]
        return name

    def _grouped(self) -> list[int]:
        """The group of each optimized node.

        Those with an unknown value between them are one group.  A reorder belongs to the node whose
        result it reorders; one of an input, to its readers.
        """
        groups = Groups(len(self._optimized))
        made: dict[str, int] = {}
        for place, node in enumerate(self._optimized):
            is_reorder = node.op_type in _REORDERS
            for name in names_read(node):
                if name not in made:
                    continue
                reorders_input = self._optimized[made[name]].op_type in _REORDERS and (
                    self._optimized[made[name]].input[0] in self._inputs
                )
                if is_reorder or reorders_input or not self._is_known(name):
                    groups.join([made[name], place])
            made.update((name, place) for name in node.output if name)
        return [groups.of(place) for place in range(len(self._optimized))]
