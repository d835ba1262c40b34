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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tvm_fixes.runtime import CompiledModel

from ..measure import compare
from .data import Case
from .judge import problem
from .models import Model

Arrays = list[np.ndarray]
Call = Callable[[dict[str, np.ndarray]], Arrays]

SEED = 7
MIN_TURN_S = 0.005
"""A turn repeats short calls until it takes as long as this."""
TURNS, MAX_SECONDS = 15, 20.0
"""The number of turns, and the time after which no more are made."""


def session(path: Path, *, optimized: bool = True) -> Any:
    """Return an ONNX Runtime session with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def steps(case: Case, call: Call, names: Sequence[str], *, moved: bool = False) -> list[Arrays]:
    """Return the outputs of each step of a case, which carries its own states.

    Parameters
    ----------
    case : Case
    call : callable
        The model.
    names : sequence of str
        The names of its outputs.
    moved : bool
        Whether to move each float input by at most one rounding error.
    """
    rng, noise = np.random.default_rng(SEED), np.random.default_rng(SEED)
    states: dict[str, np.ndarray] = {}
    results = []
    for _ in range(case.steps):
        feed = {name: make(rng) for name, make in case.inputs.items()} | states
        if moved:
            feed = {name: _moved(value, noise) for name, value in feed.items()}
        outputs = call({name: value.copy() for name, value in feed.items()})
        states = {name: outputs[names.index(output)] for name, output in case.carry.items()}
        results.append(outputs)
    return results


def _moved(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if value.dtype.kind != "f" or not value.size:
        return value
    step = np.finfo(value.dtype).eps * rng.choice([-0.5, 0.5], value.shape)
    return (value * (1 + step)).astype(value.dtype)


def check(model: Model, path: Path, ours: Call) -> str:
    """Return what is wrong with a compiled model, in one line; empty if nothing is."""
    plain, other = session(path), session(path, optimized=False)
    names = [output.name for output in plain.get_outputs()]
    for case in model.cases:
        run: Call = partial(plain.run, None)
        expected = steps(case, run, names)
        others = [
            steps(case, partial(other.run, None), names),
            steps(case, run, names, moved=True),
        ]
        actual = steps(case, ours, names)
        for step in range(case.steps):
            found = problem(actual[step], expected[step], [o[step] for o in others], names)
            if found:
                sizes = ", ".join(
                    f"{name} {list(make(np.random.default_rng(0)).shape)}"
                    for name, make in case.inputs.items()
                )
                return f"{found} (step {step + 1} of {case.steps}; {sizes[:200]})"
    return ""


def times(model: Model, path: Path, ours: Call) -> dict[str, float]:
    """Return the CPU times in ms of one call of both, on the first case, and their ratio."""
    feed = {name: make(np.random.default_rng(SEED)) for name, make in model.cases[0].inputs.items()}
    theirs = session(path)
    calls = {
        "onnxruntime": partial(theirs.run, None, feed),
        "tvm-fixes": partial(ours, feed),
    }
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


def _compiled(artifact: Path) -> Call:
    model = CompiledModel.load(artifact)
    names = [spec.name for spec in model.inputs]

    def call(feed: dict[str, np.ndarray]) -> Arrays:
        result = model.run(*(feed[name] for name in names))
        return list(result) if len(model.outputs) > 1 else [result]

    return call


def main(name: str, path: Path, artifact: Path) -> None:
    """Print what is wrong with a compiled model, or the times of both."""
    from . import find

    model = find(name)
    ours = _compiled(artifact)
    wrong = check(model, path, ours)
    print(json.dumps({"wrong": wrong} | ({} if wrong else times(model, path, ours))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
