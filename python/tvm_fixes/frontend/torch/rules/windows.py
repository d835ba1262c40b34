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
"""Windows of a tensor, and poolings."""

import functools
from collections.abc import Sequence

import torch

from .registry import decomposes

aten = torch.ops.aten


def _maxima(x: torch.Tensor, windows: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maxima over windows of the last axes, and their indices in these axes.

    Parameters
    ----------
    x : torch.Tensor
    windows : sequence of torch.Tensor
        For each axis, the positions of the elements of each window.
    """
    places, stride = None, 1
    for axis, positions in zip(range(-1, -len(windows) - 1, -1), reversed(windows), strict=True):
        extent = x.shape[axis]
        x, found = _maxima_along(x, axis, positions)
        # The later axes already have an index for each element of this axis.
        places = found if places is None else found * stride + torch.gather(places, axis, found)
        stride *= extent
    assert places is not None
    return x, places


def _maxima_along(
    x: torch.Tensor, axis: int, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maxima over windows of one axis, and their positions."""
    axis, (count, window) = axis % x.ndim, positions.shape
    x = torch.index_select(x, axis, positions.reshape(-1))
    x = x.reshape(*x.shape[:axis], count, window, *x.shape[axis + 1 :])
    first = torch.arange(count, device=x.device) * window
    first = first.reshape(count, *[1] * (x.ndim - axis - 2))
    return x.amax(axis + 1), torch.take(positions, first + x.argmax(axis + 1))


def _adaptive_windows(extent: int, count: int, device: torch.device) -> torch.Tensor:
    """Return the positions of `count` windows that cover an axis."""
    windows = torch.arange(count, device=device).reshape(-1, 1)
    begins, ends = windows * extent // count, ((windows + 1) * extent + count - 1) // count
    steps = torch.arange((extent + count - 1) // count + 1, device=device)
    # A window that is shorter than the longest one repeats its last element.
    return torch.minimum(begins + steps, ends - 1)


def _strided_windows(
    extent: int, options: Sequence[int], ceil_mode: bool, device: torch.device
) -> torch.Tensor:
    """Return the positions of the windows of a pooling; `options` are those of one axis."""
    window, stride, padding, dilation = options
    room = extent + 2 * padding - dilation * (window - 1) - 1
    count = (room + stride - 1 if ceil_mode else room) // stride + 1
    if ceil_mode and (count - 1) * stride >= extent + padding:
        # A window does not begin after the padding in front of the data.
        count -= 1
    starts = (torch.arange(count, device=device) * stride - padding).reshape(-1, 1)
    positions = starts + torch.arange(window, device=device) * dilation
    # Positions in the padding repeat an element of the window.
    lowest = starts + (-starts).clamp(min=0).add(dilation - 1) // dilation * dilation
    highest = starts + (extent - 1 - starts) // dilation * dilation
    return torch.minimum(torch.maximum(positions, lowest), highest)


def _max_pool(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
    *,
    rank: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    def per_axis(values: Sequence[int]) -> Sequence[int]:
        return list(values) * rank if len(values) == 1 else list(values)

    options = zip(
        *map(per_axis, (kernel_size, stride or kernel_size, padding, dilation)), strict=True
    )
    windows = [
        _strided_windows(extent, each, ceil_mode, x.device)
        for extent, each in zip(x.shape[-rank:], options, strict=True)
    ]
    return _maxima(x, windows)


@decomposes(aten.adaptive_max_pool2d.default)
def _adaptive_max_pool2d(x: torch.Tensor, size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    # PyTorch's rule assumes that a symbolic extent is always a multiple if the example's is.
    pairs = list(zip(x.shape[-2:], size, strict=True))
    if all(isinstance(extent, int) and extent % count == 0 for extent, count in pairs):
        window = [extent // count for extent, count in pairs]
        return torch.ops.aten.max_pool2d_with_indices(x, window, window)
    return _adaptive_max_pool(x, size)


@decomposes(aten.adaptive_max_pool3d.default)
def _adaptive_max_pool(x: torch.Tensor, size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = zip(x.shape[-len(size) :], size, strict=True)
    return _maxima(x, [_adaptive_windows(extent, count, x.device) for extent, count in pairs])


decomposes(aten.max_pool2d_with_indices.default)(functools.partial(_max_pool, rank=2))
decomposes(aten.max_pool3d_with_indices.default)(functools.partial(_max_pool, rank=3))
