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
"""Boxes: NonMaxSuppression and RoiAlign.

Mechanism
    The converter replaces operands that are not constants by defaults. TVM suppresses a box whose
    overlap equals the threshold; ONNX suppresses it only if the overlap is greater. In mode max,
    TVM takes the largest interpolated sample, and ONNX the largest weighted corner. TVM subtracts
    the half pixel before it scales the regions; ONNX scales them first.
"""

from collections.abc import Sequence
from operator import add, sub
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from ....fixes.onnx_importer import BOXES
from ....support import switches
from ...dtypes import dtype_of
from ...extents import equal
from ...suppression import kept_boxes, overlap_of
from ..call import Call, converts
from .shape_operands import require, shaped


@converts("NonMaxSuppression", fix=BOXES)
def convert_nms(call: Call) -> relax.Expr:
    """Convert a NonMaxSuppression; thresholds and the number of boxes may be computed.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shapes do not agree, or a threshold has several elements.
    """
    switches.note(BOXES)
    boxes, extents = shaped(call, 0, "boxes")
    scores, of_scores = shaped(call, 1, "scores")
    if len(extents) != 3 or len(of_scores) != 3:
        shapes = (extents, of_scores)
        raise call.invalid("shapes", shapes, "expected [batch, boxes, 4], [batch, classes, boxes]")
    for axis, expected in ((0, of_scores[0]), (1, of_scores[2]), (2, 4)):
        agrees = equal(call.known, extents[axis], expected)
        require(call, agrees, "shape of boxes", extents, f"expected {expected} in axis {axis}")
    # Without a maximum number of boxes, it is 0.
    limit = _number(call, 2, "max_output_boxes_per_class", np.int64(0))
    largest = _number(call, 3, "iou_threshold", np.float32(0))
    least = _number(call, 4, "score_threshold", np.float32(-np.inf))
    emit = call.emit
    if call.operand(4) is None:
        is_candidate = emit(op.full_like(scores, relax.const(True), "bool"))
    else:
        is_candidate = emit(op.greater(scores, least))
    counts = emit(op.sum(emit(op.astype(is_candidate, "int64")), axis=-1))
    lowest = relax.const(-np.inf, dtype_of(scores))
    scores = emit(op.where(is_candidate, scores, lowest))
    order = emit(op.argsort(scores, axis=-1, descending=True, dtype="int64"))
    overlap = _of_centers if call.attributes.get("center_point_box") else overlap_of
    kernel = kept_boxes(overlap)
    operands = (boxes, order, counts, limit, largest)
    kept = call.builder.emit_te(kernel, *operands, primfunc_name_hint="nms")
    return _indices_of(call, emit(kept), order)


def _number(call: Call, index: int, name: str, default: np.number) -> relax.Expr:
    """An operand of one element, of rank 1 and with the dtype of `default`."""
    operand = call.operand(index)
    if operand is None:
        return relax.const(np.array([default]))
    operand, extents = shaped(call, index, name)
    if len(extents) > 1:
        raise call.invalid(f"shape of {name}", extents, "expected one element")
    for extent in extents:
        is_one = equal(call.known, extent, 1)
        require(call, is_one, f"shape of {name}", extents, "expected one element")
    return call.emit(op.reshape(operand, (1,)))


def _indices_of(call: Call, kept: relax.Expr, order: relax.Expr) -> relax.Expr:
    """Image, class and index of each box that is kept, from the best one of each class on."""
    emit, count = call.emit, tirx.Var("boxes_kept", "int64")
    columns = call.builder.match_cast(
        emit(op.nonzero(kept)), relax.TensorType((len(order.ty.shape), count), "int64")
    )
    places = emit(op.permute_dims(columns))
    chosen = emit(op.expand_dims(emit(op.gather_nd(order, places)), 1))
    return op.concat([emit(op.strided_slice(places, [1], [0], [2])), chosen], axis=1)


def _of_centers(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """The overlap of two boxes that are given by their centers, widths and heights."""

    def corners(box: Sequence[Any]) -> list[Any]:
        halves = [extent / 2 for extent in box[2:]]
        return [*map(sub, box[:2], halves), *map(add, box[:2], halves)]

    return overlap_of(corners(a), corners(b))


@converts("RoiAlign", fix=BOXES)
def convert_roi_align(call: Call) -> relax.Expr:
    """Convert a RoiAlign.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If its mode is not ``avg``.
    """
    mode = call.text("mode", "avg")
    if mode != "avg":
        raise call.invalid("attribute mode", mode, "expected avg")
    scale = call.attributes.get("spatial_scale", 1.0)
    if scale == 1:
        return call.proceed()
    switches.note(BOXES)
    data, rois, batch = call.operands
    # The half pixel is in feature map units: scale the regions before subtracting it.
    rois = call.emit(relax.op.multiply(rois, relax.const(scale, dtype_of(rois))))
    return call.with_operands(data, rois, batch).with_attributes(spatial_scale=1.0).proceed()
