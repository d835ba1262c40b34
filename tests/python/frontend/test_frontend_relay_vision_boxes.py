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
"""Relay's operators that choose and decode boxes against the loops of TVM 0.19 in NumPy."""

import math

import numpy as np
import pytest
import tvm.testing

from helpers.relay_boxes import boxes_of, check, scores_of
from helpers.relay_calls import Program, assert_rejected
from helpers.relay_numpy.vision import decoded, descending

F32 = np.float32
I32 = np.int32


def valid_counts(data, threshold, id_index, score_index):
    batch, count, _ = data.shape
    counts, top = np.zeros(batch, I32), np.full_like(data, -1)
    places = np.full((batch, count), -1, I32)
    for b in range(batch):
        accepted = [
            j
            for j in range(count)
            if data[b, j, score_index] > threshold and (id_index < 0 or data[b, j, id_index] >= 0)
        ]
        counts[b] = len(accepted)
        top[b, : len(accepted)] = data[b, accepted]
        places[b, : len(accepted)] = accepted
    return counts, top, places


def test_get_valid_counts() -> None:
    program, expected = Program(), []
    rng = np.random.default_rng(1)
    for case in range(8):
        dtype = ["float32", "float16", "float64", "int32"][case % 4]
        shape = (6, [7, 1, 0, 12, 5][case % 5], 6)
        data = rng.integers(-8, 9, shape).astype(dtype)
        attrs = {"id_index": int(rng.integers(-1, 3)), "score_index": int(rng.integers(0, 6))}
        threshold = F32([0, 9, -9, 2.5][case // 2])
        if case % 5 == 1:
            attrs["score_threshold"] = float(threshold)
        x = program.input(data, ["?", shape[1], 6] if case % 2 else None)
        limit = program.input(np.asarray(threshold)) if case % 3 else threshold
        program.call("vision.get_valid_counts", [x, limit], **attrs)
        limit = np.array(threshold, dtype) if "score_threshold" in attrs else threshold
        expected.append(valid_counts(data, limit, attrs["id_index"], attrs["score_index"]))
    check(program, expected)


def test_multibox_transform_loc() -> None:
    program, expected = Program(), []
    rng = np.random.default_rng(3)
    for case in range(12):
        batch, classes, count = (
            int(rng.integers(1, 4)),
            [3, 1, 6][case % 3],
            [5, 1, 9][case % 4 % 3],
        )
        scores = scores_of(rng, batch, classes, count)
        deltas = rng.normal(0, 1, (batch, 4 * count)).astype(F32)
        anchors = boxes_of(rng, 1, count)
        attrs = {
            "clip": case % 2 == 0,
            "threshold": [0.01, 0.5, -2.0][case % 3],
            "variances": [0.1, 0.1, 0.2, 0.2] if case % 3 else [1.0, 0.5, 0.25, 2.0],
            "keep_background": case > 1,
        }
        args = [program.input(scores, ["?", classes, "?"] if case % 3 == 2 else None)]
        args += [program.input(deltas), program.input(anchors)]
        program.call("vision.multibox_transform_loc", args, **attrs)
        expected.append(decoded(attrs, scores, deltas, anchors))
    check(program, expected, rtol=1e-5, atol=1e-6)


def anchor_of(stride: int, ratio: float, scale: float) -> list[float]:
    width = math.floor(math.sqrt(math.floor(stride * stride / ratio)) + 0.5) * scale
    height = math.floor(width / scale * ratio + 0.5) * scale
    middle = 0.5 * (stride - 1)
    return [middle + sign * 0.5 * (side - 1) for sign in (-1, 1) for side in (width, height)]


def proposed(scores, deltas, images, attrs):
    """The boxes of one image by place, anchor after anchor, and their scores."""
    anchors = [
        anchor_of(attrs["feature_stride"], r, s) for r in attrs["ratios"] for s in attrs["scales"]
    ]
    stride, boxes, best = attrs["feature_stride"], [], []
    height, width = images[:2]
    for y, x in np.ndindex(scores.shape[1:]):
        for k, anchor in enumerate(anchors):
            a = np.array(anchor, F32) + np.array([x, y, x, y], F32) * stride
            d = deltas[4 * k : 4 * k + 4, y, x]
            if attrs["iou_loss"]:
                box = a + d
            else:
                length = a[2:] - a[:2] + 1
                center = d[:2] * length + a[:2] + F32(0.5) * (length - 1)
                reach = F32(0.5) * (np.exp(d[2:]) * length - 1)
                box = np.concatenate([center - reach, center + reach])
            box = np.clip(box, 0, np.array([width - 1, height - 1] * 2, F32))
            score = scores[len(anchors) + k, y, x]
            if y >= int(height / stride) or x >= int(width / stride):
                score = F32(-1)
            least = images[2] * attrs["rpn_min_size"]
            if min(box[2:] - box[:2] + 1) < least:
                box, score = box + np.array([-1, -1, 1, 1], F32) * least / 2, F32(-1)
            boxes.append(box)
            best.append(score)
    return np.array(boxes, F32), np.array(best, F32)


def proposals(scores, deltas, images, attrs):
    result = []
    for b in range(len(scores)):
        boxes, best = proposed(scores[b], deltas[b], images[b], attrs)
        order = descending(best)
        if attrs["rpn_pre_nms_top_n"] > 0:
            order = order[: attrs["rpn_pre_nms_top_n"]]
        chosen: list[np.ndarray] = []
        for box in boxes[order]:
            for other in chosen:
                sides = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]) + 1
                both = np.prod(np.maximum(sides, 0))
                areas = [np.prod(x[2:] - x[:2] + 1) for x in (box, other)]
                if both / (sum(areas) - both) > attrs["threshold"]:
                    break
            else:
                chosen.append(box)
        for i in range(attrs["rpn_post_nms_top_n"]):
            result.append([b, *chosen[i % len(chosen)]])
    return np.array(result, F32)


def test_proposal() -> None:
    program, expected = Program(), []
    rng = np.random.default_rng(6)
    for case in range(4):
        batch, height, width = 1 + case % 2, 3, 4
        attrs = {
            "scales": [[8.0], [1.0, 2.5]][case % 2],
            "ratios": [[0.5, 1.0, 2.0], [1.0]][case // 2 % 2],
            "feature_stride": 16,
            "threshold": float(rng.choice([0.7, 0.3])),
            "rpn_pre_nms_top_n": int(rng.choice([-1, 6, 6000])),
            "rpn_post_nms_top_n": int(rng.choice([3, 20])),
            "rpn_min_size": int(rng.choice([4, 16])),
            "iou_loss": case == 2,
        }
        anchors = len(attrs["scales"]) * len(attrs["ratios"])
        scores = scores_of(rng, batch, 2 * anchors, height, width)
        deltas = rng.normal(0, 0.5, (batch, 4 * anchors, height, width)).astype(F32)
        images = np.array([[40, 64, 1], [48, 50, 1.5]], F32)[:batch]
        program.call("vision.proposal", list(map(program.input, (scores, deltas, images))), **attrs)
        expected.append(proposals(scores, deltas, images, attrs))
    check(program, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "reason"),
    [
        (
            "get_valid_counts",
            [np.zeros((1, 2, 6), F32), F32(0)],
            {"score_index": 6},
            "score_index is 6",
        ),
        ("get_valid_counts", [np.zeros((1, 2, 6), F32), F32(0)], {"id_index": 7}, "id_index is 7"),
        ("get_valid_counts", [np.zeros((1, 2, 6), F32), np.zeros(1, F32)], {}, "score_threshold"),
        (
            "multibox_transform_loc",
            [np.zeros((1, 2, 3), F32), np.zeros((1, 12), F32), np.zeros((2, 3, 4), F32)],
            {},
            "anchors must be those of 1 image, not of 2",
        ),
        (
            "multibox_transform_loc",
            [np.zeros((1, 2, 3), F32), np.zeros((1, 12), F32), np.zeros((1, 3, 4), F32)],
            {"variances": [0.1]},
            "variances",
        ),
        (
            "proposal",
            [np.zeros((1, 2, 3, 3), F32), np.zeros((1, 4, 3, 3), F32), np.zeros((1, 3), F32)],
            {"scales": [1.0], "ratios": [0.0]},
            "ratios must be above 0",
        ),
    ],
)
def test_rejected(name: str, inputs: list, attrs: dict, reason: str) -> None:
    assert_rejected(f"vision.{name}", inputs, attrs, reason)


if __name__ == "__main__":
    tvm.testing.main()
