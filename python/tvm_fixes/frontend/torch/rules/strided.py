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
"""Tensors that are described by strides in the memory of another one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ....errors import OpNotImplemented
from .registry import decomposes

aten = torch.ops.aten


def _order(x: Tensor) -> list[int]:
    """Return the axes from the outermost to the innermost in memory.

    Raises
    ------
    tvm.error.OpNotImplemented
        If there are gaps between the elements, or several share a place.
    """
    axes = sorted(range(x.ndim), key=lambda axis: (-x.stride(axis), -x.shape[axis]))
    if not x.permute(axes).is_contiguous():
        raise OpNotImplemented(
            f"as_strided: the operand of shape {list(x.shape)} has strides {list(x.stride())}; "
            "expected elements without gaps"
        )
    return axes


def _places(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> Tensor:
    """Return the places of the elements of a view among the elements of `x` in memory.

    Raises
    ------
    tvm.error.OpNotImplemented
        If the view has elements that are not in `x`.
    """
    offset = 0 if storage_offset is None else storage_offset - x.storage_offset()
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and not 0 <= offset <= last < x.numel():
        raise OpNotImplemented(
            f"as_strided: elements {offset} to {last} of an operand of {x.numel()} elements; "
            "expected elements of the operand"
        )
    places = torch.full((), offset, dtype=torch.int64, device=x.device)
    for extent, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(extent, device=x.device) * step
    return places.flatten()


@decomposes(aten.as_strided.default)
def _as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    flat = x.permute(_order(x)).flatten()
    return flat.index_select(0, _places(x, size, stride, storage_offset)).reshape(size)


@decomposes(aten.as_strided_scatter.default)
def _as_strided_scatter(
    x: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    axes = _order(x)
    moved = x.permute(axes)
    places = _places(x, size, stride, storage_offset)
    flat = torch.index_put(moved.flatten(), (places,), src.expand(size).flatten())
    return flat.reshape(moved.shape).permute([axes.index(axis) for axis in range(x.ndim)])


@decomposes(torch.ops.prims.copy_strided.default)
def _copy_strided(x: Tensor, stride: Sequence[int]) -> Tensor:
    axes = sorted(range(x.ndim), key=lambda axis: -stride[axis])
    copy = x.permute(axes).clone(memory_format=torch.contiguous_format)
    return copy.permute([axes.index(axis) for axis in range(x.ndim)])


@decomposes(aten.roll.default)
def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        return _roll(x.flatten(), shifts, [0]).reshape(x.shape)
    for shift, axis in zip(shifts, dims, strict=True):
        extent = x.shape[axis]
        if not (isinstance(extent, int) and isinstance(shift, int)):
            places = (torch.arange(extent, device=x.device) - shift) % extent
            x = x.index_select(axis, places)
        elif extent:
            # Two slices are read faster than elements at computed places.
            first = extent - shift % extent
            parts = (x.narrow(axis, first, extent - first), x.narrow(axis, 0, first))
            x = torch.cat(parts, axis)
    return x
