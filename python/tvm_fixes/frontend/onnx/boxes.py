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

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    NonMaxSuppression with a computed threshold or number of boxes, or with boxes whose overlap
    equals iou_threshold; RoiAlign in mode max, or with half pixels and a spatial_scale.
Symptom
    No boxes, too few boxes, or wrong numbers; all silently.
Mechanism
    The converter replaces operands that are not constants by defaults. TVM suppresses a box whose
    overlap equals the threshold; ONNX suppresses it only if the overlap is greater. In mode max,
    TVM takes the largest interpolated sample, and ONNX the largest weighted corner. TVM subtracts
    the half pixel before it scales the regions; ONNX scales them first.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-boxes``.
"""

import numpy as np
from tvm import relax

from ...fixes.onnx_importer import BOXES
from ...support import switches
from ..dtypes import dtype_of
from .node import Converter, Node

__all__ = ["convert_nms", "convert_roi_align"]

_NMS_OPERANDS = {2: "max_output_boxes_per_class", 3: "iou_threshold", 4: "score_threshold"}


def convert_nms(node: Node, convert: Converter) -> relax.Expr:
    """Convert a NonMaxSuppression.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If a threshold or the number of boxes is not a constant.
    """
    operands = list(node.operands)
    for index, name in _NMS_OPERANDS.items():
        if node.operand(index) is not None and node.constant(index) is None:
            raise node.invalid(f"operand {name}", node.operand(index), "expected a constant")
    switches.note(BOXES)
    operands += [None] * (5 - len(operands))
    threshold = node.constant(3)
    limit = np.float32(0 if threshold is None else threshold.item())
    # ONNX suppresses overlaps > limit, TVM overlaps >= its operand: pass the next float.
    operands[3] = relax.const(np.nextafter(limit, np.float32(np.inf)), "float32")
    if operands[4] is None:
        operands[4] = relax.const(np.float32(-np.inf), "float32")
    return convert(node.with_operands(*operands))


def convert_roi_align(node: Node, convert: Converter) -> relax.Expr:
    """Convert a RoiAlign.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If its mode is not ``avg``.
    """
    mode = node.text("mode", "avg")
    if mode != "avg":
        raise node.invalid("attribute mode", mode, "expected avg")
    scale = node.attributes.get("spatial_scale", 1.0)
    if scale == 1:
        return convert(node)
    switches.note(BOXES)
    data, rois, batch = node.operands
    # The half pixel is in feature map units: scale the regions before subtracting it.
    rois = node.emit(relax.op.multiply(rois, relax.const(scale, dtype_of(rois))))
    return convert(node.with_operands(data, rois, batch).with_attributes(spatial_scale=1.0))
