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
"""Quantized ONNX graphs: dequantized layers whose results are quantized, and integer products."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .onnx_block_weights import product_in_blocks
from .onnx_graphs import Graph, Value
from .onnx_layers import window

_NARROW = ("uint8", "int8")
_WIDE = ("int16", "uint16")
_MIN_OPSET_OF_WIDE = 21


@dataclass(frozen=True, eq=False)
class _Real:
    """A float tensor of the graph.

    Attributes
    ----------
    value : Value
    scale : numpy.ndarray
        The scale with which it was dequantized.
    parameters : tuple of str
        The names of its scale and zero point.
    """

    value: Value
    scale: np.ndarray
    parameters: tuple[str, str]


def fill(graph: Graph) -> None:
    """Add a few quantized layers."""
    wanted = 4 + graph.below(14)
    weights = np.array([weight for _, weight in _STEPS])
    for _ in range(30):
        if len(graph.nodes) >= wanted:
            break
        step = _STEPS[int(graph.rng.choice(len(_STEPS), p=weights / weights.sum()))][0]
        step(graph)


# Operands


def _integers(graph: Graph, ranks: Sequence[int] = range(1, 6)) -> Value | None:
    """A quantized value, or a new input, of one of the `ranks`."""
    dtypes = (*_NARROW, *_WIDE)
    value = graph.pick(dtypes, ranks=ranks)
    if value is not None and graph.chance(0.75):
        return value
    if len(graph.inputs) > 3:
        return value
    has_16_bits = graph.opset >= _MIN_OPSET_OF_WIDE and graph.chance(0.1)
    dtype = str(graph.choose(_WIDE if has_16_bits else _NARROW))
    kind = "special" if graph.chance(0.15) else "wide"
    return graph.add_input(dtype, _dims(graph, int(graph.choose(ranks))), kind)


def _dims(graph: Graph, rank: int) -> list[int | str]:
    batch: int | str = int(graph.choose((1, 1, 2, 3, 5, 8)))
    if graph.sizes:
        batch = str(graph.choose(("n", "n", "m")))
    channels = int(graph.choose((1, 2, 3, 4, 4, 8, 8, 16, 17, 32)))
    spatial = [int(e) for e in graph.rng.integers(1, 10, max(rank - 2, 0))]
    dims = [batch, channels, *spatial][:rank]
    if graph.chance(0.04):
        dims[graph.below(rank)] = 0
    return dims


def _scales(graph: Graph, shape: Sequence[int], *, signed: bool = True) -> np.ndarray:
    """Random scales: often powers of two, with which products are exact; seldom extreme ones."""
    if graph.chance(0.4):
        scales = 2.0 ** graph.rng.integers(-6, 1, shape)
    else:
        scales = 10.0 ** graph.rng.uniform(-3, 0, shape)
    if signed and graph.chance(0.06):
        scales = scales * graph.rng.choice([-1.0, 0.0, 1.0], shape)
    if graph.chance(0.03):
        scales = scales * graph.choose((1e-12, 1e-6, 1e6))
    return np.asarray(scales, "float32")


def _zeros(graph: Graph, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Zero points: 0, the middle, or any."""
    limits = np.iinfo(dtype)
    if graph.chance(0.3):
        return np.asarray(np.full(shape, (limits.min + limits.max + 1) // 2), dtype)
    if graph.chance(0.3):
        return np.asarray(graph.rng.integers(limits.min, limits.max + 1, shape), dtype)
    return np.zeros(shape, dtype)


def _dequantized(
    graph: Graph,
    data: Value,
    parameters: tuple[str, str] | None = None,
    *,
    axes: Sequence[int] = (),
) -> _Real | None:
    """Dequantize `data`, with scales along one of `axes` or one scale."""
    attributes: dict[str, object] = {}
    shape: list[int] = []
    if parameters is None:
        if axes and graph.chance(0.5):
            axis = int(graph.choose(axes))
            attributes["axis"] = axis - data.rank if graph.chance(0.2) else axis
            shape = [data.shape[axis]]
        elif graph.chance(0.05):
            shape = [1]
        scale = graph.constant(_scales(graph, shape))
        parameters = scale, graph.constant(_zeros(graph, data.dtype, shape))
    has_zero = graph.constants[parameters[1]].any() or graph.chance(0.7)
    operands: list[Value | str] = [data, parameters[0]]
    if has_zero:
        operands.append(parameters[1])
    dequantized = graph.add("DequantizeLinear", operands, exact=True, **attributes)
    return (
        _Real(dequantized[0], graph.constants[parameters[0]], parameters) if dequantized else None
    )


def _quantized(graph: Graph, value: Value, like: tuple[str, str] | None = None) -> None:
    """Quantize a value, with the parameters `like` or with a range that suits the data."""
    has_16_bits = graph.opset >= _MIN_OPSET_OF_WIDE and graph.chance(0.1)
    dtype = str(graph.choose(_WIDE if has_16_bits else _NARROW))
    finite = np.abs(value.array[np.isfinite(value.array)], dtype="float64")
    if value.array.size != finite.size or value.dtype != "float32":
        return
    attributes: dict[str, object] = {}
    if like is None:
        shape, extent = [], float(finite.max(initial=0.0)) or 1.0
        if value.rank > 1 and not graph.sizes and graph.chance(0.1):
            axis = graph.below(value.rank)
            shape, attributes = [value.shape[axis]], {"axis": axis}
        scale = extent / np.iinfo(dtype).max * graph.rng.uniform(0.5, 2.5, shape)
        if graph.chance(0.3):
            scale = 2.0 ** np.round(np.log2(scale))
        if graph.chance(0.05):
            scale = scale * graph.choose((1e-4, 1e3, -1.0))
        like = (
            graph.constant(np.asarray(scale, "float32")),
            graph.constant(_zeros(graph, dtype, shape)),
        )
    if (graph.constants[like[0]] == 0).any():
        return
    operands: list[Value | str] = [value, like[0]]
    if graph.constants[like[1]].dtype != "uint8" or graph.chance(0.9):
        operands.append(like[1])
    graph.add("QuantizeLinear", operands, exact=True, **attributes)


def _weight(graph: Graph, shape: Sequence[int], axis: int) -> _Real | None:
    """A dequantized constant, with one scale or scales along `axis`."""
    dtype = str(graph.choose(("int8", "int8", "int8", "uint8")))
    kind = "wide" if graph.chance(0.8) else "special"
    array = graph.weight(dtype, shape, kind)
    symmetric = dtype == "int8" and graph.chance(0.7)
    parts = [shape[axis]] if graph.chance(0.5) else []
    zeros = np.zeros(parts, dtype) if symmetric else _zeros(graph, dtype, parts)
    scale, zero = graph.constant(_scales(graph, parts)), graph.constant(zeros)
    attributes = {"axis": axis} if parts else {}
    dequantized = graph.add("DequantizeLinear", [array, scale, zero], exact=True, **attributes)
    return _Real(dequantized[0], graph.constants[scale], (scale, zero)) if dequantized else None


def _bias(graph: Graph, data: _Real, weight: _Real, extent: int) -> list[Value]:
    """A dequantized int32 constant; its scale is often the product of the others."""
    scale = np.asarray(data.scale.reshape(-1)[:1] * weight.scale, "float32").reshape(
        weight.scale.shape
    )
    if graph.chance(0.15):
        scale = np.asarray(scale * np.float32(graph.choose((1.000001, 1.5, 0.25))), "float32")
    if scale.ndim and scale.shape != (extent,):
        scale = np.asarray(scale.reshape(-1)[0] if scale.size else np.float32(1))
    limit = 2**31 - 1 if graph.chance(0.1) else 20000
    numbers = graph.rng.integers(-limit, limit, extent)
    if limit > 20000:
        numbers = np.where(graph.rng.random(extent) < 0.3, limit, numbers)
    constant = graph.constant(numbers.astype("int32"))
    operands = [constant, graph.constant(scale)]
    if graph.chance(0.5):
        operands.append(graph.constant(np.zeros(scale.shape, "int32")))
    attributes = {"axis": 0} if scale.ndim else {}
    return graph.add("DequantizeLinear", operands, exact=True, **attributes)


# Layers


def _convolution(graph: Graph) -> None:
    data = _integers(graph, (3, 4, 4, 4, 5))
    real = None if data is None else _dequantized(graph, data)
    if real is None or (channels := real.value.shape[1]) == 0:
        return
    spatial = real.value.rank - 2
    groups = int(graph.choose([1, 1, channels, *(g for g in (2, 4, 8) if channels % g == 0)]))
    outside = groups * int(graph.choose((1, 1, 2, 3, 4, 8, 16) if groups < 9 else (1, 1, 2)))
    kernel = [1 + graph.below(3) for _ in range(spatial)]
    # ONNX Runtime crashes in a transposed convolution of no elements.
    transposed = graph.chance(0.2) and real.value.array.size > 0
    inner = [channels, outside // groups] if transposed else [outside, channels // groups]
    weight = _weight(graph, [*inner, *kernel], int(transposed) if groups == 1 else 0)
    if weight is None:
        return
    operands: list[Value | str] = [real.value, weight.value]
    if graph.chance(0.6):
        operands += _bias(graph, real, weight, outside)
    name = "ConvTranspose" if transposed else "Conv"
    attributes = window(graph, spatial) | {"group": groups}
    _finish(graph, graph.add(name, operands, limit=20000, nonempty=True, **attributes))


def _product(graph: Graph) -> None:
    data = _integers(graph, (1, 2, 2, 2, 3, 4))
    real = None if data is None else _dequantized(graph, data)
    if real is None:
        return
    width = int(graph.choose((1, 2, 3, 8, 16, 17, 33, 64)))
    depth = real.value.shape[-1]
    if real.value.rank == 2 and graph.chance(0.5):
        _gemm(graph, real, width)
        return
    if graph.chance(0.15):
        other = _integers(graph, (2, 3, 4))
        weight = None if other is None else _dequantized(graph, other, axes=[other.rank - 1])
    else:
        lead = [int(real.value.shape[0])] if real.value.rank == 3 and graph.chance(0.2) else []
        shape = [*lead, depth, width] if graph.chance(0.9) else [depth]
        weight = _weight(graph, shape, len(shape) - 1 if graph.chance(0.9) else 0)
    if weight is None:
        return
    out = graph.add("MatMul", [real.value, weight.value], limit=20000)
    if out and graph.chance(0.5) and weight.value.rank > 1:
        bias = _bias(graph, real, weight, weight.value.shape[-1])
        pair = [out[0], *bias] if graph.chance(0.5) else [*bias, out[0]]
        out = graph.add("Add", pair) if bias else out
    _finish(graph, out)


def _gemm(graph: Graph, real: _Real, width: int) -> None:
    flags = {"transA": int(graph.chance(0.2)), "transB": graph.below(2)}
    depth = real.value.shape[0 if flags["transA"] else 1]
    shape = [width, depth] if flags["transB"] else [depth, width]
    weight = _weight(graph, shape, 0 if flags["transB"] else 1)
    if weight is None:
        return
    operands: list[Value | str] = [real.value, weight.value]
    if graph.chance(0.6):
        operands += _bias(graph, real, weight, width)
    factors = {"alpha": 0.5, "beta": 2.0} if graph.chance(0.15) else {}
    _finish(graph, graph.add("Gemm", operands, limit=20000, **flags, **factors))


def _finish(graph: Graph, out: list[Value]) -> None:
    """An activation after a layer, and a quantization."""
    if not out:
        return
    value = out[0]
    if graph.chance(0.4):
        name = str(graph.choose(("Relu", "Relu", "Clip", "Sigmoid", "Softmax", "LeakyRelu")))
        operands: list[Value | str] = [value]
        if name == "Clip":
            low = float(graph.choose((0.0, -1.0, 0.5)))
            bounds = [graph.constant(np.array(b, "float32")) for b in (low, low + 6.0)]
            operands += graph.choose(([bounds[0]], bounds, ["", bounds[1]]))
        applied = graph.add(name, operands, exact=name in ("Relu", "Clip"))
        value = applied[0] if applied else value
    if graph.chance(0.85):
        _quantized(graph, value)


def _elementwise(graph: Graph) -> None:
    data = _integers(graph)
    real = None if data is None else _dequantized(graph, data)
    if data is None or real is None:
        return
    others = [v for v in graph.values if v.dtype in _NARROW and v.shape == data.shape]
    if others and graph.chance(0.7):
        other = _dequantized(graph, graph.choose(others))
    else:
        other = _weight(graph, [int(data.shape[-1])], 0)
    if other is not None:
        pair = [real.value, other.value] if graph.chance(0.5) else [other.value, real.value]
        _finish(graph, graph.add(graph.choose(("Add", "Add", "Mul", "Sub", "Max")), pair))


def _unary(graph: Graph) -> None:
    data = _integers(graph)
    real = None if data is None else _dequantized(graph, data, axes=_static_axes(graph, data))
    if real is None:
        return
    name = str(graph.choose(("Relu", "Relu", "Sigmoid", "Softmax", "Clip", "Identity", "Tanh")))
    operands: list[Value | str] = [real.value]
    if name == "Clip":
        operands += [graph.constant(np.array(bound, "float32")) for bound in (0.0, 6.0)]
    out = graph.add(name, operands, exact=name in ("Relu", "Clip", "Identity"))
    if out:
        _quantized(graph, out[0], _kept(graph, real))


def _static_axes(graph: Graph, data: Value) -> list[int]:
    return [1] * (data.rank > 1) if graph.sizes else list(range(data.rank))


def _kept(graph: Graph, real: _Real) -> tuple[str, str] | None:
    """The parameters with which to quantize `real` again; None to choose others."""
    return real.parameters if real.scale.ndim == 0 and graph.chance(0.6) else None


def _pool(graph: Graph) -> None:
    data = _integers(graph, (3, 4, 4, 5))
    real = None if data is None else _dequantized(graph, data, axes=[1])
    if data is None or real is None:
        return
    name = str(graph.choose(("MaxPool", "MaxPool", "AveragePool", "GlobalAveragePool")))
    attributes: dict[str, object] = {}
    if not name.startswith("Global"):
        kernel = [1 + graph.below(min(e, 3) or 1) for e in data.shape[2:]]
        strides = [1 + graph.below(k) for k in kernel]
        attributes = {"kernel_shape": kernel, "strides": strides}
        if graph.chance(0.5):
            attributes["pads"] = [graph.below(k) for k in 2 * kernel]
    integers = name == "MaxPool" and data.dtype in _NARROW and graph.chance(0.3)
    operand = data if integers else real.value
    out = graph.add(name, [operand], exact=name == "MaxPool", nonempty=True, **attributes)
    if out and not integers and graph.chance(0.85):
        _quantized(graph, out[0], _kept(graph, real))


def _concat(graph: Graph) -> None:
    data = _integers(graph)
    if data is None:
        return
    others = [v for v in graph.values if v.dtype == data.dtype and v.shape == data.shape]
    first = _dequantized(graph, data)
    if first is None or not others:
        return
    same = graph.chance(0.6) and first.scale.ndim == 0
    parts = [first, _dequantized(graph, graph.choose(others), first.parameters if same else None)]
    axis = 1 if data.rank > 1 else 0
    values = [part.value for part in parts if part is not None]
    out = graph.add("Concat", values, exact=True, axis=axis)
    if out and graph.chance(0.8):
        _quantized(graph, out[0], _kept(graph, first))


def _move(graph: Graph) -> None:
    data = _integers(graph)
    if data is None:
        return
    integers = data.dtype in _NARROW and graph.chance(0.3)
    real = None if integers else _dequantized(graph, data, axes=_static_axes(graph, data))
    if real is None and not integers:
        return
    value = data if real is None else real.value
    out = _moved(graph, value)
    if out and real is not None and graph.chance(0.8):
        _quantized(graph, out[0], _kept(graph, real))


def _moved(graph: Graph, value: Value) -> list[Value]:
    """`value` with its elements rearranged; a symbolic batch axis is not moved."""
    name = str(graph.choose(("Reshape", "Transpose", "Flatten", "Squeeze", "Slice", "Resize")))
    rank = value.rank
    if name == "Reshape":
        shape = graph.choose(([0, -1], [-1], [0, 1, -1], [-1, 1]))
        return graph.add(name, [value, graph.constant(np.array(shape))], exact=True)
    if name == "Transpose":
        order = [int(axis) for axis in graph.rng.permutation(rank)]
        if graph.sizes:
            order = [0, *(axis for axis in order if axis)]
        return graph.add(name, [value], exact=True, perm=order)
    if name == "Flatten":
        return graph.add(name, [value], exact=True, axis=min(1, rank))
    if name == "Squeeze":
        axes = [axis for axis in range(bool(graph.sizes), rank) if value.shape[axis] == 1]
        operands = [value, graph.constant(np.array(axes))] if axes else []
        return graph.add(name, operands, exact=True) if operands else []
    if name == "Slice":
        bounds = [[graph.below(2)], [int(graph.choose((3, 100, -1)))], [rank - 1]]
        names = [graph.constant(np.array(bound)) for bound in bounds]
        if graph.chance(0.4):
            names.append(graph.constant(np.array([2])))
        return graph.add(name, [value, *names], exact=True, nonempty=True)
    if rank != 4 or value.dtype != "float32" or not value.array.size:
        return []
    factors = graph.constant(np.array([1.0, 1.0, 2.0, 2.0], "float32"))
    return graph.add(
        name,
        [value, "", factors],
        exact=True,
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


# Products of integers


def _integer_product(graph: Graph) -> None:
    value = _integers(graph, (1, 2, 2, 3))
    if value is None or value.dtype not in _NARROW:
        return
    dtype = str(graph.choose(_NARROW))
    width = int(graph.choose((1, 2, 8, 9, 16, 33)))
    other = graph.weight(dtype, [value.shape[-1], width], "wide")
    # ONNX Runtime rejects a zero point per row of the left operand.
    parts = [width] if graph.chance(0.4) else []
    zeros = (
        graph.constant(_zeros(graph, value.dtype, [])),
        graph.constant(_zeros(graph, dtype, parts)),
    )
    if graph.chance(0.5):
        graph.add("MatMulInteger", [value, other, *zeros[: graph.below(3)]])
        return
    scales = [graph.constant(_scales(graph, shape, signed=False)) for shape in ([], parts)]
    operands = [value, scales[0], zeros[0], other, scales[1], zeros[1]]
    graph.add("QLinearMatMul", [*operands, *_range_of_product(graph, value, scales)])


def _range_of_product(graph: Graph, value: Value, scales: Sequence[str]) -> list[str]:
    """The quantization parameters of a result that suit products of random integers."""
    factor = np.prod([float(graph.constants[scale].max(initial=0)) for scale in scales])
    scale = np.asarray(factor * 2.0 ** graph.rng.uniform(5, 10), "float32")
    return [graph.constant(scale), graph.constant(_zeros(graph, value.dtype, []))]


def _integer_convolution(graph: Graph) -> None:
    value = _integers(graph, (3, 4, 4, 5))
    if value is None or value.dtype not in _NARROW or not (channels := value.shape[1]):
        return
    spatial = value.rank - 2
    groups = int(graph.choose((1, 1, channels)))
    outside = groups * int(graph.choose((1, 2, 4, 8)))
    shape = [outside, channels // groups, *(1 + graph.below(3) for _ in range(spatial))]
    dtype = str(graph.choose(("int8", value.dtype)))
    weight = graph.weight(dtype, shape, "wide")
    attributes = window(graph, spatial) | {"group": groups}
    zero = graph.constant(_zeros(graph, value.dtype, []))
    if graph.chance(0.5):
        of_weight = graph.constant(_zeros(graph, dtype, []))
        operands = [value, weight, zero, of_weight][: 2 + graph.below(3)]
        graph.add("ConvInteger", operands, limit=20000, nonempty=True, **attributes)
        return
    parts = [outside] if graph.chance(0.5) else []
    # ONNX Runtime requires equal zero points of all channels.
    of_weight = graph.constant(np.zeros(parts, dtype))
    scales = [graph.constant(_scales(graph, part, signed=False)) for part in ([], parts)]
    operands = [value, scales[0], zero, weight, scales[1], of_weight]
    operands += _range_of_product(graph, value, scales)
    if graph.chance(0.6):
        operands.append(graph.constant(graph.rng.integers(-20000, 20000, outside).astype("int32")))
    graph.add("QLinearConv", operands, limit=20000, nonempty=True, **attributes)


def _dynamic(graph: Graph) -> None:
    """Quantize a float value, or a new input, with the range of its data."""
    value = graph.pick(("float32",), ranks=range(1, 5), nonempty=True)
    if value is None or graph.chance(0.3):
        if len(graph.inputs) > 3:
            return
        value = graph.add_input("float32", _dims(graph, 1 + graph.below(4)), "normal")
    if np.isfinite(value.array).all() and value.array.size:
        graph.add("DynamicQuantizeLinear", [value], outputs=3)


def _quantized_input(graph: Graph) -> None:
    if len(graph.inputs) < 4:
        rank = int(graph.choose((2, 3, 4, 4)))
        _quantized(graph, graph.add_input("float32", _dims(graph, rank), "normal"))


_STEPS: tuple[tuple[Callable[[Graph], None], float], ...] = (
    (_convolution, 4),
    (_product, 4),
    (lambda graph: _finish(graph, product_in_blocks(graph)), 1),
    (_elementwise, 1.5),
    (_unary, 1.5),
    (_pool, 1.5),
    (_concat, 1),
    (_move, 2),
    (_integer_product, 1),
    (_integer_convolution, 1),
    (_dynamic, 0.4),
    (_quantized_input, 0.7),
)
