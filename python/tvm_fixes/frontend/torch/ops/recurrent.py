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
"""Recurrent layers: LSTM, GRU and RNN, of tensors and of packed sequences.

Mechanism
    PyTorch decomposes a recurrent layer into one copy of its operators for each step.  So do TVM's
    converters, which support one layer without projections.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ....fixes.torch_importer import LOOPS as FIX_ID
from ....tirx.recurrence_activations import Activation
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import Extent, extents_of, slice_at
from ...recurrent import recurrent_layer
from ...recursion import scan
from ..call import Call, converts
from ..graph.packed_sequences import pack, padded
from ..graph.recurrent_shapes import RECURRENT

_KINDS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}

# PyTorch's order of the gates, with ONNX's letters.
_GATES = {"LSTM": "ifco", "GRU": "rzh", "RNN": "i"}


@dataclass(frozen=True)
class _Layers:
    """The operands and attributes of a recurrent operator.

    Attributes
    ----------
    name : str
        The name of the operator, such as ``rnn_relu``.
    states : list of relax.Expr
        The initial states of all layers and directions: h, and c of an LSTM.
    weights : list of relax.Expr
        The weights and biases of all layers and directions.
    has_bias : bool
        Whether there are biases.
    count : int
        The number of layers.
    directions : int
        1 or 2.
    lengths : relax.Expr, optional
        The lengths of the sequences.
    """

    name: str
    states: list[relax.Expr]
    weights: list[relax.Expr]
    has_bias: bool
    count: int
    directions: int
    lengths: relax.Expr | None = None

    @property
    def kind(self) -> str:
        return _KINDS[self.name]

    @property
    def is_projected(self) -> bool:
        extents = [state.ty.shape.values[-1] for state in self.states]
        return len(extents) == 2 and int(extents[0]) != int(extents[1])

    def weights_of(self, part: int) -> list[relax.Expr]:
        """The weights of one direction of one layer."""
        number = 2 + 2 * self.has_bias + self.is_projected
        return self.weights[part * number : (part + 1) * number]


@converts(*(overload.__name__ for overload in RECURRENT), fix=FIX_ID, noted=True)
def convert_recurrent(call: Call) -> list[relax.Expr]:
    """Convert a recurrent operator of a tensor, or of a packed sequence."""
    name, _, form = call.operator.partition(".")
    emit = call.emit
    if form == "data":
        data, sizes, *others = call.operands
        states = _listed(others[0])
        x, lengths = padded(call.builder, data, sizes, _batch(states))
        output, *states = _emit_layers(
            call.builder, _layers_of(name, lengths, states, *others[1:]), x
        )
        return [pack(call.builder, output, sizes, data), *states]
    x, states, *others, batch_first = call.operands
    if batch_first:
        x = emit(relax.op.permute_dims(x, [1, 0, 2]))
    output, *states = _emit_layers(
        call.builder, _layers_of(name, None, _listed(states), *others), x
    )
    if batch_first:
        output = emit(relax.op.permute_dims(output, [1, 0, 2]))
    return [output, *states]


def _emit_layers(builder: relax.BlockBuilder, layers: _Layers, x: relax.Expr) -> list[relax.Expr]:
    """Emit all layers; return the outputs of the last one and the final states of all."""
    finals: list[list[relax.Expr]] = [[] for _ in layers.states]
    for layer in range(layers.count):
        outputs = []
        for direction in range(layers.directions):
            part = layer * layers.directions + direction
            emit_direction = _projected if layers.is_projected else _direction
            output, *states = emit_direction(builder, layers, x, part, direction == 1)
            outputs.append(output)
            for final, state in zip(finals, states, strict=True):
                final.append(state)
        is_single = len(outputs) == 1
        x = outputs[0] if is_single else builder.emit(relax.op.concat(outputs, 2))
    return [x, *(builder.emit(relax.op.stack(states, 0)) for states in finals)]


def _listed(states: Any) -> list[relax.Expr]:
    return list(states) if isinstance(states, list | tuple) else [states]


def _batch(states: Sequence[relax.Expr]) -> Extent:
    extents = extents_of(states[0])
    assert extents is not None
    return extents[1]


def _layers_of(
    name: str,
    lengths: relax.Expr | None,
    states: list[relax.Expr],
    weights: list[relax.Expr],
    has_bias: bool,
    count: int,
    _dropout: float,
    _training: bool,
    bidirectional: bool,
) -> _Layers:
    """The layers from the operator's arguments."""
    return _Layers(name, states, weights, has_bias, count, 1 + bidirectional, lengths)


def _direction(
    builder: relax.BlockBuilder, layers: _Layers, x: relax.Expr, part: int, backwards: bool
) -> tuple[relax.Expr, ...]:
    """Emit one direction of one layer; return its outputs and its final states."""
    weights = layers.weights_of(part)
    return recurrent_layer(
        builder,
        layers.kind,
        x,
        weights[:2],
        weights[2:4] or None,
        [slice_at(builder, state, 0, part) for state in layers.states],
        gates=_GATES[layers.kind] if layers.kind != "RNN" else None,
        activations=[Activation("relu")] if layers.name == "rnn_relu" else None,
        linear_before_reset=layers.kind == "GRU",
        backwards=backwards,
        lengths=layers.lengths,
    )


def _projected(
    builder: relax.BlockBuilder, layers: _Layers, x: relax.Expr, part: int, backwards: bool
) -> tuple[relax.Expr, ...]:
    """Emit one direction of an LSTM whose output is projected, as a loop over the steps."""
    emit, dtype = builder.emit, dtype_of(x)
    inner = accumulation_dtype(dtype)

    def cast(value: relax.Expr) -> relax.Expr:
        return value if dtype_of(value) == inner else emit(relax.op.astype(value, inner))

    of_input, of_state, *biases, projection = map(cast, layers.weights_of(part))
    transposed = [emit(relax.op.permute_dims(w)) for w in (of_input, of_state, projection)]
    product = emit(relax.op.matmul(cast(x), transposed[0]))
    for bias in biases:
        product = emit(relax.op.add(product, bias))
    initial = [cast(slice_at(builder, state, 0, part)) for state in layers.states]

    def step(
        _builder: relax.BlockBuilder,
        number: Extent,
        carried: list[relax.Expr],
        invariant: list[relax.Expr],
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        products, of_state, projection, *lengths = invariant
        row = slice_at(builder, products, 0, number)
        gates = emit(relax.op.add(row, emit(relax.op.matmul(carried[0], of_state))))
        parts = emit(relax.op.split(gates, 4, 1))
        i, f, g, o = (emit(relax.TupleGetItem(parts, index)) for index in range(4))
        i, f, o = (emit(relax.op.sigmoid(gate)) for gate in (i, f, o))
        kept = emit(relax.op.multiply(f, carried[1]))
        c = emit(relax.op.add(kept, emit(relax.op.multiply(i, emit(relax.op.tanh(g))))))
        h = emit(relax.op.multiply(o, emit(relax.op.tanh(c))))
        h = emit(relax.op.matmul(h, projection))
        after = [h, c]
        if lengths:
            after, h = _within(builder, number, lengths[0], carried, after)
        return after, [h]

    invariant = [product, *transposed[1:], *([] if layers.lengths is None else [layers.lengths])]
    count = extents_of(product)
    assert count is not None
    states, [output] = scan(
        *(builder, "projected_lstm", count[0], initial, invariant, step), backwards=backwards
    )
    results = [output, *states]
    if inner == dtype:
        return tuple(results)
    return tuple(emit(relax.op.astype(result, dtype)) for result in results)


def _within(
    builder: relax.BlockBuilder,
    number: Extent,
    lengths: relax.Expr,
    before: Sequence[relax.Expr],
    after: Sequence[relax.Expr],
) -> tuple[list[relax.Expr], relax.Expr]:
    """The states of sequences that have ended stay; their outputs are 0."""
    emit = builder.emit
    place = emit(relax.op.shape_to_tensor(relax.ShapeExpr([number])))
    runs = emit(relax.op.expand_dims(emit(relax.op.less(place, lengths)), 1))
    states = [emit(relax.op.where(runs, new, old)) for new, old in zip(after, before, strict=True)]
    zero = relax.const(0, dtype_of(after[0]))
    return states, emit(relax.op.where(runs, after[0], zero))
