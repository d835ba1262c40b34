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
"""Operators of the domain com.microsoft that move or select elements.

Most are early forms of ONNX's operators, and are converted as those.
"""

from dataclasses import replace

import numpy as np
from tvm import relax, te, tirx

from .....fixes.onnx_importer import MICROSOFT
from ....convert import Converter
from ....dtypes import dtype_of
from ....extents import expression
from ...call import Call, converts
from ..quantized.steps import named_operands
from ..shape_operands import extents_or_symbols, integers, require_all, to_shape_tensor
from .operands import as_onnx, check_rank, check_vector, named_shape, round_to, widen


def _renamed(opset: int, names: str, required: int, attributes: str = "") -> Converter[Call]:
    """Make a converter that treats a node as ONNX's operator of the same name.

    Parameters
    ----------
    opset : int
        The version of ONNX's operator set that has the same form.
    names, attributes : str
        The names of the operands and of the attributes, separated by spaces.
    required : int
        The number of operands that must be given.
    """

    def convert_renamed(call: Call) -> relax.Expr:
        inputs = named_operands(call, names, names.split()[:required])
        operands = list(inputs.values())
        while operands and operands[-1] is None:
            operands.pop()
        kept = {n: call.attributes[n] for n in attributes.split() if n in call.attributes}
        operator = call.operator.rpartition(".")[2]
        return as_onnx(call, operator, *operands, opset=opset, **kept)

    return convert_renamed


converts("com.microsoft.GatherND", fix=MICROSOFT, noted=True)(_renamed(11, "data indices", 2))
converts("com.microsoft.Trilu", fix=MICROSOFT, noted=True)(_renamed(14, "X k", 1, "upper"))


@converts("com.microsoft.ExpandDims", fix=MICROSOFT, noted=True)
def convert_expand_dims(call: Call) -> relax.Expr:
    """Convert an ExpandDims, whose axis is a constant.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the axis is not a constant, or out of range.
    """
    inputs = named_operands(call, "X axis", ("X", "axis"))
    axes, rank = integers(call, 1, "axis"), inputs["X"].ty.ndim
    if len(axes) != 1 or not -rank - 1 <= axes[0] <= rank:
        raise call.invalid("operand axis", axes, f"expected one from {-rank - 1} to {rank}")
    return relax.op.expand_dims(inputs["X"], axes)


@converts("com.microsoft.GridSample", fix=MICROSOFT, noted=True)
def convert_grid_sample(call: Call) -> relax.Expr:
    """Convert a GridSample."""
    inputs = named_operands(call, "X Grid", ("X", "Grid"))
    names = ("align_corners", "mode", "padding_mode")
    attributes = {name: call.attributes[name] for name in names if name in call.attributes}
    check_rank(call, "X", inputs["X"], 4)
    operands = (widen(call, inputs[name]) for name in ("X", "Grid"))
    out = as_onnx(call, "GridSample", *operands, opset=16, **attributes)
    return round_to(call, out, dtype_of(inputs["X"]))


@converts("com.microsoft.Pad", fix=MICROSOFT, noted=True)
def convert_microsoft_pad(call: Call) -> relax.Expr:
    """Convert a Pad, whose pads may have the shape [1, n]."""
    inputs = named_operands(call, "data pads value", ("data", "pads"))
    operands = [inputs["data"], _flat(call, 1, "pads")]
    if inputs["value"] is not None:
        operands.append(_scalar(call, 2))
    return as_onnx(call, "Pad", *operands, opset=13, mode=call.text("mode", "constant"))


@converts("com.microsoft.Range", fix=MICROSOFT, noted=True)
def convert_microsoft_range(call: Call) -> relax.Expr:
    """Convert a Range, whose operands may be vectors of one element, and whose step may be 1."""
    inputs = named_operands(call, "start limit delta", ("start", "limit"))
    operands = [_scalar(call, index) for index in range(2)]
    if inputs["delta"] is None:
        operands.append(relax.const(1, dtype_of(operands[0])))
    else:
        operands.append(_scalar(call, 2))
    return as_onnx(call, "Range", *operands, opset=11)


@converts("com.microsoft.Unique", fix=MICROSOFT, noted=True)
def convert_unique(call: Call) -> relax.Expr:
    """Convert a Unique: the elements in the order of their first positions, indices and counts."""
    inputs = named_operands(call, "x", ("x",))
    check_rank(call, "x", inputs["x"], 1)
    called = replace(call, operator="Unique", version=11, outputs=4)
    outputs = called.with_attributes(sorted=0).convert()
    fields = list(outputs.fields)
    kept = [fields[0], *fields[2:]]
    return relax.Tuple(kept[: call.outputs])


def _flat(call: Call, index: int, name: str) -> relax.Expr:
    """An operand of shape [n] or [1, n] as a vector."""
    operand, array = call.operands[index], call.constant(index)
    if array is not None:
        return relax.const(array.reshape(-1))
    if len(check_rank(call, name, operand, 1, 2)) == 1:
        return operand
    return call.emit(relax.op.reshape(operand, [-1]))


def _scalar(call: Call, index: int) -> relax.Expr:
    """An operand of one element as a scalar."""
    operand, array = call.operands[index], call.constant(index)
    if array is not None and array.size == 1:
        return relax.const(array.reshape(()))
    shape = named_shape(call, f"operand {index}", operand)
    if shape not in ([], [1]):
        raise call.invalid(f"shape of operand {index}", shape, "expected one element")
    return operand if not shape else call.emit(relax.op.reshape(operand, ()))


# Regions


@converts("com.microsoft.CropAndResize", fix=MICROSOFT, noted=True)
def convert_crop_and_resize(call: Call) -> relax.Expr:
    """Convert a CropAndResize, which samples regions on a grid that includes their corners.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the mode is unknown, or the shapes of operands do not agree.
    """
    names = "X rois batch_indices crop_size"
    inputs = named_operands(call, names, names.split())
    mode = call.text("mode", "bilinear")
    if mode not in ("bilinear", "nearest"):
        raise call.invalid("attribute mode", mode, "expected bilinear or nearest")
    batch = check_rank(call, "X", inputs["X"], 4)[0]
    regions, width = check_rank(call, "rois", inputs["rois"], 2)
    if width != 4:
        raise call.invalid("shape of rois", [regions, width], f"expected [{regions}, 4]")
    check_vector(call, "batch_indices", inputs["batch_indices"], regions)
    size = extents_or_symbols(call, 3, "crop_size")
    if len(size) != 2:
        raise call.invalid("operand crop_size", size, "expected two elements")
    images = call.emit(relax.op.astype(inputs["batch_indices"], "int64"))
    count = call.emit(relax.op.reshape(to_shape_tensor(call, [batch]), ()))
    inside = relax.op.logical_and(
        relax.op.greater_equal(images, relax.const(0, "int64")), relax.op.less(images, count)
    )
    require_all(call, inside)
    outside = float(np.float32(call.attributes.get("extrapolation_value", 0.0)))

    def crop(*operands: te.Tensor | tirx.Expr) -> te.Tensor:
        return _crop(*operands, outside=outside, nearest=mode == "nearest")

    operands = (widen(call, inputs["X"]), widen(call, inputs["rois"]), images)
    out = call.builder.emit_te(crop, *operands, *map(expression, size))
    return round_to(call, out, dtype_of(inputs["X"]))


def _crop(
    data: te.Tensor,
    regions: te.Tensor,
    images: te.Tensor,
    rows: tirx.Expr,
    columns: tirx.Expr,
    *,
    outside: float,
    nearest: bool,
) -> te.Tensor:
    dtype = data.dtype

    def position(r: tirx.Var, at: tirx.Var, axis: int, count: tirx.Expr) -> tirx.Expr:
        """The position in the image of an element of a region."""
        first, last = regions[r, axis], regions[r, axis + 2]
        reach = (data.shape[2 + axis] - 1).astype(dtype)
        step = (last - first) * reach / tirx.max(count - 1, 1).astype(dtype)
        several = first * reach + at.astype(dtype) * step
        return tirx.Select(count > 1, several, tirx.const(0.5, dtype) * (first + last) * reach)

    def element(r: tirx.Var, c: tirx.Var, y: tirx.Var, x: tirx.Var) -> tirx.Expr:
        places = [position(r, y, 0, rows), position(r, x, 1, columns)]
        lasts = [data.shape[2] - 1, data.shape[3] - 1]
        inside = tirx.all(
            *(p >= tirx.const(0, dtype) for p in places),
            *(p <= last.astype(dtype) for p, last in zip(places, lasts, strict=True)),
        )

        def at(row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
            return data[images[r], c, row.astype("int64"), column.astype("int64")]

        if nearest:
            # Positions are not negative here: half is rounded up.
            row, column = (tirx.floor(p + tirx.const(0.5, dtype)) for p in places)
            value = at(row, column)
        else:
            (top, bottom), (left, right) = ((tirx.floor(p), tirx.ceil(p)) for p in places)
            down, along = places[0] - top, places[1] - left
            upper = at(top, left) + (at(top, right) - at(top, left)) * along
            lower = at(bottom, left) + (at(bottom, right) - at(bottom, left)) * along
            value = upper + (lower - upper) * down
        return tirx.if_then_else(inside, value, tirx.const(outside, dtype))

    shape = (regions.shape[0], data.shape[1], rows, columns)
    return te.compute(shape, element, name="crop_and_resize")
