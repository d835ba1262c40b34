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
"""Assignments to parts of a tensor."""

import math
from typing import Any

import torch
import torch.nn.functional as F

from .registry import decomposes

aten = torch.ops.aten


@decomposes(aten.diagonal_scatter.default)
def _diagonal_scatter(
    x: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    rows, columns = x.shape[dim1], x.shape[dim2]
    shape = [1] * x.ndim
    shape[dim1], shape[dim2] = rows, columns
    # Element i of the diagonal is in row i, or in column i if the diagonal begins below row 0.
    begins = max(-offset, 0)
    row = torch.arange(rows, device=x.device)
    column = torch.arange(columns, device=x.device)
    mask = (row.reshape(-1, 1) + offset) == column
    if dim1 % x.ndim > dim2 % x.ndim:
        mask = mask.t()
    position = (row - begins).clamp(0, max(src.shape[-1] - 1, 0))
    rows_of_src = torch.index_select(src.to(x.dtype), -1, position).unsqueeze(-1)
    spread = torch.movedim(rows_of_src, (-2, -1), (dim1, dim2))
    return torch.where(mask.reshape(shape), spread, x)


@decomposes(aten.masked_scatter.default)
def _masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    x, mask = x.expand(shape), mask.expand(shape)
    if source.numel() == 0:
        return x.clone()
    places = mask.flatten().to(torch.int64).cumsum(0) - 1
    values = source.flatten().index_select(0, places.clamp(0, source.numel() - 1))
    return torch.where(mask, values.reshape(shape), x)


@decomposes(aten.put.default)
def _put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    flat = x.flatten()
    values = source.reshape(index.shape)
    return torch.index_put(flat, (index,), values, accumulate).reshape(x.shape)


@decomposes(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    count = offsets.shape[0] - int(include_last_offset)
    places = torch.arange(indices.shape[0], dtype=offsets.dtype, device=indices.device)
    bags = torch.searchsorted(offsets[:count], places, right=True) - 1
    is_counted = indices != padding_idx
    rows = weight.index_select(0, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    sizes = torch.zeros(count, dtype=torch.int64, device=weight.device)
    sizes = sizes.index_add(0, bags, is_counted.to(torch.int64))
    start = weight.new_zeros(count, weight.shape[1])
    if mode == 2:
        rows = torch.where(is_counted.unsqueeze(-1), rows, -math.inf)
        targets = bags.unsqueeze(-1).expand(rows.shape)
        out = (start - math.inf).scatter_reduce(0, targets, rows, "amax")
        out = torch.where(sizes.unsqueeze(-1) == 0, start, out)
    else:
        rows = torch.where(is_counted.unsqueeze(-1), rows, 0)
        out = start.index_add(0, bags, rows)
        out = out / sizes.clamp(min=1).unsqueeze(-1) if mode == 1 else out
    return out, bags, sizes, sizes.new_zeros(0)


@decomposes(aten.index_reduce.default)
def _index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    if x.ndim == 0:
        x, source = x.reshape(1), source.reshape(1)
        out = _index_reduce(x, 0, index.reshape(1), source, reduce, include_self=include_self)
        return out.reshape(())
    shape = [1] * source.ndim
    shape[dim] = -1
    index = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, index, source, reduce, include_self=include_self)


@decomposes(aten.take.default)
def _take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1)[index.reshape(-1)].reshape(index.shape)


_EMPTY_SEGMENTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@decomposes(aten.segment_reduce.default)
def _segment_reduce(
    x: torch.Tensor,
    reduce: str,
    *,
    lengths: Any = None,
    indices: torch.Tensor | None = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> torch.Tensor:
    starts = offsets if lengths is None else F.pad(lengths.cumsum(axis), (1, 0))
    count = starts.shape[axis] - 1
    # Element 0 belongs to segment 0, and so do those up to the start of segment 1.
    place = torch.arange(x.shape[axis], device=x.device).expand(x.shape[: axis + 1])
    segment = torch.searchsorted(starts[..., 1:].contiguous(), place.contiguous(), right=True)
    segment = segment.reshape(segment.shape + (1,) * (x.ndim - axis - 1)).expand(x.shape)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    start = x.new_full(shape, _EMPTY_SEGMENTS[reduce] if initial is None else initial)
    kind = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}[reduce]
    result = start.scatter_reduce(axis, segment, x, kind)
    if reduce != "mean":
        return result
    extents = starts.diff(dim=axis).reshape(
        *starts.shape[:axis], count, *(1,) * (x.ndim - axis - 1)
    )
    # The mean of no elements is `initial`, or NaN.
    return result / (extents if initial is None else extents.clamp(min=1))
