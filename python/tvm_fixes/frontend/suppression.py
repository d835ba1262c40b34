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
"""Suppression of boxes that overlap better ones."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from ..tirx.loop_kernels import Outputs, cast, local, loops, nest, when

__all__ = ["Overlap", "kept_boxes", "overlap_of"]

_BLOCK = 16
"""The boxes that a box is compared with before it may be dropped: lanes of vectors."""

Overlap = Callable[[Sequence[Any], Sequence[Any]], Any]
"""The overlap of two boxes, which are given by four numbers each."""


def overlap_of(a: Sequence[Any], b: Sequence[Any], any_corners: bool = True) -> Any:
    """Return the intersection of two boxes over their union; 0 if the union is empty.

    The boxes are given by opposite corners: any, or those with the lowest and highest coordinates.
    """
    zero = cast(0.0, str(a[0].ty.dtype))
    shared, lengths = [], []
    for axis in range(2):
        ends = [(box[axis], box[axis + 2]) for box in (a, b)]
        if any_corners:
            ends = [(tirx.min(*e), tirx.max(*e)) for e in ends]
        (a_low, a_high), (b_low, b_high) = ends
        shared.append(tirx.max(zero, tirx.min(a_high, b_high) - tirx.max(a_low, b_low)))
        lengths.append((a_high - a_low, b_high - b_low))
    both = shared[1] * shared[0]
    union = lengths[0][0] * lengths[1][0] + lengths[0][1] * lengths[1][1] - both
    return tirx.Select(union <= zero, zero, both / union)


def kept_boxes(overlap: Overlap) -> Callable[..., Any]:
    """Return a function for ``emit_te`` that chooses boxes, for each image and class.

    Its operands are the boxes of each image; their order, from the best one on, for each image and
    class; the number of candidates among them; the maximum number of boxes of a class, and the
    largest overlap with a better box, as tensors of one element.  The result is whether each box,
    in this order, is kept.
    """

    def outputs(_: te.Tensor, order: te.Tensor, *__: te.Tensor) -> Outputs:
        return [(order.shape, "bool")]

    def body(boxes: Any, order: Any, counts: Any, limit: Any, largest: Any, kept: Any) -> None:
        images, classes, count = order.shape
        dtype = str(boxes.dtype)
        with nest((images, classes)) as (b, c):
            chosen = [_array(count + _BLOCK, dtype) for _ in range(4)]
            own = [local(dtype, 0.0) for _ in range(4)]
            found, is_kept = local("int64", 0), local("bool", False)
            with T.serial(0, count) as i:
                is_kept[0] = tirx.const(False, "bool")
                with when(i < counts[b, c], found[0] < limit[0]):
                    for side in range(4):
                        own[side][0] = boxes[b, order[b, c, i], side]
                    is_kept[0] = tirx.const(True, "bool")
                    _compare(chosen, own, found, is_kept, overlap, largest)
                    with when(is_kept[0]):
                        for side in range(4):
                            chosen[side][found[0]] = own[side][0]
                        found[0] = found[0] + 1
                kept[b, c, i] = is_kept[0]

    return loops("nms", outputs, body)


def _compare(
    chosen: Sequence[Any],
    own: Sequence[Any],
    found: Any,
    is_kept: Any,
    overlap: Overlap,
    largest: Any,
) -> None:
    """Clear `is_kept` if a box overlaps one of those chosen, which are compared in blocks."""
    first, hits = local("int64", 0), local("int32", 0)
    with T.While(tirx.all(is_kept[0], first[0] < found[0])):
        hits[0] = tirx.const(0, "int32")
        with T.serial(0, _BLOCK) as lane:
            other = [side[first[0] + lane] for side in chosen]
            common = overlap(other, [side[0] for side in own]).astype(largest.dtype)
            # Other lanes of the block have no box yet.
            hit = tirx.all(common > largest[0], first[0] + lane < found[0])
            hits[0] = hits[0] | hit.astype("int32")
        is_kept[0] = hits[0].equal(0)
        first[0] = first[0] + _BLOCK


def _array(length: Any, dtype: str) -> Any:
    return T.buffer_proxy(T.alloc_buffer((length,), dtype))
