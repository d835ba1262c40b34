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

import numpy as np

from .registry import Attrs, operator

F32 = np.float32


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
