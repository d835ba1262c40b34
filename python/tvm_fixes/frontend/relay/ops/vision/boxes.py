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
"""Object detection: boxes above a threshold, decoded boxes, proposals."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T

from .....tirx.loop_kernels import cast, local, when
from ....extents import Extent, is_static
from ...call import Call, converts
from ...values.extents import shaped
from ..loop_kernels import checked, loop_kernel


def require_dtypes(call: Call, expected: dict[int, Sequence[str]]) -> None:
    """Raise an error unless each of these inputs has one of its dtypes, as in TVM 0.19."""
    for index, dtypes in expected.items():
        dtype = str(call.input_types[index].dtype)
        if dtype not in dtypes:
            raise call.fail(f"input {index} must be {' or '.join(dtypes)}, but it is {dtype}")


def column(call: Call, attr: str, extents: Sequence[Extent], width: int = 1) -> int:
    """Return an attribute that names columns of the boxes, the first of `width`."""
    first, length = int(call.attributes[attr]), extents[-1]
    if not isinstance(length, int):
        raise call.fail("the number of columns of a box must be known")
    if not 0 <= first <= length - width:
        raise call.fail(f"{attr} is {first}, but a box has columns 0 to {length - 1}")
    return first


def class_column(call: Call, extents: Sequence[Extent]) -> int:
    """Return the column of the class; negative if there is no such column."""
    index = int(call.attributes["id_index"])
    return index if index < 0 else column(call, "id_index", extents)


def descending_order(
    call: Call,
    scores: Callable[..., Any],
    inputs: Sequence[relax.Expr],
    shape: Callable[..., Any],
) -> relax.Expr:
    """Return the positions of scores along the last axis, the largest first.

    NaN counts as the smallest score.
    """

    def sortable(*tensors: te.Tensor) -> te.Tensor:
        smallest = tirx.const(-math.inf, "float32")

        def element(*place: Any) -> Any:
            score = scores(*tensors, *place)
            return tirx.Select(score > smallest, score, smallest)

        return te.compute(shape(*tensors), element, name="sortable")

    keys = call.emit_te(sortable, *inputs)
    return call.emit(relax.op.argsort(keys, -1, True, "int32"))


@converts("vision.get_valid_counts")
def get_valid_counts(call: Call) -> tuple[relax.Expr, ...]:
    """Move boxes above a score to the top; return their number, the boxes and their positions."""
    data, extents = shaped(call)
    score, kind = column(call, "score_index", extents), class_column(call, extents)
    limit = call.attributes["score_threshold"]
    inputs = [data] if limit is not None else [data, call.operands[1]]

    def outputs(boxes: te.Tensor, *_: te.Tensor) -> Any:
        batch, count, _ = boxes.shape
        return [((batch,), "int32"), (boxes.shape, boxes.dtype), ((batch, count), "int32")]

    def body(boxes: Any, *buffers: Any) -> None:
        *threshold, counts, top, places = buffers
        batch, count, length = boxes.shape
        least = threshold[0][()] if threshold else tirx.const(float(limit), boxes.dtype)
        with T.serial(0, batch) as b:
            kept = local("int64", 0)
            with T.serial(0, count) as j:
                accepted = [boxes[b, j, score] > least]
                if kind >= 0:
                    accepted.append(boxes[b, j, kind] >= cast(0, boxes.dtype))
                with when(*accepted):
                    with T.serial(0, length) as k:
                        top[b, kept[0], k] = boxes[b, j, k]
                    places[b, kept[0]] = cast(j, "int32")
                    kept[0] = kept[0] + 1
            counts[b] = cast(kept[0], "int32")
            with T.serial(0, count) as j, when(j >= kept[0]):
                with T.serial(0, length) as k:
                    top[b, j, k] = cast(-1, boxes.dtype)
                places[b, j] = cast(-1, "int32")

    return tuple(loop_kernel(call, inputs, outputs, body))


@converts("vision.multibox_transform_loc")
def multibox_transform_loc(call: Call) -> tuple[relax.Expr, ...]:
    """Decode boxes and their best class; those of the background are left out.

    TVM 0.19 leaves the rows after the last box undefined; here they are -1.
    """
    require_dtypes(call, {i: ["float32"] for i in range(3)})
    scores, (batch, _, count) = shaped(call)
    _, (images, _, _) = shaped(call, 2)
    deltas = checked(call, 1, [batch, count * 4])
    if isinstance(images, int) and images != 1:
        raise call.fail(f"the anchors must be those of 1 image, not of {images}")
    anchors = checked(call, 2, [1, count, 4])
    background = bool(call.attributes["keep_background"])
    threshold = tirx.const(float(call.attributes["threshold"]), "float32")

    def outputs(scores: te.Tensor, *_: te.Tensor) -> Any:
        batch, _, count = scores.shape
        return [((batch, count, 6), "float32"), ((batch,), "int32")]

    def body(scores: Any, deltas: Any, anchors: Any, boxes: Any, counts: Any) -> None:
        batch, classes, count = scores.shape
        with T.serial(0, batch) as b:
            kept = local("int64", 0)
            with T.serial(0, count) as j:
                best, kind = local("float32", -1.0), local("int32", 0)
                with (
                    T.serial(0 if background else 1, classes) as k,
                    when(scores[b, k, j] > best[0]),
                ):
                    best[0] = scores[b, k, j]
                    kind[0] = cast(k, "int32")
                with when(kind[0] > 0, best[0] < threshold):
                    kind[0] = cast(0, "int32")
                with when(tirx.const(True) if background else kind[0] > 0):
                    box = _decoded(
                        call,
                        [anchors[0, j, i] for i in range(4)],
                        [deltas[b, j * 4 + i] for i in range(4)],
                    )
                    first = kind[0] if background else kind[0] - 1
                    for i, value in enumerate([first.astype("float32"), best[0], *box]):
                        boxes[b, kept[0], i] = value
                    kept[0] = kept[0] + 1
            counts[b] = cast(kept[0], "int32")
            with T.serial(0, count) as j, T.serial(0, 6) as i, when(j >= kept[0]):
                boxes[b, j, i] = cast(-1, "float32")

    return tuple(loop_kernel(call, [scores, deltas, anchors], outputs, body))


def _decoded(call: Call, anchor: Sequence[Any], delta: Sequence[Any]) -> list[tirx.Expr]:
    """Move and scale an anchor: left, top, right, bottom."""
    variances = [tirx.const(float(value), "float32") for value in call.attributes["variances"]]
    half = tirx.const(2.0, "float32")
    sides: dict[int, Any] = {}
    for axis in range(2):
        low, high = anchor[axis], anchor[axis + 2]
        length, middle = high - low, (low + high) / half
        center = delta[axis] * variances[axis] * length + middle
        reach = tirx.exp(delta[axis + 2] * variances[axis + 2]) * length / half
        sides[axis], sides[axis + 2] = center - reach, center + reach
    result = [sides[i] for i in range(4)]
    if not call.attributes["clip"]:
        return result
    zero, one = tirx.const(0.0, "float32"), tirx.const(1.0, "float32")
    return [tirx.max(zero, tirx.min(one, side)) for side in result]


@converts("vision.proposal")
def proposal(call: Call) -> relax.Expr:
    """Decode boxes around anchors, and return the best ones that do not overlap.

    Their number is fixed: if there are fewer, they are repeated. For a batch of several images, TVM
    0.19 reads out of bounds before it sorts; here each image is sorted.
    """
    require_dtypes(call, {i: ["float32"] for i in range(3)})
    for attr in ("scales", "ratios"):
        if not all(float(value) > 0 for value in call.attributes[attr]):
            raise call.fail(f"{attr} must be above 0, but they are {list(call.attributes[attr])}")
    shape = [extent for i in range(3) for extent in shaped(call, i)[1]]
    if not is_static(*shape) or 0 in shape:
        raise call.fail(f"expected known shapes without 0, but found {shape}")
    batch, _, height, width = shape[:4]
    anchors = _anchors(call)
    count = height * width * len(anchors)

    def decoded(*_: te.Tensor) -> Any:
        return [((batch, count, 4), "float32"), ((batch, count), "float32")]

    boxes, scores = loop_kernel(
        call,
        [*call.operands, relax.const(anchors)],
        decoded,
        lambda *buffers: _decode_proposals(call, *buffers),
    )
    order = descending_order(call, lambda s, *i: s(*i), [scores], lambda s: s.shape)
    wanted = int(call.attributes["rpn_post_nms_top_n"])

    def chosen(*_: te.Tensor) -> Any:
        return [((batch * wanted, 5), "float32"), ((count,), "bool")]

    result, _ = loop_kernel(
        call, [boxes, order], chosen, lambda *buffers: _choose_proposals(call, *buffers)
    )
    return result


def _anchors(call: Call) -> np.ndarray[Any, Any]:
    """Return left, top, right and bottom of the anchors at the first pixel."""
    stride = int(call.attributes["feature_stride"])
    middle = 0.5 * (stride - 1.0)
    anchors = []
    for ratio in map(float, call.attributes["ratios"]):
        for scale in map(float, call.attributes["scales"]):
            width = math.floor(math.sqrt(math.floor(stride * stride / ratio)) + 0.5)
            height = math.floor(width * scale / scale * ratio + 0.5)
            reach = [0.5 * (side * scale - 1.0) for side in (width, height)]
            anchors.append([middle - r for r in reach] + [middle + r for r in reach])
    return np.array(anchors, "float32")


def _decode_proposals(
    call: Call, scores: Any, deltas: Any, images: Any, anchors: Any, boxes: Any, results: Any
) -> None:
    """Emit the boxes and scores; a box that is too small grows and has the score -1."""
    batch, _, height, width = scores.shape
    count = anchors.shape[0]
    stride = int(call.attributes["feature_stride"])
    with (
        T.serial(0, batch) as b,
        T.serial(0, height) as y,
        T.serial(0, width) as x,
        T.serial(0, count) as k,
    ):
        place = (y * width + x) * count + k
        pixel = [(at * stride).astype("float32") for at in (x, y)]
        delta = [deltas[b, k * 4 + i, y, x] for i in range(4)]
        anchor = [anchors[k, i] + pixel[i % 2] for i in range(4)]
        sides = _shifted(anchor, delta) if call.attributes["iou_loss"] else _scaled(anchor, delta)
        for i in range(4):
            last = images[b, 1 - i % 2] - _f32(1)
            boxes[b, place, i] = tirx.max(tirx.min(sides[i], last), _f32(0))
        least = images[b, 2] * _f32(call.attributes["rpn_min_size"])
        seen = [(images[b, i] / _f32(stride)).astype("int32") for i in range(2)]
        outside = tirx.any(y >= seen[0], x >= seen[1])
        results[b, place] = tirx.Select(outside, _f32(-1), scores[b, count + k, y, x])
        small = [
            boxes[b, place, axis + 2] - boxes[b, place, axis] + _f32(1) < least for axis in range(2)
        ]
        with when(tirx.any(*small)):
            for i in range(4):
                grown = boxes[b, place, i] + _f32(1 if i > 1 else -1) * (least / _f32(2))
                boxes[b, place, i] = grown
            results[b, place] = _f32(-1)


def _f32(value: Any) -> tirx.Expr:
    return tirx.const(float(value), "float32")


def _shifted(anchor: Sequence[Any], delta: Sequence[Any]) -> list[Any]:
    """Move each side of a box."""
    return [side + move for side, move in zip(anchor, delta, strict=True)]


def _scaled(anchor: Sequence[Any], delta: Sequence[Any]) -> list[Any]:
    """Move the center of a box, and scale it."""
    low, high = [], []
    for axis in range(2):
        length = anchor[axis + 2] - anchor[axis] + _f32(1)
        center = anchor[axis] + _f32(0.5) * (length - _f32(1))
        center = delta[axis] * length + center
        reach = _f32(0.5) * (tirx.exp(delta[axis + 2]) * length - _f32(1))
        low.append(center - reach)
        high.append(center + reach)
    return low + high


def _choose_proposals(call: Call, boxes: Any, order: Any, results: Any, removed: Any) -> None:
    """Emit the best boxes of each image that do not overlap a better one."""
    batch, count, _ = boxes.shape
    wanted = int(call.attributes["rpn_post_nms_top_n"])
    most = int(call.attributes["rpn_pre_nms_top_n"])
    most = min(most, int(count)) if most > 0 else int(count)
    threshold = _f32(call.attributes["threshold"])
    with T.serial(0, batch) as b:
        with T.serial(0, most) as i:
            removed[i] = tirx.const(False, "bool")
        kept = local("int64", 0)
        with T.serial(0, most) as i, when(tirx.Not(removed[i]), kept[0] < wanted):
            row = b * wanted + kept[0]
            results[row, 0] = b.astype("float32")
            with T.serial(0, 4) as k:
                results[row, k + 1] = boxes[b, order[b, i], k]
            kept[0] = kept[0] + 1
            with T.serial(i + 1, most) as j:
                box, other = ([boxes[b, order[b, at], side] for side in range(4)] for at in (i, j))
                with when(_overlap_of_pixels(box, other) > threshold):
                    removed[j] = tirx.const(True, "bool")
        with T.serial(0, wanted) as i, when(i >= kept[0]), T.serial(0, 5) as k:
            results[b * wanted + i, k] = results[b * wanted + i - kept[0], k]


def _overlap_of_pixels(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Return the intersection of two boxes over their union; the last pixel belongs to a box."""
    shared, areas = [], []
    for axis in range(2):
        end, start = tirx.min(a[axis + 2], b[axis + 2]), tirx.max(a[axis], b[axis])
        shared.append(tirx.max(_f32(0), end - start + _f32(1)))
    for box in (a, b):
        areas.append((box[2] - box[0] + _f32(1)) * (box[3] - box[1] + _f32(1)))
    both = shared[0] * shared[1]
    return both / (areas[0] + areas[1] - both)
