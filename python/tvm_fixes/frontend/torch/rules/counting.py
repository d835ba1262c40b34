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
"""Operators whose result has an extent that depends on the elements."""

import torch
from torch import Tensor

from .registry import decomposes

aten = torch.ops.aten


@decomposes(aten.bincount.default)
def _bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    if x.shape[0] == 0:
        return torch.zeros(minlength, dtype=dtype, device=x.device)
    least = torch.full((1,), minlength - 1, dtype=torch.int64, device=x.device)
    size = (torch.cat([x.to(torch.int64).amax(0, keepdim=True), least]).amax() + 1).item()
    torch._check(size >= 0)
    counts = torch.zeros(size, dtype=dtype, device=x.device)
    ones = torch.ones(x.shape, dtype=dtype, device=x.device)
    return counts.scatter_add(0, x.to(torch.int64), ones if weights is None else weights.to(dtype))


@decomposes(aten.repeat_interleave.Tensor)
def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    ends = repeats.cumsum(0)
    if output_size is None:
        output_size = repeats.sum().item()
        torch._check(output_size >= 0)
    places = torch.arange(output_size, dtype=ends.dtype, device=repeats.device)
    return torch.searchsorted(ends, places, right=True).to(repeats.dtype)


def _runs(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first element of each run of a row, the run of each element, and the lengths."""
    places = torch.arange(x.shape[0], device=x.device)
    is_first = (x != x.index_select(0, (places - 1).clamp(min=0))) | (places == 0)
    begins = is_first.nonzero().squeeze(1)
    runs = is_first.to(torch.int64).cumsum(0) - 1
    counts = torch.zeros_like(begins).scatter_add(0, runs, torch.ones_like(runs))
    return x.index_select(0, begins), runs, counts


@decomposes(aten._unique2.default)
def _unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    flat = x.flatten()
    order = flat.argsort(stable=True)
    values, runs, counts = _runs(flat.index_select(0, order))
    inverse = torch.zeros_like(runs).scatter(0, order, runs)
    return values, inverse.reshape(x.shape), counts


@decomposes(aten.unique_consecutive.default)
def _unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is not None and x.ndim > 1:
        raise NotImplementedError(
            f"aten.unique_consecutive: dim is {dim} for rank {x.ndim}; expected None or rank 1"
        )
    values, runs, counts = _runs(x.flatten())
    return values, runs.reshape(x.shape), counts


@decomposes(aten.nonzero_static.default)
def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    if x.ndim == 0 or x.numel() == 0:
        return torch.full((size, x.ndim), fill_value, dtype=torch.int64, device=x.device)
    counts = (x != 0).flatten().to(torch.int64).cumsum(0)
    numbers = torch.arange(size, dtype=torch.int64, device=x.device)
    # The place where the count first exceeds a number; beyond the last one, any place.
    place = torch.searchsorted(counts, numbers, right=True).clamp(max=x.numel() - 1)
    columns = []
    for extent in reversed(x.shape):
        columns.append(place % extent)
        place = place // extent
    is_found = (numbers < counts[-1]).unsqueeze(-1)
    return torch.where(is_found, torch.stack(columns[::-1], 1), fill_value)
