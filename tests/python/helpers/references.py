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
"""Simple float64 NumPy references for the lowerings."""

import itertools
import math
import re
from collections.abc import Sequence

import numpy as np


def conv_transpose(
    data: np.ndarray,
    kernel: np.ndarray,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
) -> np.ndarray:
    """Transposed convolution of any rank by its definition: every data element is scattered.

    Data ``x`` times kernel tap ``k`` is added to the output at
    ``x*stride + k*dilation - pad_before`` in each spatial axis, if that is inside the output:
    padding crops, output padding appends.

    Parameters
    ----------
    data, kernel : np.ndarray
        Axes as in `data_layout` (``N``, ``C`` and the spatial letters) and `kernel_layout` (``I``,
        all input channels; ``O``, output channels of one group; and the spatial letters).
    padding : sequence of int
        All axes' padding before, then all axes' padding after.
    data_layout, kernel_layout, out_layout : str
        As for :func:`laid_out`; the order of the spatial letters in the attributes is D, H, W.

    Returns
    -------
    np.ndarray
        float64, laid out as in `out_layout`.
    """
    axes = [axis for axis in "DHW" if axis in data_layout]
    rank = len(axes)
    data = plain(data, data_layout, "NC" + "".join(axes)).astype("float64")
    kernel = plain(kernel, kernel_layout, "IO" + "".join(axes)).astype("float64")
    batch, in_channels, *in_extents = data.shape
    group_out, taps = kernel.shape[1], kernel.shape[2:]
    out_extents = [
        (in_extents[i] - 1) * strides[i]
        + dilation[i] * (taps[i] - 1)
        + 1
        - padding[i]
        - padding[i + rank]
        + output_padding[i]
        for i in range(rank)
    ]
    data = data.reshape(batch, groups, in_channels // groups, *in_extents)
    kernel = kernel.reshape(groups, in_channels // groups, group_out, *taps)
    out = np.zeros((batch, groups, group_out, *out_extents))
    for tap in itertools.product(*map(range, taps)):
        products = np.einsum("bgi...,gio->bgo...", data, kernel[(..., *tap)])
        target, source = [], []
        for i in range(rank):
            position = np.arange(in_extents[i]) * strides[i] + tap[i] * dilation[i] - padding[i]
            inside = (position >= 0) & (position < out_extents[i])
            target.append(position[inside])
            source.append(np.flatnonzero(inside))
        out[(..., *np.ix_(*target))] += products[(..., *np.ix_(*source))]
    out = out.reshape(batch, groups * group_out, *out_extents)
    return laid_out(out, "NC" + "".join(axes), out_layout)


def conv(
    data: np.ndarray,
    kernel: np.ndarray,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
) -> np.ndarray:
    """Convolution of any rank by its definition, on data that is padded with zeros.

    Output ``y`` sums over the kernel's elements ``k`` times data ``y*stride + k*dilation -
    pad_before`` in each spatial axis.  Parameters and result are as for :func:`conv_transpose`,
    except that ``I`` of the kernel is the input channels of one group and ``O`` all output
    channels.
    """
    axes = [axis for axis in "DHW" if axis in data_layout]
    rank = len(axes)
    data = plain(data, data_layout, "NC" + "".join(axes)).astype("float64")
    kernel = plain(kernel, kernel_layout, "OI" + "".join(axes)).astype("float64")
    widths = [(padding[i], padding[i + rank]) for i in range(rank)]
    data = np.pad(data, [(0, 0), (0, 0), *widths])
    batch, _, *in_extents = data.shape
    out_channels, group_in, *taps = kernel.shape
    out_extents = [
        (in_extents[i] - dilation[i] * (taps[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    data = data.reshape(batch, groups, group_in, *in_extents)
    kernel = kernel.reshape(groups, out_channels // groups, group_in, *taps)
    out = np.zeros((batch, groups, out_channels // groups, *out_extents))
    for tap in itertools.product(*map(range, taps)):
        window = tuple(
            slice(
                tap[i] * dilation[i],
                tap[i] * dilation[i] + (out_extents[i] - 1) * strides[i] + 1,
                strides[i],
            )
            for i in range(rank)
        )
        out += np.einsum("bgi...,goi->bgo...", data[(..., *window)], kernel[(..., *tap)])
    out = out.reshape(batch, out_channels, *out_extents)
    return laid_out(out, "NC" + "".join(axes), out_layout)


def laid_out(array: np.ndarray, present: str, layout: str) -> np.ndarray:
    """`array`, whose axes are `present`, in `layout`, such as ``NHWC`` or ``NCHW4c``.

    A lower-case letter is a block of the extent before it, into which the axis of the capital
    letter is split.  Zeros follow where they do not divide the extent.
    """
    for axis, block in _blocks(layout).items():
        at = present.index(axis)
        missing = -array.shape[at] % block
        array = np.pad(array, [(0, missing if i == at else 0) for i in range(array.ndim)])
        split = (array.shape[at] // block, block)
        array = array.reshape(*array.shape[:at], *split, *array.shape[at + 1 :])
        present = present.replace(axis, axis + axis.lower())
    return array.transpose([present.index(axis) for axis in _letters(layout)])


def plain(array: np.ndarray, layout: str, wanted: str) -> np.ndarray:
    """`array`, which is in `layout`, with the unsplit axes `wanted`."""
    letters, blocks = _letters(layout), _blocks(layout)
    order = [letters.index(a) for axis in wanted for a in (axis, axis.lower()) if a in letters]
    extents = dict(zip(letters, array.shape, strict=True))
    shape = [extents[axis] * blocks.get(axis, 1) for axis in wanted]
    return array.transpose(order).reshape(shape)


def packed_shape(extents: dict[str, int], layout: str) -> list[int]:
    """The shape in `layout` of a tensor with these extents, without a split, by capital letter."""
    blocks = _blocks(layout)
    return [
        blocks[letter.upper()]
        if letter.islower()
        else math.ceil(extents[letter] / blocks.get(letter, 1))
        for letter in _letters(layout)
    ]


def _letters(layout: str) -> str:
    return re.sub(r"\d", "", layout)


def _blocks(layout: str) -> dict[str, int]:
    return {letter.upper(): int(size) for size, letter in re.findall(r"(\d+)([a-z])", layout)}
