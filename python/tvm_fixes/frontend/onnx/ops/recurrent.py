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
"""RNN, GRU and LSTM."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx

from ....fixes.onnx_importer import RECURRENT
from ....relax.constants.make import rearranged
from ....support import switches
from ....tirx.recurrence import KINDS, Cell
from ....tirx.recurrence_activations import Activation
from ...dtypes import dtype_of
from ...recurrent import recurrent_layer
from ..call import Call, converts
from ..values.known import Extent, extents_of
from .recurrent_activations import activations_of

__all__ = ["QUANTIZATION", "Direction", "convert_with"]


_STATES = ("initial_h", "initial_c")

_OPERANDS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")

QUANTIZATION = ("W_scale", "W_zero_point", "R_scale", "R_zero_point")
"""The operands of a quantized operator that follow those of an LSTM."""

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each value of the attribute ``direction``: for each direction, whether it runs backwards."""


@dataclass(frozen=True)
class Direction:
    """A direction of a node.

    Attributes
    ----------
    cell : Cell
        What its steps compute.
    hidden : int
        The number of elements of a state.
    operands : dict
        X, the lengths of the sequences, and this direction's part of the other operands, by name;
        omitted operands are missing.  B is divided into ``B_x`` and ``B_h``.
    """

    cell: Cell
    hidden: int
    operands: dict[str, relax.Expr]

    @property
    def bias(self) -> list[relax.Expr] | None:
        """The biases of the product of W and of the product of R."""
        if "B_x" not in self.operands:
            return None
        return [self.operands["B_x"], self.operands["B_h"]]

    def initial(self, call: Call) -> list[relax.Expr] | None:
        """The states before the first step; None if all are 0."""
        names = _states_of(call)
        if not any(name in self.operands for name in names):
            return None
        x = self.operands["X"]
        shape = [x.ty.shape.values[1], tirx.const(self.hidden, "int64")]
        zeros = call.emit(relax.op.zeros(shape, dtype_of(x)))
        return [self.operands.get(name, zeros) for name in names]


_Layer: TypeAlias = Callable[[Call, Direction], tuple[relax.Expr, ...]]
"""Emits a direction; returns the outputs of all steps, and the states after the last one."""


@converts("GRU", "LSTM", "RNN", fix=RECURRENT)
def convert_recurrent(call: Call) -> relax.Expr:
    """Convert an RNN, GRU or LSTM, as :func:`convert_with` does."""
    switches.note(RECURRENT)
    return convert_with(call, _layer)


def convert_with(call: Call, layer: _Layer) -> relax.Expr:
    """Convert a recurrent node, each direction by `layer`.

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
    cells, hidden = _cells(call), _hidden_size(call)
    tensors = _checked_operands(call, len(cells), hidden)
    batch_first = call.attributes.get("layout", 0) == 1

    def transposed(x: relax.Expr, *axes: int) -> relax.Expr:
        return call.emit(relax.op.permute_dims(x, axes)) if batch_first else x

    for name in ("X", *_states_of(call)):
        if name in tensors:
            tensors[name] = transposed(tensors[name], 1, 0, 2)
    if "sequence_lens" in tensors:
        tensors["sequence_lens"] = call.emit(relax.op.astype(tensors["sequence_lens"], "int64"))
    results = [
        layer(call, Direction(cell, hidden, _operands_of(call, index, tensors)))
        for index, cell in enumerate(cells)
    ]
    all_y, *all_states = zip(*results, strict=True)
    y = transposed(_stacked(call, all_y, 1), 2, 0, 1, 3)
    return relax.Tuple([y, *(transposed(_stacked(call, s, 0), 1, 0, 2) for s in all_states)])


def _layer(call: Call, direction: Direction) -> tuple[relax.Expr, ...]:
    operands, cell = direction.operands, direction.cell
    return recurrent_layer(
        call.builder,
        cell.kind,
        operands["X"],
        (operands["W"], operands["R"]),
        direction.bias,
        direction.initial(call),
        activations=cell.activations,
        clip=cell.clip,
        linear_before_reset=cell.linear_before_reset,
        input_forget=cell.input_forget,
        backwards=cell.backwards,
        peepholes=operands.get("P"),
        lengths=operands.get("sequence_lens"),
    )


def _stacked(call: Call, tensors: Sequence[relax.Expr], axis: int) -> relax.Expr:
    """The results of all directions along a new axis."""
    if len(tensors) == 1:
        return call.emit(relax.op.expand_dims(tensors[0], axis))
    return call.emit(relax.op.stack(list(tensors), axis))


def _operands_of(call: Call, index: int, tensors: dict[str, relax.Expr]) -> dict[str, relax.Expr]:
    """The operands of the direction at `index`."""

    name = call.operator

    def part(tensor: relax.Expr) -> relax.Expr:
        if isinstance(tensor, tvm.ir.GenericConst):
            return rearranged(tensor, lambda a: a[index : index + 1].reshape(a.shape[1:]), name)
        own = call.emit(relax.op.strided_slice(tensor, [0], [index], [index + 1]))
        return call.emit(relax.op.squeeze(own, [0]))

    shared = ("X", "sequence_lens")
    own = {key: t if key in shared else part(t) for key, t in tensors.items()}
    if "B" in own:
        bias = own.pop("B")
        rows = int(bias.ty.shape.values[0]) // 2
        for half, begin in (("B_x", 0), ("B_h", rows)):
            own[half] = call.emit(relax.op.strided_slice(bias, [0], [begin], [begin + rows]))
    return own


def _states_of(call: Call) -> tuple[str, ...]:
    """The names of the operands with the states before the first step."""
    return _STATES if call.operator == "LSTM" else _STATES[:1]


def _cells(call: Call) -> list[Cell]:
    """The computation of each direction of a node."""
    kind, name = KINDS[call.operator], call.text("direction", "forward")
    if name not in _DIRECTIONS:
        reason = f"expected one of {', '.join(_DIRECTIONS)}"
        raise call.invalid("attribute direction", name, reason)
    clip = call.attributes.get("clip")
    if clip is not None and not clip > 0:
        raise call.invalid("attribute clip", clip, "expected more than 0")
    backwards = _DIRECTIONS[name]
    activations: Iterator[Activation] = activations_of(call, kind.activations * len(backwards))
    return [
        Cell(
            call.operator,
            kind.gates,
            tuple(islice(activations, len(kind.activations))),
            clip,
            bool(call.attributes.get("linear_before_reset", 0)),
            bool(call.attributes.get("input_forget", 0)),
            is_backwards,
        )
        for is_backwards in backwards
    ]


def _hidden_size(call: Call) -> int:
    """The number of elements of a state."""
    axis = 1 if len(call.operands) > len(_OPERANDS) else 2
    extents = extents_of(call.operands[2])
    hidden = call.attributes.get("hidden_size", extents[axis] if extents else None)
    if not isinstance(hidden, int):
        reason = f"expected R with a static axis {axis}, or the attribute hidden_size"
        raise call.invalid("type of R", call.operands[2].ty, reason)
    return hidden


def _checked_operands(call: Call, count: int, hidden: int) -> dict[str, relax.Expr]:
    """The operands that are not omitted, by name, checked against the shapes that ONNX requires."""
    layout = call.attributes.get("layout", 0)
    if layout not in (0, 1):
        raise call.invalid("attribute layout", layout, "expected 0 or 1")
    names = (*_OPERANDS, *QUANTIZATION)
    given = {name: o for name, o in zip(names, call.operands, strict=False) if o is not None}
    of_x = extents_of(given["X"]) or [tirx.Var(name, "int64") for name in ("steps", "batch", "in")]
    rows = len(KINDS[call.operator].gates) * hidden
    is_quantized = "W_scale" in given
    of_w = (extents_of(given["W"]) or [None] * 3)[1 if is_quantized else 2]
    features = of_w if isinstance(of_w, int) else of_x[-1]
    batch = of_x[0 if layout else 1] if len(of_x) == 3 else None
    expected: dict[str, list[Extent]] = {
        "X": [*of_x[:2], features],
        "W": [count, rows, features],
        "R": [count, rows, hidden],
        "B": [count, 2 * rows],
        "sequence_lens": [batch],
        "P": [count, 3 * hidden],
    }
    if is_quantized:
        expected |= {"W": [count, features, rows], "R": [count, hidden, rows]}
    state = [batch, count, hidden] if layout else [count, batch, hidden]
    expected |= {name: state for name in _states_of(call)}
    for name in QUANTIZATION:  # one element per direction, or per direction and row
        per_row = name in given and given[name].ty.ndim == 2
        expected[name] = [count, rows] if per_row else [count]
    return {
        name: _match_shape(call, name, tensor, expected[name]) for name, tensor in given.items()
    }


def _match_shape(call: Call, name: str, tensor: relax.Expr, expected: list[Extent]) -> relax.Expr:
    """`tensor` with shape `expected`; the model checks unknown extents at run time."""
    extents = extents_of(tensor)
    if tensor.ty.ndim not in (-1, len(expected)) or any(
        isinstance(actual, int) and isinstance(wanted, int) and actual != wanted
        for actual, wanted in zip(extents or [], expected, strict=False)
    ):
        raise call.invalid(f"shape of {name}", tensor.ty.shape or tensor.ty, f"expected {expected}")
    ty = relax.TensorType(expected, tensor.ty.dtype)
    if tvm_ffi.structural_equal(ty, tensor.ty):
        return tensor
    return call.builder.match_cast(tensor, ty)
