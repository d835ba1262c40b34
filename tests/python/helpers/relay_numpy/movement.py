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
"""Operators that move, select and make elements."""

import math
from typing import Any

import numpy as np

from .registry import Attrs, along, axes_of, operator


def new_shape(shape: tuple[int, ...], wanted: list[int]) -> list[int]:
    """The extents of reshape; 0 copies, -1 infers, -2 copies the rest, -3 joins, -4 splits."""
    result: list[int] = []
    at, index = 0, 0
    while index < len(wanted):
        extent = wanted[index]
        if extent == -2:
            result += shape[at:]
            at = len(shape)
        elif extent == -3:
            result.append(shape[at] * shape[at + 1])
            at += 2
        elif extent == -4:
            first, second = wanted[index + 1 : index + 3]
            first = shape[at] // second if first == -1 else first
            second = shape[at] // first if second == -1 else second
            result += [first, second]
            at, index = at + 1, index + 2
        else:
            result.append(shape[at] if extent == 0 else extent)
            at += 1
        index += 1
    return result


@operator("reshape")
def reshape(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The same elements in another shape."""
    return x.reshape(new_shape(x.shape, attrs["newshape"]))


@operator("transpose")
def transpose(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Permute the axes; without axes, reverse them."""
    return x.transpose(attrs["axes"] or None)


@operator("expand_dims")
def expand_dims(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Insert axes of extent 1."""
    count, axis = attrs["num_newaxis"], attrs["axis"]
    axis = axis + x.ndim + 1 if axis < 0 else axis
    return x.reshape(*x.shape[:axis], *[1] * count, *x.shape[axis:])


@operator("squeeze")
def squeeze(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Remove the named axes, or all of extent 1."""
    axes = attrs["axis"]
    return x.squeeze(None if axes is None else axes_of(axes, x.ndim))


@operator("concatenate")
def concatenate(attrs: Attrs, xs: tuple[np.ndarray, ...]) -> np.ndarray:
    """Join along an axis."""
    return np.concatenate(xs, attrs["axis"])


@operator("stack")
def stack(attrs: Attrs, xs: tuple[np.ndarray, ...]) -> np.ndarray:
    """Join along a new axis."""
    return np.stack(xs, attrs["axis"])


@operator("split")
def split(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Cut along an axis."""
    return tuple(np.split(x, attrs["indices_or_sections"], attrs["axis"]))


@operator("tile")
def tile(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Repeat the whole."""
    return np.tile(x, attrs["reps"])


@operator("repeat")
def repeat(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Repeat each element along an axis."""
    return np.repeat(x, attrs["repeats"], attrs["axis"])


@operator("reverse")
def reverse(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Reverse an axis."""
    return np.flip(x, attrs["axis"])


@operator("broadcast_to")
def broadcast_to(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Broadcast to a shape."""
    return np.broadcast_to(x, attrs["shape"]).copy()


def sliced(
    x: np.ndarray, begin: list[int], end: list[int], strides: list[int], axes: list[int]
) -> np.ndarray:
    """Part of each of `axes`; Python's slices clamp like Relay's."""
    parts: list[slice] = [slice(None)] * x.ndim
    for at, axis in enumerate(axes):
        stride = strides[at] if at < len(strides) else strides[0] if len(strides) == 1 else 1
        # Before the first element there is no index: Python counts -1 from the end.
        stop = None if stride < 0 and end[at] < -x.shape[axis] else end[at]
        parts[axis] = slice(begin[at], stop, stride)
    return x[tuple(parts)].copy()


@operator("strided_slice")
def strided_slice(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Slices by begin and end, or by begin and size."""
    begin, end = list(attrs["begin"]), list(attrs["end"])
    axes = [a % x.ndim for a in attrs["axes"]] if attrs["axes"] else list(range(len(begin)))
    if attrs["slice_mode"] == "end":
        return sliced(x, begin, end, list(attrs["strides"]), axes)
    for at, axis in enumerate(axes):
        begin[at] = begin[at] + x.shape[axis] if begin[at] < 0 else begin[at]
        end[at] = x.shape[axis] if end[at] < 0 else begin[at] + end[at]
    return sliced(x, begin, end, [], axes)


def wrapped(indices: np.ndarray, extent: int, mode: str) -> np.ndarray:
    """The indices that a mode of take reads."""
    if mode == "wrap":
        return indices % extent
    return np.clip(indices, 0, extent - 1)


@operator("take")
def take(attrs: Attrs, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Elements by index; each mode but "wrap" limits them."""
    axis = attrs["axis"]
    if axis is None:
        return x.ravel()[wrapped(indices, x.size, attrs["mode"])]
    return np.take(x, wrapped(indices, x.shape[axis], attrs["mode"]), axis)


@operator("gather")
def gather(attrs: Attrs, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """One element for each index, along an axis."""
    return np.take_along_axis(x, indices, attrs["axis"])


@operator("one_hot")
def one_hot(attrs: Attrs, indices: np.ndarray, on: np.ndarray, off: np.ndarray) -> np.ndarray:
    """`on` at each index of a new axis, else `off`."""
    axis = attrs["axis"] % (indices.ndim + 1)
    places = along(np.arange(attrs["depth"]), axis, indices.ndim + 1)
    return np.where(np.expand_dims(indices, axis) == places, on, off).astype(attrs["dtype"])


@operator("full")
def full(attrs: Attrs, value: np.ndarray) -> np.ndarray:
    """One value everywhere."""
    return np.full(attrs["shape"], value, attrs["dtype"] or value.dtype)


@operator("zeros_like")
def zeros_like(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Zeros in the shape of `x`."""
    return np.zeros_like(x)


@operator("ones_like")
def ones_like(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Ones in the shape of `x`."""
    return np.ones_like(x)


@operator("full_like")
def full_like(attrs: Attrs, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    """One value in the shape of `x`."""
    return np.full_like(x, value)


@operator("shape_of")
def shape_of(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The extents."""
    return np.array(x.shape, attrs["dtype"] or "int32")


@operator("ndarray_size")
def ndarray_size(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The number of elements."""
    return np.array(x.size, attrs["dtype"] or "int32")


@operator("arange")
def arange(attrs: Attrs, start: np.ndarray, stop: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Numbers from start to stop."""
    count = max(0, math.ceil((stop.item() - start.item()) / step.item()))
    return (start + np.arange(count) * step).astype(attrs["dtype"])


@operator("nn.pad")
def pad(attrs: Attrs, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Add elements at the sides."""
    widths = [tuple(pair) for pair in attrs["pad_width"]]
    mode = {"constant": "constant", "edge": "edge", "reflect": "reflect"}[attrs["pad_mode"]]
    options: dict[str, Any] = {"constant_values": value.item()} if mode == "constant" else {}
    return np.pad(x, widths, mode, **options).astype(x.dtype)


@operator("layout_transform")
def layout_transform(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Reorder the axes; layouts have no blocks here."""
    source, target = attrs["src_layout"], attrs["dst_layout"]
    return x.transpose([source.index(axis) for axis in target])


@operator("sort")
def sort(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Sort along an axis."""
    ordered = np.sort(x, attrs["axis"])
    return ordered if attrs["is_ascend"] else np.flip(ordered, attrs["axis"]).copy()


@operator("argsort")
def argsort(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The order of the elements along an axis; equal ones keep theirs."""
    keys = x if attrs["is_ascend"] else -x.astype("float64")
    return np.argsort(keys, attrs["axis"], kind="stable").astype(attrs["dtype"] or "int32")


@operator("slice_like")
def slice_like(attrs: Attrs, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Cut the axes to the extents of `like`."""
    axes = axes_of(attrs["axes"] or None, x.ndim)
    return x[
        tuple(slice(like.shape[a]) if a in axes else slice(None) for a in range(x.ndim))
    ].copy()


@operator("dyn.reshape")
def dyn_reshape(attrs: Attrs, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """reshape by an operand."""
    return x.reshape(new_shape(x.shape, shape.tolist()))


@operator("dyn.broadcast_to")
def dyn_broadcast_to(attrs: Attrs, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """broadcast_to by an operand."""
    return np.broadcast_to(x, shape).copy()


@operator("dyn.tile")
def dyn_tile(attrs: Attrs, x: np.ndarray, reps: np.ndarray) -> np.ndarray:
    """tile by an operand."""
    return np.tile(x, reps)


@operator("dyn.squeeze")
def dyn_squeeze(attrs: Attrs, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """squeeze by an operand."""
    return x.squeeze(axes_of(axes.tolist(), x.ndim))


@operator("dyn.expand_dims")
def dyn_expand_dims(attrs: Attrs, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """expand_dims by an operand."""
    return expand_dims({"axis": axis.item(), "num_newaxis": attrs["num_newaxis"]}, x)


@operator("dyn.strided_slice")
def dyn_strided_slice(
    attrs: Attrs, x: np.ndarray, begin: np.ndarray, end: np.ndarray, strides: np.ndarray
) -> np.ndarray:
    """strided_slice by operands."""
    axes = list(range(len(begin)))
    return sliced(x, begin.tolist(), end.tolist(), strides.tolist(), axes)


@operator("dyn.full")
def dyn_full(attrs: Attrs, value: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """full by an operand."""
    return np.full(shape, value, attrs["dtype"] or value.dtype)


@operator("dyn.zeros")
def dyn_zeros(attrs: Attrs, shape: np.ndarray) -> np.ndarray:
    """zeros by an operand."""
    return np.zeros(shape, attrs["dtype"])


@operator("dyn.ones")
def dyn_ones(attrs: Attrs, shape: np.ndarray) -> np.ndarray:
    """ones by an operand."""
    return np.ones(shape, attrs["dtype"])


@operator("zeros")
def zeros(attrs: Attrs) -> np.ndarray:
    """Zeros."""
    return np.zeros(attrs["shape"], attrs["dtype"])


@operator("ones")
def ones(attrs: Attrs) -> np.ndarray:
    """Ones."""
    return np.ones(attrs["shape"], attrs["dtype"])
