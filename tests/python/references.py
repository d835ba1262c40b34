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
"""NumPy definitions that the lowerings are compared with: obvious, slow, float64."""

import itertools
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
        Any permutations; the order of the spatial letters in the attributes is D, H, W.

    Returns
    -------
    np.ndarray
        float64, axes as in `out_layout`.
    """
    axes = [axis for axis in "DHW" if axis in data_layout]
    rank = len(axes)
    data = _permuted(data, data_layout, "NC" + "".join(axes)).astype("float64")
    kernel = _permuted(kernel, kernel_layout, "IO" + "".join(axes)).astype("float64")
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
    return _permuted(out, "NC" + "".join(axes), out_layout)


def _permuted(array: np.ndarray, layout: str, wanted: str) -> np.ndarray:
    return array.transpose([layout.index(axis) for axis in wanted])
