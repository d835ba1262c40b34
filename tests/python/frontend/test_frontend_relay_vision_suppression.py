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
"""Relay's suppression of overlapping boxes against the loops of TVM 0.19 in NumPy."""

import math

import numpy as np
import pytest
import tvm.testing

from helpers.grids import is_full
from helpers.relay_boxes import boxes_of, check, scores_of
from helpers.relay_calls import Program, assert_rejected
from helpers.relay_numpy.vision import descending, overlap, suppression

F32 = np.float32
I32 = np.int32


def test_non_max_suppression() -> None:
    program, expected = Program(), []
    rng = np.random.default_rng(2)
    for case in range(10 if is_full() else 5):
        batch, count, has_class = 8, [9, 24, 1, 15, 0][case % 5], case % 3 > 0
        parts = [scores_of(rng, batch, count, 1), boxes_of(rng, batch, count)]
        if has_class:
            parts.insert(0, rng.integers(-1, 3, (batch, count, 1)).astype(F32))
        data = np.concatenate(parts, -1)
        kind, score, corner = (0, 1, 2) if has_class else (-1, 0, 1)
        if case % 4 == 3:  # Another order of columns: boxes, score, class.
            data = np.ascontiguousarray(data[..., ::-1])
            kind, score, corner = (5, 4, 0) if has_class else (-1, 4, 0)
        attrs = {
            "force_suppress": case % 2 == 1,
            "top_k": [-1, 3, 0, 30, 4][case % 5 if case < 5 else 4 - case % 5],
            "coord_start": corner,
            "score_index": score,
            "id_index": kind,
            "return_indices": case % 4 < 2,
            "invalid_to_bottom": case % 4 == 2,
        }
        x = program.input(data, ["?", count if case % 3 else "?", data.shape[2]])
        indices = rng.integers(*[(0, count + 3), (-40, 40)][case % 2], (batch, count)).astype(I32)
        limits = ((-1, 0.5), (3, 0.01), (0, 0.25), (-1, 0), (5, 1), (2, -1))
        for limit, threshold in limits if is_full() else limits[case % 3 :: 3]:
            valid = rng.integers(0, count + 1, batch).astype(I32)
            arrays = (valid, indices, np.array(limit, I32), np.array(threshold, F32))
            args = [x, *map(program.input, arrays)]
            program.call("vision.non_max_suppression", args, **attrs)
            expected.append(suppression(attrs, data, valid, indices, limit, threshold))
    check(program, expected)


def test_non_max_suppression_of_scores_that_are_not_numbers() -> None:
    """A NaN is the smallest score; valid_count beyond the boxes means all."""
    data = np.array([[[F32(score), 0, 0, 1, 1]] for score in (0.5, math.nan, -math.inf, 0.75)], F32)
    data = data.transpose(1, 0, 2)
    program = Program()
    args = [
        program.input(data),
        np.array([9], I32),
        np.arange(4, dtype=I32)[None],
        I32(-1),
        F32(0.5),
    ]
    attrs = {"coord_start": 1, "score_index": 0, "id_index": -1}
    program.call("vision.non_max_suppression", args, **attrs)
    check(program, [(np.array([[3, 1, 2, -1]], I32), np.array([[3]], I32))])


def suppressed_in_place(data, valid, attrs):
    """The rows and places of one image as TVM 0.6 leaves them: scores and classes become -1."""
    kind, score, corner = attrs["id_index"], attrs["score_index"], attrs["coord_start"]
    limit, threshold = attrs["max_output_size"], F32(attrs["iou_threshold"])
    count = len(data)
    rows, places = np.full_like(data, -1), np.full(count, -1, I32)
    order = descending(data[:valid, score]) if threshold > 0 else np.arange(valid)
    kept = min(valid, attrs["top_k"]) if threshold > 0 and attrs["top_k"] > 0 else valid
    rows[:kept], places[:kept] = data[order[:kept]], order[:kept]

    def is_candidate(row):
        return row[score] > 0 and (kind < 0 or row[kind] >= 0)

    for j in range(valid if threshold > 0 else 0):
        for k in range(j + 1, valid):
            if not (is_candidate(rows[j]) and is_candidate(rows[k])):
                continue
            if not (attrs["force_suppress"] or kind < 0 or rows[j, kind] == rows[k, kind]):
                continue
            a, b = rows[j, corner : corner + 4], rows[k, corner : corner + 4]
            width, height = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
            union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - width * height
            if (F32(0) if union <= 0 else width * height / union) >= threshold:
                rows[k, score] = places[k] = -1
                if kind >= 0:
                    rows[k, kind] = -1
    found = 0
    for j in range(valid if limit > 0 else 0):
        if rows[j, 0] >= 0:
            if found == limit:
                rows[j], places[j] = -1, -1
            else:
                found += 1
    return rows, places


def test_non_max_suppression_of_tvm_0_6() -> None:
    program, expected = Program(), []
    rng = np.random.default_rng(5)
    for case, (limit, threshold) in enumerate(
        ((-1, 0.5), (3, 0.01), (0, 0.25), (2, 0), (1, 1), (4, 0.3), (-1, 0.125), (2, -1))
    ):
        has_class = case % 3 > 0
        parts = [scores_of(rng, 4, 12, 1), boxes_of(rng, 4, 12)]
        if has_class:
            parts.insert(0, rng.integers(-1, 3, (4, 12, 1)).astype(F32))
        data = np.concatenate(parts, -1)
        valid = rng.integers(0, 13, 4).astype(I32)
        attrs = {
            "max_output_size": limit,
            "iou_threshold": threshold,
            "force_suppress": case % 2 == 1,
            "top_k": [-1, 5, 0, 3][case % 4],
            "coord_start": 2 if has_class else 1,
            "score_index": 1 if has_class else 0,
            "id_index": 0 if has_class else -1,
        }
        images = [suppressed_in_place(*image, attrs) for image in zip(data, valid, strict=True)]
        rows, places = (np.stack(part) for part in zip(*images, strict=True))
        bottom = np.stack([np.concatenate([r[r[:, 0] >= 0], r[~(r[:, 0] >= 0)]]) for r in rows])
        bottom[~(bottom[..., 0] >= 0)] = -1
        args = [program.input(data, ["?", 12, data.shape[2]]), program.input(valid)]
        name = "vision.non_max_suppression"
        program.call(name, args, **attrs)
        program.call(name, args, **attrs, return_indices=False)
        program.call(name, args, **attrs, return_indices=False, invalid_to_bottom=True)
        expected += [places, rows, bottom]
    check(program, expected)


def test_types_of_unknown_extents() -> None:
    program = Program()
    data = program.input(np.zeros((2, 3, 6), F32), ["?", 3, 6])
    valid, indices = program.input(np.ones(2, I32), ["?"]), program.input(np.zeros((2, 3), I32))
    program.call("vision.get_valid_counts", [data, F32(0)])
    args = [data, valid, indices, I32(-1), F32(0.5)]
    program.call("vision.non_max_suppression", args)
    program.call("vision.non_max_suppression", args, return_indices=False)
    boxes = program.input(np.zeros((2, 3, 4), F32), ["?", 3, 4])
    scores = program.input(np.zeros((2, 5, 3), F32), ["?", 5, 3])
    args = [boxes, scores, I32(1), F32(0.5), F32(0)]
    program.call("vision.all_class_non_max_suppression", args)
    program.call("vision.all_class_non_max_suppression", args, output_format="tensorflow")
    assert program.types() == [
        "(Tensor[(?,), int32], Tensor[(?, 3, 6), float32], Tensor[(?, 3), int32])",
        "(Tensor[(?, 3), int32], Tensor[(?, 1), int32])",
        "Tensor[(?, 3, 6), float32]",
        "(Tensor[(?, 3), int64], Tensor[(1,), int64])",
        "(Tensor[(?, 15, 2), int64], Tensor[(?, 15), float32], Tensor[(?,), int64])",
    ]


def test_extents_are_checked_at_run_time() -> None:
    program = Program()
    data = program.input(np.zeros((2, 3, 6), F32), ["?", 3, 6])
    valid, indices = program.input(np.ones(1, I32), ["?"]), np.zeros((2, 3), I32)
    program.call("vision.non_max_suppression", [data, valid, indices, I32(-1), F32(0.5)])
    with pytest.raises(RuntimeError, match="shape"):
        program.run()


def chosen_of_class(boxes, scores, limit, iou, least):
    """The boxes of one class that are selected, best first."""
    order = [i for i in descending(scores) if scores[i] > least]
    left, chosen = {i: scores[i] for i in order}, []
    limit = limit if limit > 0 else len(order)
    for at, i in enumerate(order if iou > 0 else []):
        if left[i] > -1 and len(chosen) < limit:
            chosen.append(i)
            for j in order[at + 1 :]:
                if left[j] > 0 and overlap(boxes[i], boxes[j]) >= iou:
                    left[j] = -1
    return chosen


def all_classes(boxes, scores, limit, iou, least, output_format):
    batch, classes, count = scores.shape
    found = [
        [
            (c, i)
            for c in range(classes)
            for i in chosen_of_class(boxes[b], scores[b, c], limit, iou, least)
        ]
        for b in range(batch)
    ]
    if output_format == "onnx":
        rows = np.zeros((batch * classes * count, 3), np.int64)
        listed = [(b, *pair) for b in range(batch) for pair in found[b]]
        rows[: len(listed)] = np.reshape(listed, (-1, 3))
        return rows, np.array([len(listed)], np.int64)
    rows, best = (
        np.zeros((batch, classes * count, 2), np.int64),
        np.zeros((batch, classes * count), F32),
    )
    for b, listed in enumerate(found):
        rows[b, : len(listed)] = np.reshape(listed, (-1, 2))
        best[b, : len(listed)] = [scores[b, c, i] for c, i in listed]
    return rows, best, np.array([len(listed) for listed in found], np.int64)


def test_all_class_non_max_suppression() -> None:
    program, expected = Program(), []
    rng = np.random.default_rng(4)
    for case in range(6):
        batch, classes, count = 4, [1, 3][case % 2], [8, 15, 1, 0, 5, 9][case]
        boxes, scores = boxes_of(rng, batch, count), scores_of(rng, batch, classes, count, least=-9)
        boxes = boxes.astype("float64" if case == 4 else "float32")
        output_format = "onnx" if case % 4 < 2 else "tensorflow"
        shape = ["?", classes, count if case % 4 else "?"] if case % 2 == 0 else None
        operands = [program.input(boxes), program.input(scores, shape)]
        limits = [(-1, 0.5, 0), (2, 0.25, -9), (0, 0.01, 0.5), (9, 0, -9), (30, 0.25, -9)]
        limits += [(3, -1, 0), (9, 0.5, 9)]
        for limit, iou, least in limits if is_full() else limits[case % 3 :: 3]:
            limit, iou, least = np.array(limit, I32), np.array(iou, F32), np.array(least, F32)
            args = operands + [program.input(x) if case % 2 else x for x in (limit, iou, least)]
            program.call("vision.all_class_non_max_suppression", args, output_format=output_format)
            expected.append(all_classes(boxes, scores, limit, iou, least, output_format))
    check(program, expected)


def proper_overlap(a, b):
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    both = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    return both / (sum(areas) - both) if min(areas) > 0 else F32(0)


def detections(boxes, scores, per_class, most, classes, iou, least):
    batch, _, scored = scores.shape
    rows, kinds = np.zeros((batch, most, 4), F32), np.zeros((batch, most), F32)
    best, number = np.zeros((batch, most), F32), np.zeros(batch, I32)
    for b in range(batch):
        found = []
        for c in range(classes):
            column = scores[b, :, c + scored - classes]
            order = [i for i in descending(column) if column[i] >= F32(least)]
            chosen: list[int] = []
            for i in order:
                overlaps = (proper_overlap(boxes[b, j], boxes[b, i]) for j in chosen)
                if len(chosen) < per_class and not any(o > F32(iou) for o in overlaps):
                    chosen.append(i)
            found = sorted(found + [(c, i, column[i]) for i in chosen], key=lambda x: -x[2])[:most]
        number[b] = len(found)
        for row, (c, i, score) in enumerate(found):
            rows[b, row], kinds[b, row], best[b, row] = boxes[b, i], c, score
    return rows, kinds, best, number


def test_regular_non_max_suppression() -> None:
    program, expected = Program(), []
    rng = np.random.default_rng(5)
    for case in range(8):
        batch, count, scored = 6, [7, 14, 1, 0][case % 4], [4, 4, 1][case % 3]
        boxes, scores = boxes_of(rng, batch, count), scores_of(rng, batch, count, scored)
        attrs = {
            "max_detections_per_class": int(rng.choice([0, 2, 20])),
            "max_detections": int(rng.choice([1, 5, 30])),
            "num_classes": int(rng.integers(1, scored + 1)),
            "iou_threshold": float(rng.choice([0.5, 0.25, 0.0])),
            "score_threshold": float(rng.choice([0, 0.5, -9, 9])),
        }
        args = [
            program.input(boxes),
            program.input(scores, ["?", "?", scored] if case % 3 else None),
        ]
        program.call("vision.regular_non_max_suppression", args, **attrs)
        expected.append(detections(boxes, scores, *attrs.values()))
    check(program, expected)


def nms_inputs(**changed: np.ndarray) -> list[np.ndarray]:
    inputs = {
        "data": np.zeros((1, 3, 6), F32),
        "valid_count": np.zeros(1, I32),
        "indices": np.zeros((1, 3), I32),
        "max_output_size": np.array(-1, I32),
        "iou_threshold": np.array(0.5, F32),
    }
    return list((inputs | changed).values())


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "reason"),
    [
        ("non_max_suppression", nms_inputs(), {"coord_start": 3}, "coord_start is 3"),
        ("non_max_suppression", nms_inputs(), {"score_index": -1}, "score_index is -1"),
        (
            "non_max_suppression",
            nms_inputs(data=np.zeros((1, 3, 6))),
            {},
            "input 0 must be float32",
        ),
        (
            "non_max_suppression",
            nms_inputs(valid_count=np.zeros(1, int)),
            {},
            "input 1 must be int32",
        ),
        ("non_max_suppression", nms_inputs(indices=np.zeros((1, 4), I32)), {}, "indices"),
        (
            "all_class_non_max_suppression",
            [np.zeros((1, 3, 4), F32), np.zeros((1, 2, 3), F32), I32(1), F32(1), F32(0)],
            {"output_format": "tflite"},
            "output_format",
        ),
        (
            "all_class_non_max_suppression",
            [np.zeros((1, 3, 4), F32), np.zeros((1, 2, 3)), I32(1), F32(1), F32(0)],
            {},
            "input 1 must be float32, but it is float64",
        ),
        (
            "regular_non_max_suppression",
            [np.zeros((1, 3, 4), F32), np.zeros((1, 3, 2), F32)],
            {
                "max_detections_per_class": 1,
                "max_detections": 1,
                "num_classes": 3,
                "iou_threshold": 0.5,
                "score_threshold": 0.0,
            },
            "num_classes",
        ),
    ],
)
def test_rejected(name: str, inputs: list, attrs: dict, reason: str) -> None:
    assert_rejected(f"vision.{name}", inputs, attrs, reason)


if __name__ == "__main__":
    tvm.testing.main()
