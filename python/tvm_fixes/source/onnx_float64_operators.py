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
"""Operators for the evaluation of ONNX models in float64.

These replace implementations of onnx's reference that need a multiple of the memory of their
operands or loop over elements in Python (convolutions, pools), that compute in float32 (Erf), or
that are wrong: softmaxes and normalizations of older opsets, LRN, LpNormalization, and recurrent
layers with what it ignores.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

Index = tuple[Any, ...]

_ALL: Index = (slice(None), slice(None))


def _windows(
    shape: Sequence[int],
    kernel: Sequence[int],
    auto_pad: str,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    *,
    ceil_mode: int = 0,
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """The extents of the result, the padding before and after, the strides and the dilations."""
    rank = len(kernel)
    steps, spread = list(strides or [1] * rank), list(dilations or [1] * rank)
    sizes = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
    before, after = list((pads or [0] * 2 * rank)[:rank]), list((pads or [0] * 2 * rank)[rank:])
    extents = []
    for axis, (extent, size, step) in enumerate(zip(shape, sizes, steps, strict=True)):
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = max((-(-extent // step) - 1) * step + size - extent, 0)
            small, large = total // 2, total - total // 2
            before[axis], after[axis] = (
                (small, large) if auto_pad == "SAME_UPPER" else (large, small)
            )
        elif auto_pad == "VALID":
            before[axis] = after[axis] = 0
        room = extent + before[axis] + after[axis] - size
        count = room // step + 1
        if ceil_mode and room % step and count * step < extent + before[axis]:
            count += 1
        extents.append(count)
    return extents, before, after, steps, spread


def _taps(
    kernel: Sequence[int], extents: Sequence[int], steps: Sequence[int], spread: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Index]]:
    """For each place in the kernel, the elements of the padded data that it meets."""
    for place in itertools.product(*map(range, kernel)):
        yield (
            place,
            (
                *_ALL,
                *(
                    slice(p * d, p * d + (n - 1) * s + 1, s)
                    for p, d, n, s in zip(place, spread, extents, steps, strict=True)
                ),
            ),
        )


def _padded(
    data: np.ndarray,
    before: Sequence[int],
    after: Sequence[int],
    extents: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    value: float,
) -> np.ndarray:
    """The data with its padding, and what else the last windows reach."""
    widths = [(0, 0), (0, 0)]
    for extent, b, a, n, size, step in zip(
        data.shape[2:], before, after, extents, sizes, steps, strict=True
    ):
        widths.append((b, max(a, (n - 1) * step + size - extent - b)))
    if not any(itertools.chain(*widths)):
        return data
    return np.pad(data, widths, constant_values=value)


class Conv(OpRun):
    """A convolution as a sum of matrix products, one per place in the kernel."""

    def _run(
        self,
        x: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray | None = None,
        auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray]:
        kernel = weight.shape[2:]
        extents, before, after, steps, spread = _windows(
            x.shape[2:], kernel, auto_pad, pads, strides, dilations
        )
        sizes = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
        data = _padded(x, before, after, extents, sizes, steps, 0)
        batch, outputs, inner = x.shape[0], weight.shape[0] // group, weight.shape[1]
        result = np.zeros((batch, group, outputs, math.prod(extents)), x.dtype)
        for place, elements in _taps(kernel, extents, steps, spread):
            part = data[elements]
            part = part.reshape(batch, group, inner, -1)
            matrix = weight[(*_ALL, *place)].reshape(group, outputs, inner)
            result += matrix * part if inner == 1 and outputs == 1 else matrix @ part
        result = result.reshape(batch, -1, *extents)
        if bias is not None:
            result += bias.reshape(-1, *[1] * len(kernel))
        return (result,)


class ConvTranspose(OpRun):
    """A transposed convolution, which adds a matrix product for each place in the kernel."""

    def _run(
        self,
        x: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray | None = None,
        auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray]:
        kernel = weight.shape[2:]
        rank = len(kernel)
        steps, spread = list(strides or [1] * rank), list(dilations or [1] * rank)
        more = list(output_padding or [0] * rank)
        begins, ends = list((pads or [0] * 2 * rank)[:rank]), list((pads or [0] * 2 * rank)[rank:])
        full = [
            (n - 1) * s + (k - 1) * d + 1
            for n, s, k, d in zip(x.shape[2:], steps, kernel, spread, strict=True)
        ]
        for axis in range(rank):
            wanted = None if output_shape is None else list(output_shape)[-rank:][axis]
            if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
                wanted = x.shape[2 + axis] * steps[axis]
            if wanted is not None:
                total = max(full[axis] + more[axis] - wanted, 0)
                small, large = total // 2, total - total // 2
                first = small if auto_pad == "SAME_UPPER" else large
                begins[axis], ends[axis] = first, total - first
        batch, inner, outputs = x.shape[0], weight.shape[0] // group, weight.shape[1]
        room = [f + max(m, 0) for f, m in zip(full, more, strict=True)]
        result = np.zeros((batch, group * outputs, *room), x.dtype)
        data = x.reshape(batch, group, inner, -1)
        for place, elements in _taps(kernel, x.shape[2:], steps, spread):
            matrix = weight[(*_ALL, *place)].reshape(group, inner, outputs)
            part = matrix.swapaxes(1, 2) @ data
            result[elements] += part.reshape(batch, -1, *x.shape[2:])
        kept = tuple(slice(b, r - e) for b, e, r in zip(begins, ends, room, strict=True))
        result = result[(*_ALL, *kept)]
        if bias is not None:
            result = result + bias.reshape(-1, *[1] * rank)
        return (result,)


class MaxPool(OpRun):
    """The maximum over the places of the kernel; without indices."""

    def _run(
        self,
        x: np.ndarray,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] = (),
        pads: Sequence[int] | None = None,
        storage_order: int = 0,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray]:
        if len(self.onnx_node.output) > 1:
            raise NotImplementedError("the indices of a MaxPool")
        extents, before, after, steps, spread = _windows(
            x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, ceil_mode=ceil_mode or 0
        )
        sizes = [(k - 1) * d + 1 for k, d in zip(kernel_shape, spread, strict=True)]
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        data = _padded(x, before, after, extents, sizes, steps, lowest)
        result = None
        for _, elements in _taps(kernel_shape, extents, steps, spread):
            part = data[elements]
            result = part.copy() if result is None else np.maximum(result, part, out=result)
        assert result is not None
        return (result,)


class AveragePool(OpRun):
    """The sum over the places of the kernel, divided by their number."""

    def _run(
        self,
        x: np.ndarray,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] = (),
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray]:
        extents, before, after, steps, spread = _windows(
            x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, ceil_mode=ceil_mode or 0
        )
        sizes = [(k - 1) * d + 1 for k, d in zip(kernel_shape, spread, strict=True)]
        ones = np.ones((1, 1, *x.shape[2:]))
        if count_include_pad:
            widths = [(0, 0), (0, 0), *zip(before, after, strict=True)]
            ones = np.pad(ones, widths, constant_values=1)
            counted = _padded(ones, [0] * len(sizes), [0] * len(sizes), extents, sizes, steps, 0)
        else:
            counted = _padded(ones, before, after, extents, sizes, steps, 0)
        data = _padded(x, before, after, extents, sizes, steps, 0)
        total, count = np.zeros((*x.shape[:2], *extents)), np.zeros((1, 1, *extents))
        for _, elements in _taps(kernel_shape, extents, steps, spread):
            total += data[elements]
            count += counted[elements]
        return ((total / count).astype(x.dtype),)


class BatchNormalization(OpRun):
    """A normalization with the given mean and variance, as models in use have it.

    That of onnx takes the statistics of the data if a node before opset 14 has a momentum.
    """

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray,
        mean: np.ndarray,
        var: np.ndarray,
        epsilon: float | None = None,
        training_mode: int | None = None,
        is_test: int | None = None,
        **_: Any,
    ) -> tuple[np.ndarray]:
        if training_mode or len(self.onnx_node.output) > 1:
            raise NotImplementedError("the training mode of a BatchNormalization")
        # Up to opset 8, there may be parameters for each element.
        shape = (-1, *[1] * (x.ndim - 2)) if scale.ndim == 1 else scale.shape
        factor = scale / np.sqrt(var + (1e-5 if epsilon is None else epsilon))
        return ((x - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape),)


def _erf(values: np.ndarray) -> np.ndarray:
    """The error function: Abramowitz and Stegun's series and continued fraction."""
    x = np.abs(values)
    small = np.minimum(x, 3.0)
    term, series = small.copy(), small.copy()
    for n in range(1, 60):
        term *= -small * small / n
        series += term / (2 * n + 1)
    large = np.maximum(x, 2.5)
    fraction = np.zeros_like(large)
    for n in range(60, 0, -1):
        fraction = n / 2 / (large + fraction)
    tail = 1 - np.exp(-large * large) / ((large + fraction) * math.sqrt(math.pi))
    erf = np.where(x < 2.75, 2 / math.sqrt(math.pi) * series, tail)
    return np.asarray(np.copysign(np.where(np.isnan(values), values, erf), values))


def _elementwise(function: Callable[..., np.ndarray]) -> Any:
    class Elementwise(OpRun):
        def _run(self, *args: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
            return (np.asarray(function(*args, **attributes)),)

    return Elementwise


def _softmax(log: bool) -> Any:
    class Softmax(OpRun):
        """Along an axis; before opset 13, over all axes from that one on."""

        def _run(self, x: np.ndarray, axis: int = -1) -> tuple[np.ndarray]:
            is_flat = self.run_params["opsets"][self.onnx_node.domain] < 13
            # The default that the evaluator passes is that of the latest opset.
            if is_flat and not self.onnx_node.attribute:
                axis = 1
            first = axis % max(x.ndim, 1)
            axes = tuple(range(first, x.ndim if is_flat else first + 1))
            if not x.size:
                return (x,)
            moved = x - x.max(axes, keepdims=True)
            total = np.exp(moved).sum(axes, keepdims=True)
            return ((moved - np.log(total)) if log else np.exp(moved) / total,)

    return Softmax


def _lrn(
    x: np.ndarray, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> np.ndarray:
    before, channels = (size - 1) // 2, x.shape[1]
    squares = np.zeros_like(x)
    for channel in range(channels):
        window = x[:, max(channel - before, 0) : channel - before + size]
        squares[:, channel] = np.square(window).sum(1)
    return np.asarray(x / (bias + alpha / size * squares) ** beta)


def _lp_normalization(x: np.ndarray, axis: int = -1, p: int = 2) -> np.ndarray:
    norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
    return np.where(norm == 0, 0, x / norm)


def _recurrent(name: str) -> Any:
    """The implementation of onnx, without what it ignores or gets wrong."""

    class Recurrent(load_op("", name, 14)):  # type: ignore[misc]
        def _run(self, *operands: Any, **attributes: Any) -> Any:
            ignored = {"activations", "activation_alpha", "activation_beta", "clip", "input_forget"}
            if ignored & {attribute.name for attribute in self.onnx_node.attribute}:
                raise NotImplementedError(f"{name} with other activations")
            if any(self.onnx_node.input[4:5]):
                raise NotImplementedError(f"{name} of sequences of different lengths")
            return super()._run(*operands, **attributes)

    return Recurrent


def _gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + _erf(x / math.sqrt(2)))


OPERATORS: dict[str, Any] = {
    "AveragePool": AveragePool,
    "BatchNormalization": BatchNormalization,
    "Conv": Conv,
    "ConvTranspose": ConvTranspose,
    "MaxPool": MaxPool,
    "Erf": _elementwise(_erf),
    "GRU": _recurrent("GRU"),
    "Gelu": _elementwise(_gelu),
    "GlobalMaxPool": _elementwise(lambda x: x.max(tuple(range(2, x.ndim)), keepdims=True)),
    "HardSwish": _elementwise(lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "LRN": _elementwise(_lrn),
    "LSTM": _recurrent("LSTM"),
    "LogSoftmax": _softmax(log=True),
    "LpNormalization": _elementwise(_lp_normalization),
    "RNN": _recurrent("RNN"),
    "Softmax": _softmax(log=False),
    "PRelu": _elementwise(lambda x, slope: np.where(x < 0, x * slope, x)),
}
"""The implementation of operators of the default domain, by name."""
