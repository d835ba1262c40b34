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
"""The kernel of a recurrent layer: all steps of one direction of an RNN, GRU or LSTM.

The input is already multiplied by its weights, for all steps at once.  The kernel divides the batch
into blocks of sequences, which are independent; for each block, and for each step, it

1. multiplies the states by the recurrent weights (:mod:`.recurrence_schedule`),
2. adds the product to the input of the step, and
3. applies the activations and computes the new states.

The activations work on whole vectors: rows of buffers are padded to a multiple of them.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from .loop_kernels import cast, computed
from .recurrence_activations import Activation, Stage, stages_of
from .recurrence_schedule import At, Part, Schedule, int64

__all__ = ["KINDS", "Cell", "recurrence"]


@dataclass(frozen=True)
class Kind:
    """The properties of all layers of a kind.

    Attributes
    ----------
    gates : str
        The gates in the order of ONNX.
    activations : tuple of str
        The default activations.
    """

    gates: str
    activations: tuple[str, ...]


KINDS = {
    "RNN": Kind("h", ("tanh",)),
    "GRU": Kind("zrh", ("sigmoid", "tanh")),
    "LSTM": Kind("iofc", ("sigmoid", "tanh", "tanh")),
}


@dataclass(frozen=True)
class Cell:
    """The computation of a recurrent layer in one direction.

    Attributes
    ----------
    kind : str
        ``RNN``, ``GRU`` or ``LSTM``.
    gates : str
        The order of the gates in the rows of the weights, with ONNX's letters: ``iofc`` or, as in
        PyTorch, ``ifco`` for an LSTM; ``zrh`` or ``rzh`` for a GRU; ``h`` for an RNN.
    activations : tuple of Activation
        As in ONNX: one of an RNN, two of a GRU, three of an LSTM.
    clip : float, optional
        The bound that the inputs of the activations are clipped to.
    linear_before_reset, input_forget : bool
        As in ONNX.
    backwards : bool
        Whether the steps run from the last to the first.
    is_quantized : bool
        Whether the states are quantized for their product with integers:
        see :mod:`.recurrence_quantized`.
    has_hidden_bias, has_peepholes, has_lengths : bool
        Which optional operands the kernel has.
    """

    kind: str
    gates: str
    activations: tuple[Activation, ...]
    clip: float | None = None
    linear_before_reset: bool = False
    input_forget: bool = False
    backwards: bool = False
    is_quantized: bool = False
    has_hidden_bias: bool = False
    has_peepholes: bool = False
    has_lengths: bool = False

    def parts(self, hidden: int) -> list[Part]:
        """The products of a step."""
        if self.kind == "GRU" and not self.linear_before_reset:
            return [Part(0, 0, 2 * hidden), Part(1, 2 * hidden, hidden)]
        return [Part(0, 0, len(self.gates) * hidden)]

    def to_json(self) -> str:
        """The cell as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The cell of a text from :meth:`to_json`."""
        fields = json.loads(text)
        activations = tuple(Activation(**activation) for activation in fields.pop("activations"))
        return cls(activations=activations, **fields)


def recurrence(cell: Cell, schedule: Schedule, steps: tirx.Expr, *tensors: te.Tensor) -> Any:
    """Return the tensors that a recurrent layer computes in one direction.

    Parameters
    ----------
    cell : Cell
    schedule : Schedule
    steps : tirx.Expr
        The number of steps.
    tensors : te.Tensor
        The input of all steps, multiplied by its weights, of shape (steps * batch, gates * hidden);
        the states before the first step, of shape (batch, hidden), of an LSTM h and c; the weights
        that `schedule` expects; and the optional operands: the bias of the product in the hidden
        gate of a GRU, of shape (hidden,), the weights of peepholes, of shape (3 * hidden,), and the
        lengths of the sequences, of shape (batch,).

    Returns
    -------
    list of te.Tensor
        The outputs h of all steps, of shape (steps, batch, hidden), and the states after the last
        step, of shape (batch, hidden), of an LSTM h and c; and the workspaces of `schedule`.  As in
        ONNX Runtime, the outputs of
        steps beyond the length of a sequence are 0, and so are the states after an empty sequence.
    """
    h = tensors[1]
    states = 2 if cell.kind == "LSTM" else 1
    dtype = str(h.dtype)
    outputs = [((steps, *h.shape), dtype), *[(h.shape, dtype)] * states]
    batch, hidden = h.shape
    outputs += schedule.workspaces(batch, int(hidden), states, len(cell.gates))
    count = len(tensors)

    def body(*buffers: Any) -> None:
        results = buffers[count:]
        schedule.use(results[1 + states :])
        _Kernel(cell, schedule, buffers[:count], results[: 1 + states]).emit()

    return computed(cell.kind.lower(), tensors, outputs, body)


class _Kernel:
    """Emits the statements of a kernel."""

    def __init__(
        self, cell: Cell, schedule: Schedule, operands: Sequence[Any], results: Sequence[Any]
    ) -> None:
        states = 2 if cell.kind == "LSTM" else 1
        self.cell, self.schedule = cell, schedule
        self.x, *rest = operands
        self.first, rest = rest[:states], rest[states:]
        self.hidden = int(self.first[0].shape[1])
        self.parts = cell.parts(self.hidden)
        count = schedule.operands(len(self.parts))
        self.weights = rest[:count]
        optional = iter(rest[count:])
        self.hidden_bias = next(optional) if cell.has_hidden_bias else None
        self.peepholes = next(optional) if cell.has_peepholes else None
        self.lengths = next(optional) if cell.has_lengths else None
        self.y, *self.last = results
        self.steps, self.batch, _ = self.y.shape
        self.dtype = str(self.first[0].dtype)

    def emit(self) -> None:
        """Run all blocks of sequences."""
        rows, batch = self.schedule.rows, self.batch
        if self.schedule.is_one_block:
            _Block(self, int64(0), batch).emit()
            return
        is_whole = isinstance(batch, tirx.IntImm) and int(batch) % rows == 0
        with self.schedule.blocks(tirx.ceildiv(batch, rows)) as block:
            first = block * rows
            if is_whole or rows == 1:
                _Block(self, first, rows).emit()
                return
            with T.If(first + rows <= batch):
                with T.Then():
                    _Block(self, first, rows).emit()
                with T.Else(), T.serial(0, batch - first) as row:
                    _Block(self, first + row, 1).emit()


class _Columns:
    """A buffer's columns from `begin` on."""

    def __init__(self, buffer: Any, begin: int) -> None:
        self._buffer, self._begin, self.dtype = buffer, begin, str(buffer.dtype)

    def __getitem__(self, place: tuple[Any, Any]) -> Any:
        row, column = place
        return self._buffer[row, column + self._begin]

    def __setitem__(self, place: tuple[Any, Any], value: Any) -> None:
        row, column = place
        self._buffer[row, column + self._begin] = value


class _Block:
    """Emits all steps of a block of sequences.

    Parameters
    ----------
    kernel : _Kernel
    first : tirx.Expr
        The number of the first sequence.
    rows : int or tirx.Expr
        The number of sequences.
    """

    def __init__(self, kernel: _Kernel, first: Any, rows: Any) -> None:
        self._kernel, self._cell, self._schedule = kernel, kernel.cell, kernel.schedule
        self._first, self._hidden = first, kernel.hidden
        self._rows = int64(rows) if isinstance(rows, int) else rows

    def emit(self) -> None:
        """Run all steps, and store the states after them."""
        kernel, schedule, gates = self._kernel, self._schedule, len(self._cell.gates)
        width = schedule.rounded(self._hidden)
        columns = schedule.columns(kernel.parts, self._hidden)
        # In one buffer: those of several would begin at the same offset in a page, where a load
        # waits for earlier stores at its offset.
        states = len(kernel.first)
        begins = [columns + width * number for number in range(states + gates)]
        buffer = schedule.buffer(self._rows, begins[-1] + width, kernel.dtype)
        self._sums = _Columns(buffer, 0)
        self._states = [_Columns(buffer, begin) for begin in begins[:states]]
        self._values = [_Columns(buffer, begin) for begin in begins[states:]]
        self._multiply = schedule.multiplier(kernel.weights, self._rows, self._hidden)
        with T.serial(0, self._rows) as row:
            if schedule.has_padding:
                for buffer, count in [
                    (self._sums, columns),
                    *((s, width) for s in self._states),
                ]:
                    self._fill(buffer, row, count, None)
            for state, source in zip(self._states, kernel.first, strict=True):
                self._fill(state, row, self._hidden, source)
        with T.serial(0, kernel.steps) as number:
            self._step(kernel.steps - 1 - number if self._cell.backwards else number)
        with T.serial(0, self._rows) as row:
            for state, target in zip(self._states, kernel.last, strict=True):
                self._finish(row, state, target)

    def _fill(self, target: Any, row: Any, count: int, source: Any | None) -> None:
        """Copy the first elements of a row from `source`, or set them to 0."""

        def element(at: At) -> None:
            value = 0.0 if source is None else source[self._first + row, at.index]
            target[row, at.place] = cast(value, self._kernel.dtype)

        self._schedule.each(count, element)

    def _finish(self, row: Any, state: Any, target: Any) -> None:
        """Store a state after the last step; after no step of a sequence, 0."""
        kernel, sequence = self._kernel, self._first + row

        def element(at: At) -> None:
            value = state[row, at.place]
            if kernel.lengths is not None:
                none = kernel.lengths[sequence] <= int64(0)
                value = tirx.Select(none, cast(0.0, kernel.dtype), value)
            target[sequence, at.index] = value

        self._schedule.each_result(self._hidden, element)

    def _step(self, step: Any) -> None:
        """Run a step of all sequences of the block."""
        *earlier, last = self._kernel.parts
        cells = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}
        for part in earlier:
            self._multiply(self._states[0], self._sums, part)
            with T.serial(0, self._rows) as row:
                self._reset(step, row)
        self._multiply(self._values[2] if earlier else self._states[0], self._sums, last)
        with T.serial(0, self._rows) as row:
            sequence = self._first + row

            def run() -> None:
                cells[self._cell.kind](step, row)
                self._output(step, row, lambda at: self._states[0][row, at.place])

            if self._kernel.lengths is None:
                run()
                return
            with T.If(step < self._kernel.lengths[sequence]):
                with T.Then():
                    run()
                with T.Else():
                    self._output(step, row, lambda _: cast(0.0, self._kernel.dtype))

    def _output(self, step: Any, row: Any, value: Callable[[At], Any]) -> None:
        y = self._kernel.y

        def element(at: At) -> None:
            y[step, self._first + row, at.index] = value(at)

        self._schedule.each_result(self._hidden, element)

    def _add_input(self, step: Any, row: Any, first: int, count: int) -> None:
        """Add the input of a step to the products, in `count` gates from `first` on."""
        x, sums, stride = self._kernel.x, self._sums, self._schedule.stride(self._hidden)
        # All gates at once, if they are adjacent.
        run = count if stride == self._hidden else 1
        at_step = self._row_of_input(step, row)
        for gate in range(first, first + count, run):

            def element(at: At, gate: int = gate) -> None:
                place, index = at.place + gate * stride, at.index + gate * self._hidden
                sums[row, place] = x[at_step, index] + sums[row, place]

            self._schedule.each(run * self._hidden, element)

    def _row_of_input(self, step: Any, row: Any) -> Any:
        return step * self._kernel.batch + self._first + row

    def _add_peephole(self, row: Any, gate: str) -> None:
        """Add the product of the cell and the weights of a peephole to the input of a gate."""
        weights = self._kernel.peepholes
        if weights is None:
            return
        sums, begin = self._sums, self._begin(gate)
        of_gate = "iof".index(gate) * self._hidden

        def element(at: At) -> None:
            product = weights[at.index + of_gate] * self._states[1][row, at.place]
            sums[row, at.place + begin] = sums[row, at.place + begin] + product

        self._schedule.each(self._hidden, element)

    def _begin(self, gate: str) -> int:
        """The first column of a gate in the sums."""
        return self._cell.gates.index(gate) * self._schedule.stride(self._hidden)

    def _gate(self, row: Any, gate: str, index: int, target: Any) -> None:
        """Store the activation at `index` of the inputs of a gate."""
        begin, clip = self._begin(gate), self._cell.clip

        def source(at: At) -> Any:
            x = self._sums[row, at.place + begin]
            if clip is None:
                return x
            bounds = (cast(bound, self._kernel.dtype) for bound in (-clip, clip))
            low, high = bounds
            return tirx.max(tirx.min(x, high), low)

        self._activate(row, index, source, target)

    def _activate(self, row: Any, index: int, source: Callable[[At], Any], target: Any) -> None:
        """Store the activation at `index` of the elements of `source`."""
        for stage in stages_of(self._cell.activations[index], self._kernel.dtype):

            def value(at: At, stage: Stage = stage) -> Any:
                return stage(source(at), target[row, at.place])

            self._compute(row, target, value)

    def _compute(self, row: Any, target: Any, value: Callable[[At], Any]) -> None:
        """Store elements of `target`, and of its padding."""

        def element(at: At) -> None:
            target[row, at.place] = value(at)

        self._schedule.each_place(self._hidden, element)

    def _rnn(self, step: Any, row: Any) -> None:
        self._add_input(step, row, 0, 1)
        self._gate(row, "h", 0, self._states[0])

    def _reset(self, step: Any, row: Any) -> None:
        """Compute the gates of a GRU that its hidden gate depends on, and the reset state."""
        self._add_input(step, row, 0, 2)
        update, reset, product = self._values
        self._gate(row, "z", 0, update)
        self._gate(row, "r", 0, reset)
        state = self._states[0]
        self._compute(row, product, lambda at: reset[row, at.place] * state[row, at.place])

    def _gru(self, step: Any, row: Any) -> None:
        kernel, [state] = self._kernel, self._states
        update, reset, new = self._values
        if self._cell.linear_before_reset:
            self._add_input(step, row, 0, 2)
            self._gate(row, "z", 0, update)
            self._gate(row, "r", 0, reset)
            begin, bias = self._begin("h"), kernel.hidden_bias
            at_step = self._row_of_input(step, row)

            def hidden(at: At) -> None:
                total = self._sums[row, at.place + begin]
                if bias is not None:
                    total = total + bias[at.index]
                x = kernel.x[at_step, at.index + 2 * self._hidden]
                self._sums[row, at.place + begin] = x + reset[row, at.place] * total

            self._schedule.each(self._hidden, hidden)
        else:
            self._add_input(step, row, 2, 1)
        self._gate(row, "h", 1, new)
        one = cast(1.0, kernel.dtype)

        def mixed(at: At) -> Any:
            z = update[row, at.place]
            return (one - z) * new[row, at.place] + z * state[row, at.place]

        self._compute(row, state, mixed)

    def _lstm(self, step: Any, row: Any) -> None:
        hidden, cell = self._states
        values = dict(zip("iofc", self._values, strict=True))
        self._add_input(step, row, 0, 4)
        self._add_peephole(row, "i")
        self._gate(row, "i", 0, values["i"])
        if self._cell.input_forget:
            one = cast(1.0, self._kernel.dtype)
            self._compute(row, values["f"], lambda at: one - values["i"][row, at.place])
        else:
            self._add_peephole(row, "f")
            self._gate(row, "f", 0, values["f"])
        self._gate(row, "c", 1, values["c"])
        self._compute(
            row,
            cell,
            lambda at: (
                values["f"][row, at.place] * cell[row, at.place]
                + values["i"][row, at.place] * values["c"][row, at.place]
            ),
        )
        self._add_peephole(row, "o")
        self._gate(row, "o", 0, values["o"])
        self._activate(row, 2, lambda at: cell[row, at.place], values["c"])

        def new(at: At) -> Any:
            return values["o"][row, at.place] * values["c"][row, at.place]

        self._compute(row, hidden, new)
