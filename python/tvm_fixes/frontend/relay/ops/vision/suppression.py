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
"""Object detection: operators that drop boxes which overlap a better one."""

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T

from .....tirx.loop_kernels import cast, local, when
from ....extents import NO_FACTS, product
from ....suppression import overlap_of
from ...call import Call, converts
from ...values.extents import shaped
from ..loop_kernels import checked, loop_kernel
from .boxes import class_column, column, descending_order, require_dtypes


@converts("vision.non_max_suppression")
def non_max_suppression(call: Call) -> Any:
    """Drop boxes that overlap a better one of their class.

    TVM 0.19 reads out of bounds if valid_count exceeds the number of boxes; here it is clamped. NaN
    counts as the smallest score.
    """
    inputs, columns = _operands(call)
    if len(call.operands) == 2:
        return _suppress_in_place(call, inputs, columns)
    batch, count, _ = shaped(call)[1]
    indices = bool(call.attributes["return_indices"])
    inputs += call.operands[3:5]
    if indices:
        require_dtypes(call, {2: ["int32"]})
        inputs.append(checked(call, 2, [batch, count]))

    def outputs(boxes: te.Tensor, order: te.Tensor, *_: te.Tensor) -> Any:
        batch, count = order.shape
        final = [((batch, count), "int32"), ((batch, 1), "int32")]
        rows = (boxes.shape, "float32")
        return [rows, (order.shape, "int32"), *(final if indices else [rows])]

    def body(boxes: Any, order: Any, valid: Any, limit: Any, threshold: Any, *rest: Any) -> None:
        rows, places = rest[1:3] if indices else rest[:2]
        with T.serial(0, boxes.shape[0]) as b:
            _sort_boxes(call, b, (boxes, order, valid, threshold), (rows, places))
            with when(threshold[()] > 0):
                _suppress(call, b, columns, (valid, limit, threshold), (rows, places))
            if indices:
                _collect_indices(b, rest[0], places, *rest[3:])
            else:
                _collect_rows(b, rows, rest[2], bool(call.attributes["invalid_to_bottom"]))

    results = loop_kernel(call, inputs, outputs, body)[2:]
    return tuple(results) if indices else results[0]


def _operands(call: Call) -> tuple[list[relax.Expr], dict[str, int]]:
    """Return the boxes, their order and the numbers of those that are valid; and the columns."""
    require_dtypes(call, {0: ["float32"], 1: ["int32"]})
    data, extents = shaped(call)
    columns = {
        "score": column(call, "score_index", extents),
        "class": class_column(call, extents),
        "corner": column(call, "coord_start", extents, 4),
    }
    valid = checked(call, 1, extents[:1])
    order = descending_order(
        call,
        lambda boxes, valid, b, i: tirx.if_then_else(
            i < valid[b], boxes[b, i, columns["score"]], tirx.const(-math.inf, "float32")
        ),
        [data, valid],
        lambda boxes, _: boxes.shape[:2],
    )
    return [data, order, valid], columns


def _suppress_in_place(call: Call, inputs: list[relax.Expr], columns: dict[str, int]) -> relax.Expr:
    """Suppress as TVM 0.6 does: a box loses its score and class, and keeps its place."""
    indices = bool(call.attributes["return_indices"])
    threshold = (
        0.5 if call.attributes["iou_threshold"] is None else float(call.attributes["iou_threshold"])
    )

    def outputs(boxes: te.Tensor, order: te.Tensor, *_: te.Tensor) -> Any:
        return [(boxes.shape, "float32"), (order.shape, "int32"), (boxes.shape, "float32")]

    def body(
        boxes: Any, order: Any, valid: Any, iou: Any, rows: Any, places: Any, top: Any
    ) -> None:
        with T.serial(0, boxes.shape[0]) as b:
            _sort_boxes(call, b, (boxes, order, valid, iou), (rows, places))
            with when(iou[()] > 0), T.serial(0, _number_of_valid(valid, b, boxes.shape[1])) as j:
                _erase_scores(call, b, j, columns, (valid, iou), (rows, places))
            _limit_boxes(call, b, valid, (rows, places))
            _collect_rows(b, rows, top, bool(call.attributes["invalid_to_bottom"]))

    inputs = [*inputs, relax.const(threshold, "float32")]
    results = loop_kernel(call, inputs, outputs, body)
    return results[1] if indices else results[2]


def _erase_scores(
    call: Call,
    b: Any,
    j: Any,
    columns: dict[str, int],
    operands: Sequence[Any],
    results: Sequence[Any],
) -> None:
    """Emit -1 over score and class of the boxes after j that overlap it."""
    valid, threshold = operands
    rows, places = results
    score, kind, corner = columns["score"], columns["class"], columns["corner"]

    def is_candidate(i: Any) -> list[Any]:
        zero = cast(0, "float32")
        return [rows[b, i, score] > zero, *([rows[b, i, kind] >= zero] if kind >= 0 else [])]

    def box(i: Any) -> list[Any]:
        return [rows[b, i, corner + side] for side in range(4)]

    with when(*is_candidate(j)), T.serial(j + 1, _number_of_valid(valid, b, rows.shape[1])) as k:
        conditions = is_candidate(k)
        if kind >= 0 and not call.attributes["force_suppress"]:
            conditions.append(rows[b, j, kind] == rows[b, k, kind])
        with (
            when(*conditions),
            when(overlap_of(box(j), box(k), False) >= threshold[()]),
        ):
            rows[b, k, score] = cast(-1, "float32")
            if kind >= 0:
                rows[b, k, kind] = cast(-1, "float32")
            places[b, k] = cast(-1, "int32")


def _limit_boxes(call: Call, b: Any, valid: Any, results: Sequence[Any]) -> None:
    """Emit -1 over the boxes after the last wanted; those with a negative column 0 do not count."""
    rows, places = results
    _, count, length = rows.shape
    limit = (
        -1
        if call.attributes["max_output_size"] is None
        else int(call.attributes["max_output_size"])
    )
    if limit <= 0:
        return
    kept = local("int64", 0)
    with T.serial(0, _number_of_valid(valid, b, count)) as j:
        with when(rows[b, j, 0] >= cast(0, "float32")), T.If(kept[0] == limit):
            with T.Then():
                with T.serial(0, length) as k:
                    rows[b, j, k] = cast(-1, "float32")
                places[b, j] = cast(-1, "int32")
            with T.Else():
                kept[0] = kept[0] + 1


def _number_of_valid(valid: Any, b: Any, count: Any) -> Any:
    return tirx.max(tirx.min(valid[b].astype("int64"), count), 0)


def _sort_boxes(call: Call, b: Any, operands: Sequence[Any], results: Sequence[Any]) -> None:
    """Emit the valid boxes of an image by score, and their positions; -1 in the rows below.

    Without suppression, they keep their order.
    """
    boxes, order, valid, threshold = operands
    rows, places = results
    _, count, length = boxes.shape
    most = int(call.attributes["top_k"])
    kept = local("int64", _number_of_valid(valid, b, count))
    if most > 0:
        with when(threshold[()] > 0):
            kept[0] = tirx.min(kept[0], most)
    with T.serial(0, count) as j:
        place = local("int32", tirx.Select(threshold[()] > 0, order[b, j], j.astype("int32")))
        with T.serial(0, length) as k:
            value = boxes[b, place[0], k]
            rows[b, j, k] = tirx.Select(j < kept[0], value, cast(-1, "float32"))
        places[b, j] = tirx.Select(j < kept[0], place[0], cast(-1, "int32"))


def _suppress(
    call: Call, b: Any, columns: dict[str, int], operands: Sequence[Any], results: Sequence[Any]
) -> None:
    """Overwrite with -1 each sorted box that overlaps a better one, or exceeds the maximum number.

    A box whose score is not above 0 stays in its place, and does not count.
    """
    valid, limit, threshold = operands
    rows, places = results
    _, count, length = rows.shape
    score, kind, corner = columns["score"], columns["class"], columns["corner"]
    zero = cast(0, "float32")

    def erase(j: Any) -> None:
        with T.serial(0, length) as k:
            rows[b, j, k] = cast(-1, "float32")
        places[b, j] = cast(-1, "int32")

    def box(j: Any) -> list[Any]:
        return [rows[b, j, corner + i] for i in range(4)]

    kept = local("int64", 0)
    with T.serial(0, _number_of_valid(valid, b, count)) as j, T.If(kept[0] == limit[()]):
        with T.Then():
            erase(j)
        with T.Else(), when(rows[b, j, score] > zero):
            stays = local("bool", True)
            with T.serial(0, j) as k:
                conditions = [stays[0], rows[b, k, score] > zero]
                if kind >= 0:
                    conditions.append(rows[b, k, kind] >= zero)
                    if not call.attributes["force_suppress"]:
                        conditions.append(rows[b, j, kind] == rows[b, k, kind])
                with (
                    when(*conditions),
                    when(overlap_of(box(j), box(k)) >= threshold[()]),
                ):
                    stays[0] = tirx.const(False, "bool")
            with T.If(stays[0]):
                with T.Then():
                    kept[0] = kept[0] + 1
                with T.Else():
                    erase(j)


def _collect_indices(b: Any, indices: Any, places: Any, result: Any, number: Any) -> None:
    """Emit the indices of the remaining boxes, and their number.

    As in TVM 0.19, an index beyond the number of boxes is followed by a 0.
    """
    count = places.shape[1]
    kept = local("int64", 0)

    def append(value: Any) -> None:
        with when(kept[0] < count):
            result[b, kept[0]] = value
        kept[0] = kept[0] + 1

    with T.serial(0, count) as j:
        index = local("int32", places[b, j])
        with when(index[0] >= 0):
            index[0] = indices[b, index[0]]
        with when(index[0] >= 0):
            append(index[0])
        with when(tirx.any(index[0] > count, index[0] < -count)):
            append(cast(0, "int32"))
        with when(j >= kept[0]):
            result[b, j] = cast(-1, "int32")
    number[b, 0] = kept[0].astype("int32")


def _collect_rows(b: Any, rows: Any, result: Any, to_bottom: bool) -> None:
    """Emit the rows; with `to_bottom`, drop those with a negative column 0, and pad with -1."""
    _, count, length = rows.shape
    kept = local("int64", 0)
    with T.serial(0, count) as j:
        if to_bottom:
            with when(rows[b, j, 0] >= cast(0, "float32")):
                with T.serial(0, length) as k:
                    result[b, kept[0], k] = rows[b, j, k]
                kept[0] = kept[0] + 1
            with when(j >= kept[0]), T.serial(0, length) as k:
                result[b, j, k] = cast(-1, "float32")
        else:
            with T.serial(0, length) as k:
                result[b, j, k] = rows[b, j, k]


@converts("vision.all_class_non_max_suppression")
def all_class_non_max_suppression(call: Call) -> tuple[relax.Expr, ...]:
    """Drop boxes that overlap a better one of the same class.

    TVM 0.19 leaves the rows of the format "onnx" after the last box undefined; here they are 0.
    NaN counts as the smallest score.
    """
    require_dtypes(call, {0: ["float32", "float64"], 1: ["float32"]})
    scores, (batch, _, count) = shaped(call, 1)
    boxes = checked(call, 0, [batch, count, 4])
    order = descending_order(call, lambda s, *i: s(*i), [scores], lambda s: s.shape)
    onnx = call.attributes["output_format"] == "onnx"

    def outputs(boxes: te.Tensor, scores: te.Tensor, *_: te.Tensor) -> Any:
        batch, classes, count = scores.shape
        scratch = ((count,), "float32")
        if onnx:
            rows = product(NO_FACTS, [batch, classes, count])
            return [((rows, 3), "int64"), ((1,), "int64"), scratch]
        rows = product(NO_FACTS, [classes, count])
        return [
            ((batch, rows, 2), "int64"),
            ((batch, rows), "float32"),
            ((batch,), "int64"),
            scratch,
        ]

    inputs = [boxes, scores, order, *call.operands[2:]]
    body = _all_classes_onnx if onnx else _all_classes_tensorflow
    return tuple(loop_kernel(call, inputs, outputs, body)[:-1])


def _all_classes_onnx(boxes: Any, scores: Any, *buffers: Any) -> None:
    """Emit rows of image, class and box for all images."""
    *operands, rows, number, left = buffers
    batch, classes, _ = scores.shape
    with T.serial(0, rows.shape[0]) as i, T.serial(0, 3) as k:
        rows[i, k] = cast(0, "int64")
    count = local("int64", 0)
    with T.serial(0, batch) as b, T.serial(0, classes) as c:

        def select(box: Any) -> None:
            for k, value in enumerate([b, c, box]):
                rows[count[0], k] = value.astype("int64")
            count[0] = count[0] + 1

        _one_class(b, c, (boxes, scores, *operands), left, select)
    number[0] = count[0]


def _all_classes_tensorflow(boxes: Any, scores: Any, *buffers: Any) -> None:
    """Emit rows of class and box, and their scores, for each image."""
    *operands, rows, best, number, left = buffers
    batch, classes, _ = scores.shape
    with T.serial(0, batch) as b:
        with T.serial(0, rows.shape[1]) as i:
            rows[b, i, 0] = cast(0, "int64")
            rows[b, i, 1] = cast(0, "int64")
            best[b, i] = cast(0, "float32")
        count = local("int64", 0)
        with T.serial(0, classes) as c:

            def select(box: Any) -> None:
                rows[b, count[0], 0] = c.astype("int64")
                rows[b, count[0], 1] = box.astype("int64")
                best[b, count[0]] = scores[b, c, box]
                count[0] = count[0] + 1

            _one_class(b, c, (boxes, scores, *operands), left, select)
        number[b] = count[0]


def _one_class(b: Any, c: Any, operands: Sequence[Any], left: Any, select: Any) -> None:
    """Emit the selection of the boxes of one class.

    As in TVM 0.19, only a positive score is suppressed, and only one above -1 is selected.
    """
    boxes, scores, order, limit, overlap, least = operands
    count = scores.shape[2]
    valid, kept = local("int64", 0), local("int64", 0)
    with T.serial(0, count) as j:
        left[j] = scores[b, c, order[b, c, j]]
        with when(left[j] > least[()]):
            valid[0] = valid[0] + 1
    most = local("int64", tirx.Select(limit[()] > 0, limit[()].astype("int64"), valid[0]))
    unwanted = cast(-1.0, "float32")
    with when(overlap[()] > 0), T.serial(0, valid[0]) as j:
        with when(left[j] > unwanted, kept[0] < most[0]):
            select(order[b, c, j])
            kept[0] = kept[0] + 1
            with T.serial(j + 1, valid[0]) as k, when(left[k] > cast(0, "float32")):
                box, other = (
                    [boxes[b, order[b, c, at], side] for side in range(4)] for at in (j, k)
                )
                with when(overlap_of(box, other) >= overlap[()]):
                    left[k] = unwanted


@converts("vision.regular_non_max_suppression")
def regular_non_max_suppression(call: Call) -> tuple[relax.Expr, ...]:
    """Return the best boxes of all classes, suppressed per class, as in TFLite."""
    require_dtypes(call, {0: ["float32"], 1: ["float32"]})
    scores, (batch, count, scored) = shaped(call, 1)
    boxes = checked(call, 0, [batch, count, 4])
    classes = int(call.attributes["num_classes"])
    if not isinstance(scored, int):
        raise call.fail("the number of classes in scores must be known")
    background = scored - classes
    order = descending_order(
        call,
        lambda scores, b, c, i: scores[b, i, c + background],
        [scores],
        lambda scores: (scores.shape[0], classes, scores.shape[1]),
    )
    most = int(call.attributes["max_detections"])

    def outputs(boxes: te.Tensor, *_: te.Tensor) -> Any:
        batch, count, _ = boxes.shape
        floats, ints = ((batch, most), "float32"), ((batch, most), "int32")
        kept = ((batch, most, 4), "float32")
        return [kept, floats, floats, ((batch,), "int32"), ints, ((count,), "bool")]

    def body(boxes: Any, scores: Any, order: Any, *results: Any) -> None:
        with T.serial(0, boxes.shape[0]) as b:
            count = local("int64", 0)
            with T.serial(0, classes) as c:
                _merge_class(call, b, c, (boxes, scores, order), results, count)
            _collect_detections(b, boxes, results, count)

    return tuple(loop_kernel(call, [boxes, scores, order], outputs, body)[:4])


def _merge_class(
    call: Call, b: Any, c: Any, operands: Sequence[Any], results: Sequence[Any], found: Any
) -> None:
    """Emit the selection of the boxes of one class; the results stay sorted by score."""
    boxes, scores, order = operands
    _, kinds, best, _, places, candidate = results
    _, count, scored = scores.shape
    column_of_class = c + (scored - int(call.attributes["num_classes"]))
    least = cast(float(call.attributes["score_threshold"]), "float32")
    overlap = cast(float(call.attributes["iou_threshold"]), "float32")
    most = best.shape[1]

    def score(j: Any) -> Any:
        return scores[b, order[b, c, j], column_of_class]

    def box(j: Any) -> list[Any]:
        return [boxes[b, order[b, c, j], side] for side in range(4)]

    with T.serial(0, count) as j:
        candidate[j] = score(j) >= least
    chosen = local("int64", 0)
    limit = cast(int(call.attributes["max_detections_per_class"]), "int64")
    with T.serial(0, count) as i, when(candidate[i], chosen[0] < limit):
        chosen[0] = chosen[0] + 1
        place = local("int64", found[0])
        with T.serial(0, found[0]) as step:
            at = found[0] - 1 - step
            with when(best[b, at] < score(i)):
                with when(at + 1 < most):
                    for part in (best, kinds, places):
                        part[b, at + 1] = part[b, at]
                place[0] = at
        with when(place[0] < most):
            best[b, place[0]] = score(i)
            kinds[b, place[0]] = c.astype("float32")
            places[b, place[0]] = order[b, c, i]
        found[0] = tirx.min(found[0] + 1, most)
        with T.serial(i + 1, count) as j, when(candidate[j]):
            with when(_overlap_of_proper(box(i), box(j)) > overlap):
                candidate[j] = tirx.const(False, "bool")


def _overlap_of_proper(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Return the intersection over the union; 0 for a box whose corners are swapped."""
    zero = cast(0.0, "float32")
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    sides = [
        tirx.max(tirx.min(a[axis + 2], b[axis + 2]) - tirx.max(a[axis], b[axis]), zero)
        for axis in range(2)
    ]
    both = sides[0] * sides[1]
    proper = tirx.all(areas[0] > zero, areas[1] > zero)
    return tirx.Select(proper, both / (areas[0] + areas[1] - both), zero)


def _collect_detections(b: Any, boxes: Any, results: Sequence[Any], found: Any) -> None:
    """Emit the chosen boxes and their number, and 0 in the rows below."""
    rows, kinds, best, number, places, _ = results
    with T.serial(0, best.shape[1]) as i, T.If(i < found[0]):
        with T.Then(), T.serial(0, 4) as side:
            rows[b, i, side] = boxes[b, places[b, i], side]
        with T.Else():
            for part in (best, kinds):
                part[b, i] = cast(0, "float32")
            with T.serial(0, 4) as side:
                rows[b, i, side] = cast(0, "float32")
    number[b] = found[0].astype("int32")
