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
"""Results that are wrong because of the runtime, not of the compiled code."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from ..runtime.compiled_model import CompiledModel
from ..support.tensors import arrays_of

# Nothing is looked for if it is expected to take longer.
_MAX_SECONDS = 5.0
# The number of runs.
_RUNS = 10
# The inputs of each kept run: 0 for the given ones, 1 for the others.
_TURNS = (0, 1, 0, 1, 0)

Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def runtime_faults(
    names: Sequence[str], model: CompiledModel, run: Run, inputs: Sequence[np.ndarray]
) -> dict[str, str]:
    """Describe the outputs that :meth:`CompiledModel.run` makes wrong.

    The model runs with its inputs and with others, in turns.  A later run must not change the
    results of an earlier one, and all results must be those of the virtual machine, which gets new
    tensors in each run.

    Parameters
    ----------
    names : sequence of str
        The names of the outputs.
    model : CompiledModel
    run : callable
        Calls :meth:`CompiledModel.run` with inputs; returns the outputs, and the new values of the
        inputs that it overwrites.
    inputs : sequence of numpy.ndarray

    Returns
    -------
    found : dict of str to str
        A sentence for each wrong output.  Nothing is found if the runs would take too long, if the
        model rejects the other inputs, or if it is not deterministic.
    """
    turns = [list(inputs), [_other(value) for value in inputs]]
    start = time.monotonic()
    expected = [_by_machine(model, turns[0])]
    if _RUNS * (time.monotonic() - start) > _MAX_SECONDS:
        return {}
    try:
        expected += [_by_machine(model, turns[turn]) for turn in (1, 0, 1)]
        results = [run(turns[turn]) for turn in _TURNS]
        kept = [[array.copy() for array in arrays] for arrays in results]
        run(turns[1])
    except Exception:  # a check in the model, such as of an index
        return {}
    found: dict[str, str] = {}
    for place, name in enumerate(names):
        right = [arrays[place].tobytes() for arrays in expected]
        ours = [arrays[place].tobytes() for arrays in kept]
        first = [ours[turn] for turn in (0, 1)]
        is_known = right[:2] == right[2:] and ours == [first[turn] for turn in _TURNS]
        if any(now[place].tobytes() != old for now, old in zip(results, ours, strict=True)):
            found[name] = "a later run of CompiledModel.run overwrites the result"
        elif is_known and first[0] != right[0]:
            found[name] = "CompiledModel.run does not return what the virtual machine computes"
        elif is_known and first[1] != right[1]:
            found[name] = (
                "after a run with other inputs, CompiledModel.run does not return what the virtual "
                "machine computes"
            )
    return found


def _by_machine(model: CompiledModel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of the virtual machine, then the new values of inputs."""
    results = arrays_of(model.bound(*(value.copy() for value in inputs))())
    updates, number = model.manifest.updates, len(model.outputs)
    hidden = (updates[model.inputs[place].name] for place in model.manifest.hidden_updates())
    return [*results[:number], *(results[index] for index in hidden)]


def _other(value: np.ndarray) -> np.ndarray:
    """Another input with the same values, if they differ: indices stay valid."""
    other = np.flip(value).copy()
    is_float = value.dtype.kind in "fc"
    return (
        (other / 2).astype(value.dtype)
        if is_float and other.tobytes() == value.tobytes()
        else other
    )
