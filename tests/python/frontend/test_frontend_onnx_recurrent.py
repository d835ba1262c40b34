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
"""RNN, GRU and LSTM of ``tvm_fixes.frontend.onnx`` against ONNX Runtime and the definitions."""

import io
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import helper
from torch import nn
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.grids import sample
from helpers.models import onnx_model
from helpers.onnx_graphs import (
    Arrays,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    normal,
    onnx_runtime,
    program,
    side_by_side,
)
from helpers.relax_modules import calls, cpu
from tvm_fixes import verify
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

OPERANDS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
DIRECTIONS = {"forward": [1], "reverse": [-1], "bidirectional": [1, -1]}
TOLERANCES = {"float16": 2e-3, "float32": 3e-6, "float64": 1e-13}


@dataclass(frozen=True)
class Layer:
    """A node with random weights, as a model and with its expected result.

    Attributes
    ----------
    optional : str
        The optional operands, separated by spaces.
    symbolic : bool
        Whether the numbers of steps and sequences are symbolic.
    outputs : str
        The outputs, separated by spaces; by default all.
    """

    operator: str
    steps: int = 3
    direction: str = "forward"
    optional: str = "B initial_h initial_c P"
    dtype: str = "float32"
    opset: int = 14
    symbolic: bool = False
    outputs: str = "Y Y_h Y_c"
    batch: int = 2
    features: int = 3
    hidden: int = 4
    attributes: Mapping[str, object] = field(default_factory=dict)

    @property
    def batch_first(self) -> bool:
        return self.attributes.get("layout") == 1

    @cached_property
    def operands(self) -> dict[str, np.ndarray]:
        count, rows = len(DIRECTIONS[self.direction]), GATES[self.operator] * self.hidden
        rng = np.random.default_rng(self.steps)
        state = (count, self.batch, self.hidden)
        shapes = {
            "X": (self.steps, self.batch, self.features),
            "W": (count, rows, self.features),
            "R": (count, rows, self.hidden),
            "B": (count, 2 * rows),
            "initial_h": state,
            "initial_c": state,
            "P": (count, 3 * self.hidden),
        }
        arrays = {}
        for name in OPERANDS:
            if name in ("initial_c", "P") and self.operator != "LSTM":
                continue
            if name == "sequence_lens":
                array = np.arange(self.batch, dtype="int32") * self.steps // max(self.batch - 1, 1)
            else:
                array = rng.uniform(-1, 1, shapes[name]).astype(self.dtype)
                if self.batch_first and name in ("X", "initial_h", "initial_c"):
                    array = np.ascontiguousarray(array.swapaxes(0, 1))
            if name in ("X", "W", "R") or name in self.optional.split():
                arrays[name] = array
        return arrays

    @cached_property
    def inputs(self) -> Arrays:
        """The inputs of the model; the weights are constants."""
        names = ("X", "sequence_lens", "initial_h", "initial_c")
        return {name: self.operands[name] for name in names if name in self.operands}

    def model(self) -> onnx.ModelProto:
        given = {name: name if name in self.operands else "" for name in OPERANDS}
        outputs = ["Y", "Y_h", "Y_c"][: 3 if self.operator == "LSTM" else 2]
        outputs = [name if name in self.outputs.split() else "" for name in outputs]
        while not outputs[-1]:
            outputs.pop()
        count = 8 if self.operator == "LSTM" else 6
        node = helper.make_node(
            self.operator,
            list(given.values())[:count],
            outputs,
            name="node",
            direction=self.direction,
            hidden_size=self.hidden,
            **self.attributes,
        )
        shapes: dict[str, tuple[int | str, ...]] = {n: a.shape for n, a in self.inputs.items()}
        if self.symbolic:
            named = (f"steps{self.steps}", f"batch{self.batch}")
            shapes["X"] = (*(named[::-1] if self.batch_first else named), self.features)
        element = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        weights = {n: a for n, a in self.operands.items() if n not in self.inputs}
        return onnx_model(
            [node],
            [
                (name, helper.np_dtype_to_tensor_dtype(array.dtype), shapes[name])
                for name, array in self.inputs.items()
            ],
            [(name, element, [None] * (4 if name == "Y" else 3)) for name in outputs if name],
            weights,
            opset=self.opset,
        )

    def expected(self) -> list[np.ndarray]:
        """The outputs, computed in float64 by the definitions of the specification."""
        states = {}
        all_h = []
        for index, (operands, way) in enumerate(self._of_each_direction()):
            y, *last = self._run(operands, way, self._activations()[index])
            all_h.append(y)
            states[index] = last
        results = {"Y": np.stack(all_h, 1)}
        for number, name in enumerate(("Y_h", "Y_c")[: len(states[0])]):
            results[name] = np.stack([last[number] for last in states.values()])
        if self.batch_first:
            results = {
                name: array.transpose((2, 0, 1, 3) if name == "Y" else (1, 0, 2))
                for name, array in results.items()
            }
        return [a.astype(self.dtype) for n, a in results.items() if n in self.outputs.split()]

    def _of_each_direction(self):
        operands = {}
        for name, array in self.operands.items():
            if self.batch_first and name in ("X", "initial_h", "initial_c"):
                array = array.swapaxes(0, 1)
            operands[name] = array if name == "sequence_lens" else array.astype("float64")
        for index, way in enumerate(DIRECTIONS[self.direction]):
            own = {n: a if n in ("X", "sequence_lens") else a[index] for n, a in operands.items()}
            yield own, way

    def _activations(self) -> list[list[Callable[[np.ndarray], np.ndarray]]]:
        names = self.attributes.get("activations")
        count = len(DEFAULTS[self.operator])
        names = names or DEFAULTS[self.operator] * len(DIRECTIONS[self.direction])
        alphas = iter(self.attributes.get("activation_alpha", ()))
        betas = iter(self.attributes.get("activation_beta", ()))
        functions = [activation(name, alphas, betas) for name in names]
        return [functions[i : i + count] for i in range(0, len(functions), count)]

    def _run(self, operands, way, activations) -> list[np.ndarray]:
        zeros = np.zeros((self.batch, self.hidden))
        h = operands.get("initial_h", zeros)
        c = operands.get("initial_c", zeros)
        lengths = operands.get("sequence_lens", np.full(self.batch, self.steps))
        y = np.zeros((self.steps, self.batch, self.hidden))
        for step in range(self.steps)[::way]:
            new_h, new_c = self._step(operands, operands["X"][step], h, c, activations)
            within = (step < lengths)[:, None]
            h, c = np.where(within, new_h, h), np.where(within, new_c, c)
            y[step] = np.where(within, new_h, 0)
        some = (lengths > 0)[:, None]
        h, c = np.where(some, h, 0), np.where(some, c, 0)
        return [y, h, c] if self.operator == "LSTM" else [y, h]

    def _step(self, operands, x, h, c, activations):
        count = GATES[self.operator]
        bias = operands.get("B", np.zeros(2 * count * self.hidden))
        of_x = np.split(x @ operands["W"].T + bias[: count * self.hidden], count, -1)
        r = np.split(operands["R"], count)
        b = np.split(bias[count * self.hidden :], count)
        bound = self.attributes.get("clip", np.inf)

        def gate(index, activation, more=0.0, of=h):
            total = of_x[index] + of @ r[index].T + b[index] + more
            return activations[activation](np.clip(total, -bound, bound))

        if self.operator == "RNN":
            return gate(0, 0), c
        if self.operator == "GRU":
            z, reset = gate(0, 0), gate(1, 0)
            if self.attributes.get("linear_before_reset"):
                total = of_x[2] + reset * (h @ r[2].T + b[2])
                new = activations[1](np.clip(total, -bound, bound))
            else:
                new = gate(2, 1, of=reset * h)
            return (1 - z) * new + z * h, c
        p_i, p_o, p_f = np.split(operands.get("P", np.zeros(3 * self.hidden)), 3)
        i = gate(0, 0, p_i * c)
        f = 1 - i if self.attributes.get("input_forget") else gate(2, 0, p_f * c)
        c = f * c + i * gate(3, 1)
        return gate(1, 0, p_o * c) * activations[2](c), c


def activation(name, alphas, betas) -> Callable[[np.ndarray], np.ndarray]:
    """Look up an activation by name; it takes the next alpha or beta if it has one."""
    one = {
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "softplus": lambda x: np.log1p(np.exp(x)),
    }
    if name.lower() in one:
        return one[name.lower()]
    alpha = next(alphas, {"leakyrelu": 0.01, "hardsigmoid": 0.2}.get(name.lower(), 1.0))
    if name.lower() in ("elu", "leakyrelu", "thresholdedrelu"):
        return {
            "elu": lambda x: np.where(x < 0, alpha * np.expm1(x), x),
            "leakyrelu": lambda x: np.where(x < 0, alpha * x, x),
            "thresholdedrelu": lambda x: np.where(x > alpha, x, 0),
        }[name.lower()]
    beta = next(betas, {"hardsigmoid": 0.5}.get(name.lower(), 0.0))
    return {
        "affine": lambda x: alpha * x + beta,
        "hardsigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "scaledtanh": lambda x: alpha * np.tanh(beta * x),
    }[name.lower()]


def assert_right(layers: list[Layer], in_onnx_runtime: bool = True) -> None:
    """Assert that all `layers`, of one opset, equal their definitions and ONNX Runtime."""
    names = {f"layer{index}": layer for index, layer in enumerate(layers)}
    model = side_by_side({name: layer.model() for name, layer in names.items()})
    inputs = [array for layer in layers for array in layer.inputs.values()]
    results = {"tvm": iter(imported_and_run(from_onnx, model, *inputs))}
    if in_onnx_runtime:
        results["onnxruntime"] = iter(onnx_runtime(model, *inputs))
    for layer, (runtime, outputs) in itertools.product(layers, results.items()):
        for expected in layer.expected():
            got = next(outputs)
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), (runtime, layer)
            np.testing.assert_allclose(
                got, expected, rtol=0, atol=TOLERANCES[layer.dtype], err_msg=f"{runtime} {layer}"
            )
    assert all(next(outputs, None) is None for outputs in results.values())


VARIANTS = {
    "RNN": [{}, {"clip": 0.5}],
    "GRU": [{}, {"clip": 0.5}, {"linear_before_reset": 1}, {"linear_before_reset": 1, "clip": 0.5}],
    "LSTM": [{}, {"clip": 0.5}, {"input_forget": 1}, {"input_forget": 1, "clip": 0.5}],
}
OPTIONAL = (
    "",
    "B",
    "B initial_h initial_c P",
    "sequence_lens",
    "B sequence_lens initial_h initial_c P",
)


def grid(opset: int) -> list[Layer]:
    """All combinations of steps, directions and operands; other options alternate."""
    turns = {
        operator: itertools.cycle(itertools.product(variants, ("float32", "float16")))
        for operator, variants in VARIANTS.items()
    }
    layers = []
    for operator, (steps, symbolic), direction, optional in itertools.product(
        VARIANTS,
        ((1, False), (3, False), (3, True), (10, False), (13, True)),
        DIRECTIONS,
        OPTIONAL,
    ):
        attributes, dtype = next(turns[operator])
        layer = Layer(operator, steps, direction, optional, dtype, opset, symbolic)
        layers.append(replace(layer, attributes=attributes))
    return layers


def chunks(layers: list[Layer]) -> list[list[Layer]]:
    return [layers[start : start + 20] for start in range(0, len(layers), 20)]


@pytest.mark.parametrize(
    "layers",
    [
        chunk
        for opset, every, count in ((7, 7, 1), (14, 1, 4), (22, 4, 1))
        for chunk in chunks(sample(grid(opset)[::every], count))
    ],
    ids=lambda layers: f"opset{layers[0].opset}-{layers[0].operator}",
)
@pytest.mark.filterwarnings("ignore:.*")
def test_layers(layers: list[Layer]) -> None:
    assert_right(layers)


def test_activations() -> None:
    """Activations for each direction, with alphas and betas where needed."""
    names = [
        *("Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid"),
        *("Softplus", "Softsign", "Tanh", "ThresholdedRelu"),
    ]
    layers = []
    for index, operator in enumerate(GATES):
        count = 2 * len(DEFAULTS[operator])
        for start in range(index, len(names), 4):
            chosen = list(itertools.islice(itertools.cycle(names), start, start + count))
            attributes = {
                "activations": chosen,
                "activation_alpha": [0.3, 0.6, 0.4, 0.7, 0.2, 0.5],
                "activation_beta": [0.4, 0.5, 0.3, 0.2, 0.6, 0.1],
            }
            layers.append(Layer(operator, direction="bidirectional", attributes=attributes))
    assert_right(sample(layers, 2))


def test_default_alphas_and_betas() -> None:
    names = ["HardSigmoid", "Elu", "LeakyRelu", "sigmoid", "TANH", "Softplus"]
    lstm = Layer("LSTM", direction="bidirectional", attributes={"activations": names})
    assert_right([lstm])
    # The defaults of ONNX Runtime's RNN differ from those of the operators of the same names.
    names = ["ThresholdedRelu", "Affine"]
    rnn = Layer("RNN", direction="bidirectional", attributes={"activations": names})
    assert_right([rnn], in_onnx_runtime=False)


@pytest.mark.filterwarnings("ignore:.*")
def test_options_missing_in_onnx_runtime() -> None:
    """layout=1, float64 and the earliest opsets."""
    layouts = [
        Layer(
            operator,
            steps=steps,
            direction=direction,
            optional="B sequence_lens initial_h initial_c P",
            symbolic=symbolic,
            attributes={"layout": 1},
        )
        for operator, (steps, symbolic), direction in itertools.product(
            GATES, ((3, False), (9, True)), DIRECTIONS
        )
    ]
    doubles = [
        Layer(operator, steps, direction, dtype="float64")
        for operator, steps, direction in itertools.product(GATES, (3, 9), DIRECTIONS)
    ]
    assert_right(sample(layouts + doubles, 2), in_onnx_runtime=False)
    first = [Layer(operator, opset=1, attributes={"output_sequence": 1}) for operator in GATES]
    assert_right(sample(first, 1), in_onnx_runtime=False)


def test_outputs_left_out() -> None:
    assert_right([Layer("LSTM", 2, outputs=outputs) for outputs in ("Y", "Y_h", "Y_c", "Y Y_c")])


@pytest.mark.filterwarnings("ignore:.*")
def test_symbolic_lengths() -> None:
    """One program for any number of steps and sequences, including zero."""
    layer = Layer("GRU", symbolic=True, direction="bidirectional", optional="B")
    mod = from_onnx(layer.model())
    assert not verify(mod).errors
    vm = relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu())
    weights = {n: a for n, a in layer.operands.items() if n not in layer.inputs}
    for steps, batch in ((1, 1), (2, 3), (7, 2), (5000, 1)):
        other = replace(layer, steps=steps, batch=batch)
        other.operands.update(weights)
        got = [result.numpy() for result in vm["main"](tvm.runtime.tensor(other.inputs["X"]))]
        for array, expected in zip(got, other.expected(), strict=True):
            np.testing.assert_allclose(array, expected, rtol=0, atol=1e-5)
    y, y_h = vm["main"](tvm.runtime.tensor(np.zeros((0, 2, layer.features), "float32")))
    assert y.shape == (0, 2, 2, layer.hidden)
    np.testing.assert_array_equal(y_h.numpy(), np.zeros((2, 2, layer.hidden)))


@pytest.mark.parametrize("kind", ("GRU", "LSTM"))
@pytest.mark.filterwarnings("ignore:.*")
def test_lengths_that_are_expressions(kind: str) -> None:
    """As after a convolution: the number of steps is that of the input less 4."""
    gates = GATES[kind]
    constants = {
        "first": np.array([4], "int64"),
        "end": np.array([2**62], "int64"),
        "zero": np.array([0], "int64"),
        "W": normal(1, gates * 5, 3),
        "R": normal(1, gates * 5, 5, seed=1),
    }
    nodes = {
        "cut": ("Slice", ["x", "first", "end", "zero"]),
        "y": (kind, ["cut", "W", "R"], {"hidden_size": 5}),
    }
    model = program(nodes, {"x": ("float32", ("n", 2, 3))}, constants)
    runs = [[normal(n, 2, 3)] for n in (12, 5)]
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes", rtol=1e-5)


def test_long_sequences_make_no_more_code() -> None:
    counts = {len(calls(from_onnx(Layer("LSTM", steps).model()))) for steps in (20, 4000)}
    assert len(counts) == 1


class Stacked(nn.Module):
    """Two bidirectional layers of `kind`, and a classifier on the last state."""

    def __init__(self, kind: type[nn.RNNBase], batch_first: bool) -> None:
        super().__init__()
        self.layers = kind(3, 4, num_layers=2, bidirectional=True, batch_first=batch_first)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layers(x)
        states = state if isinstance(state, tuple) else (state,)
        return self.head(y), *states


@pytest.mark.parametrize(
    "kind, batch_first, dynamo",
    sample(
        (
            pytest.param(nn.LSTM, True, True, id="LSTM-dynamo"),
            pytest.param(nn.LSTM, False, False, id="LSTM-torchscript"),
            pytest.param(nn.GRU, True, False, id="GRU-torchscript"),
            pytest.param(nn.RNN, False, False, id="RNN-torchscript"),
        ),
        1,
        seed=1,
    ),
)
@pytest.mark.filterwarnings("ignore:.*")
def test_layers_of_pytorch(kind: type[nn.RNNBase], batch_first: bool, dynamo: bool) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = Stacked(kind, batch_first).eval()
        x = torch.randn((2, 3, 3) if batch_first else (3, 2, 3))
    batch_axis = 0 if batch_first else 1
    file = io.BytesIO()
    dynamic: dict[str, object] = (
        {"dynamic_shapes": ({batch_axis: torch.export.Dim("batch")},)}
        if dynamo
        else {"dynamic_axes": {"x": {batch_axis: "batch"}}}
    )
    torch.onnx.export(module, (x,), file, input_names=["x"], dynamo=dynamo, **dynamic)
    model = onnx.load_from_string(file.getvalue())
    assert any(node.op_type == kind.__name__ for node in model.graph.node)
    more = torch.cat([x, x.flip(0)], batch_axis)
    with torch.no_grad():
        expected = [result.numpy() for result in module(more)]
    got = imported_and_run(from_onnx, model, more.numpy())
    for array, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=0, atol=3e-6)


@pytest.mark.parametrize(
    "changed, message",
    (
        ({"direction": "backward"}, "attribute direction is backward; expected one of forward"),
        ({"clip": 0.0}, "attribute clip is 0.0; expected more than 0"),
        ({"layout": 2}, "attribute layout is 2; expected 0 or 1"),
        ({"activations": ["Tanh"]}, "attribute activations is ['Tanh']; expected 2"),
        (
            {"activations": ["Tanh", "Gelu"]},
            "attribute activations is ['Tanh', 'Gelu']; expected names from affine, elu",
        ),
        (
            {"activations": ["Tanh", "ScaledTanh"], "activation_alpha": [0.5]},
            "expected an activation_alpha and an activation_beta for ScaledTanh",
        ),
        ({"hidden_size": 5}, "shape of W is R.shape([1, 12, 3]); expected [1, 15, 3]"),
        ({"direction": "bidirectional"}, "shape of W is R.shape([1, 12, 3]); expected [2, 12, 3]"),
    ),
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*")
def test_invalid(changed: dict[str, object], message: str) -> None:
    model = Layer("GRU").model()
    (node,) = model.graph.node
    kept = [attribute for attribute in node.attribute if attribute.name not in changed]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in changed.items())
    assert_rejected(from_onnx, model, f"GRU 'node': {message}" if " is " in message else message)


def test_sequences_of_another_number_are_rejected() -> None:
    """Sizes unknown at import are checked at run time."""
    layer = Layer("RNN", symbolic=True, optional="initial_h")
    x = normal(layer.steps, layer.batch + 1, layer.features)
    with pytest.raises((RuntimeError, ValueError), match=r"[Mm]ismatch"):
        imported_and_run(from_onnx, layer.model(), x, layer.operands["initial_h"])


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Layer("LSTM").model()
    with switches.collect() as acted:
        from_onnx(model)
    assert acted == {"onnx-recurrent"}
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "onnx-recurrent")
    for importer in (from_onnx, tvm_onnx.from_onnx):
        with pytest.raises(tvm.error.OpNotImplemented, match="LSTM"):
            importer(model)


if __name__ == "__main__":
    tvm.testing.main()
