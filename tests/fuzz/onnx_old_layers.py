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
"""Layers of ONNX graphs of opsets 7 to 12."""

import numpy as np

from .onnx_graphs import Graph, Value
from .onnx_layers import convolve, multiply, pool, window

_FLOAT = ("float32",)


def _image(graph: Graph) -> Value | None:
    value = graph.pick(_FLOAT, ranks=(3, 4, 5), nonempty=True)
    if value is not None and graph.chance(0.6):
        return value
    if len(graph.inputs) > 4:
        return value
    spatial = [int(e) for e in graph.rng.integers(3, 8, int(graph.choose((1, 2, 2, 3))))]
    dims = [1 + graph.below(2), int(graph.choose((1, 2, 4))), *spatial]
    return graph.add_input("float32", dims, "normal")


def normalize_channels(graph: Graph) -> None:
    """Up to opset 8, a BatchNormalization may have parameters for each element."""
    value = _image(graph)
    if value is None:
        return
    channels = value.shape[1:2]
    attributes: dict[str, object] = {"epsilon": 0.01} if graph.chance(0.5) else {}
    if graph.chance(0.3):
        parameters = [graph.weight("float32", channels) for _ in range(2)]
        graph.add("InstanceNormalization", [value, *parameters], **attributes)
        return
    if graph.opset < 9 and graph.chance(0.3) and not graph.sizes:
        attributes["spatial"] = 0
        channels = value.shape[1:]
    parameters = [
        graph.weight("float32", channels, kind)
        for kind in ("normal", "normal", "normal", "positive")
    ]
    if graph.chance(0.3):
        attributes["momentum"] = 0.5
    graph.add("BatchNormalization", [value, *parameters], **attributes)


def other_norms(graph: Graph) -> None:
    value = _image(graph)
    if value is None:
        return
    kind = graph.below(4)
    if kind == 0 and value.rank == 4:
        size = int(graph.choose((1, 3, 5)))
        graph.add("LRN", [value], size=size, alpha=0.25, beta=0.5, bias=2.0)
    elif kind == 1:
        graph.add("LpNormalization", [value], axis=graph.below(value.rank), p=1 + graph.below(2))
    elif kind == 2 and graph.opset >= 9:
        axes = {"axes": [0, 2, 3][: value.rank - 1]} if value.rank == 4 else {"axes": [0, 2]}
        graph.add("MeanVarianceNormalization", [value], **axes)
    else:
        name = graph.choose(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
        graph.add(name, [value], **({"p": 1 + graph.below(3)} if name == "GlobalLpPool" else {}))


def drop(graph: Graph) -> None:
    value = graph.pick(("float32", "float64"))
    if value is None:
        return
    if graph.opset < 12:
        graph.add("Dropout", [value], exact=True, **({"ratio": 0.3} if graph.chance(0.5) else {}))
    else:
        ratio = [graph.constant(np.array(0.3, "float32"))] if graph.chance(0.5) else []
        graph.add("Dropout", [value, *ratio], exact=True)


def resize(graph: Graph) -> None:
    """Upsample with scales as attribute, then as operand; Resize without and with modes."""
    value = graph.pick(_FLOAT, ranks=(3, 4), nonempty=True)
    if value is None:
        return
    mode = str(graph.choose(("nearest", "nearest", "linear")))
    smallest = 1.0 if graph.opset < 10 else 0.5
    factors = [float(graph.choose((smallest, 1.0, 2.0, 3.0))) for _ in range(value.rank - 2)]
    scales = [1.0, 1.0, *factors]
    if graph.opset < 9:
        graph.add("Upsample", [value], limit=20000, mode=mode, scales=scales)
        return
    operand = graph.constant(np.array(scales, "float32"))
    if graph.opset < 11:
        name = "Upsample" if graph.opset < 10 else "Resize"
        graph.add(name, [value, operand], limit=20000, mode=mode)
        return
    attributes: dict[str, object] = {"mode": mode}
    if graph.chance(0.7):
        modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        attributes["coordinate_transformation_mode"] = graph.choose(modes)
    if mode == "nearest" and graph.chance(0.7):
        attributes["nearest_mode"] = graph.choose(("floor", "ceil", "round_prefer_floor"))
    graph.add("Resize", [value, graph.constant(np.zeros(0, "float32")), operand], **attributes)


def blocks(graph: Graph) -> None:
    value = graph.pick(_FLOAT, ranks=(4,))
    if value is None:
        return
    if value.shape[1] % 4 == 0 and value.shape[1]:
        more = {"mode": graph.choose(("DCR", "CRD"))} if graph.opset >= 11 else {}
        graph.add("DepthToSpace", [value], exact=True, blocksize=2, **more)
    elif value.shape[2] % 2 == 0 and value.shape[3] % 2 == 0 and not graph.sizes:
        graph.add("SpaceToDepth", [value], exact=True, blocksize=2)


def pool_with_norm(graph: Graph) -> None:
    value = _image(graph)
    if value is None:
        return
    spatial = value.rank - 2
    kernel = [1 + graph.below(3) for _ in range(spatial)]
    attributes = window(graph, spatial) | {"kernel_shape": kernel, "p": 1 + graph.below(3)}
    attributes.pop("dilations", None)
    if graph.sizes or str(attributes.get("auto_pad", "")).startswith("SAME"):
        # ONNX Runtime crops the data where the stride exceeds the kernel.
        attributes.pop("auto_pad", None)
    graph.add("LpPool", [value], limit=20000, nonempty=True, **attributes)


def quantize(graph: Graph) -> None:
    value = graph.pick(_FLOAT, exact=True, nonempty=True)
    if graph.opset < 10 or value is None or not np.isfinite(value.array).all():
        return
    if graph.opset >= 11 and graph.chance(0.3) and not graph.sizes:
        quantized = graph.add("DynamicQuantizeLinear", [value], outputs=3)
        return
    dtype = str(graph.choose(("uint8", "int8")))
    scale = graph.constant(np.array(0.5, "float32"))
    zero = graph.constant(np.array(graph.below(9), dtype))
    operands = [scale, zero] if graph.chance(0.7) or dtype == "int8" else [scale]
    quantized = graph.add("QuantizeLinear", [value, *operands], exact=True)
    if quantized and graph.chance(0.5):
        graph.add("DequantizeLinear", [quantized[0], *operands], exact=True)
    elif quantized and value.rank == 2 and not graph.sizes:
        weight = graph.weight("uint8", [value.shape[1], 3], "wide")
        graph.add("MatMulInteger", [quantized[0], weight], exact=True)


def recur(graph: Graph) -> None:
    if len(graph.inputs) > 4:
        return
    name = str(graph.choose(("LSTM", "GRU", "RNN")))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    steps, batch, width, hidden = 1 + graph.below(4), 1 + graph.below(2), 3, 2
    direction = str(graph.choose(("forward", "reverse", "bidirectional")))
    count = 2 if direction == "bidirectional" else 1
    x = graph.add_input("float32", [steps, batch, width], "normal")
    weights: list[Value | str] = [
        graph.weight("float32", [count, gates * hidden, width]),
        graph.weight("float32", [count, gates * hidden, hidden]),
    ]
    if graph.chance(0.6):
        weights.append(graph.weight("float32", [count, 2 * gates * hidden]))
        if graph.chance(0.5):
            lengths = graph.rng.integers(1, steps + 1, batch).astype("int32")
            weights.append(graph.constant(lengths))
    attributes: dict[str, object] = {"hidden_size": hidden, "direction": direction}
    if name == "GRU" and graph.chance(0.5):
        attributes["linear_before_reset"] = 1
    outputs = 3 if name == "LSTM" else 2
    graph.add(name, [x, *weights], outputs=outputs, **attributes)


LAYERS = (
    *(convolve, multiply, multiply, pool, pool, pool_with_norm, normalize_channels, other_norms),
    *(drop, resize, resize, blocks, quantize, recur),
)
"""Functions that add a node."""
