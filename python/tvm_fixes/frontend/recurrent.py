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
"""Recurrent layers of all importers: one kernel for all steps of a direction."""

from collections.abc import Sequence
from dataclasses import replace

import tvm
from tvm import relax, tirx
from tvm.relax.utils import gen_call_tir_inputs

from ..attributes import RECURRENCE
from ..tirx.recurrence import KINDS, Cell, recurrence
from ..tirx.recurrence_activations import Activation
from ..tirx.recurrence_quantized import QuantizedSchedule
from ..tirx.recurrence_schedule import Schedule
from ..tirx.util import OPAQUE, count_of
from .dtypes import accumulation_dtype, dtype_of

__all__ = ["recurrent_layer", "steps_of_layer"]


def recurrent_layer(
    builder: relax.BlockBuilder,
    kind: str,
    x: relax.Expr,
    weights: Sequence[relax.Expr],
    bias: Sequence[relax.Expr] | None = None,
    initial: Sequence[relax.Expr] | None = None,
    *,
    gates: str | None = None,
    activations: Sequence[Activation] | None = None,
    clip: float | None = None,
    linear_before_reset: bool = False,
    input_forget: bool = False,
    backwards: bool = False,
    peepholes: relax.Expr | None = None,
    lengths: relax.Expr | None = None,
) -> tuple[relax.Expr, ...]:
    """Emit one direction of a recurrent layer.

    Import time and the size of the program do not depend on the number of steps, which may be
    symbolic, as may the number of sequences.  The extents of a sequence's elements and of the
    states must be known.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Receives the bindings and the kernel.
    kind : str
        ``RNN``, ``GRU`` or ``LSTM``.
    x : relax.Expr
        The input, of shape (steps, batch, features).
    weights : pair of relax.Expr
        W, of shape (gates * hidden, features), and R, of shape (gates * hidden, hidden).
    bias : pair of relax.Expr, optional
        What is added to the product of W and to the product of R, each of shape (gates * hidden,).
    initial : sequence of relax.Expr, optional
        The states before the first step, each of shape (batch, hidden): h, and c of an LSTM.  By
        default 0.
    gates : str, optional
        The order of the gates in the rows of the weights and biases, with ONNX's letters.  By
        default ONNX's order: ``iofc`` for an LSTM, ``zrh`` for a GRU.  PyTorch's is ``ifco`` and
        ``rzh``.  The hidden gate of a GRU must be the last one.
    activations : sequence of Activation, optional
        As in ONNX: one of an RNN, two of a GRU, three of an LSTM.  By default ONNX's, which
        are PyTorch's, too.
    clip : float, optional
        The bound that the inputs of the activations are clipped to.
    linear_before_reset : bool
        Whether a GRU multiplies the state by its weights before the reset, as PyTorch does.
    input_forget : bool
        Whether the forget gate of an LSTM is 1 minus its input gate.
    backwards : bool
        Whether the steps run from the last to the first.
    peepholes : relax.Expr, optional
        The weights that multiply the cell of an LSTM in the gates i, o and f, of shape
        (3 * hidden,).
    lengths : relax.Expr, optional
        The lengths of the sequences in int64, of shape (batch,).  The outputs of later steps are 0,
        and so are the states after a sequence of length 0.

    Returns
    -------
    tuple of relax.Expr
        The outputs of all steps, of shape (steps, batch, hidden), and the states after the last
        step, of shape (batch, hidden): h, and c of an LSTM.  They have the dtype of `x`; 16-bit
        floats are computed in float32 and rounded at the end.
    """
    dtype = dtype_of(x)
    sum_dtype = accumulation_dtype(dtype)

    def widened(value: relax.Expr) -> relax.Expr:
        return (
            value
            if dtype_of(value) == sum_dtype
            else builder.emit(relax.op.astype(value, sum_dtype))
        )

    *around, features = x.ty.shape.values
    rows = builder.emit(relax.op.reshape(widened(x), [count_of(around), features]))
    of_input = builder.emit(relax.op.permute_dims(widened(weights[0])))
    product = builder.emit(relax.op.matmul(rows, of_input))
    cell = Cell(
        kind,
        gates or KINDS[kind].gates,
        tuple(activations or map(Activation, KINDS[kind].activations)),
        clip,
        linear_before_reset,
        input_forget,
        backwards,
    )
    results = steps_of_layer(
        builder,
        cell,
        product,
        around,
        [widened(weights[1])],
        None if bias is None else list(map(widened, bias)),
        None if initial is None else list(map(widened, initial)),
        peepholes=None if peepholes is None else widened(peepholes),
        lengths=lengths,
    )
    if sum_dtype == dtype:
        return results
    return tuple(builder.emit(relax.op.astype(result, dtype)) for result in results)


def steps_of_layer(
    builder: relax.BlockBuilder,
    cell: Cell,
    product: relax.Expr,
    around: Sequence[tirx.Expr],
    weights: Sequence[relax.Expr],
    bias: Sequence[relax.Expr] | None,
    initial: Sequence[relax.Expr] | None,
    *,
    peepholes: relax.Expr | None = None,
    lengths: relax.Expr | None = None,
) -> tuple[relax.Expr, ...]:
    """Emit one direction of a recurrent layer, whose input is already multiplied.

    The parameters are those of :func:`recurrent_layer`, in the accumulation dtype, except these.

    Parameters
    ----------
    cell : Cell
    product : relax.Expr
        The product of the input and W, of shape (steps * batch, gates * hidden).
    around : sequence of tirx.Expr
        The number of steps and that of sequences.
    weights : sequence of relax.Expr
        R; of a quantized cell in 8 bits, with its scales in float32 and its zero points in int32,
        each of shape (gates * hidden,).
    """
    emit = builder.emit
    hidden = int(weights[0].ty.shape.values[1])
    optional: list[relax.Expr] = []
    if bias is not None:
        of_x, of_h = bias
        if cell.kind == "GRU" and cell.linear_before_reset:
            # The reset gate scales the bias of the hidden gate.
            count = (len(cell.gates) - 1) * hidden
            optional.append(emit(relax.op.strided_slice(of_h, [0], [count], [count + hidden])))
            cell = replace(cell, has_hidden_bias=True)
            others = emit(relax.op.strided_slice(of_h, [0], [0], [count]))
            zeros = emit(relax.op.zeros([hidden], dtype_of(of_h)))
            of_h = emit(relax.op.concat([others, zeros], 0))
        product = emit(relax.op.add(product, emit(relax.op.add(of_x, of_h))))
    if initial is None:
        shape = [around[1], tirx.const(hidden, "int64")]
        zeros = emit(relax.op.zeros(shape, dtype_of(product)))
        initial = [zeros] * (2 if cell.kind == "LSTM" else 1)
    if peepholes is not None:
        optional.append(peepholes)
    if lengths is not None:
        optional.append(lengths)
    cell = replace(cell, has_peepholes=peepholes is not None, has_lengths=lengths is not None)
    return _steps(builder, cell, around[0], [product, *initial, *weights, *optional])


def _steps(
    builder: relax.BlockBuilder, cell: Cell, steps: tirx.Expr, operands: list[relax.Expr]
) -> tuple[relax.Expr, ...]:
    """Emit the kernel of all steps; :func:`.LowerRecurrence` schedules it for the target."""

    schedule = QuantizedSchedule() if cell.is_quantized else Schedule()

    def compute(steps: tirx.Expr, *tensors: tvm.te.Tensor) -> list[tvm.te.Tensor]:
        return recurrence(cell, schedule, steps, *tensors)

    kernel, arguments, types = gen_call_tir_inputs(compute, steps, *operands)
    kernel = kernel.with_attrs({"op_pattern": OPAQUE, RECURRENCE: cell.to_json()})
    variable = builder.add_func(kernel, cell.kind.lower())
    call = builder.emit(relax.call_tir(variable, arguments, types))
    count = 3 if cell.kind == "LSTM" else 2
    return tuple(builder.emit(relax.TupleGetItem(call, index)) for index in range(count))
