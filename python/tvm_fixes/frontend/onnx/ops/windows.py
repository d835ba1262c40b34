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
"""Col2Im and DeformConv, for which TVM has no converters."""

from collections.abc import Sequence

from tvm import relax, te, tirx
from tvm.relax import op

from ....fixes.onnx_importer import OPERATORS
from ....support import switches
from ....tirx.util import count_of
from ...deformable import deformed_convolution
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import equal, expression, product
from ..call import Call, Extent, converts
from .shape_operands import extents_or_symbols, require, shaped


def _ints(call: Call, name: str, count: int, default: int) -> list[int]:
    """An attribute with `count` numbers."""
    found = list(call.attributes.get(name) or [default] * count)
    least = 0 if name == "pads" else 1
    if len(found) != count or min(found) < least:
        reason = f"expected {count} numbers of {least} or more"
        raise call.invalid(f"attribute {name}", found, reason)
    return found


def _count(
    extent: Extent, pads: Sequence[int], kernel: Extent, stride: int, dilation: int
) -> Extent:
    """The number of positions of a window along an axis."""
    return (extent + sum(pads) - dilation * (kernel - 1) - 1) // stride + 1


@converts("Col2Im", fix=OPERATORS)
def convert_col2im(call: Call) -> relax.Expr:
    """Convert a Col2Im: each element is the sum of the elements of the blocks that cover it.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the ranks or numbers of elements do not agree.
    """
    switches.note(OPERATORS)
    data, extents = shaped(call, 0, "input")
    image, block = (
        extents_or_symbols(call, index, name)
        for index, name in ((1, "image_shape"), (2, "block_shape"))
    )
    rank = len(image)
    if len(extents) != 3 or len(block) != rank or not rank:
        shapes = (extents, image, block)
        raise call.invalid("shapes", shapes, "expected rank 3, and one block extent per axis")
    strides, dilations = (_ints(call, name, rank, 1) for name in ("strides", "dilations"))
    pads = _ints(call, "pads", 2 * rank, 0)
    counts = [
        _count(image[axis], pads[axis::rank], block[axis], strides[axis], dilations[axis])
        for axis in range(rank)
    ]
    size, places = product(call.known, block), product(call.known, counts)
    require(call, size >= 1, "operand block_shape", block, "expected 1 or more")
    reason = f"expected {places} blocks, and a multiple of {size} elements in each"
    divides = equal(call.known, extents[1] % size, 0)
    require(call, divides, "shape of input", extents, reason)
    require(call, equal(call.known, extents[2], places), "shape of input", extents, reason)

    def summed(x: te.Tensor, *shapes: tirx.Expr) -> te.Tensor:
        shape, kernel = shapes[:rank], shapes[rank:]
        steps = [te.reduce_axis((0, extent)) for extent in kernel]
        columns = [
            _count(shape[axis], pads[axis::rank], kernel[axis], strides[axis], dilations[axis])
            for axis in range(rank)
        ]

        def element(n: tirx.Var, c: tirx.Var, *at: tirx.Var) -> tirx.Expr:
            row, column, covers = c, tirx.const(0, "int64"), []
            for axis in range(rank):
                step = steps[axis].var
                moved = at[axis] + pads[axis] - step * dilations[axis]
                place = tirx.floordiv(moved, strides[axis])
                is_place = tirx.floormod(moved, strides[axis]) == 0
                covers.append(tirx.all(is_place, place >= 0, place < columns[axis]))
                row, column = row * kernel[axis] + step, column * columns[axis] + place
            value = tirx.if_then_else(tirx.all(*covers), x(n, row, column), zero)
            return te.sum(value, axis=steps)

        zero = tirx.const(0, x.dtype)
        channels = tirx.floordiv(x.shape[1], count_of(kernel))
        return te.compute((x.shape[0], channels, *shape), element, name="col2im")

    dtype = dtype_of(data)
    wide = accumulation_dtype(dtype)
    if wide != dtype:
        data = call.emit(op.astype(data, wide))
    result = call.builder.emit_te(summed, data, *map(expression, [*image, *block]))
    return result if wide == dtype else op.astype(result, dtype)


@converts("DeformConv", fix=OPERATORS)
def convert_deform_conv(call: Call) -> relax.Expr:
    """Convert a DeformConv of any number of spatial axes; elements outside X are 0.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the kernel has symbolic extents, or the shapes or groups do not agree.
    """
    switches.note(OPERATORS)
    names = ("X", "W", "offset", "B", "mask")
    given = {
        name: shaped(call, index, name)
        for index, name in enumerate(names)
        if call.operand(index) is not None
    }
    (data, extents), filters = given["X"], given["W"][1]
    rank = len(extents) - 2
    kernel = filters[2:]
    static = [*filters, extents[1] if len(extents) > 1 else None]
    if rank < 1 or len(kernel) != rank or not all(isinstance(e, int) for e in static):
        shapes = (extents, filters)
        raise call.invalid("shapes of X and W", shapes, "expected equal ranks, static channels")
    strides, dilations = (_ints(call, name, rank, 1) for name in ("strides", "dilations"))
    pads = _ints(call, "pads", 2 * rank, 0)
    groups, offset_groups = (call.attributes.get(n, 1) for n in ("group", "offset_group"))
    if extents[1] != filters[1] * groups or filters[0] % groups or extents[1] % offset_groups:
        reason = f"expected channels that {groups} groups and {offset_groups} offset groups divide"
        raise call.invalid("shapes of X and W", (extents, filters), reason)
    counts = [
        _count(extents[2 + axis], pads[axis::rank], kernel[axis], strides[axis], dilations[axis])
        for axis in range(rank)
    ]
    size = int(product(call.known, kernel))
    channels = {"offset": offset_groups * size * rank, "mask": offset_groups * size}
    for name in channels.keys() & given.keys():
        expected = [extents[0], channels[name], *counts]
        _require_shape(call, name, given[name][1], expected)
    if "B" in given:
        _require_shape(call, "B", given["B"][1], [filters[0]])

    dtype = dtype_of(data)
    wide = accumulation_dtype(dtype)
    tensors = [given[name][0] for name in names if name in given]
    if wide != dtype:
        tensors = [call.emit(op.astype(tensor, wide)) for tensor in tensors]

    sums = deformed_convolution(
        kernel,
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=groups,
        offset_groups=offset_groups,
        has_bias="B" in given,
    )
    result = call.builder.emit_te(sums, *tensors)
    return result if wide == dtype else op.astype(result, dtype)


def _require_shape(
    call: Call, name: str, extents: Sequence[Extent], expected: Sequence[Extent]
) -> None:
    reason = f"expected {list(expected)}"
    if len(extents) != len(expected):
        raise call.invalid(f"shape of {name}", list(extents), reason)
    for pair in zip(extents, expected, strict=True):
        require(call, equal(call.known, *pair), f"shape of {name}", list(extents), reason)
