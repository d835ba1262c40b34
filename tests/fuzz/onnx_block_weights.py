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
"""Products with weights that have a scale for each block of rows."""

from .onnx_graphs import Graph, Value

_MIN_OPSET = 21


def product_in_blocks(graph: Graph) -> list[Value]:
    """Add a product of floats and a constant that is quantized in blocks; return its result."""
    if graph.opset < _MIN_OPSET:
        return []
    floats = [v for v in graph.values if v.dtype == "float32" and v.rank > 1 and v.shape[-1] > 15]
    if floats and graph.chance(0.5):
        data = graph.choose(floats)
    elif len(graph.inputs) > 3:
        return []
    else:
        rows = str(graph.choose(("n", "m"))) if graph.sizes else 1 + graph.below(20)
        depth = int(graph.choose((64, 96, 100, 256)))
        data = graph.add_input("float32", [rows, depth], "normal")
    depth, width, block = data.shape[-1], 1 + graph.below(90), int(graph.choose((16, 32, 64)))
    bits, is_transposed = int(graph.choose((2, 4, 4, 8))), graph.chance(0.5)
    shape = [width, depth] if is_transposed else [depth, width]
    axis = int(is_transposed)
    grid = [-(-extent // block) if i == axis else extent for i, extent in enumerate(shape)]
    operands: list[Value | str] = [
        graph.constant(graph.rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), shape, "int8")),
        graph.constant(graph.rng.uniform(0.01, 1, grid).astype("float32")),
    ]
    if graph.chance(0.5):
        operands.append(graph.constant(graph.rng.integers(-5, 6, grid, "int8")))
    weight = graph.add("DequantizeLinear", operands, axis=axis, block_size=block)
    if weight and is_transposed:
        weight = graph.add("Transpose", [weight[0]], perm=[1, 0])
    return graph.add("MatMul", [data, weight[0]], limit=20000) if weight else []
