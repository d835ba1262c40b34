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
"""The operators ``nms``, ``roi_align`` and ``deform_conv2d`` of torchvision, in Python.

PyPI's torchvision does not load beside a build of PyTorch for CPUs.
"""

import functools
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": (
        "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
        "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"
    ),
    "deform_conv2d": (
        "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
        "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
        "SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor"
    ),
}


@functools.cache
def define() -> torch.library.Library:
    """Define the operators that do not exist yet, with kernels for the CPU and for tracing."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    kernels: dict[str, Callable[..., Tensor]] = {
        "nms": nms,
        "roi_align": roi_align,
        "deform_conv2d": deform_conv2d,
    }
    for name, kernel in kernels.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + _SCHEMAS[name])
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "CPU"):
            library.impl(name, kernel, "CPU")
            torch.library.register_fake(f"torchvision::{name}", _FAKES[name], lib=library)
    return library


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """The boxes that overlap no box of a higher score by more than a threshold."""
    kept: list[int] = []
    for place in scores.argsort(descending=True, stable=True).tolist():
        if all(_overlap(boxes[place], boxes[other]) <= threshold for other in kept):
            kept.append(place)
    return torch.tensor(kept, dtype=torch.int64)


def _overlap(box: Tensor, other: Tensor) -> float:
    sides = torch.minimum(box[2:], other[2:]) - torch.maximum(box[:2], other[:2])
    common = sides.clamp(min=0).prod()
    areas = [(b[2:] - b[:2]).prod() for b in (box, other)]
    return (common / (areas[0] + areas[1] - common)).nan_to_num(0).item()


def _pixel(image: Tensor, y: int, x: int) -> Tensor:
    """The channels of a pixel; 0 outside of the image."""
    _, height, width = image.shape
    is_inside = 0 <= y < height and 0 <= x < width
    return image[:, y, x] if is_inside else torch.zeros_like(image[:, 0, 0])


def _interpolated(image: Tensor, y: float, x: float) -> Tensor:
    top, left = math.floor(y), math.floor(x)
    corners = itertools.product((top, top + 1), (left, left + 1))
    return sum(
        _pixel(image, row, column) * ((1 - abs(y - row)) * (1 - abs(x - column)))
        for row, column in corners
    )


def roi_align(
    x: Tensor,
    regions: Tensor,
    scale: float,
    height: int,
    width: int,
    samples: int,
    aligned: bool,
) -> Tensor:
    """The means of samples in the bins of each region."""
    dtype, x = x.dtype, x.float()
    out = x.new_zeros(len(regions), x.shape[1], height, width)
    for number, (index, *corners) in enumerate(regions.tolist()):
        left, top, right, bottom = (c * scale - (0.5 if aligned else 0) for c in corners)
        sides = bottom - top, right - left
        sides = sides if aligned else tuple(max(side, 1.0) for side in sides)
        bins = sides[0] / height, sides[1] / width
        counts = [samples if samples > 0 else math.ceil(b) for b in bins]
        for row, column in itertools.product(range(height), range(width)):
            total = x.new_zeros(x.shape[1])
            for i, j in itertools.product(*map(range, counts)):
                y = top + (row + (i + 0.5) / counts[0]) * bins[0]
                z = left + (column + (j + 0.5) / counts[1]) * bins[1]
                total += _sample(x[int(index)], y, z)
            out[number, :, row, column] = total / max(math.prod(counts), 1)
    return out.to(dtype)


def _sample(image: Tensor, y: float, x: float) -> Tensor:
    """The interpolated pixel; up to one step outside of the image, that of the border."""
    _, height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros_like(image[:, 0, 0])
    return _interpolated(image, min(max(y, 0), height - 1), min(max(x, 0), width - 1))


def deform_conv2d(
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    *numbers: int,
) -> Tensor:
    """A convolution whose kernel elements have an offset at each place."""
    strides, pads, dilations = numbers[0:2], numbers[2:4], numbers[4:6]
    groups, offset_groups, has_mask = numbers[6:9]
    batch, channels = x.shape[:2]
    kernel, (height, width) = weight.shape[2:], offset.shape[2:]
    shared = channels // offset_groups
    columns = x.new_zeros(batch, channels, *kernel, height, width)
    places = itertools.product(*map(range, (batch, offset_groups, *kernel, height, width)))
    for n, g, i, j, row, column in places:
        k = g * kernel[0] * kernel[1] + i * kernel[1] + j
        dy, dx = offset[n, 2 * k : 2 * k + 2, row, column].tolist()
        y = row * strides[0] - pads[0] + i * dilations[0] + dy
        z = column * strides[1] - pads[1] + j * dilations[1] + dx
        values = _interpolated(x[n, g * shared : (g + 1) * shared], y, z)
        factor = mask[n, k, row, column] if has_mask else 1
        columns[n, g * shared : (g + 1) * shared, i, j, row, column] = values * factor
    columns = columns.reshape(batch, groups, channels // groups, *kernel, height, width)
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    out = torch.einsum("ngcijhw,gocij->ngohw", columns, grouped)
    return out.reshape(batch, -1, height, width) + bias.reshape(-1, 1, 1)


def _fake_nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(count, dtype=torch.int64)


def _fake_roi_align(
    x: Tensor, regions: Tensor, scale: float, height: int, width: int, *_: object
) -> Tensor:
    return x.new_empty(regions.shape[0], x.shape[1], height, width)


def _fake_deform_conv2d(x: Tensor, weight: Tensor, offset: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:])


_FAKES: dict[str, Callable[..., Tensor]] = {
    "nms": _fake_nms,
    "roi_align": _fake_roi_align,
    "deform_conv2d": _fake_deform_conv2d,
}
