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
"""The types of Relay's operators on images and of object detection."""

import re

import pytest
import tvm.testing

from helpers.relay_checks import infer, type_error

X = "%x: Tensor[(1, 4, ?, 6), float32]"
REGIONS = f"{X}, %r: Tensor[(?, 5), float32]"


@pytest.mark.parametrize(
    ("body", "params", "expected"),
    [
        ("image.resize2d(%x, size=[3, 9])", X, "Tensor[(1, 4, 3, 9), float32]"),
        (
            'image.resize1d(%x, size=[7], layout="NWC", out_dtype="float32")',
            "%x: Tensor[(?, 5, 2), uint8]",
            "Tensor[(?, 7, 2), float32]",
        ),
        (
            "image.crop_and_resize(%x, %b, %i, crop_size=[2, 3])",
            f"{X}, %b: Tensor[(?, 4), float32], %i: Tensor[(?), int32]",
            "Tensor[(?, 4, 2, 3), float32]",
        ),
        (
            "image.dilation2d(%x, %w, padding=[1, 1], strides=[1, 2])",
            f"{X}, %w: Tensor[(4, 3, 3), float32]",
            "Tensor[(1, 4, ?, 3), float32]",
        ),
        (
            "image.affine_grid(%x, target_shape=[4, 5])",
            "%x: Tensor[(?, 2, 3), float32]",
            "Tensor[(?, 2, 4, 5), float32]",
        ),
        (
            "image.grid_sample(%x, %g)",
            f"{X}, %g: Tensor[(1, 2, 3, ?), float32]",
            "Tensor[(1, 4, 3, ?), float32]",
        ),
        (
            "vision.multibox_prior(%x, sizes=[1f, 0.5f], ratios=[1f, 2f])",
            "%x: Tensor[(1, 4, 5, 6), float32]",
            "Tensor[(1, 90, 4), float32]",
        ),
        (
            "vision.roi_align(%x, %r, pooled_size=[2, 3], spatial_scale=1f)",
            REGIONS,
            "Tensor[(?, 4, 2, 3), float32]",
        ),
        ("vision.yolo_reorg(%x, stride=2)", X, "Tensor[(1, 16, ?, 3), float32]"),
    ],
)
def test_types(body: str, params: str, expected: str) -> None:
    assert infer(body, params) == expected


@pytest.mark.parametrize(
    ("body", "params", "message"),
    [
        ("image.resize2d(%x, size=[3])", X, "size.*2 dimensions"),
        ('image.resize2d(%x, size=[3, 3], layout="NCH")', X, "layout"),
        ('image.resize2d(%x, size=[3, 3], method="area")', X, "method.*cubic"),
        ("vision.roi_pool(%x, %x, pooled_size=[2, 3], spatial_scale=1f)", X, "2 dimensions"),
        (
            "vision.roi_pool(%x, %r, pooled_size=[0, 3], spatial_scale=1f)",
            REGIONS,
            "pooled_size.*above 0",
        ),
        ("image.affine_grid(%x, target_shape=[1, 5])", "%x: Tensor[(1, 2, 3), float32]", "above 1"),
    ],
)
def test_errors(body: str, params: str, message: str) -> None:
    assert re.search(f"(image|vision).*{message}", type_error(body, params))


if __name__ == "__main__":
    tvm.testing.main()
