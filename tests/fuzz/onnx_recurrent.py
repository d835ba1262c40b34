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
"""Recurrent layers of random sizes and attributes, each compiled once and run for several lengths.

The number of steps and of sequences is symbolic in most cases.  The oracles are the definition of
the operators in float64, and ONNX Runtime where it supports the attributes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tvm_fixes.frontend.onnx import from_onnx

from .recurrent_oracle import GATES, Arrays, Attributes, definition
from .targets import compiled, target_for
from .tolerance import difference

_ACTIVATIONS = (
    *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu"),
    *("ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"),
)
_COUNTS = {"RNN": 1, "GRU": 2, "LSTM": 3}
_ELEMENTS = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int32": TensorProto.INT32,
}
_MAX_STATE = 1e4
_LENGTHS = (0, 1, 1, 2, 3, 5, 8, 17, 40)
_BATCHES = (1, 1, 1, 2, 3, 4, 5, 7, 9)
_HIDDEN = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 20, 31, 32, 33, 40, 48, 50, 64, 65, 70)


@dataclass(frozen=True)
class Layer:
    """A node with its weights.

    Attributes
    ----------
    operator : str
    attributes : dict
        The attributes of ONNX.
    weights : dict
        W, R and the optional B and P.
    states : tuple of str
        Which initial states are given.
    has_lengths : bool
    are_inputs : bool
        Whether the weights are inputs of the model.
    is_symbolic : tuple of bool
        Whether the number of steps, and that of sequences, is symbolic.
    dtype : str
    """

    operator: str
    attributes: Attributes
    weights: Arrays
    states: tuple[str, ...]
    has_lengths: bool
    are_inputs: bool
    is_symbolic: tuple[bool, bool]
    dtype: str

    @property
    def directions(self) -> int:
        return 2 if self.attributes["direction"] == "bidirectional" else 1

    def inputs(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, np.ndarray]:
        """Random inputs of the model."""
        features, hidden = self.weights["W"].shape[2], self.attributes["hidden_size"]
        arrays = {"X": rng.normal(size=(steps, batch, features)).astype(self.dtype)}
        if self.has_lengths:
            arrays["sequence_lens"] = rng.integers(0, steps + 1, batch).astype("int32")
        for name in self.states:
            state = rng.uniform(-1, 1, (self.directions, batch, hidden))
            arrays[name] = state.astype(self.dtype)
        if self.attributes.get("layout"):
            for name in ("X", *self.states):
                arrays[name] = np.ascontiguousarray(arrays[name].swapaxes(0, 1))
        return arrays | (self.weights if self.are_inputs else {})

    def model(self, example: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """The model; extents that are not symbolic are those of `example`."""
        names = ["X", "W", "R", "B", "sequence_lens", "initial_h"]
        names += ["initial_c", "P"] if self.operator == "LSTM" else []
        known = {*example, *self.weights}
        outputs = ["Y", "Y_h", "Y_c"][: 3 if self.operator == "LSTM" else 2]
        operands = [name if name in known else "" for name in names]
        node = helper.make_node(self.operator, operands, outputs, name="node", **self.attributes)
        inputs = []
        for name, array in example.items():
            shape: list[int | str] = list(array.shape)
            place = {"X": (0, 1), "sequence_lens": (None, 0)}.get(name, (None, 1))
            if name not in self.weights:
                for axis, symbol, is_symbolic in zip(place, "TB", self.is_symbolic, strict=True):
                    if axis is not None and is_symbolic:
                        is_swapped = self.attributes.get("layout") and array.ndim == 3
                        shape[1 - axis if is_swapped else axis] = symbol
            element = _ELEMENTS[array.dtype.name]
            inputs.append(helper.make_tensor_value_info(name, element, shape))
        constants = {} if self.are_inputs else self.weights
        results = [helper.make_tensor_value_info(n, _ELEMENTS[self.dtype], None) for n in outputs]
        initializers = [numpy_helper.from_array(array, n) for n, array in constants.items()]
        graph = helper.make_graph([node], "recurrent", inputs, results, initializers)
        opset = [helper.make_opsetid("", 14)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)

    def definition(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs in float64."""
        return definition(self.operator, self.attributes, {**self.weights, **inputs})


def layer_of(rng: np.random.Generator) -> Layer:
    """A random layer."""

    def chance(probability: float) -> bool:
        return bool(rng.random() < probability)

    operator = str(rng.choice(list(GATES)))
    direction = str(rng.choice(("forward", "reverse", "bidirectional")))
    ways = 2 if direction == "bidirectional" else 1
    hidden, features = int(rng.choice(_HIDDEN)), int(rng.integers(1, 41))
    attributes: Attributes = {"direction": direction, "hidden_size": hidden}
    if chance(0.2):
        attributes["clip"] = float(rng.choice((0.1, 0.5, 2.0)))
    if chance(0.15):
        attributes["layout"] = 1
    if operator == "GRU" and chance(0.5):
        attributes["linear_before_reset"] = 1
    if operator == "LSTM" and chance(0.2):
        attributes["input_forget"] = 1
    if chance(0.3):
        names = [str(rng.choice(_ACTIVATIONS)) for _ in range(ways * _COUNTS[operator])]
        attributes["activations"] = names
        for kind, takers in (
            (
                "alpha",
                ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"),
            ),
            ("beta", ("Affine", "ScaledTanh", "HardSigmoid")),
        ):
            count = sum(name in takers for name in names)
            if count:
                attributes[f"activation_{kind}"] = rng.uniform(0.1, 0.7, count).tolist()
    rows = GATES[operator] * hidden
    shapes = {"W": (ways, rows, features), "R": (ways, rows, hidden)}
    if chance(0.7):
        shapes["B"] = (ways, 2 * rows)
    if operator == "LSTM" and chance(0.3):
        shapes["P"] = (ways, 3 * hidden)
    dtype = str(rng.choice(("float32", "float32", "float32", "float64", "float16")))
    weights = {
        name: (rng.uniform(-1, 1, shape) / np.sqrt(shape[-1])).astype(dtype)
        for name, shape in shapes.items()
    }
    states = ("initial_h", "initial_c")[: 2 if operator == "LSTM" else 1]
    initial_states = tuple(name for name in states if chance(0.5))
    symbolic = [(True, True)] * 4 + [(True, False), (False, True), (False, False)]
    chosen = symbolic[rng.integers(len(symbolic))]
    return Layer(
        operator, attributes, weights, initial_states, chance(0.4), chance(0.1), chosen, dtype
    )


def run_case(seed: int) -> str | None:
    """Compile the layer of `seed`, and compare its outputs for several lengths and batches."""
    rng = np.random.default_rng(seed)
    layer = layer_of(rng)
    steps, batch = int(rng.choice(_LENGTHS[1:])), int(rng.choice(_BATCHES))
    model = layer.model(layer.inputs(rng, steps, batch))
    names = [value.name for value in model.graph.input]
    run = compiled(from_onnx(model), target_for(seed))
    sizes = [(steps, batch)]
    for _ in range(3):
        other = int(rng.choice(_LENGTHS)), int(rng.choice(_BATCHES))
        pairs = zip(other, sizes[0], layer.is_symbolic, strict=True)
        sizes.append(tuple(new if is_free else old for new, old, is_free in pairs))
    for size in sizes:
        inputs = layer.inputs(rng, *size)
        ours = run([inputs[name] for name in names])
        problem = _problem(layer, model, inputs, ours, rng)
        assert not problem, f"{layer.operator} of {size} in {layer.dtype}: {problem}"
    return None


def _problem(
    layer: Layer,
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray],
    ours: list[np.ndarray],
    rng: np.random.Generator,
) -> str:
    """Describe an error of the outputs; empty if they are correct."""
    exact = layer.definition(inputs)
    # Where a state grows without bound, rounding decides between infinity and NaN.
    if not all(np.abs(output).max(initial=0) < _MAX_STATE for output in exact):
        return ""

    def truths() -> list[list[np.ndarray]]:
        moved = [exact]
        for _ in range(2):
            rounded = dict(inputs)
            error = 1 + np.finfo(layer.dtype).eps * rng.uniform(-1, 1, inputs["X"].shape)
            rounded["X"] = inputs["X"].astype("float64") * error
            moved.append(layer.definition(rounded))
        return moved

    expected = [output.astype(layer.dtype) for output in exact]
    problem = difference(ours, expected, truths, layer.dtype)
    if problem or not _is_supported(layer, inputs):
        return problem
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    theirs = session.run(None, dict(inputs))
    return difference(ours, theirs, truths, layer.dtype)


def _is_supported(layer: Layer, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether ONNX Runtime computes a layer as ONNX defines it."""
    is_plain = layer.dtype == "float32" and not layer.attributes.get("layout")
    return is_plain and "activations" not in layer.attributes and inputs["X"].size > 0
