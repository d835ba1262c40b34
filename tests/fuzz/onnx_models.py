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
"""The campaign of random ONNX graphs: imported, built for several targets, compared."""

import functools
import re
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import onnx
from onnx import helper

import tvm_fixes
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support.isolate import OutcomeKind, run_forked

from . import (
    onnx_elementwise,
    onnx_layers,
    onnx_oracle,
    onnx_quantized,
    onnx_requantized,
    onnx_shapes,
    onnx_unspecified,
    reduce_onnx,
)
from .onnx_graphs import DIMS, Graph
from .targets import compiled, target_for
from .tolerance import difference
from .values import FLOATS, INTEGERS, KINDS

_FAMILIES = (*onnx_elementwise.FAMILIES, *onnx_shapes.FAMILIES, *onnx_layers.FAMILIES)
_WEIGHTS = np.array([weight for _, weight in _FAMILIES])
_INPUT_DTYPES = (
    *("float32",) * 8,
    "float64",
    "float16",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "bool",
    *INTEGERS,
)
# A number without a common factor with the number of targets.
_QUANTIZED_EACH = 5
_OPSETS = (13, 17, 18, 19, 20, 21, 22, 23)
# ONNX Runtime aborts the process if the batch or the sequence is empty.
_RECURRENT = ("GRU", "LSTM", "RNN")
_PRECISION = ("float64", "float32", "float16", "bfloat16")


def make_graph(seed: int) -> Graph:
    """The graph of `seed`."""
    rng = np.random.default_rng([1, seed])
    dynamic = bool(rng.random() < 0.4)
    sizes = {name: int(rng.integers(2, 6)) for name in DIMS} if dynamic else {}
    graph = Graph(rng, int(rng.choice(_OPSETS)), sizes)
    if seed % _QUANTIZED_EACH == _QUANTIZED_EACH - 1:
        onnx_quantized.fill(graph)
        return graph
    usual = str(graph.choose(_INPUT_DTYPES))
    for _ in range(1 + graph.below(3)):
        dtype = usual if graph.chance(0.7) else str(graph.choose(_INPUT_DTYPES))
        kind = str(graph.choose(("exact", "normal", "normal", KINDS[graph.below(len(KINDS))])))
        graph.add_input(dtype, _dims(graph), kind)
    for _ in range(60):
        if len(graph.nodes) >= 2 + graph.below(10):
            break
        family = _FAMILIES[int(graph.rng.choice(len(_FAMILIES), p=_WEIGHTS / _WEIGHTS.sum()))][0]
        family(graph)
    return graph


def _dims(graph: Graph) -> list[int | str]:
    """Few distinct extents, so that shapes match; occasionally an empty axis."""
    rank = int(graph.choose((0, 1, 2, 2, 3, 3, 4)))
    options: list[int | str] = [1, 2, 3, 4, 8, 17] if graph.chance(0.5) else [1, 3, 4]
    if graph.chance(0.05):
        options.append(0)
    dims = [graph.choose(options) for _ in range(rank)]
    if graph.sizes:
        dims = [graph.choose(DIMS) if graph.chance(0.5) else dim for dim in dims]
    return dims


def run_case(seed: int) -> str | None:
    """Build and compare the graph of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    return check_graph(make_graph(seed), seed)


def check_graph(graph: Graph, seed: int) -> str | None:
    """Build and compare a graph; see :func:`check`."""
    if not graph.nodes:
        return None
    return check(graph.model(), cases_of(graph, seed), target_for(seed))


def cases_of(graph: Graph, seed: int) -> list[dict[str, np.ndarray]]:
    """Inputs at several sizes of the symbolic dims."""
    rng = np.random.default_rng([2, seed])
    all_sizes = [graph.sizes]
    if graph.sizes:
        sizes = [1, 7] if any(node.op_type in _RECURRENT for node in graph.nodes) else [0, 1, 7]
        all_sizes += [dict.fromkeys(DIMS, size) for size in sizes]
    return [{spec.name: spec.array(rng, sizes) for spec in graph.inputs} for sizes in all_sizes]


Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]
"""A compiled model, from inputs by name to outputs."""


def check(
    model: onnx.ModelProto,
    cases: list[dict[str, np.ndarray]],
    target: str,
    imported: onnx.ModelProto | None = None,
    make: Callable[[], Run] | None = None,
) -> str | None:
    """Build `model` for `target` and compare it with the oracles on each of `cases`.

    Parameters
    ----------
    imported : onnx.ModelProto, optional
        An equivalent model to build instead, which the oracles need not accept.
    make : callable, optional
        Builds the model instead.

    Returns
    -------
    str or None
        The message if the model was rejected.

    Raises
    ------
    AssertionError
        If an output differs, if the verifier reports a correct model, or if the message of a
        rejection names neither operator nor node.
    """
    precision, expected = _references(model, cases)
    if expected[0] is None:
        return None
    try:
        run = make() if make else build(model if imported is None else imported, target)
    except Exception as error:
        text = " ".join(str(error).split())
        assert _names_a_node(text, model), (
            f"unclear rejection: {type(error).__name__}: {text[:600]}"
        )
        return f"{type(error).__name__}: {text[:300]}"
    for inputs, wanted in zip(cases, expected, strict=True):
        if wanted is not None:
            rejection = _compare(model, inputs, run, wanted, precision, target)
            if rejection is not None:
                return rejection
    return None


def _references(
    model: onnx.ModelProto, cases: list[dict[str, np.ndarray]]
) -> tuple[str, list[list[np.ndarray] | None]]:
    """The lowest-precision dtype and the expected outputs; None for unknown outputs.

    Runs in its own process: onnx and ONNX Runtime crash on a few valid models.
    """

    def compute() -> tuple[str, list[list[np.ndarray] | None]]:
        return precision_of(model), [onnx_oracle.outputs(model, inputs) for inputs in cases]

    outcome = run_forked(compute, timeout=60)
    if outcome.kind is OutcomeKind.EXCEPTION:
        raise AssertionError(f"oracle: {outcome.message}")
    if outcome.kind is not OutcomeKind.VALUE:
        return "float64", [None]
    return cast(tuple[str, list[list[np.ndarray] | None]], outcome.value)


def build(model: onnx.ModelProto, target: str) -> Run:
    """A function that runs `model`, compiled for `target`; see :mod:`.targets`."""
    mod = from_onnx(model)
    tvm_fixes.verify(mod).raise_if_errors()
    run = compiled(mod, target)
    names = [value.name for value in model.graph.input]
    return lambda inputs: run([inputs[name] for name in names])


def _gathers_nothing(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> bool:
    """Whether a gather has a result without elements."""
    return any(
        node.op_type.startswith("Gather") and not results[0].size
        for node, _, results in onnx_oracle.steps(model, inputs)
    )


def _has_open_rank(model: onnx.ModelProto) -> bool:
    """Whether the rank of a result depends on extents: a Squeeze without axes."""
    return any(
        node.op_type == "Squeeze"
        and len(node.input) < 2
        and not any(attribute.name == "axes" for attribute in node.attribute)
        for node in model.graph.node
    )


def _compare(
    model: onnx.ModelProto,
    inputs: dict[str, np.ndarray],
    run: Run,
    wanted: list[np.ndarray],
    precision: str,
    target: str,
) -> str | None:
    """Compare the outputs; return the message of a run-time check that ONNX Runtime lacks.

    ONNX Runtime checks neither indices into an empty axis nor the indices of an empty gather, and
    the rank of its result of a Squeeze without axes may depend on the inputs.
    """
    sizes = {name: array.shape for name, array in inputs.items()}
    try:
        got = run(inputs)
    except Exception as error:
        is_empty = any(not array.size for array in inputs.values())
        is_check = "match_cast" in str(error) or "division by zero" in str(error)
        is_index = "is out of range for axis" in str(error)
        if (
            "of 0 elements" in str(error)
            or ("match_cast" in str(error) and _has_open_rank(model))
            or (is_check and (is_empty or onnx_unspecified.has_unspecified_result(model, inputs)))
            or (is_index and _gathers_nothing(model, inputs))
        ):
            return f"{type(error).__name__}: {error}"
        raise AssertionError(
            f"fails at run time, {sizes}: {type(error).__name__}: {error}"
        ) from None

    @functools.cache
    def truths() -> list:  # type: ignore[type-arg]
        rng = np.random.default_rng(0)
        return onnx_oracle.in_float64(model, inputs, precision, rng)

    problem = difference(got, wanted, truths, precision)
    if not problem:
        return None
    # ONNX Runtime has bugs, and rounds to 16 bits only after several nodes.
    others = [
        onnx_oracle.by_nodes(model, inputs, reference_first=reference_first)
        for reference_first in (True, False)
    ]
    oracles = [wanted, *(other for other in others if other is not None)]
    is_right = all(
        any(
            not difference(
                [ours], [oracle[index]], lambda i=index: [[run[i]] for run in truths()], precision
            )
            for oracle in oracles
        )
        for index, ours in enumerate(got)
    )
    if is_right or onnx_unspecified.has_unspecified_result(model, inputs):
        return None
    if onnx_requantized.rounds(model):
        problem = onnx_requantized.problem_of(model, inputs, got, lambda m: build(m, target))
    assert not problem, f"{problem}, inputs {sizes}"
    return None


def precision_of(model: onnx.ModelProto) -> str:
    """The lowest-precision float dtype of a tensor of `model`."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    dtypes = {
        helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
        for value in (*inferred.input, *inferred.output, *inferred.value_info)
    }
    dtypes |= {helper.tensor_dtype_to_np_dtype(t.data_type).name for t in inferred.initializer}
    return max((name for name in dtypes if name in FLOATS), key=_PRECISION.index, default="float64")


def _names_a_node(text: str, model: onnx.ModelProto) -> bool:
    if re.search(r"relax\.[\w.]+ in '\w+': \w+ = ", text):  # a binding of the imported module
        return True
    return any(node.name in text and node.op_type in text for node in model.graph.node)


def reproduce(seed: int, make: Callable[[int], Graph] = make_graph) -> str:
    """A small model with the fault of the case `seed`, as the program of a test."""
    graph = make(seed)
    target = target_for(seed)
    model = graph.model()
    for inputs in cases_of(graph, seed):
        wanted = _fault(model, inputs, target)
        if wanted is not None:
            break
    else:
        return "no case fails on its own"

    def fails(candidate: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> bool:
        fault = _fault(candidate, arrays, target)
        return fault is not None and _kind(fault) == _kind(wanted)

    small, arrays = reduce_onnx.reduce(model, inputs, fails)
    message = _fault(small, arrays, target) or ""
    return f"# target {target!r}\n" + reduce_onnx.as_test(small, arrays, message)


def _fault(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], target: str) -> str | None:
    """The fault of `model` on `inputs`, or None."""
    outcome = run_forked(lambda: check(model, [dict(inputs)], target), timeout=60)
    if outcome.kind is OutcomeKind.VALUE:
        return None
    return outcome.message if outcome.name == "AssertionError" else str(outcome)


def _kind(message: str) -> str:
    """The part of a message that faults with the same cause share."""
    if message.startswith("output"):
        return "output"
    return re.sub(r"[^A-Za-z ]+", "", message)[:60]
