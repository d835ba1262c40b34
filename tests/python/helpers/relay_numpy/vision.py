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
"""Operators of object detection."""

from typing import Any

import numpy as np

from .registry import Attrs, operator

F32 = np.float32
I32 = np.int32


@operator("vision.multibox_prior")
def multibox_prior(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Boxes around each pixel, as left, top, right, bottom."""
    height, width = x.shape[2:]
    sizes, ratios = attrs["sizes"], attrs["ratios"]
    steps = [s if s > 0 else 1 / n for s, n in zip(attrs["steps"], (height, width), strict=True)]
    halves = [(size * height / width / 2, size / 2) for size in sizes]
    for ratio in ratios[1:]:
        halves.append((sizes[0] * height / width * ratio**0.5 / 2, sizes[0] / ratio**0.5 / 2))
    boxes = []
    for row, column in np.ndindex(height, width):
        for w, h in halves:
            a = (column + attrs["offsets"][1]) * steps[1]
            b = (row + attrs["offsets"][0]) * steps[0]
            boxes.append([a - w, b - h, a + w, b + h])
    result = np.array([boxes], F32)
    return np.clip(result, 0, 1) if attrs["clip"] else result


@operator("vision.yolo_reorg")
def yolo_reorg(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Darknet's loop: the input is seen as an image of fewer channels that is larger."""
    stride, (_, c, h, w) = attrs["stride"], x.shape
    result = np.zeros(x.size, x.dtype)
    blocks = c // stride**2
    for k, j, i in np.ndindex(c, h, w):
        row = j * stride + (k // blocks) // stride
        column = i * stride + (k // blocks) % stride
        source = column + w * stride * (row + h * stride * (k % blocks))
        result[i + w * (j + h * k)] = x.flat[source]
    return result.reshape(1, c * stride**2, h // stride, w // stride)


def descending(scores: np.ndarray) -> list[int]:
    """The places of scores from the largest on; equal ones keep their order."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])


def overlap(a: np.ndarray, b: np.ndarray) -> np.floating:
    """Intersection over union of boxes given by opposite corners."""
    low = [np.minimum(x[:2], x[2:]) for x in (a, b)]
    high = [np.maximum(x[:2], x[2:]) for x in (a, b)]
    both = np.prod(np.maximum(np.minimum(*high) - np.maximum(*low), 0))
    union = np.prod(high[0] - low[0]) + np.prod(high[1] - low[1]) - both
    return both / union if union > 0 else F32(0)


def suppressed(
    data: np.ndarray, valid: int, limit: int, threshold: float, attrs: Attrs
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of one image after suppression, and where they stood."""
    count = len(data)
    rows, places = np.full_like(data, -1), np.full(count, -1, I32)
    if threshold <= 0:
        rows[:valid], places[:valid] = data[:valid], np.arange(valid)
        return rows, places
    score, kind, corner = attrs["score_index"], attrs["id_index"], attrs["coord_start"]
    order = descending(data[:valid, score])
    if 0 < attrs["top_k"] < valid:
        order = order[: attrs["top_k"]]
    rows[: len(order)], places[: len(order)] = data[order], order
    found = 0
    for j in range(valid):
        is_kept = found != limit
        if is_kept and rows[j, score] > 0:
            for k in range(j):
                if not rows[k, score] > 0 or (kind >= 0 and rows[k, kind] < 0):
                    continue
                if kind < 0 or attrs["force_suppress"] or rows[j, kind] == rows[k, kind]:
                    boxes = (rows[i, corner : corner + 4] for i in (j, k))
                    is_kept = is_kept and not overlap(*boxes) >= threshold
            found += is_kept
        if not is_kept:
            rows[j], places[j] = -1, -1
    return rows, places


@operator("vision.non_max_suppression")
def suppression(
    attrs: Attrs,
    data: np.ndarray,
    valid: np.ndarray,
    indices: np.ndarray,
    limit: np.ndarray,
    threshold: np.ndarray,
) -> Any:
    """Remove boxes that overlap one with a larger score."""
    batch, count, _ = data.shape
    all_rows = np.empty_like(data)
    result, number = np.full((batch, count), -1, I32), np.zeros((batch, 1), I32)
    for b in range(batch):
        rows, places = suppressed(data[b], valid[b], limit, threshold, attrs)
        if attrs["invalid_to_bottom"]:
            rows = rows[np.argsort(~(rows[:, 0] >= 0), kind="stable")]
            rows[~(rows[:, 0] >= 0)] = -1
        all_rows[b] = rows
        if not attrs["return_indices"]:
            continue
        listed: list[int] = []
        for place in places:
            index = int(indices[b, place]) if place >= 0 else -1
            listed += [index] * (index >= 0) + [0] * (abs(index) > count)
        result[b, : len(listed)] = listed[:count]
        number[b] = len(listed)
    return (result, number) if attrs["return_indices"] else all_rows


@operator("vision.multibox_transform_loc")
def decoded(
    attrs: Attrs, scores: np.ndarray, deltas: np.ndarray, anchors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The class, score and corners of each box that is not background."""
    batch, classes, count = scores.shape
    rows, counts = np.full((batch, count, 6), -1, F32), np.zeros(batch, I32)
    for b, j in np.ndindex(batch, count):
        kind, best = 0, F32(-1)
        for k in range(0 if attrs["keep_background"] else 1, classes):
            if scores[b, k, j] > best:
                kind, best = k, scores[b, k, j]
        if best < F32(attrs["threshold"]):
            kind = 0
        if not attrs["keep_background"] and kind == 0:
            continue
        a, d = anchors[0, j], deltas[b, 4 * j : 4 * j + 4] * np.array(attrs["variances"], F32)
        length, middle = a[2:] - a[:2], (a[:2] + a[2:]) / 2
        reach = np.exp(d[2:]) * length / 2
        center = d[:2] * length + middle
        box = np.concatenate([center - reach, center + reach])
        box = np.clip(box, 0, 1) if attrs["clip"] else box
        rows[b, counts[b]] = [kind - (not attrs["keep_background"]), best, *box]
        counts[b] += 1
    return rows, counts
