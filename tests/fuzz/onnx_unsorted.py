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
"""The campaign ``unsorted``: ONNX graphs whose nodes have a random order."""

import numpy as np
import onnx

from . import onnx_models
from .targets import target_for


def shuffled(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """`model` with its nodes in another order, including nested graphs."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    _shuffle(model.graph, rng)
    return model


def _shuffle(graph: onnx.GraphProto, rng: np.random.Generator) -> None:
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _shuffle(attribute.g, rng)
    order = np.arange(len(nodes))
    kind = int(rng.integers(3))
    if kind == 0:  # as a converter that appends some nodes
        order = np.argsort(rng.random(len(nodes)) < 0.3, kind="stable")
    elif kind == 1:
        order = rng.permutation(len(nodes))
    else:
        order = order[::-1]
    del graph.node[:]
    graph.node.extend(nodes[int(place)] for place in order)


def run_case(seed: int) -> str | None:
    """Build and compare the graph of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    graph = onnx_models.make_graph(seed)
    if not graph.nodes:
        return None
    model = graph.model()
    imported = shuffled(model, np.random.default_rng([7, seed]))
    cases = onnx_models.cases_of(graph, seed)
    return onnx_models.check(model, cases, target_for(seed), imported)
