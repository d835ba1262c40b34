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
"""Runs one compiled model and ONNX Runtime on the same inputs: ``python -m … NAME MODEL ARTIFACT``.

Prints one JSON object: what is wrong, and the times of both.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tvm_fixes.runtime import CompiledModel

from ..measure import compare
from .data import Case, from_torch, to_torch
from .judge import NARROW_SHARES, SHARE, is_float, problem
from .models import Model

Arrays = list[np.ndarray]
Call = Callable[[dict[str, np.ndarray]], Arrays]

SEED = 7
MIN_TURN_S = 0.005
"""A turn repeats short calls until it takes as long as this."""
TURNS, MAX_SECONDS = 15, 20.0
"""The number of turns, and the time after which no more are made."""


class Reference:
    """ONNX Runtime, or PyTorch for an exported program, with one thread.

    Parameters
    ----------
    path : Path
    optimized : bool
        Whether ONNX Runtime optimizes the graph.
    moved : float
        How many rounding errors to move each float initializer by.

    Attributes
    ----------
    names : list of str
        The names of the outputs.
    """

    def __init__(self, path: Path, *, optimized: bool = True, moved: float = 0.0):
        self._run: Callable[[dict[str, np.ndarray]], Any]
        if path.suffix == ".pt2":
            self._run, self.names = _program(path)
            return
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if not optimized:
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        providers = ["CPUExecutionProvider"]
        source = _with_moved_weights(path, moved) if moved else str(path)
        session = onnxruntime.InferenceSession(source, options, providers=providers)
        self._run = partial(session.run, None)
        self.names = [output.name for output in session.get_outputs()]

    def __call__(self, feed: dict[str, np.ndarray]) -> Arrays:
        """Run the model; its maps and sequences become arrays."""
        return [as_array(value) for value in self._run(feed)]


def _program(path: Path) -> tuple[Callable[[dict[str, Any]], Any], list[str]]:
    import torch

    torch.set_num_threads(1)
    program = torch.export.load(path)
    module = program.module()
    count = len(program.graph_signature.user_outputs)

    def run(feed: dict[str, Any]) -> Any:
        with torch.no_grad():
            result = module(*(to_torch(value) for value in feed.values()))
        return [result] if count == 1 else list(result)

    return run, [f"output_{index}" for index in range(count)]


def _with_moved_weights(path: Path, moved: float) -> bytes:
    """The ONNX model at `path` with each float initializer moved by rounding errors."""
    import onnx
    from onnx import numpy_helper

    rng = np.random.default_rng(SEED)
    model = onnx.load(path)
    for weight in model.graph.initializer:
        value = numpy_helper.to_array(weight)
        if is_float(value):
            weight.CopyFrom(numpy_helper.from_array(_moved(value, rng, moved), weight.name))
    return bytes(model.SerializeToString())


def as_array(value: Any) -> np.ndarray:
    """Return an output as an array: a tensor, or a sequence of maps from classes to scores."""
    if isinstance(value, list):
        return np.array([[row[key] for key in sorted(row)] for row in value], "float32")
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else from_torch(value)


MOVES = (1.0, 8.0)
"""The distances of values that are moved, in rounding errors: kernels make several in a row."""


def steps(case: Case, call: Call, names: Sequence[str], *, moved: float = 0.0) -> list[Arrays]:
    """Return the outputs of each step of a case, which carries its own states.

    Parameters
    ----------
    case : Case
    call : callable
        The model.
    names : sequence of str
        The names of its outputs.
    moved : float
        How many rounding errors to move each float input by.
    """
    rng, noise = np.random.default_rng(SEED), np.random.default_rng(SEED)
    states: dict[str, np.ndarray] = {}
    results = []
    for _ in range(case.steps):
        feed = {name: make(rng) for name, make in case.inputs.items()} | states
        if moved:
            feed = {name: _moved(value, noise, moved) for name, value in feed.items()}
        outputs = call({name: value.copy() for name, value in feed.items()})
        states = {name: outputs[names.index(output)] for name, output in case.carry.items()}
        results.append(outputs)
    return results


def _moved(value: np.ndarray, rng: np.random.Generator, errors: float) -> np.ndarray:
    if not is_float(value) or not value.size:
        return value
    step = float(ml_dtypes.finfo(value.dtype).eps) * rng.uniform(-errors, errors, value.shape)
    return np.asarray(value * (1 + step), value.dtype)


def share_of(path: Path) -> float:
    """Return the error that is always right, as a share; it depends on the dtype of the weights."""
    if path.suffix == ".pt2":
        return SHARE  # outputs have the dtype of the weights
    import onnx

    counts: Counter[str] = Counter()
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).name
        counts[dtype] += prod(tensor.dims)
    common = max(counts, key=counts.__getitem__, default="float32")
    return NARROW_SHARES.get(common, SHARE)


def check(model: Model, path: Path, ours: Call) -> str:
    """Return what is wrong with a compiled model, in one line; empty if nothing is."""
    plain, other = Reference(path), Reference(path, optimized=False)
    for case in model.cases:
        names, share = plain.names, share_of(path)
        expected, actual = steps(case, plain, names), steps(case, ours, names)
        others = [steps(case, other, names)]
        others += [steps(case, plain, names, moved=distance) for distance in MOVES]
        difference = _first_problem(actual, expected, others, names, share)
        if difference and path.suffix != ".pt2":
            # Inputs that are integers or quantized at once cannot be moved, so weights are.
            moves = [Reference(path, moved=distance) for distance in MOVES]
            others += [steps(case, reference, names) for reference in moves]
            difference = _first_problem(actual, expected, others, names, share)
        if difference:
            sizes = ", ".join(
                f"{name} {list(make(np.random.default_rng(0)).shape)}"
                for name, make in case.inputs.items()
            )
            return f"{difference}; {sizes[:200]})"
    return ""


def _first_problem(
    actual: Sequence[Arrays],
    expected: Sequence[Arrays],
    others: Sequence[Sequence[Arrays]],
    names: Sequence[str],
    share: float,
) -> str:
    """Return what is wrong with the first wrong step, and which it is; empty if all are right."""
    for step, (ours, theirs) in enumerate(zip(actual, expected, strict=True), 1):
        difference = problem(ours, theirs, [run[step - 1] for run in others], names, share)
        if difference:
            return f"{difference} (step {step} of {len(actual)}"
    return ""


def times(model: Model, path: Path, ours: Call) -> dict[str, float]:
    """Return the CPU times in ms of one call of both, on the first case, and their ratio."""
    feed = {name: make(np.random.default_rng(SEED)) for name, make in model.cases[0].inputs.items()}
    calls = {"reference": partial(Reference(path)._run, feed), "tvm-fixes": partial(ours, feed)}
    slowest = max(_seconds(call) for call in calls.values())
    repeats = max(1, round(MIN_TURN_S / slowest))
    runs = max(3, min(TURNS, round(MAX_SECONDS / (2 * repeats * slowest))))
    repeated = {name: partial(_repeat, call, repeats) for name, call in calls.items()}
    result = compare(model.name, repeated, runs=runs, clock=time.process_time)
    reference, mine = result.implementations
    return {
        "ms": min(mine.seconds) / repeats * 1e3,
        "reference_ms": min(reference.seconds) / repeats * 1e3,
        "ratio": result.ratio(mine),
    }


def _repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


def _seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of a second call."""
    call()
    start = time.process_time()
    call()
    return max(time.process_time() - start, 1e-7)


def compiled(artifact: Path, *, by_name: bool) -> Call:
    """Return the outputs of a compiled model as a function of its inputs.

    Parameters
    ----------
    artifact : Path
    by_name : bool
        Whether inputs are found by name, or else by position: the parameters of a PyTorch module
        are not named like the inputs of a case.
    """
    model = CompiledModel.load(artifact)
    names = [spec.name for spec in model.inputs]
    run, is_tuple = model.run, len(model.outputs) > 1

    # Little else than the call: some models take a few microseconds.
    def call(feed: dict[str, np.ndarray]) -> Arrays:
        result = run(*[feed[name] for name in names]) if by_name else run(*feed.values())
        return list(result) if is_tuple else [result]

    return call


def main(name: str, path: Path, artifact: Path) -> None:
    """Print what is wrong with a compiled model, or the times of both."""
    from . import find

    model = find(name)
    ours = compiled(artifact, by_name=path.suffix != ".pt2")
    wrong = check(model, path, ours)
    print(json.dumps({"wrong": wrong} | ({} if wrong else times(model, path, ours))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
