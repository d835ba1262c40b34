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
"""Convolutions, products, poolings, recurrences, quantization and control flow of ONNX graphs."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import helper

from .onnx_graphs import Graph, Value, element
from .values import FLOATS

_NETWORK_DTYPES = ("float32", "float32", "float16", "float64", "bfloat16")


def _image(graph: Graph) -> Value | None:
    """A value or new input with batch, channels and one to three spatial axes."""
    value = graph.pick(FLOATS, ranks=(3, 4, 5))
    if value is not None and graph.chance(0.7):
        return value
    if len(graph.inputs) > 4:
        return value
    spatial = [int(e) for e in graph.rng.integers(3, 10, graph.choose((1, 2, 2, 2, 3)))]
    batch: int | str = graph.choose(list(graph.sizes)) if graph.sizes else 1 + graph.below(2)
    dims = [batch, int(graph.choose((1, 2, 3, 4, 6, 8, 16))), *spatial]
    return graph.add_input(str(graph.choose(_NETWORK_DTYPES)), dims, "normal")


def window(graph: Graph, spatial: int) -> dict[str, object]:
    """Strides, dilations and either pads or auto_pad."""
    attributes: dict[str, object] = {}
    if graph.chance(0.5):
        attributes["strides"] = [1 + graph.below(3) for _ in range(spatial)]
    if graph.chance(0.3):
        attributes["dilations"] = [1 + graph.below(2) for _ in range(spatial)]
    if graph.chance(0.2):
        attributes["auto_pad"] = graph.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif graph.chance(0.6):
        attributes["pads"] = [graph.below(3) for _ in range(2 * spatial)]
    return attributes


def convolve(graph: Graph) -> None:
    value = _image(graph)
    if value is None:
        return
    channels, spatial = value.shape[1], value.rank - 2
    if channels == 0:
        return
    groups = int(graph.choose([g for g in range(1, channels + 1) if channels % g == 0]))
    per_group = 1 + graph.below(5)
    kernel = [1 + graph.below(3) for _ in range(spatial)]
    # ONNX Runtime crashes in a transposed convolution of no elements.
    transposed = graph.chance(0.35) and value.array.size > 0
    outside = groups * per_group
    inner = [channels, per_group] if transposed else [outside, channels // groups]
    operands: list[Value | str] = [value, graph.weight(value.dtype, [*inner, *kernel])]
    if graph.chance(0.6):
        operands.append(graph.weight(value.dtype, [outside]))
    attributes = window(graph, spatial) | {"group": groups}
    if transposed and graph.chance(0.3):
        strides = attributes.get("strides", [1] * spatial)
        attributes["output_padding"] = [graph.below(s) for s in strides]  # type: ignore[union-attr]
    name = "ConvTranspose" if transposed else "Conv"
    graph.add(name, operands, limit=20000, nonempty=True, **attributes)


def pool(graph: Graph) -> None:
    value = _image(graph)
    # ONNX Runtime pools only float32; onnx's reference rounds shapes differently in a few modes.
    if value is None or value.dtype != "float32":
        return
    spatial = value.rank - 2
    if graph.chance(0.2):
        graph.add(graph.choose(("GlobalAveragePool", "GlobalMaxPool")), [value])
        return
    name = str(graph.choose(("MaxPool", "AveragePool", "LpPool")))
    kernel = [1 + graph.below(3) for _ in range(spatial)]
    attributes = window(graph, spatial) | {"kernel_shape": kernel}
    pads = attributes.get("pads")
    if isinstance(pads, list):
        # ONNX does not specify the mean of a window without data.
        attributes["pads"] = [min(p, k - 1) for p, k in zip(pads, 2 * kernel, strict=True)]
    if "auto_pad" not in attributes and exceeds_data(value.shape[2:], attributes):
        # ONNX Runtime and shape inference round the negative number of windows up.
        return
    # ONNX Runtime computes pads without dilation.
    if (graph.opset < 19 and name != "MaxPool") or "auto_pad" in attributes:
        attributes.pop("dilations", None)
    strides = attributes.get("strides", [1] * spatial)
    if "auto_pad" in attributes and any(s > k for s, k in zip(strides, kernel, strict=True)):
        # ONNX Runtime's pads would be negative, and its averages would start inside the data.
        return
    if graph.opset >= 18 or name != "LpPool":
        attributes["ceil_mode"] = graph.below(2)
    if name == "AveragePool":
        attributes["count_include_pad"] = graph.below(2)
    outputs = 2 if name == "MaxPool" and value.exact and graph.chance(0.2) else 1
    exact = name == "MaxPool"
    graph.add(name, [value], outputs=outputs, exact=exact, limit=20000, nonempty=True, **attributes)


def exceeds_data(extents: Sequence[int], attributes: Mapping[str, object]) -> bool:
    """Whether a window is longer than the padded data, whose spatial axes have these extents."""
    spatial = len(extents)

    def numbers(name: str, count: int, default: int) -> list[int]:
        return list(attributes.get(name, [default] * count))  # type: ignore[call-overload]

    pads, dilations = numbers("pads", 2 * spatial, 0), numbers("dilations", spatial, 1)
    padded = (d + p + q for d, p, q in zip(extents, pads, pads[spatial:], strict=False))
    kernel = numbers("kernel_shape", spatial, 1)
    windows = ((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    return any(window > extent for window, extent in zip(windows, padded, strict=True))


def multiply(graph: Graph) -> None:
    value = graph.pick((*FLOATS, "int32", "int64"), ranks=range(1, 5))
    if value is None:
        return
    dtype, inner = value.dtype, value.shape[-1]
    kind = "exact" if value.exact else "normal"
    width = 1 + graph.below(20)
    if value.rank == 2 and graph.chance(0.4) and dtype in FLOATS:
        flags = {"transA": graph.below(2), "transB": graph.below(2)}
        inner = value.shape[0] if flags["transA"] else value.shape[1]
        shape = [width, inner] if flags["transB"] else [inner, width]
        operands: list[Value | str] = [value, graph.weight(dtype, shape, kind)]
        if graph.chance(0.5):
            operands.append(graph.weight(dtype, graph.choose(([width], [1, width], [1], [])), kind))
        scales = {"alpha": 0.5, "beta": 2.0} if graph.chance(0.3) else {}
        graph.add("Gemm", operands, exact=True, **flags, **scales)
        return
    others = [v for v in graph.values if v.dtype == dtype and v.rank >= 2 and v.shape[-2] == inner]
    if others and graph.chance(0.4):
        other: Value | str = graph.choose(others)
    else:
        lead = [1] * graph.below(2) if value.rank < 3 else [graph.choose((1, value.shape[0]))]
        lead = [] if graph.chance(0.5) or value.rank < 3 else [*lead, *[1] * (value.rank - 3)]
        other = graph.weight(dtype, [*lead, inner, width] if graph.chance(0.9) else [inner], kind)
    graph.add("MatMul", [value, other], exact=True, limit=20000)


def einsum(graph: Graph) -> None:
    value = graph.pick(("float32", "float64"), ranks=(2, 3))
    if value is None:
        return
    letters = "abc"[: value.rank]
    other = graph.weight(value.dtype, [value.shape[-1], 1 + graph.below(4)])
    kept = "".join(graph.rng.permutation(list(letters[:-1] + "z")))
    graph.add("Einsum", [value, other], equation=f"{letters},{letters[-1]}z->{kept}")


def resize(graph: Graph) -> None:
    # ONNX Runtime has no kernel for other dtypes, and onnx's reference computes in float32.
    value = graph.pick(("float32",), ranks=(3, 4))
    if value is None or 0 in value.shape:
        return
    mode = str(graph.choose(("nearest", "linear", "cubic")))
    attributes: dict[str, object] = {
        "mode": mode,
        "coordinate_transformation_mode": graph.choose(
            ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        ),
    }
    if mode == "nearest":
        rounding = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attributes["nearest_mode"] = graph.choose(rounding)
    spatial = value.rank - 2
    if graph.chance(0.5):
        # Powers of two: with other factors, nearest-neighbor positions may round either way.
        factors = [1.0, 1.0, *(float(graph.choose((0.5, 1.0, 2.0, 4.0))) for _ in range(spatial))]
        operands = [value, "", graph.constant(np.array(factors, "float32"))]
    else:
        sizes = [*value.shape[:2], *(e * int(graph.choose((1, 2, 4))) for e in value.shape[2:])]
        operands = [value, "", "", graph.constant(np.array(sizes, "int64"))]
    graph.add("Resize", operands, limit=20000, **attributes)


def quantize(graph: Graph) -> None:
    dtype = str(graph.choose(("uint8", "int8")))
    value = graph.pick(("float32",), ranks=range(1, 5), exact=True)
    if value is None or not bool(np.isfinite(value.array).all()):
        return
    axis = graph.below(value.rank)
    channels = value.shape[axis]
    shape = [channels] if graph.chance(0.5) and not graph.sizes else []
    # Quotients by powers of two are exact, so their rounding is unambiguous.
    scale = graph.constant(2.0 ** graph.rng.integers(-3, 2, shape).astype("float32"))
    zero = graph.constant(graph.rng.integers(0, 9, shape).astype(dtype))
    attributes = {"axis": axis} if shape else {}
    quantized = graph.add("QuantizeLinear", [value, scale, zero], exact=True, **attributes)
    if quantized and graph.chance(0.7):
        graph.add("DequantizeLinear", [quantized[0], scale, zero], exact=True, **attributes)


def integer_product(graph: Graph) -> None:
    value = graph.pick(("uint8", "int8"), ranks=(2, 3))
    if value is not None:
        other = graph.weight("int8", [value.shape[-1], 1 + graph.below(9)])
        zeros = [graph.weight(value.dtype, [], "positive")] if graph.chance(0.5) else []
        graph.add("MatMulInteger", [value, other, *zeros])


def recur(graph: Graph) -> None:
    value = graph.pick(("float32",), ranks=(3,))
    if value is None or 0 in value.shape:
        return
    name = str(graph.choose(("LSTM", "GRU", "RNN")))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    direction = str(graph.choose(("forward", "reverse", "bidirectional")))
    ways, hidden = 2 if direction == "bidirectional" else 1, 1 + graph.below(4)
    operands = [
        value,
        graph.weight("float32", [ways, gates * hidden, value.shape[-1]]),
        graph.weight("float32", [ways, gates * hidden, hidden]),
    ]
    if graph.chance(0.6):
        operands.append(graph.weight("float32", [ways, 2 * gates * hidden]))
    attributes: dict[str, object] = {"hidden_size": hidden, "direction": direction}
    if name == "GRU":
        attributes["linear_before_reset"] = graph.below(2)
    graph.add(name, operands, outputs=3 if name == "LSTM" else 2, **attributes)


def branch(graph: Graph) -> None:
    """An If whose branches read values of the enclosing graph."""
    value = graph.pick(FLOATS)
    condition = graph.pick(("bool",), ranks=(0,))
    if value is None or len(graph.nodes) < 2:
        return
    taken: Value | str = condition or graph.constant(np.array(graph.chance(0.5)))
    if condition is None and graph.inputs and not graph.sizes:
        taken = graph.add_input("bool", [], "exact")
    bodies = [
        helper.make_graph(
            [helper.make_node(operator, [value.name], [result], name=f"{result}_node")],
            result,
            [],
            [helper.make_tensor_value_info(result, element(value.dtype), None)],
        )
        for operator, result in (
            ("Neg", f"then{len(graph.nodes)}"),
            ("Abs", f"else{len(graph.nodes)}"),
        )
    ]
    graph.add_with_outer("If", [taken], [value], then_branch=bodies[0], else_branch=bodies[1])


FAMILIES: tuple[tuple[Callable[[Graph], None], float], ...] = (
    (convolve, 2),
    (pool, 1.5),
    (multiply, 2),
    (einsum, 0.3),
    (resize, 0.7),
    (quantize, 0.7),
    (integer_product, 0.3),
    (recur, 0.5),
    (branch, 0.4),
)
