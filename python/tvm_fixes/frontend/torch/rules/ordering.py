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
"""Operators on sorted tensors, and histograms."""

import torch

from .registry import decomposes

aten = torch.ops.aten


@decomposes(aten.sort.stable)
def _stable_sort(
    x: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.sort(x, dim, descending)


@decomposes(aten.argsort.stable)
def _stable_order(
    x: torch.Tensor, *, stable: bool, dim: int = -1, descending: bool = False
) -> torch.Tensor:
    return torch.argsort(x, dim, descending)


def _at(
    found: tuple[torch.Tensor, torch.Tensor], at: torch.Tensor, dim: int, keepdim: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The value and the place at one position of each row of a sorted tensor."""
    value, place = (each.gather(dim, at) for each in found)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


@decomposes(aten.kthvalue.default)
def _nth_smallest(
    x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.ndim == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    values, places = torch.sort(x, dim)
    values, places = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


@decomposes(aten.mode.default)
def _mode(
    x: torch.Tensor, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.ndim == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    axis = dim % x.ndim
    values, places = torch.sort(x, axis)
    count = values.shape[axis]
    shape = [count if each == axis else 1 for each in range(x.ndim)]
    position = torch.arange(count, device=x.device).reshape(shape).expand_as(values)
    is_equal = values.narrow(axis, 1, count - 1) == values.narrow(axis, 0, count - 1)
    later = position.narrow(axis, 1, count - 1)
    starts = torch.where(is_equal, torch.zeros_like(later), later)
    starts = torch.cat([torch.zeros_like(position.narrow(axis, 0, 1)), starts], axis)
    starts = torch.cummax(starts, axis)[0]
    # Of equal counts, the first one belongs to the smallest value.
    last = (position - starts).argmax(axis, keepdim=True)
    best = starts.gather(axis, last)
    return _at((values, places), best, axis, keepdim)


@decomposes(aten.median.default)
def _median(x: torch.Tensor) -> torch.Tensor:
    return torch.median(x.flatten(), 0)[0]


@decomposes(aten.median.dim)
def _median_along(
    x: torch.Tensor, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    count = x.shape[dim] if x.ndim else 1
    if not x.is_floating_point() or x.ndim == 0:
        return _nth_smallest(x, (count + 1) // 2, dim, keepdim)
    # Of data with a NaN, the median is the first NaN: NaN are sorted last.
    numbers = (~torch.isnan(x)).to(torch.int64).sum(dim, keepdim=True)
    middle = torch.where(numbers == count, (count - 1) // 2, numbers)
    return _at(torch.sort(x, dim), middle, dim, keepdim)


@decomposes(aten.nanmedian.default)
def _median_of_numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.nanmedian(x.flatten(), 0)[0]


@decomposes(aten.nanmedian.dim)
def _median_of_numbers_along(
    x: torch.Tensor, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.ndim == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    numbers = (~torch.isnan(x)).to(torch.int64).sum(dim, keepdim=True)
    middle = ((numbers - 1) // 2).clamp(min=0)
    return _at(torch.sort(x, dim), middle, dim, keepdim)


@decomposes(aten.histc.default)
def _histogram(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    x = x.flatten()
    lowest, highest = x.new_full((), min), x.new_full((), max)
    if min == max and x.numel() != 0:
        lowest, highest = torch.aminmax(x)
    is_point = lowest == highest
    lowest = torch.where(is_point, lowest - 1, lowest)
    highest = torch.where(is_point, highest + 1, highest)
    is_inside = (x >= lowest) & (x <= highest)
    places = ((x - lowest) * bins / (highest - lowest)).to(torch.int64).clamp(0, bins - 1)
    counts = torch.zeros(bins, dtype=x.dtype, device=x.device)
    return counts.scatter_add(0, places, is_inside.to(x.dtype))
