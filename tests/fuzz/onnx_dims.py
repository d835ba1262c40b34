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
"""The campaign ``dims``: ONNX graphs whose inputs have unnamed, shared or misleading dims.

ONNX Runtime does not compare the sizes of dims with their names, so exporters give dims no names,
or wrong ones.
"""

from collections.abc import Callable

import numpy as np
import onnx

from . import onnx_elementwise, onnx_layers, onnx_models, onnx_shapes
from .onnx_graphs import DIMS, Graph
from .targets import target_for

_FAMILIES: tuple[tuple[Callable[[Graph], None], float], ...] = (
    *((family, 3 * weight) for family, weight in onnx_elementwise.FAMILIES),
    *onnx_shapes.FAMILIES,
    (onnx_shapes.concatenate, 8),
    *onnx_layers.FAMILIES,
)
_WEIGHTS = np.array([weight for _, weight in _FAMILIES])

_OPSETS = (13, 17, 18, 21)
_DTYPES = ("float32",) * 6 + ("int64", "float16", "bool")

_SCHEMES = ("unnamed", "placeholder", "distinct", "mixed", "true", "misleading")

_MISMATCH = "loc=param["
"""In the message about an input whose size contradicts that of another input."""


def make_graph(seed: int) -> Graph:
    """The graph of `seed`: several inputs with few distinct extents, so that they combine."""
    rng = np.random.default_rng([5, seed])
    sizes = {name: int(rng.integers(1, 5)) for name in DIMS}
    graph = Graph(rng, int(rng.choice(_OPSETS)), sizes)
    usual = str(graph.choose(_DTYPES))
    rank = 1 + graph.below(4)
    for _ in range(2 + graph.below(3)):
        dims = [graph.choose((*DIMS, *DIMS, 1, 3)) for _ in range(rank)]
        dtype = usual if graph.chance(0.8) else str(graph.choose(_DTYPES))
        graph.add_input(dtype, dims[graph.below(2) :], str(graph.choose(("exact", "normal"))))
    for _ in range(60):
        if len(graph.nodes) >= 2 + graph.below(8):
            break
        _FAMILIES[int(graph.rng.choice(len(_FAMILIES), p=_WEIGHTS / _WEIGHTS.sum()))][0](graph)
    return graph


def scheme_of(seed: int) -> str:
    """How the dims of the graph of `seed` are named."""
    return _SCHEMES[seed % len(_SCHEMES)]


def renamed(model: onnx.ModelProto, scheme: str, rng: np.random.Generator) -> onnx.ModelProto:
    """`model` with other names of dims, or none; static dims lose their sizes, too."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    count = 0
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            count += 1
            if scheme == "true" or (dim.HasField("dim_value") and rng.random() < 0.7):
                continue
            chosen = str(rng.choice(_SCHEMES[:3])) if scheme == "mixed" else scheme
            dim.Clear()
            if chosen == "placeholder":
                dim.dim_param = "?"
            elif chosen == "distinct":
                dim.dim_param = f"unk__{count}"
            elif chosen == "misleading":
                dim.dim_param = str(rng.choice(DIMS))
    return model


def run_case(seed: int) -> str | None:
    """Build and compare the graph of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    graph, scheme = make_graph(seed), scheme_of(seed)
    if not graph.nodes:
        return None
    rng = np.random.default_rng([6, seed])
    model = renamed(graph.model(), scheme, rng)
    try:
        return onnx_models.check(model, _cases(graph, rng), target_for(seed))
    except AssertionError as error:
        # The model trusts names: inputs that contradict them are rejected.
        if scheme in ("true", "misleading") and _MISMATCH in str(error):
            return str(error)
        raise


def _cases(graph: Graph, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Inputs at several sizes; in the last ones, some dims of the same name differ."""
    cases = []
    for sizes in (graph.sizes, dict.fromkeys(DIMS, 1), {n: int(rng.integers(1, 9)) for n in DIMS}):
        cases.append({spec.name: spec.array(rng, sizes) for spec in graph.inputs})
    for _ in range(2):
        cases.append(
            {
                spec.name: spec.array(
                    rng, {n: 1 if rng.random() < 0.3 else size for n, size in graph.sizes.items()}
                )
                for spec in graph.inputs
            }
        )
    return cases
