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
"""Relay's operators of object detection against NumPy."""

import numpy as np
import pytest
import tvm.testing

from helpers.grids import from_tier, is_full
from helpers.relay_calls import Program, assert_same
from helpers.relay_numpy.vision import multibox_prior, yolo_reorg
from tvm_fixes.errors import RelayError

RNG = np.random.default_rng(3)
F32 = np.float32


def test_multibox_prior() -> None:
    program, expected = Program(), {}
    x = program.input(np.zeros((1, 3, 5, 7), F32))
    for name, attrs in {
        "plain": {},
        "several": {"sizes": [0.5, 0.25], "ratios": [1.0, 2.0, 0.5]},
        "clipped": {"sizes": [0.9], "steps": [0.2, 0.1], "offsets": [0.25, 0.75], "clip": True},
    }.items():
        program.call("vision.multibox_prior", [x], **attrs)
        complete = {"sizes": [1.0], "ratios": [1.0], "steps": [-1, -1], "offsets": [0.5, 0.5]}
        expected[name] = multibox_prior({"clip": False} | complete | attrs, np.zeros((1, 3, 5, 7)))
    for result, (name, reference) in zip(program.run(), expected.items(), strict=True):
        assert (result.shape, result.dtype) == (reference.shape, reference.dtype)
        np.testing.assert_allclose(result, reference, 1e-6, 1e-6, err_msg=name)


ROIS = np.array(
    [[0, 1.2, 2.4, 8.7, 6.3], [1, 0, 0, 13, 13], [1, -5, 3, 2, 3.5], [0, 9, 9, 4, 4]], F32
)


def sampled(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """Bilinear interpolation; 0 outside."""
    height, width = image.shape[1:]
    if y < -1 or x < -1 or y > height or x > width:
        return np.zeros(image.shape[0])
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    a, b = int(y), int(x)
    c, d = min(a + 1, height - 1), min(b + 1, width - 1)
    u, v = y - a, x - b
    top = image[:, a, b] * (1 - v) + image[:, a, d] * v
    return top * (1 - u) + (image[:, c, b] * (1 - v) + image[:, c, d] * v) * u


def aligned(data, size, scale, ratio, mode):
    result = np.zeros((len(ROIS), data.shape[1], *size))
    for n, roi in enumerate(ROIS.astype("float64")):
        left, top, right, bottom = roi[1:] * scale
        lengths = max(bottom - top, 1), max(right - left, 1)
        bins = lengths[0] / size[0], lengths[1] / size[1]
        grid = [ratio if ratio > 0 else int(np.ceil(length)) for length in bins]
        for i, j in np.ndindex(*size):
            samples = [
                sampled(
                    data[int(roi[0])],
                    top + i * bins[0] + (a + 0.5) * bins[0] / grid[0],
                    left + j * bins[1] + (b + 0.5) * bins[1] / grid[1],
                )
                for a, b in np.ndindex(*grid)
            ]
            result[n, :, i, j] = np.mean(samples, 0) if mode == "avg" else np.max(samples, 0)
    return result.astype(F32)


def test_roi_align() -> None:
    program, expected = Program(), {}
    data = RNG.normal(0, 1, (2, 3, 7, 6)).astype(F32)
    rois = program.input(ROIS)
    for layout, mode, ratio in (("NCHW", "avg", -1), ("NCHW", "max", 2), ("NHWC", "avg", 2)):
        order = [0, 1, 2, 3] if layout == "NCHW" else [0, 2, 3, 1]
        x = program.input(np.ascontiguousarray(data.transpose(order)))
        attrs = {"spatial_scale": 0.5, "sample_ratio": ratio, "layout": layout, "mode": mode}
        program.call("vision.roi_align", [x, rois], pooled_size=[3, 2], **attrs)
        expected[f"{layout} {mode}"] = aligned(data, (3, 2), 0.5, ratio, mode).transpose(order)
    for result, (name, reference) in zip(program.run(), expected.items(), strict=True):
        assert (result.shape, result.dtype) == (reference.shape, reference.dtype)
        np.testing.assert_allclose(result, reference, 1e-5, 1e-5, err_msg=name)


@from_tier("ci")
def test_roi_pool() -> None:
    program = Program()
    data = RNG.normal(0, 1, (2, 3, 7, 6)).astype(F32)
    args = [program.input(data), program.input(ROIS)]
    program.call("vision.roi_pool", args, pooled_size=[3, 2], spatial_scale=0.5)
    expected = np.zeros((len(ROIS), 3, 3, 2), F32)
    for n, roi in enumerate(ROIS):
        corners = roi[1:] * 0.5
        left, top, right, bottom = np.trunc(corners + np.copysign(0.5, corners)).astype(int)
        bins = max(bottom - top + 1, 1) / 3, max(right - left + 1, 1) / 2
        for i, j in np.ndindex(3, 2):
            rows, columns = (
                np.clip(
                    [np.floor(k * step + 1e-5) + first, np.ceil((k + 1) * step - 1e-5) + first],
                    0,
                    extent,
                ).astype(int)
                for k, step, first, extent in ((i, bins[0], top, 7), (j, bins[1], left, 6))
            )
            seen = data[int(roi[0]), :, slice(*rows), slice(*columns)]
            if seen.size:
                expected[n, :, i, j] = seen.max((1, 2))
    assert_same(program.run(), {"roi_pool": expected})


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("roi_align", 10**7),
        ("roi_align", np.nan),
        # Both operators check the images alike; this one takes long to compile.
        *([("roi_pool", 10**7), ("roi_pool", np.nan)] if is_full() else []),
    ],
)
def test_images_out_of_range_are_errors_at_run_time(name: str, image: float) -> None:
    program = Program()
    rois = program.input(np.array([[image, 0, 0, 4, 4]], F32))
    args = [program.input(np.zeros((2, 3, 7, 6), F32), ["?", 3, 7, 6]), rois]
    program.call(f"vision.{name}", args, pooled_size=[3, 2], spatial_scale=0.5)
    with pytest.raises(AssertionError, match="out of range for axis 0 of 2"):
        program.run()


def test_yolo_reorg() -> None:
    program, expected = Program(), {}
    for stride, shape in ((1, (1, 2, 3, 5)), (2, (1, 8, 4, 6))):
        data = RNG.normal(0, 1, shape).astype(F32)
        program.call("vision.yolo_reorg", [program.input(data)], stride=stride)
        expected[f"{stride}"] = yolo_reorg({"stride": stride}, data)
    assert_same(program.run(), expected)
    program = Program()
    program.call("vision.yolo_reorg", [np.zeros((2, 4, 2, 2), F32)], stride=2)
    with pytest.raises(RelayError, match="batch of 2"):
        program.run()


if __name__ == "__main__":
    tvm.testing.main()
