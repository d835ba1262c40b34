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
"""The recurrent operators of ONNX in float64, by the definitions of the specification."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

Arrays: TypeAlias = dict[str, np.ndarray]
Attributes: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[[np.ndarray], np.ndarray]

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""The number of gates of each operator."""

_DEFAULTS = {
    "RNN": ["Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
}
_WAYS = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}


def definition(operator: str, attributes: Attributes, arrays: Mapping[str, np.ndarray]) -> list:
    """The outputs of a node.

    As in ONNX Runtime, Y is 0 beyond the length of a sequence, and the states after a sequence of
    length 0 are 0.

    Parameters
    ----------
    operator : str
    attributes : dict
    arrays : mapping of str to numpy.ndarray
        The operands that are given, by their names in ONNX.
    """
    is_batch_first = attributes.get("layout", 0) == 1
    float64 = {n: a if n == "sequence_lens" else a.astype("float64") for n, a in arrays.items()}
    if is_batch_first:
        for name in ("X", "initial_h", "initial_c"):
            if name in float64:
                float64[name] = float64[name].swapaxes(0, 1)
    functions = _functions(operator, attributes)
    runs = []
    for index, way in enumerate(_WAYS[attributes["direction"]]):
        own = {n: a if n in ("X", "sequence_lens") else a[index] for n, a in float64.items()}
        runs.append(_run(operator, attributes, own, way, functions[index]))
    y, *states = zip(*runs, strict=True)
    results = [np.stack(y, 1), *(np.stack(state) for state in states)]
    if is_batch_first:
        axes = [(2, 0, 1, 3), *[(1, 0, 2)] * len(states)]
        results = [a.transpose(order) for a, order in zip(results, axes, strict=True)]
    return results


def _run(
    operator: str, attributes: Attributes, own: Arrays, way: int, functions: list[Function]
) -> list[np.ndarray]:
    x, hidden = own["X"], attributes["hidden_size"]
    steps, batch, _ = x.shape
    h = own.get("initial_h", np.zeros((batch, hidden)))
    c = own.get("initial_c", np.zeros((batch, hidden)))
    lengths = own.get("sequence_lens", np.full(batch, steps))
    y = np.zeros((steps, batch, hidden))
    for step in range(steps)[::way]:
        new_h, new_c = _step(operator, attributes, own, x[step], h, c, functions)
        is_running = (step < lengths)[:, None]
        h, c = np.where(is_running, new_h, h), np.where(is_running, new_c, c)
        y[step] = np.where(is_running, new_h, 0)
    if "sequence_lens" in own:
        some = (lengths > 0)[:, None]
        h, c = np.where(some, h, 0), np.where(some, c, 0)
    return [y, h, c] if operator == "LSTM" else [y, h]


def _step(
    operator: str,
    attributes: Attributes,
    own: Arrays,
    x: np.ndarray,
    h: np.ndarray,
    c: np.ndarray,
    functions: list[Function],
) -> tuple[np.ndarray, np.ndarray]:
    count = GATES[operator]
    rows = own["R"].shape[0]
    bias = own.get("B", np.zeros(2 * rows))
    of_x = np.split(x @ own["W"].T + bias[:rows], count, -1)
    weights, of_h = np.split(own["R"], count), np.split(bias[rows:], count)
    bound = float(np.float32(attributes.get("clip", np.inf)))

    def activated(index: int, total: np.ndarray) -> np.ndarray:
        return functions[index](np.clip(total, -bound, bound))

    def sums(gate: int, of: np.ndarray = h) -> np.ndarray:
        return of_x[gate] + of @ weights[gate].T + of_h[gate]

    if operator == "RNN":
        return activated(0, sums(0)), c
    if operator == "GRU":
        z, r = activated(0, sums(0)), activated(0, sums(1))
        if attributes.get("linear_before_reset"):
            total = of_x[2] + r * (h @ weights[2].T + of_h[2])
        else:
            total = sums(2, r * h)
        return (1 - z) * activated(1, total) + z * h, c
    p_i, p_o, p_f = np.split(own.get("P", np.zeros(3 * h.shape[-1])), 3)
    i = activated(0, sums(0) + p_i * c)
    f = 1 - i if attributes.get("input_forget") else activated(0, sums(2) + p_f * c)
    c = f * c + i * activated(1, sums(3))
    return activated(0, sums(1) + p_o * c) * functions[2](c), c


def _functions(operator: str, attributes: Attributes) -> list[list[Function]]:
    """The activations of each direction."""
    ways = len(_WAYS[attributes["direction"]])
    names = attributes.get("activations") or _DEFAULTS[operator] * ways
    numbers = [iter(attributes.get(f"activation_{kind}", ())) for kind in ("alpha", "beta")]
    found = [_function(name, *numbers) for name in names]
    count = len(found) // ways
    return [found[i : i + count] for i in range(0, len(found), count)]


def _function(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    """An activation, which takes the next alpha or beta if it has one."""
    simple: dict[str, Function] = {
        "Relu": lambda x: np.maximum(x, 0),
        "Tanh": np.tanh,
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.logaddexp(0, x),
    }
    if name in simple:
        return simple[name]
    alpha = np.float32(next(alphas)).astype("float64")
    of_alpha: dict[str, Function] = {
        "Elu": lambda x: np.where(x < 0, alpha * np.expm1(x), x),
        "LeakyRelu": lambda x: np.where(x < 0, alpha * x, x),
        "ThresholdedRelu": lambda x: np.where(x > alpha, x, 0),
    }
    if name in of_alpha:
        return of_alpha[name]
    beta = np.float32(next(betas)).astype("float64")
    of_both: dict[str, Function] = {
        "Affine": lambda x: alpha * x + beta,
        "HardSigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "ScaledTanh": lambda x: alpha * np.tanh(beta * x),
    }
    return of_both[name]
