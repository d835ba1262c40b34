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
"""``auto_pad`` of convolutions and poolings."""

from tvm import tirx

from ..call import Extent

__all__ = ["AUTO_PADS", "halves", "same_count", "same_pads"]

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def halves(total: Extent, auto_pad: str) -> tuple[Extent, Extent]:
    """Split the padding of an axis into that before and that after the data.

    An odd element comes after the data for SAME_UPPER, else before (ONNX operator specification,
    ConvTranspose; ONNX Runtime does so for VALID and NOTSET too).
    """
    half = total // 2
    return (half, total - half) if auto_pad == "SAME_UPPER" else (total - half, half)


def same_count(extent: Extent, stride: int) -> Extent:
    """The number of windows along an axis with SAME_UPPER or SAME_LOWER."""
    return (extent + stride - 1) // stride


def same_pads(
    extent: Extent | None, stride: int, span: int, auto_pad: str
) -> tuple[Extent, Extent] | None:
    """The padding before and after an axis with SAME_UPPER or SAME_LOWER.

    Parameters
    ----------
    extent : int, Expr or None
        The extent of the axis; None if it is unknown.
    stride : int
    span : int
        The extent of the dilated kernel.

    Returns
    -------
    tuple or None
        Ints if the padding before the data does not depend on symbols. The padding after it may
        then be longer than specified, but no window reaches the additional elements. None if the
        padding depends on an extent that is unknown.
    """
    if isinstance(extent, int):
        missing = (same_count(extent, stride) - 1) * stride + span - extent
        return halves(max(missing, 0), auto_pad)
    # The last window begins at the last multiple of the stride, 1 to stride elements from the end.
    firsts = {halves(max(span - rest, 0), auto_pad)[0] for rest in range(1, stride + 1)}
    if len(firsts) == 1:
        before = firsts.pop()
        return before, span - 1 - before
    if extent is None:
        return None
    missing = (same_count(extent, stride) - 1) * stride + span - extent
    return halves(tirx.max(missing, tirx.const(0, "int64")), auto_pad)
