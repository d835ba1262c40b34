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
"""Layers of networks."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from helpers import references

from .registry import Attrs, accumulated, along, axes_of, operator


def spread(values: list[int], rank: int) -> list[int]:
    """One value for each spatial axis."""
    return list(values) * rank if len(values) == 1 else list(values)


def sides(padding: list[int], rank: int) -> list[int]:
    """The padding before all axes, then after all axes."""
    return list(padding) if len(padding) == 2 * rank else spread(padding, rank) * 2


def conv_options(attrs: Attrs, rank: int) -> dict[str, object]:
    """Return the arguments of the reference convolutions."""
    layout = attrs["data_layout"]
    return {
        "strides": spread(attrs["strides"], rank),
        "padding": sides(attrs["padding"], rank),
        "dilation": spread(attrs["dilation"], rank),
        "groups": attrs["groups"],
        "data_layout": layout,
        "kernel_layout": attrs["kernel_layout"],
        "out_layout": attrs["out_layout"] or layout,
    }


@operator("nn.conv1d", "nn.conv2d", "nn.conv3d")
def conv(attrs: Attrs, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Convolution of any rank, layout and number of groups."""
    options = conv_options(attrs, x.ndim - 2)
    if attrs["groups"] > 1 and attrs["kernel_layout"] == "HWOI":
        # A depthwise kernel of channels-last: O and I are the channels and their multiples.
        weight = weight.reshape(*weight.shape[:2], 1, -1)
        options["kernel_layout"] = "HWIO"
    result = references.conv(x, weight, **options)
    return result.astype(attrs["out_dtype"] or x.dtype)


@operator("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(attrs: Attrs, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Transposed convolution."""
    rank = x.ndim - 2
    options = conv_options(attrs, rank) | {"output_padding": spread(attrs["output_padding"], rank)}
    return references.conv_transpose(x, weight, **options).astype(attrs["out_dtype"] or x.dtype)


@operator("nn.dense")
def dense(attrs: Attrs, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """`x` by the transposed weight."""
    return (accumulated(x) @ accumulated(weight).T).astype(attrs["out_dtype"] or x.dtype)


@operator("nn.matmul", "nn.batch_matmul")
def matmul(attrs: Attrs, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Products of matrices, which may be transposed; batches broadcast."""
    x = x.swapaxes(-1, -2) if attrs.get("transpose_a") else x
    y = y.swapaxes(-1, -2) if attrs.get("transpose_b") else y
    return (accumulated(x) @ accumulated(y)).astype(attrs["out_dtype"] or x.dtype)


@operator("nn.bias_add")
def bias_add(attrs: Attrs, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Add a vector along an axis."""
    return x + along(bias, attrs["axis"], x.ndim)


@operator("nn.prelu")
def prelu(attrs: Attrs, x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Scale negative values, by a factor for each index of an axis."""
    return np.where(x < 0, x * along(alpha, attrs["axis"], x.ndim), x)


@operator("nn.leaky_relu")
def leaky_relu(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Scale negative values."""
    return np.where(x < 0, x * np.asarray(attrs["alpha"], x.dtype), x)


@operator("nn.batch_flatten")
def batch_flatten(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Join all axes but the first."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:]))


@operator("nn.dropout")
def dropout(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nothing is dropped when a network runs."""
    return x, np.ones_like(x)


def taps(
    attrs: Attrs, x: np.ndarray, fill: float, rank: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the elements of NC... that each tap of a window reads, and which lie in the data."""
    size, strides = spread(attrs["pool_size"], rank), spread(attrs["strides"], rank)
    dilation, padding = spread(attrs["dilation"], rank), sides(attrs["padding"], rank)
    widths = [(0, 0), (0, 0), *((padding[i], padding[i + rank]) for i in range(rank))]
    inside = np.pad(np.ones(x.shape, bool), widths)
    x = np.pad(x, widths, constant_values=fill)
    extents = [
        (x.shape[2 + i] - (size[i] - 1) * dilation[i] - 1) // strides[i] + 1 for i in range(rank)
    ]
    for tap in itertools.product(*map(range, size)):
        first = [tap[i] * dilation[i] for i in range(rank)]
        part = (
            ...,
            *(
                slice(first[i], first[i] + (extents[i] - 1) * strides[i] + 1, strides[i])
                for i in range(rank)
            ),
        )
        yield x[part], inside[part]


def channels_first(layout: str) -> str:
    """The letters of a layout with the batch and the channels first."""
    return "NC" + "".join(axis for axis in layout if axis not in "NC")


@operator("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
def max_pool(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The largest element of each window."""
    assert not attrs["ceil_mode"]
    layout = attrs["layout"]
    first = channels_first(layout)
    plain = references.plain(x, layout, first)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    result = np.max([seen for seen, _ in taps(attrs, plain, least, x.ndim - 2)], 0)
    return references.laid_out(result, first, attrs["out_layout"] or layout)


@operator("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def avg_pool(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The mean of each window, with or without the padding."""
    assert not attrs["ceil_mode"]
    layout = attrs["layout"]
    first = channels_first(layout)
    seen = list(taps(attrs, references.plain(x, layout, first), 0, x.ndim - 2))
    total = np.sum([accumulated(values) for values, _ in seen], 0)
    inside = np.sum([valid for _, valid in seen], 0)
    count = len(seen) if attrs["count_include_pad"] else np.maximum(inside, 1)
    mean = total / count if x.dtype.kind == "f" else np.trunc(total / count)
    return references.laid_out(mean.astype(x.dtype), first, attrs["out_layout"] or layout)


@operator("nn.batch_norm")
def batch_norm(
    attrs: Attrs,
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Normalize by the given mean and variance, which are results too."""
    gamma_, beta_, mean_, var_ = (
        along(accumulated(v), attrs["axis"], x.ndim) for v in (gamma, beta, mean, var)
    )
    result = (x - mean_) / np.sqrt(var_ + attrs["epsilon"])
    result = result * gamma_ if attrs["scale"] else result
    result = result + beta_ if attrs["center"] else result
    return result.astype(x.dtype), mean, var


def normalized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    """Values with mean 0 and variance 1 over `axes`."""
    wide = accumulated(x)
    centered = wide - wide.mean(axes, keepdims=True)
    return centered / np.sqrt(np.square(centered).mean(axes, keepdims=True) + epsilon)


def affine(
    attrs: Attrs, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, dtype: np.dtype
) -> np.ndarray:
    """Scale and shift along the axis."""
    x = x * along(gamma, attrs["axis"], x.ndim) if attrs["scale"] else x
    x = x + along(beta, attrs["axis"], x.ndim) if attrs["center"] else x
    return x.astype(dtype)


@operator("nn.layer_norm")
def layer_norm(attrs: Attrs, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Normalize over one axis."""
    result = normalized(x, axes_of(attrs["axis"], x.ndim), attrs["epsilon"])
    return affine(attrs, result, gamma, beta, x.dtype)


@operator("nn.instance_norm")
def instance_norm(attrs: Attrs, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Normalize over all axes but the batch and the channels."""
    axes = axes_of([0, attrs["axis"]], x.ndim, exclude=True)
    return affine(attrs, normalized(x, axes, attrs["epsilon"]), gamma, beta, x.dtype)


@operator("nn.l2_normalize")
def l2_normalize(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Divide by the norm over axes."""
    total = np.square(accumulated(x)).sum(axes_of(attrs["axis"], x.ndim), keepdims=True)
    return (x / np.sqrt(np.maximum(total, attrs["eps"]))).astype(x.dtype)


@operator("nn.lrn")
def lrn(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Divide by the mean square of near channels."""
    size, axis = attrs["size"], attrs["axis"]
    squares = np.moveaxis(np.square(accumulated(x)), axis, 0)
    half = size // 2
    near = [squares[max(0, c - half) : c + half + 1].sum(0) for c in range(x.shape[axis])]
    total = np.moveaxis(np.stack(near), 0, axis)
    scale = (attrs["bias"] + attrs["alpha"] / size * total) ** attrs["beta"]
    return (x / scale).astype(x.dtype)


@operator("nn.upsampling")
def upsampling(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Repeat pixels."""
    assert attrs["method"] == "nearest_neighbor"
    layout = attrs["layout"]
    rows = np.repeat(x, int(attrs["scale_h"]), layout.index("H"))
    return np.repeat(rows, int(attrs["scale_w"]), layout.index("W"))


@operator("nn.depth_to_space")
def depth_to_space(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Move channels of NCHW to blocks of pixels."""
    block, (n, c, h, w) = attrs["block_size"], x.shape
    c //= block * block
    if attrs["mode"] == "DCR":
        parts = x.reshape(n, block, block, c, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c, h * block, w * block)


@operator("nn.space_to_depth")
def space_to_depth(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Move blocks of pixels of NCHW to channels."""
    block, (n, c, h, w) = attrs["block_size"], x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block).transpose(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * block * block, h // block, w // block)


@operator("nn.softmax")
def softmax(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Positive values whose sum over the axis is 1."""
    wide = np.exp(accumulated(x) - accumulated(x).max(attrs["axis"], keepdims=True))
    return (wide / wide.sum(attrs["axis"], keepdims=True)).astype(x.dtype)


@operator("nn.log_softmax")
def log_softmax(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The logarithm of softmax."""
    wide = accumulated(x) - accumulated(x).max(attrs["axis"], keepdims=True)
    return (wide - np.log(np.exp(wide).sum(attrs["axis"], keepdims=True))).astype(x.dtype)


def pixels(attrs: Attrs) -> tuple[int, ...]:
    """The axes of the pixels."""
    return tuple(attrs["layout"].index(axis) for axis in "HW")


@operator("nn.global_avg_pool2d")
def global_avg_pool(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The mean of all pixels."""
    return accumulated(x).mean(pixels(attrs), keepdims=True).astype(x.dtype)


@operator("nn.global_max_pool2d")
def global_max_pool(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The largest of all pixels."""
    return x.max(pixels(attrs), keepdims=True)
