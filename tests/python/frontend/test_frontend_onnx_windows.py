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
"""Col2Im and DeformConv."""

import numpy as np
import pytest
import torch
import tvm.testing

from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_as_reference,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
)
from tvm_fixes.frontend.onnx import from_onnx


@pytest.mark.parametrize("computed", (False, True))
def test_col2im(computed: bool) -> None:
    """Overlapping and dilated blocks, pads, one and three axes; shapes as constants and inputs."""
    cases = {}
    for name, image, block, blocks, attributes in (
        ("plain", [5, 5], [1, 5], 5, {}),
        ("strided", [5, 5], [2, 3], 9, {"strides": [2, 1], "pads": [0, 0, 1, 0]}),
        ("dilated", [6, 7], [2, 2], 18, {"dilations": [1, 5], "pads": [0, 1, 1, 0]}),
        ("cube", [3, 4, 2], [2, 1, 2], 8, {}),
    ):
        shapes = {"image": np.array(image), "block": np.array(block)}
        inputs = {"x": normal(2, 3 * int(np.prod(block)), blocks)}
        outputs = {"y": ("float32", 2 + len(image))}
        if computed:
            inputs |= shapes
            model = node_model("Col2Im", inputs, attributes, outputs=outputs)
        else:
            model = node_model("Col2Im", inputs, attributes, constants=shapes, outputs=outputs)
        cases[name] = model, inputs
    (assert_as_reference if computed else assert_as_onnx_runtime)(from_onnx, cases, rtol=1e-6)


def test_col2im_rejected() -> None:
    shapes = {"image": np.array([4, 4]), "block": np.array([2, 2])}
    outputs = {"y": ("float32", 4)}
    model = node_model("Col2Im", {"x": normal(1, 4, 8)}, constants=shapes, outputs=outputs)
    assert_rejected(from_onnx, model, "shape of input is [1, 4, 8]; expected 9 blocks")


def deformed(x, weight, offset, bias, mask, stride: int, pad: int, groups: int) -> np.ndarray:
    """A deformable convolution of 2-D data by ``grid_sample``, one kernel position at a time."""
    x, weight, offset, mask = map(torch.from_numpy, (x, weight, offset, mask))
    n, channels, height, width = x.shape
    out, _, kh, kw = weight.shape
    oh, ow = offset.shape[2:]
    offset_groups = mask.shape[1] // (kh * kw)
    total = torch.zeros(n, out, oh, ow)
    for k in range(kh * kw):
        sampled = []
        for part in range(offset_groups):
            at = (part * kh * kw + k) * 2
            rows = torch.arange(oh)[:, None] * stride - pad + k // kw + offset[:, at]
            columns = torch.arange(ow)[None] * stride - pad + k % kw + offset[:, at + 1]
            grid = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], -1)
            count = channels // offset_groups
            part_of_x = x[:, part * count : (part + 1) * count]
            values = torch.nn.functional.grid_sample(part_of_x, grid, align_corners=True)
            sampled.append(values * mask[:, part * kh * kw + k, None])
        kernel = weight[:, :, k // kw, k % kw, None, None]
        total += torch.nn.functional.conv2d(torch.cat(sampled, 1), kernel, groups=groups)
    return (total + torch.from_numpy(bias)[:, None, None]).numpy()


def test_deform_conv() -> None:
    """Groups, groups of offsets, a mask, a bias, strides and pads."""
    x, weight = normal(2, 4, 6, 7), normal(6, 2, 3, 2, seed=1)
    offset, bias = 2 * normal(2, 24, 3, 4, seed=2), normal(6, seed=3)
    mask = normal(2, 12, 3, 4, seed=4)
    inputs = {"x": x, "w": weight, "offset": offset, "b": bias, "mask": mask}
    attributes = {"group": 2, "offset_group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]}
    dims = {"x": (None, 4, None, None)}
    model = node_model("DeformConv", inputs, attributes, shapes=dims, opset=22)
    [got] = imported_and_run(from_onnx, model, *inputs.values())
    expected = deformed(x, weight, offset, bias, mask, 2, 1, 2)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)


def test_deform_conv_rejected() -> None:
    inputs = {"x": normal(1, 3, 4, 4), "w": normal(1, 2, 1, 1), "offset": normal(1, 2, 4, 4)}
    model = node_model("DeformConv", inputs, opset=22)
    assert_rejected(from_onnx, model, "expected channels that 1 groups and 1 offset groups divide")


if __name__ == "__main__":
    tvm.testing.main()
