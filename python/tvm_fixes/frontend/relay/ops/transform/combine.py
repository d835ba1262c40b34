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
"""Converters of the operators that join, split, repeat or reverse tensors."""

from collections.abc import Sequence
from itertools import pairwise

from tvm import relax, topi

from ....extents import NO_FACTS, Extent, product
from ...call import Call, converts
from ...values.extents import positive_axis, quotient, reshaped, shaped, with_extents
from ...values.values import from_relax


@converts("concatenate")
def concatenate(call: Call) -> relax.Expr:
    """Join tensors along an axis."""
    pairs = [with_extents(call, tensor) for tensor in call.operands[0]]
    return joined(call, pairs, positive_axis(call.attributes["axis"], len(pairs[0][1])))


@converts("stack")
def stack(call: Call) -> relax.Expr:
    """Join tensors along a new axis."""
    pairs = []
    for tensor in call.operands[0]:
        expr, extents = with_extents(call, tensor)
        axis = positive_axis(call.attributes["axis"], len(extents) + 1)
        extents = [*extents[:axis], 1, *extents[axis:]]
        pairs.append((reshaped(call, expr, extents), extents))
    return joined(call, pairs, axis)


def joined(
    call: Call, tensors: Sequence[tuple[relax.Expr, Sequence[Extent]]], axis: int
) -> relax.Expr:
    """Join tensors with their extents; those of the other axes are checked at run time."""
    # Relax knows the shape of the result only if the other extents are known to be equal.
    common = [
        next((extent for extent in extents if isinstance(extent, int)), extents[0])
        for extents in zip(*(shape for _, shape in tensors), strict=True)
    ]
    parts = []
    for tensor, extents in tensors:
        shape = [*common[:axis], extents[axis], *common[axis + 1 :]]
        if not all(map(NO_FACTS.equal, extents, shape)):
            tensor = call.builder.match_cast(tensor, relax.TensorType(shape, tensor.ty.dtype))
        parts.append(tensor)
    return call.emit(relax.op.concat(parts, axis))


@converts("split")
def split(call: Call) -> tuple[relax.Expr, ...]:
    """Cut a tensor into sections."""
    data, extents = shaped(call)
    axis = positive_axis(call.attributes["axis"], len(extents))
    sections = call.attributes["indices_or_sections"]
    extent = extents[axis]
    if isinstance(sections, int):
        if not isinstance(extent, int):
            return split_symbolic(call, data, axis, sections)
        step = extent // sections
        indices = [step * i for i in range(1, sections)]
    else:
        indices = [int(index) for index in sections]
    if not indices:
        return (data,)
    if not isinstance(extent, int):
        bounds = [0, *indices, extent]
        return tuple(
            call.emit(relax.op.strided_slice(data, [axis], [begin], [end], assume_inbound=True))
            for begin, end in pairwise(bounds)
        )
    return from_relax(call.builder, call.emit(relax.op.split(data, indices, axis)), call.type)


def split_symbolic(
    call: Call, data: relax.Expr, axis: int, sections: int
) -> tuple[relax.Expr, ...]:
    """Cut an axis whose extent is not known into sections of the same extent."""
    data, extents = with_extents(call, data)
    step = quotient(extents[axis], sections)
    shape = [*extents[:axis], sections, step, *extents[axis + 1 :]]
    cut = reshaped(call, data, shape)
    parts = []
    for i in range(sections):
        part = call.emit(relax.op.strided_slice(cut, [axis], [i], [i + 1]))
        parts.append(call.emit(relax.op.squeeze(part, [axis])))
    return tuple(parts)


@converts("repeat")
def repeat(call: Call) -> relax.Expr:
    """Repeat each element along an axis."""
    data, _ = shaped(call)
    return call.emit(relax.op.repeat(data, call.attributes["repeats"], call.attributes["axis"]))


@converts("tile")
def tile(call: Call) -> relax.Expr:
    """Repeat the whole tensor."""
    data, _ = shaped(call)
    return call.emit(relax.op.tile(data, call.ints("reps")))


@converts("reverse")
def reverse(call: Call) -> relax.Expr:
    """Reverse an axis."""
    data, extents = shaped(call)
    return call.emit(relax.op.flip(data, positive_axis(call.attributes["axis"], len(extents))))


@converts("reverse_sequence")
def reverse_sequence(call: Call) -> relax.Expr:
    """Reverse the beginning of an axis; its length depends on the position in the batch."""
    data, extents = shaped(call)
    lengths, _ = shaped(call, 1)
    seq_axis, batch_axis = (
        positive_axis(call.attributes[name], len(extents)) for name in ("seq_axis", "batch_axis")
    )
    return call.emit_te(topi.reverse_sequence, data, lengths, seq_axis, batch_axis)


@converts("meshgrid")
def meshgrid(call: Call) -> tuple[relax.Expr, ...]:
    """Broadcast vectors over a grid; each has an axis of its own."""
    tensors = [with_extents(call, tensor) for tensor in call.operands[0]]
    axes = list(range(len(tensors)))
    if call.attributes["indexing"] == "xy" and len(tensors) >= 2:
        axes[:2] = [1, 0]
    lengths = {
        axis: product(NO_FACTS, extents) for axis, (_, extents) in zip(axes, tensors, strict=True)
    }
    grid = [lengths[axis] for axis in range(len(tensors))]
    results = []
    for axis, (tensor, _) in zip(axes, tensors, strict=True):
        shape = [grid[i] if i == axis else 1 for i in range(len(grid))]
        column = reshaped(call, tensor, shape)
        results.append(call.emit(relax.op.broadcast_to(column, grid)))
    return tuple(results)
