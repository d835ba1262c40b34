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
"""Operators of torchvision: ``nms``, ``roi_align`` and ``deform_conv2d``.

They are recognized by their names; torchvision need not be installed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx

from ....errors import OpNotImplemented
from ....fixes.torch_importer import DECOMPOSITIONS as FIX_ID
from ....tirx.loop_kernels import cast
from ...deformable import deformed_convolution
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import static_extent
from ...suppression import kept_boxes
from ..call import Call, converts
from .found_elements import nonzero_of


@converts("nms.default", fix=FIX_ID, noted=True)
def convert_suppression(call: Call) -> relax.Expr:
    """Convert ``nms``: the indices of the boxes to keep, from the highest score on."""
    boxes, scores, threshold = call.operands
    emit = call.emit
    order = emit(relax.op.argsort(scores, 0, True, "int64"))

    # One image and one class; all boxes are candidates.
    count = emit(relax.op.shape_to_tensor(relax.op.shape_of(order)))
    kept = call.builder.emit_te(
        kept_boxes(_overlap),
        emit(relax.op.expand_dims(boxes, 0)),
        emit(relax.op.expand_dims(order, [0, 1])),
        emit(relax.op.expand_dims(count, 0)),
        count,
        relax.const([float(threshold)], "float64"),
        primfunc_name_hint="nms",
    )
    kept = emit(relax.op.squeeze(kept, [0, 1]))
    places = nonzero_of(call, kept, call.recorded.shape[0])
    return emit(relax.op.gather_nd(order, places))


@converts("roi_align.default", fix=FIX_ID, noted=True)
def convert_region_means(call: Call) -> relax.Expr:
    """Convert ``roi_align``: the means of the cells of regions."""
    x, regions, scale, height, width, samples, aligned = call.operands
    dtype = dtype_of(x)
    inner = accumulation_dtype(dtype)
    # TVM's operator does not move the corners by half a pixel.
    half = 0.5 if aligned else 0.0
    factors, shifts = (
        relax.const(np.array([first, *[rest] * 4]), inner)
        for first, rest in ((1, scale), (0, half))
    )
    emit = call.emit
    regions = emit(relax.op.multiply(call.astype(regions, inner), factors))
    regions = emit(relax.op.subtract(regions, shifts))
    means = relax.op.vision.roi_align(
        call.astype(x, inner), regions, (height, width), 1.0, samples, aligned
    )
    return call.astype(emit(means), dtype)


@converts("deform_conv2d.default", fix=FIX_ID, noted=True)
def convert_deformed_convolution(call: Call) -> relax.Expr:
    """Convert ``deform_conv2d``; its channels must be static."""
    x, weight, offset, mask, bias, *numbers, has_mask = call.operands
    strides, pads, dilations = numbers[0:2], numbers[2:4], numbers[4:6]
    groups, offset_groups = numbers[6:8]
    shapes = [x.ty.shape[1], *weight.ty.shape.values]
    if None in map(static_extent, shapes):
        raise OpNotImplemented(
            f"{call.where}: channels and shape of the weight are {shapes}; expected static extents"
        )
    dtype = dtype_of(x)
    inner = accumulation_dtype(dtype)
    convolved = deformed_convolution(
        [int(extent) for extent in weight.ty.shape.values[2:]],
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=groups,
        offset_groups=offset_groups,
        has_bias=True,
    )
    operands = [x, weight, offset, bias, *([mask] if has_mask else [])]
    sums = call.builder.emit_te(
        convolved,
        *(call.astype(operand, inner) for operand in operands),
        primfunc_name_hint="deform_conv2d",
    )
    return call.astype(sums, dtype)


def _overlap(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Return the intersection of two boxes over their union; NaN for two areas of 0."""
    width, height = (
        tirx.max(tirx.min(a[i + 2], b[i + 2]) - tirx.max(a[i], b[i]), cast(0, a[0].ty.dtype))
        for i in range(2)
    )
    first, second = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return width * height / (first + second - width * height)
