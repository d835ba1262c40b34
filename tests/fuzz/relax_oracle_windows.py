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
"""NumPy semantics of Relax operators: convolutions, pooling, norms, resizing."""

from collections.abc import Sequence
from itertools import product
from math import prod, sqrt
from typing import Any

import numpy as np
from tvm import relax

from .relax_oracle import FLOATS, Interpreter, Tensor, Undefined, operator
from .relax_oracle_elementwise import attr, axes_of, dtype_of


def _to_order(data: np.ndarray, layout: str, order: str) -> np.ndarray:
    """Permute the axes of a layout without blocks to `order`."""
    return np.transpose(data, [layout.index(axis) for axis in order])


def _spatial(layout: str, *others: str) -> str:
    return "".join(axis for axis in layout if axis not in others)


def _pairs(padding: Sequence[int], rank: int) -> list[tuple[int, int]]:
    if len(padding) == 2 * rank:
        return list(zip(padding[:rank], padding[rank:], strict=True))
    return [(width, width) for width in (padding if len(padding) == rank else list(padding) * rank)]


def _correlate(
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], dilation: Sequence[int], groups: int
) -> np.ndarray:
    """Correlate `x`, padded, (N, C, spatial axes), with `w` (O, I, spatial axes)."""
    rank = x.ndim - 2
    sizes = [
        (x.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    if any(size < 0 for size in sizes):
        raise Undefined("a window larger than its data")
    out = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    each_in, each_out = w.shape[1], w.shape[0] // groups
    for tap in product(*(range(size) for size in w.shape[2:])):
        at = tuple(
            slice(t * d, t * d + s * n, s) if n else slice(0, 0)
            for t, d, s, n in zip(tap, dilation, strides, sizes, strict=True)
        )
        window = x[(slice(None), slice(None), *at)]
        for g in range(groups):
            part = window[:, g * each_in : (g + 1) * each_in]
            weight = w[(slice(g * each_out, (g + 1) * each_out), slice(None), *tap)]
            out[:, g * each_out : (g + 1) * each_out] += np.einsum("nc...,oc->no...", part, weight)
    return out


@operator("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _conv(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    layout, kernel = attr(call, "data_layout"), attr(call, "kernel_layout")
    spatial = _spatial(layout, "N", "C")
    x = _to_order(args[0].data, layout, f"NC{spatial}")
    w = _to_order(args[1].data, kernel, f"OI{spatial}")
    pads = [(0, 0), (0, 0), *_pairs(attr(call, "padding"), len(spatial))]
    x = np.pad(x, pads)

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = _correlate(
            a, b, attr(call, "strides"), attr(call, "dilation"), attr(call, "groups")
        )
        return _to_order(result, f"NC{spatial}", attr(call, "out_layout") or layout)

    dtype = dtype_of(call, "out_dtype", args[0].dtype)
    terms = None if dtype not in FLOATS else run(np.abs(x), np.abs(w))
    depth = 2 + sqrt(prod(w.shape[1:]))
    return inter.numerics.rounded(run(x, w), dtype, None if terms is None else depth * terms)


@operator("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def _conv_transpose(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    layout, kernel = attr(call, "data_layout"), attr(call, "kernel_layout")
    spatial = _spatial(layout, "N", "C")
    x = _to_order(args[0].data, layout, f"NC{spatial}")
    w = _to_order(args[1].data, kernel, f"IO{spatial}")
    groups, strides, dilation = attr(call, "groups"), attr(call, "strides"), attr(call, "dilation")
    pads, more = _pairs(attr(call, "padding"), len(spatial)), attr(call, "output_padding")

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        full = [
            (size - 1) * s + d * (k - 1) + 1 + o
            for size, s, d, k, o in zip(
                a.shape[2:], strides, dilation, b.shape[2:], more, strict=True
            )
        ]
        if any(size < 0 for size in full):
            raise Undefined("a transposed convolution of empty data")
        out = np.zeros((a.shape[0], b.shape[1] * groups, *full), a.dtype)
        each_in, each_out = b.shape[0] // groups, b.shape[1]
        for tap in product(*(range(size) for size in b.shape[2:])):
            at = tuple(
                slice(t * d, t * d + s * n, s) if n else slice(0, 0)
                for t, d, s, n in zip(tap, dilation, strides, a.shape[2:], strict=True)
            )
            for g in range(groups):
                part = a[:, g * each_in : (g + 1) * each_in]
                weight = b[(slice(g * each_in, (g + 1) * each_in), slice(None), *tap)]
                out[(slice(None), slice(g * each_out, (g + 1) * each_out), *at)] += np.einsum(
                    "nc...,co->no...", part, weight
                )
        cut = tuple(slice(low, size - high) for (low, high), size in zip(pads, full, strict=True))
        result = out[(slice(None), slice(None), *cut)]
        return _to_order(result, f"NC{spatial}", attr(call, "out_layout") or layout)

    dtype = dtype_of(call, "out_dtype", args[0].dtype)
    terms = run(np.abs(x), np.abs(w))
    return inter.numerics.rounded(run(x, w), dtype, (2 + sqrt(prod(w.shape))) * terms)


@operator(*(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)))
def _pool(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    layout, is_max = attr(call, "layout"), "max" in call.op.name
    spatial = _spatial(layout, "N", "C")
    rank = len(spatial)
    x = _to_order(args[0].data, layout, f"NC{spatial}")
    window, strides, dilation = (attr(call, name) for name in ("pool_size", "strides", "dilation"))
    pads = _pairs(attr(call, "padding"), rank)
    counts_padding = bool(attr(call, "count_include_pad"))
    extents = [inter.extent(extent) for extent in call.ty.shape.values]
    if min(extents) < 0:
        raise Undefined("a window larger than its data")
    shape = [extents[layout.index(axis)] for axis in f"NC{spatial}"]
    lowest = -np.inf if args[0].dtype in FLOATS else np.iinfo(args[0].dtype).min
    out = np.zeros(shape, np.float64 if args[0].dtype in FLOATS else np.int64)
    terms = np.zeros(shape)
    for place in product(*(range(size) for size in shape[2:])):
        at, inside, padded = [], 1, 1
        for i in range(rank):
            first = place[i] * strides[i] - pads[i][0]
            taps = [first + t * dilation[i] for t in range(window[i])]
            valid = [tap for tap in taps if 0 <= tap < x.shape[2 + i]]
            # Taps beyond the padding at the end do not count.
            padded *= sum(tap < x.shape[2 + i] + pads[i][1] for tap in taps)
            inside *= len(valid)
            at.append(valid)
        where = (slice(None), slice(None), *place)
        if not inside and (is_max or not counts_padding):
            raise Undefined("a window with only padding")
        values = x[(slice(None), slice(None))][(slice(None), slice(None), *np.ix_(*at))]
        axes = tuple(range(2, 2 + rank))
        if is_max:
            out[where] = np.max(values, axis=axes, initial=lowest)
            continue
        count = padded if counts_padding else inside
        out[where] = np.sum(values, axis=axes) / count
        terms[where] = np.sum(np.abs(values), axis=axes) / count
    result = _to_order(out, f"NC{spatial}", layout)
    error = np.float64(0) if is_max else 4 * _to_order(terms, f"NC{spatial}", layout)
    return inter.numerics.rounded(result, args[0].dtype, error)


@operator(*(f"nn.adaptive_avg_pool{rank}d" for rank in (1, 2, 3)))
def _adaptive(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    layout = attr(call, "layout")
    spatial = _spatial(layout, "N", "C")
    x = _to_order(args[0].data, layout, f"NC{spatial}")
    sizes = attr(call, "output_size") or list(x.shape[2:])
    if 0 in x.shape[2:]:
        raise Undefined("an average of no elements")
    out, terms = np.zeros((*x.shape[:2], *sizes)), np.zeros((*x.shape[:2], *sizes))
    for place in product(*(range(size) for size in sizes)):
        at = tuple(
            slice(p * n // s, -(-(p + 1) * n // s))
            for p, n, s in zip(place, x.shape[2:], sizes, strict=True)
        )
        values = x[(slice(None), slice(None), *at)]
        axes = tuple(range(2, x.ndim))
        out[(slice(None), slice(None), *place)] = np.mean(values, axis=axes)
        terms[(slice(None), slice(None), *place)] = np.mean(np.abs(values), axis=axes)
    result, error = (_to_order(array, f"NC{spatial}", layout) for array in (out, terms))
    return inter.numerics.rounded(result, args[0].dtype, 8 * error)


@operator("nn.softmax", "nn.log_softmax")
def _softmax(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, axis = args[0].data, attr(call, "axis")
    if x.shape[axis] == 0:
        return args[0]
    shifted = x - np.max(x, axis=axis, keepdims=True)
    total = np.sum(np.exp(shifted), axis=axis, keepdims=True)
    if call.op.name == "relax.nn.log_softmax":
        result = shifted - np.log(total)
        return inter.numerics.rounded(result, args[0].dtype, np.abs(x) + np.abs(result) + 4)
    result = np.exp(shifted) / total
    return inter.numerics.rounded(result, args[0].dtype, result * (8 + np.abs(shifted)))


def _normalized(
    inter: Interpreter,
    x: Tensor,
    axes: tuple[int, ...],
    epsilon: float,
    gamma: np.ndarray,
    beta: np.ndarray,
) -> Tensor:
    if prod(x.shape[axis] for axis in axes) == 0:
        return x
    mean = np.mean(x.data, axis=axes, keepdims=True)
    variance = np.var(x.data, axis=axes, keepdims=True)
    scale = 1 / np.sqrt(variance + epsilon)
    result = (x.data - mean) * scale
    # The errors of the mean, of the variance, and of the resulting scale.
    largest = np.max(np.abs(x.data), axis=axes, keepdims=True)
    error = (largest * scale + np.abs(result) * (4 + largest**2 * scale**2)) * np.abs(gamma)
    return inter.numerics.rounded(result * gamma + beta, x.dtype, 4 * error + np.abs(beta))


def _along(parameter: np.ndarray, axes: tuple[int, ...], rank: int) -> np.ndarray:
    """Reshape a parameter with the dims of `axes` to broadcast with data of `rank`."""
    ordered = np.transpose(parameter, np.argsort(axes))
    return np.expand_dims(ordered, [axis for axis in range(rank) if axis not in axes])


@operator("nn.layer_norm")
def _layer_norm(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    rank = args[0].data.ndim
    axes = axes_of(call, "axes", rank)
    gamma = _along(args[1].data, axes, rank) if attr(call, "scale") else np.ones(())
    beta = _along(args[2].data, axes, rank) if attr(call, "center") else np.zeros(())
    return _normalized(inter, args[0], axes, attr(call, "epsilon"), gamma, beta)


@operator("nn.rms_norm")
def _rms_norm(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, axes = args[0].data, axes_of(call, "axes", args[0].data.ndim)
    if prod(x.shape[axis] for axis in axes) == 0:
        return args[0]
    scale = 1 / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + attr(call, "epsilon"))
    result = x * scale * _along(args[1].data, axes, x.ndim)
    return inter.numerics.rounded(result, args[0].dtype, 8 * np.abs(result))


@operator("nn.group_norm", "nn.instance_norm")
def _group_norm(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, channel = args[0], attr(call, "channel_axis") % args[0].data.ndim
    channels = x.shape[channel]
    is_group = call.op.name == "relax.nn.group_norm"
    groups = attr(call, "num_groups") if is_group else channels
    axes = axes_of(call, "axes", x.data.ndim)
    shape = [*x.shape[:channel], groups, channels // groups, *x.shape[channel + 1 :]]
    inner = (*tuple(axis + (axis >= channel) for axis in axes if axis != channel), channel + 1)

    def spread(one: Tensor) -> np.ndarray:
        return one.data.reshape([groups, channels // groups] + [1] * (x.data.ndim - channel - 1))

    grouped = Tensor(x.data.reshape(shape), x.dtype)
    gamma, beta = spread(args[1]), spread(args[2])
    result = _normalized(inter, grouped, inner, attr(call, "epsilon"), gamma, beta)
    return Tensor(result.data.reshape(x.shape), x.dtype)


@operator("nn.batch_norm")
def _batch_norm(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Any:
    if attr(call, "training"):
        raise Undefined("a norm in training mode")
    x, gamma, beta, mean, variance = args
    shape = [1] * x.data.ndim
    shape[attr(call, "axis")] = -1
    g, b, m, v = (operand.data.reshape(shape) for operand in (gamma, beta, mean, variance))
    factor = g / np.sqrt(v + attr(call, "epsilon"))
    result = (x.data - m) * factor + b
    error = 8 * ((np.abs(x.data) + np.abs(m)) * np.abs(factor) + np.abs(b))
    return (inter.numerics.rounded(result, x.dtype, error), mean, variance)


@operator("nn.pixel_shuffle")
def _pixel_shuffle(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, r = args[0].data, attr(call, "upscale_factor")
    *lead, c, h, w = x.shape
    parts = x.reshape(*lead, c // r**2, r, r, h, w)
    n = len(lead)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return Tensor(parts.transpose(order).reshape(*lead, c // r**2, h * r, w * r), args[0].dtype)


@operator("image.resize2d")
def _resize(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    x, sizes = args
    layout = attr(call, "layout")
    data = _to_order(x.data, layout, "NCHW")
    mode, method = attr(call, "coordinate_transformation_mode"), attr(call, "method")
    error = np.abs(data)
    if 0 in data.shape[2:]:
        raise Undefined("a resize of empty data")
    for axis, size in ((2, sizes[0]), (3, sizes[1])):
        matrix = _interpolation(data.shape[axis], size, mode, method)
        data = np.moveaxis(np.moveaxis(data, axis, -1) @ matrix.T, -1, axis)
        error = np.moveaxis(np.moveaxis(error, axis, -1) @ _near(matrix).T, -1, axis)
    result, terms = (_to_order(array, "NCHW", layout) for array in (data, error))
    exact = method == "nearest_neighbor"
    return inter.numerics.rounded(result, x.dtype, np.float64(0) if exact else 16 * terms)


def _near(matrix: np.ndarray) -> np.ndarray:
    """The elements that a resize may read; a rounded coordinate may touch the next element."""
    read = np.pad(np.ceil(matrix), ((0, 0), (1, 1)))
    return np.minimum(read[:, :-2] + read[:, 1:-1] + read[:, 2:], 1)


def _interpolation(old: int, new: int, mode: str, method: str) -> np.ndarray:
    """The matrix that resizes one axis."""
    at = np.arange(new, dtype=np.float64)
    if mode == "half_pixel":
        at = (at + 0.5) * old / max(new, 1) - 0.5
    elif mode == "align_corners":
        at = at * ((old - 1) / (new - 1) if new > 1 else 0.0)
    else:
        at = at * old / max(new, 1)
    matrix = np.zeros((new, old))
    for i, place in enumerate(at):
        if method == "nearest_neighbor":
            # Only modes that round down.
            matrix[i, int(np.clip(np.floor(place + 1e-5), 0, old - 1))] = 1
            continue
        low = int(np.floor(place))
        part = place - low
        matrix[i, int(np.clip(low, 0, old - 1))] += 1 - part
        matrix[i, int(np.clip(low + 1, 0, old - 1))] += part
    return matrix
