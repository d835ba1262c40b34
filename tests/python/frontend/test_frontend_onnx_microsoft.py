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
"""Operators of the domain com.microsoft, compared with ONNX Runtime."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    node_model,
    normal,
)
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

Case = tuple[onnx.ModelProto, Arrays]

MICROSOFT = "com.microsoft"


def case(
    operator: str,
    inputs: Mapping[str, np.ndarray | None],
    attributes: Mapping[str, object] | None = None,
    outputs: Mapping[str, tuple[str, int]] | None = None,
    *,
    constants: Arrays | None = None,
    shapes: Mapping[str, tuple] | None = None,
    domain: str = MICROSOFT,
) -> Case:
    """A model of one node; an input that is None is omitted."""
    given = {name: array for name, array in inputs.items() if array is not None}
    operands = [name if array is not None else "" for name, array in inputs.items()]
    model = node_model(
        operator,
        given,
        attributes,
        constants=constants,
        operands=[*operands, *(constants or {})],
        shapes=shapes,
        outputs=outputs,
        domain=domain,
    )
    return model, given


def activations(dtype: str) -> dict[str, Case]:
    x = normal(2, 3, 7, dtype=dtype)
    x.flat[:5] = [np.inf, 0.0, -0.0, 100.0, -9.0]
    bias = normal(7, seed=1, dtype=dtype)
    return {
        "gelu": case("Gelu", {"x": x}),
        "gelu scalar": case("Gelu", {"x": np.array(0.5, dtype)}),
        "gelu empty": case("Gelu", {"x": x[:0]}),
        "fast": case("FastGelu", {"x": x}),
        "fast bias": case("FastGelu", {"x": x, "b": bias}),
        "bias": case("BiasGelu", {"x": x, "b": bias}),
        "quick": case("QuickGelu", {"x": x}),
        "quick alpha": case("QuickGelu", {"x": x}, {"alpha": 0.7}),
    }


def products(dtype: str) -> dict[str, Case]:
    a, b = normal(2, 3, 4, dtype=dtype), normal(2, 4, 5, seed=1, dtype=dtype)
    turned = np.ascontiguousarray(b.swapaxes(-1, -2))
    matrix, other = a[0], np.ascontiguousarray(turned[0])
    c = normal(3, 1, seed=2, dtype=dtype)
    gemm = {"a": matrix, "b": other, "c": c}
    fused = {
        name: case("FusedGemm", gemm, {"activation": name, "transB": 1, "alpha": 0.5, "beta": 2.0})
        for name in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign")
    }
    leaky = {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1}
    back = np.ascontiguousarray(a.transpose(1, 0, 2))
    one = {"y": (dtype, 1)}
    return fused | {
        "leaky": case("FusedGemm", gemm, leaky),
        "no addend": case("FusedGemm", {"a": matrix, "b": other}, {"transB": 1}),
        "matmul": case("FusedMatMul", {"a": a, "b": b}, {"alpha": 0.3}),
        "trans b": case("FusedMatMul", {"a": a, "b": turned}, {"transB": 1}),
        "trans a": case(
            "FusedMatMul", {"a": np.ascontiguousarray(a.swapaxes(1, 2)), "b": b}, {"transA": 1}
        ),
        "batch a": case("FusedMatMul", {"a": back, "b": b}, {"transBatchA": 1}),
        "broadcast": case("TransposeMatMul", {"a": a, "b": other}, {"transB": 1, "alpha": -1.0}),
        "vector": case("FusedMatMul", {"a": a[0, 0], "b": b[0]}, {"alpha": 2.0}, one),
        "empty": case("FusedMatMul", {"a": a[:, :, :0], "b": b[:, :0]}),
    }


def convolutions(dtype: str) -> dict[str, Case]:
    x, w = normal(2, 4, 7, 5, dtype=dtype), normal(6, 2, 3, 3, seed=1, dtype=dtype)
    given = {"x": x, "w": w, "b": normal(6, seed=2, dtype=dtype)}
    sizes = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
    z = normal(2, 6, 4, 5, seed=3, dtype=dtype)
    parameters = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.75], "HardSigmoid": [0.3, 0.4]}
    cases = {
        name: case(
            "FusedConv",
            given,
            sizes | {"activation": name} | ({"activation_params": values} if values else {}),
        )
        for name, values in (parameters | {"Relu": None, "Tanh": None, "Sigmoid": None}).items()
    }
    cases["addend"] = case("FusedConv", given | {"z": z}, sizes | {"activation": "Relu"})
    cases["no bias"] = case("FusedConv", given | {"b": None, "z": z}, sizes)
    return cases


def norms(dtype: str) -> dict[str, Case]:
    x, skip = normal(2, 3, 6, dtype=dtype), normal(2, 3, 6, seed=1, dtype=dtype)
    gamma, beta, bias = (normal(6, seed=seed, dtype=dtype) for seed in (2, 3, 4))
    given = {"x": x, "skip": skip, "gamma": gamma, "beta": beta, "bias": bias}
    four = {"y": (dtype, 3), "m": ("float32", 3), "i": ("float32", 3), "sum": (dtype, 3)}
    simple = {"x": x, "skip": skip, "gamma": gamma, "bias": bias}
    flat = {"x": x[0], "skip": skip[0], "gamma": gamma}
    root = {"y": (dtype, 3), "i": ("float32", 3)}
    both = {"axis": 1, "epsilon": 0.1}
    plane = {"x": x, "scale": normal(3, 6, seed=5, dtype=dtype)}
    return {
        "skip": case("SkipLayerNormalization", given, {"epsilon": 0.01}, four),
        "no beta": case("SkipLayerNormalization", given | {"beta": None}),
        "one row": case("SkipLayerNormalization", given | {"skip": skip[:1]}),
        "rows": case("SkipLayerNormalization", given | {"skip": skip[0]}),
        "flat": case("SkipLayerNormalization", flat),
        "simple": case(
            "SkipSimplifiedLayerNormalization", simple, None, {n: four[n] for n in ("y",)}
        ),
        "simple flat": case("SkipSimplifiedLayerNormalization", flat),
        "root": case("SimplifiedLayerNormalization", {"x": x, "s": gamma}, None, root, domain=""),
        "axes": case("SimplifiedLayerNormalization", plane, both, domain=""),
    }
