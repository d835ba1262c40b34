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
"""RNN, GRU and LSTM.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    An RNN, GRU or LSTM.
Symptom
    ``OpNotImplemented: The following operators are not supported for frontend ONNX``
Mechanism
    TVM has no converters for them.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-recurrent``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx

from ...fixes.onnx_importer import RECURRENT
from ...relax.constants.make import rearranged
from ...support import switches
from ...tirx.recurrence_activations import Activation as KernelActivation
from ..dtypes import dtype_of
from ..recurrent import recurrent_layer
from ..recursion import scan
from .node import Converter, Node
from .recurrent_activations import Arithmetic, activations_of, relax_activation
from .values import Extent, extents_of

__all__ = ["QUANTIZATION", "convert_recurrent", "convert_with"]


@dataclass(frozen=True)
class _Kind:
    """The gates, default activations and states of an operator.

    Attributes
    ----------
    gates : int
        The number of gates, in the order of the specification: zrh of a GRU, iofc of an LSTM.
    activations : tuple of str
        The default activations of one direction.
    states : tuple of str
        The names of the operands with the states before the first step.
    """

    gates: int
    activations: tuple[str, ...]
    states: tuple[str, ...] = ("initial_h",)


_KINDS = {
    "RNN": _Kind(1, ("Tanh",)),
    "GRU": _Kind(3, ("Sigmoid", "Tanh")),
    "LSTM": _Kind(4, ("Sigmoid", "Tanh", "Tanh"), ("initial_h", "initial_c")),
}

_OPERANDS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")

QUANTIZATION = ("W_scale", "W_zero_point", "R_scale", "R_zero_point")
"""The operands of a quantized operator that follow those of an LSTM."""

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each value of the attribute ``direction``: for each direction, whether it runs backwards."""


@dataclass(frozen=True)
class _Direction:
    """A direction of a node, with the parameters of its steps.

    Attributes
    ----------
    activations : list of callable
    clip : float or None
        The bound that the inputs of the activations are clipped to.
    hidden : int
        The number of elements of a state.
    linear_before_reset, input_forget : bool
        As in ONNX.
    backwards : bool
        Whether the steps run from the last to the first.
    """

    activations: list[KernelActivation]
    clip: float | None
    hidden: int
    linear_before_reset: bool
    input_forget: bool
    backwards: bool

    def activate(self, a: Arithmetic, index: int, *terms: relax.Expr | None) -> relax.Expr:
        """The activation at `index` of the sum of `terms`."""
        x = a.sum(*terms)
        if self.clip is not None:
            x = a.clip(x, -self.clip, self.clip)
        return relax_activation(self.activations[index])(a, x)

    def gates(self, a: Arithmetic, x: relax.Expr, first: int, last: int) -> relax.Expr:
        """The gates of `x` from `first` up to, but not including, `last`."""
        begin, end = first * self.hidden, last * self.hidden
        return a.builder.emit(relax.op.strided_slice(x, [1], [begin], [end]))


_Cell: TypeAlias = Callable[
    [_Direction, Arithmetic, relax.Expr, list[relax.Expr], dict[str, relax.Expr]],
    list[relax.Expr],
]
"""Emits a step and returns its new states.  The arguments are the direction, the arithmetic, the
input multiplied by W plus the biases, of shape (batch, gates * hidden), the states, of shape
(batch, hidden) each, and the weights by name."""


def _rnn(
    d: _Direction,
    a: Arithmetic,
    x: relax.Expr,
    states: list[relax.Expr],
    weights: dict[str, relax.Expr],
) -> list[relax.Expr]:
    return [d.activate(a, 0, x, a("matmul", states[0], weights["R"]))]


def _gru(
    d: _Direction,
    a: Arithmetic,
    x: relax.Expr,
    states: list[relax.Expr],
    weights: dict[str, relax.Expr],
) -> list[relax.Expr]:
    (h,) = states
    if d.linear_before_reset:
        product = a("matmul", h, weights["R"])
        hidden = a.sum(d.gates(a, product, 2, 3), weights.get("B_h"))
    else:
        product = a("matmul", h, weights["R_zr"])
    z, r = (
        d.activate(a, 0, d.gates(a, x, gate, gate + 1), d.gates(a, product, gate, gate + 1))
        for gate in range(2)
    )
    if d.linear_before_reset:
        hidden = a("multiply", r, hidden)
    else:
        hidden = a("matmul", a("multiply", r, h), weights["R_h"])
    hidden = d.activate(a, 1, d.gates(a, x, 2, 3), hidden)
    kept = a("multiply", z, h)
    return [a("add", a("multiply", a("subtract", 1.0, z), hidden), kept)]


def _lstm(
    d: _Direction,
    a: Arithmetic,
    x: relax.Expr,
    states: list[relax.Expr],
    weights: dict[str, relax.Expr],
) -> list[relax.Expr]:
    h, c = states
    x = a("add", x, a.product(h, weights, "R"))

    def gate(index: int, activation: int, peephole: str = "", cell: relax.Expr = c) -> relax.Expr:
        weight = weights.get(peephole)
        seen = None if weight is None else a("multiply", weight, cell)
        return d.activate(a, activation, d.gates(a, x, index, index + 1), seen)

    i = gate(0, 0, "P_i")
    f = a("subtract", 1.0, i) if d.input_forget else gate(2, 0, "P_f")
    c = a("add", a("multiply", f, c), a("multiply", i, gate(3, 1)))
    o = gate(1, 0, "P_o", c)
    return [a("multiply", o, relax_activation(d.activations[2])(a, c)), c]


_CELLS: dict[str, _Cell] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def convert_recurrent(node: Node, convert: Converter) -> relax.Expr:
    """Convert an RNN, GRU or LSTM; each direction becomes a kernel (:func:`recurrent_layer`).

    Returns
    -------
    relax.Tuple
        Y, Y_h and, for an LSTM, Y_c.  As in ONNX Runtime, Y is 0 beyond the length of a sequence,
        and the states after a sequence of length 0 are 0.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute or the shape of an operand violates the ONNX specification.
    """
    switches.note(RECURRENT)
    kind = _KINDS[node.operator]
    directions = _directions(node, kind)
    tensors = _checked_operands(node, kind, directions)
    batch_first = node.attributes.get("layout", 0) == 1

    def transposed(x: relax.Expr, *axes: int) -> relax.Expr:
        return node.emit(relax.op.permute_dims(x, axes)) if batch_first else x

    for name in ("X", *kind.states):
        if name in tensors:
            tensors[name] = transposed(tensors[name], 1, 0, 2)
    if "sequence_lens" in tensors:
        tensors["sequence_lens"] = node.emit(relax.op.astype(tensors["sequence_lens"], "int64"))
    passes = [_layer(node, d, index, tensors) for index, d in enumerate(directions)]
    y, *states = (
        _stacked(node, of_all, axis)
        for of_all, axis in zip(zip(*passes, strict=True), (1, 0, 0), strict=False)
    )
    return relax.Tuple([transposed(y, 2, 0, 1, 3), *(transposed(s, 1, 0, 2) for s in states)])


def _stacked(node: Node, tensors: Sequence[relax.Expr], axis: int) -> relax.Expr:
    """The results of all directions along a new axis."""
    if len(tensors) == 1:
        return node.emit(relax.op.expand_dims(tensors[0], axis))
    return node.emit(relax.op.stack(list(tensors), axis))


def _layer(
    node: Node, direction: _Direction, index: int, tensors: dict[str, relax.Expr]
) -> tuple[relax.Expr, ...]:
    """Emit a direction; return the outputs and the states after the last step."""
    kind = _KINDS[node.operator]

    def part(name: str) -> relax.Expr | None:
        """The operand of this direction."""
        tensor = tensors.get(name)
        if isinstance(tensor, tvm.ir.GenericConst):
            return rearranged(tensor, lambda array: array[index], node.operator)
        if tensor is None:
            return None
        of_direction = relax.op.strided_slice(tensor, [0], [index], [index + 1])
        return node.emit(relax.op.squeeze(node.emit(of_direction), [0]))

    bias, rows = part("B"), kind.gates * direction.hidden
    halves = None
    if bias is not None:
        halves = tuple(
            node.emit(relax.op.strided_slice(bias, [0], [begin], [begin + rows]))
            for begin in (0, rows)
        )
    initial: list[relax.Expr] | None = None
    if any(name in tensors for name in kind.states):
        shape = [tensors["X"].ty.shape.values[1], direction.hidden]
        given = map(part, kind.states)
        zeros = relax.op.zeros(shape, dtype_of(tensors["X"]))
        initial = [node.emit(zeros) if state is None else state for state in given]
    return recurrent_layer(
        node.builder,
        node.operator,
        tensors["X"],
        (part("W"), part("R")),
        halves,
        initial,
        activations=direction.activations,
        clip=direction.clip,
        linear_before_reset=direction.linear_before_reset,
        input_forget=direction.input_forget,
        backwards=direction.backwards,
        peepholes=part("P"),
        lengths=tensors.get("sequence_lens"),
    )


def convert_with(node: Node, a: Arithmetic) -> relax.Expr:
    """Convert a recurrent node; each direction becomes a :func:`~.recursion.scan`.

    One matmul multiplies all inputs by W.  16-bit floats are computed in float32 and rounded at the
    end.  As in ONNX Runtime, Y is 0 beyond the length of a sequence, and the states after a
    sequence of length 0 are 0.

    Returns
    -------
    relax.Tuple
        Y, Y_h and, for an LSTM, Y_c.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute or the shape of an operand violates the ONNX specification.
    """
    switches.note(RECURRENT)
    kind = _KINDS[node.operator]
    directions = _directions(node, kind)
    tensors = _checked_operands(node, kind, directions)
    dtype = dtype_of(node.operands[0])
    batch_first = node.attributes.get("layout", 0) == 1

    def transposed(x: relax.Expr, *axes: int) -> relax.Expr:
        return node.emit(relax.op.permute_dims(x, axes)) if batch_first else x

    for name, tensor in tensors.items():
        if name in ("X", *kind.states):
            tensor = transposed(tensor, 1, 0, 2)
        wanted = "int64" if name == "sequence_lens" else a.dtype
        if dtype_of(tensor) != wanted and dtype_of(tensor) not in ("int8", "uint8"):
            tensor = node.emit(relax.op.astype(tensor, wanted))
        tensors[name] = tensor
    passes = [_run(node, a, d, index, tensors) for index, d in enumerate(directions)]
    states = [
        node.emit(relax.op.stack(list(of_all), 0))
        for of_all in zip(*(states for states, _ in passes), strict=True)
    ]
    y = node.emit(relax.op.stack([y for _, y in passes], 1))
    results = [transposed(y, 2, 0, 1, 3), *(transposed(state, 1, 0, 2) for state in states)]
    if a.dtype != dtype:
        results = [node.emit(relax.op.astype(result, dtype)) for result in results]
    return relax.Tuple(results)


def _run(
    node: Node, a: Arithmetic, direction: _Direction, index: int, tensors: dict[str, relax.Expr]
) -> tuple[list[relax.Expr], relax.Expr]:
    """Emit a direction; return its final states, each (batch, hidden), and the stacked h."""

    def slice_of(name: str) -> relax.Expr | None:
        if name not in tensors:
            return None
        part = relax.op.strided_slice(tensors[name], [0], [index], [index + 1])
        return node.emit(relax.op.squeeze(node.emit(part), [0]))

    x = tensors["X"]
    steps, batch, _ = x.ty.shape.values
    steps = int(steps) if isinstance(steps, tirx.IntImm) else steps
    names = ("W", "R", "B", "P", *QUANTIZATION)
    inputs, weights = _weights(node, a, direction, {name: slice_of(name) for name in names})
    x = a.sum(a.product(x, inputs, "W"), inputs.get("B"))
    zeros = relax.op.zeros([batch, direction.hidden], a.dtype)
    states = [
        state if (state := slice_of(name)) is not None else node.emit(zeros)
        for name in _KINDS[node.operator].states
    ]
    lengths = tensors.get("sequence_lens")
    passed = list(weights)
    invariant = [x, *weights.values(), *([] if lengths is None else [lengths])]
    cell = _CELLS[node.operator]

    def step(
        builder: relax.BlockBuilder,
        number: Extent,
        carried: list[relax.Expr],
        invariant: list[relax.Expr],
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        within = a.within(builder)
        row = relax.op.strided_slice(invariant[0], [0], [number], [number + 1], assume_inbound=True)
        row = builder.emit(relax.op.squeeze(builder.emit(row), [0]))
        new = cell(direction, within, row, carried, dict(zip(passed, invariant[1:], strict=False)))
        if lengths is None:
            return new, new[:1]
        running = _is_running(within, number, invariant[-1])
        states = [
            within("where", running, after, before)
            for after, before in zip(new, carried, strict=True)
        ]
        return states, [within("where", running, new[0], 0.0)]

    name = f"{node.operator.lower()}_{'reverse' if direction.backwards else 'forward'}"
    states, (y,) = scan(
        node.builder, name, steps, states, invariant, step, backwards=direction.backwards
    )
    if lengths is not None:
        some = _is_running(a, 0, lengths)
        states = [a("where", some, state, 0.0) for state in states]
    return states, y


def _is_running(a: Arithmetic, number: Extent, lengths: relax.Expr) -> relax.Expr:
    """Whether each sequence of a batch contains step `number`, of shape (batch, 1)."""
    step = a.builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([number])))
    return a.builder.emit(relax.op.expand_dims(a("less", step, lengths), 1))


def _weights(
    node: Node, a: Arithmetic, direction: _Direction, given: dict[str, relax.Expr | None]
) -> tuple[dict[str, relax.Expr], dict[str, relax.Expr]]:
    """The weights that multiply the inputs of all steps at once, and those that each step needs.

    Biases that add to the product of h can be added to the product of the inputs instead, except
    that of the hidden gate of a GRU with ``linear_before_reset``.
    """
    gates = _KINDS[node.operator].gates
    inputs = {"W": a("permute_dims", given["W"])}
    weights = {"R": a("permute_dims", given["R"])}
    hidden = direction.hidden

    def part(tensor: relax.Expr, axis: int, first: int, last: int) -> relax.Expr:
        begin, end = first * hidden, last * hidden
        return node.emit(relax.op.strided_slice(tensor, [axis], [begin], [end]))

    linear = node.operator == "GRU" and direction.linear_before_reset
    if given["B"] is not None:
        of_x, of_h = (part(given["B"], 0, i * gates, (i + 1) * gates) for i in range(2))
        if linear:
            weights["B_h"] = part(of_h, 0, 2, 3)
            zeros = node.emit(relax.op.zeros([hidden], a.dtype))
            of_h = node.emit(relax.op.concat([part(of_h, 0, 0, 2), zeros], 0))
        inputs["B"] = a("add", of_x, of_h)
    if node.operator == "GRU" and not linear:
        whole = weights.pop("R")
        weights |= {"R_zr": part(whole, 1, 0, 2), "R_h": part(whole, 1, 2, 3)}
    if given["P"] is not None:
        for index, gate in enumerate("iof"):
            weights[f"P_{gate}"] = part(given["P"], 0, index, index + 1)
    for name in QUANTIZATION:
        if given[name] is not None:
            (inputs if name.startswith("W") else weights)[name] = given[name]
    return inputs, weights


def _directions(node: Node, kind: _Kind) -> list[_Direction]:
    """Read the directions of a node from its attributes."""
    name = node.text("direction", "forward")
    if name not in _DIRECTIONS:
        reason = f"expected one of {', '.join(_DIRECTIONS)}"
        raise node.invalid("attribute direction", name, reason)
    clip = node.attributes.get("clip")
    if clip is not None and not clip > 0:
        raise node.invalid("attribute clip", clip, "expected more than 0")
    hidden = _hidden_size(node)
    backwards = _DIRECTIONS[name]
    activations = iter(activations_of(node, kind.activations * len(backwards)))
    return [
        _Direction(
            list(islice(activations, len(kind.activations))),
            clip,
            hidden,
            bool(node.attributes.get("linear_before_reset", 0)),
            bool(node.attributes.get("input_forget", 0)),
            is_backwards,
        )
        for is_backwards in backwards
    ]


def _hidden_size(node: Node) -> int:
    """The number of elements of a state."""
    extents = extents_of(node.operands[2])
    hidden = node.attributes.get("hidden_size", extents[-1] if extents else None)
    if not isinstance(hidden, int):
        reason = "expected R with a static last axis, or the attribute hidden_size"
        raise node.invalid("type of R", node.operands[2].ty, reason)
    return hidden


def _checked_operands(
    node: Node, kind: _Kind, directions: list[_Direction]
) -> dict[str, relax.Expr]:
    """The operands that are not omitted, by name, checked against the shapes that ONNX requires."""
    layout = node.attributes.get("layout", 0)
    if layout not in (0, 1):
        raise node.invalid("attribute layout", layout, "expected 0 or 1")
    names = (*_OPERANDS, *QUANTIZATION)
    given = {name: o for name, o in zip(names, node.operands, strict=False) if o is not None}
    of_x = extents_of(given["X"]) or [tirx.Var(name, "int64") for name in ("steps", "batch", "in")]
    of_w = extents_of(given["W"]) or [None] * 3
    hidden, count = directions[0].hidden, len(directions)
    rows = kind.gates * hidden
    features = of_w[-1] if isinstance(of_w[-1], int) else of_x[-1]
    batch = of_x[0 if layout else 1] if len(of_x) == 3 else None
    expected: dict[str, list[Extent]] = {
        "X": [*of_x[:2], features],
        "W": [count, rows, features],
        "R": [count, rows, hidden],
        "B": [count, 2 * rows],
        "sequence_lens": [batch],
        "P": [count, 3 * hidden],
    }
    state = [batch, count, hidden] if layout else [count, batch, hidden]
    expected |= {name: state for name in kind.states}
    for name in QUANTIZATION:  # one element per direction, or per direction and row
        per_row = name in given and given[name].ty.ndim == 2
        expected[name] = [count, rows] if per_row else [count]
    return {
        name: _match_shape(node, name, tensor, expected[name]) for name, tensor in given.items()
    }


def _match_shape(node: Node, name: str, tensor: relax.Expr, expected: list[Extent]) -> relax.Expr:
    """`tensor` with shape `expected`; the model checks unknown extents at run time."""
    extents = extents_of(tensor)
    if tensor.ty.ndim not in (-1, len(expected)) or any(
        isinstance(actual, int) and isinstance(wanted, int) and actual != wanted
        for actual, wanted in zip(extents or [], expected, strict=False)
    ):
        raise node.invalid(f"shape of {name}", tensor.ty.shape or tensor.ty, f"expected {expected}")
    ty = relax.TensorType(expected, tensor.ty.dtype)
    if tvm_ffi.structural_equal(ty, tensor.ty):
        return tensor
    return node.builder.match_cast(tensor, ty)
