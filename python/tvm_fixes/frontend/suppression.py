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
    largest overlap with a better box, as tensors of one element.  The results are whether each box,
    in this order, is kept, and a workspace.
    """

    def outputs(_: te.Tensor, order: te.Tensor, *__: te.Tensor) -> Outputs:
        return [(order.shape, "bool"), (order.shape, "int64")]

    def body(
        boxes: Any, order: Any, counts: Any, limit: Any, largest: Any, kept: Any, chosen: Any
    ) -> None:
        images, classes, count = order.shape

        def box(image: Any, place: Any) -> list[Any]:
            return [boxes[image, place, side] for side in range(4)]

        with nest((images, classes)) as (b, c):
            found = local("int64", 0)
            with T.serial(0, count) as i:
                stays = local("bool", False)
                with when(i < counts[b, c], found[0] < limit[0]):
                    place = order[b, c, i]
                    stays[0] = tirx.const(True, "bool")
                    with T.serial(0, found[0]) as k, when(stays[0]):
                        common = overlap(box(b, chosen[b, c, k]), box(b, place))
                        stays[0] = tirx.Not(common.astype(largest.dtype) > largest[0])
                    with when(stays[0]):
                        chosen[b, c, found[0]] = place
                        found[0] = found[0] + 1
                kept[b, c, i] = stays[0]

    return loops("nms", outputs, body)
