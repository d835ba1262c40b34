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

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm.testing

from helpers.grids import sample
from helpers.microsoft_cases import Case, case
from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    onnx_runtime,
    side_by_side,
)
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.graph.converted import corrected_operators

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.filterwarnings("ignore:.*")


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
        "matmul": case("FusedMatMul", {"a": a, "b": b}, {"alpha": 0.3}),
        "trans b": case("FusedMatMul", {"a": a, "b": turned}, {"transB": 1}),
        "trans a": case(
            "FusedMatMul", {"a": np.ascontiguousarray(a.swapaxes(1, 2)), "b": b}, {"transA": 1}
        ),
        "batch a": case("FusedMatMul", {"a": back, "b": b}, {"transBatchA": 1}),
        "broadcast": case("TransposeMatMul", {"a": a, "b": other}, {"transB": 1, "alpha": -1.0}),
        "vector": case("FusedMatMul", {"a": a[0, 0], "b": b[0]}, {"alpha": 2.0}, one),
        "empty": case("FusedMatMul", {"a": a[:, :0], "b": b}),
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
        "simple": case("SkipSimplifiedLayerNormalization", simple, None, four),
        "simple flat": case("SkipSimplifiedLayerNormalization", flat),
        "root": case("SimplifiedLayerNormalization", {"x": x, "s": gamma}, None, root, domain=""),
        "axes": case("SimplifiedLayerNormalization", plane, both, domain=""),
    }


def tensors(dtype: str) -> dict[str, Case]:
    x = normal(2, 3, 4, dtype=dtype)
    image = normal(2, 2, 5, 4, dtype=dtype)
    regions = np.array([[0.1, 0.2, 0.8, 0.9], [0.9, 1.0, 0.0, -0.3], [0, 0, 1, 1]], dtype)
    crop = {"x": image, "r": regions, "b": np.array([1, 0, 1], "int32")}
    size, one = {"s": np.array([3, 4], "int32")}, {"s": np.array([1, 1], "int32")}
    grid = normal(2, 3, 4, 2, seed=1, dtype=dtype)
    four, two = {"y": (dtype, 4)}, {"y": (dtype, 2)}
    pads = {"p": np.array([[1, 0, -1, 0, 2, 1]], "int64")}
    return {
        "crop": case("CropAndResize", crop, {"extrapolation_value": 0.5}, constants=size),
        "nearest": case("CropAndResize", crop, {"mode": "nearest"}, constants=size),
        "center": case("CropAndResize", crop, constants=one),
        "trilu": case("Trilu", {"x": x}, {"upper": 0}),
        "trilu k": case("Trilu", {"x": x}, constants={"k": np.array(1, "int64")}),
        "expand": case("ExpandDims", {"x": x}, None, four, constants={"a": np.array(-2, "int32")}),
        "pad": case("Pad", {"x": x}, None, constants=pads | {"v": np.array([2], dtype)}),
        "edge": case("Pad", {"x": x}, {"mode": "edge"}, constants=pads),
        "gather": case("GatherND", {"x": x, "i": np.array([[1, 2], [0, 1]])}, None, two),
        "grid": case("GridSample", {"x": image, "g": grid}),
        "corners": case(
            "GridSample", {"x": image, "g": grid}, {"align_corners": 1, "padding_mode": "border"}
        ),
    }


FAMILIES = (activations, products, convolutions, norms, tensors)


@pytest.mark.parametrize(
    ("dtype", "count", "rtol"), [("float32", 30, 1e-5), ("float16", 8, 2**-10)]
)
def test_as_onnx_runtime(dtype: str, count: int, rtol: float) -> None:
    """`count` is the number of cases in the ci tier."""
    cases = {
        f"{family.__name__} {name}": found
        for family in FAMILIES
        for name, found in family(dtype).items()
    }
    chosen = {name: cases[name] for name in sample(list(cases), count)}
    assert_as_onnx_runtime(from_onnx, chosen, rtol=rtol, optimize=False)


def test_symbolic_extents() -> None:
    x, w = normal(2, 3, 6), normal(6, 6, seed=1)
    shapes = {"x": ("n", "m", 6), "skip": ("n", "m", 6)}
    skip = {"x": x, "skip": normal(2, 3, 6, seed=2)}
    weights = {"gamma": normal(6, seed=3), "beta": normal(6, seed=4)}
    model, _ = case("SkipLayerNormalization", skip, constants=weights, shapes=shapes)
    assert_follows_onnx_runtime(from_onnx, model, list(skip.values()), rtol=1e-5)
    model, _ = case("FusedMatMul", {"x": x}, {"transB": 1}, constants={"w": w}, shapes=shapes)
    assert_follows_onnx_runtime(from_onnx, model, [x], rtol=1e-5)


def test_embeddings() -> None:
    ids, segments = np.array([[4, 0, 2], [1, 1, 3]], "int32"), np.array([[0, 1, 1]] * 2, "int32")
    tables = {
        "words": normal(5, 6),
        "positions": normal(4, 6, seed=1),
        "segments_table": normal(2, 6, seed=2),
        "gamma": normal(6, seed=3),
        "beta": normal(6, seed=4),
    }
    mask = np.array([[1, 1, 0], [0, 1, 1]], "int32")
    all_outputs = {"y": ("float32", 3), "mask_index": ("int32", 1), "sum": ("float32", 3)}
    given = {"ids": ids, "segments": segments} | tables
    ranks = {"mask": mask, "place": np.array([[3, 0, 1]], "int32")}
    cases = {
        "all": case("EmbedLayerNormalization", given | ranks, None, all_outputs),
        "plain": case(
            "EmbedLayerNormalization",
            given | {"segments": None, "segments_table": None},
            {"epsilon": 0.1},
            {n: all_outputs[n] for n in ("y", "mask_index")},
        ),
    }
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-5, optimize=False)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def test_operators_without_a_kernel_in_onnx_runtime() -> None:
    x, bias, skip = normal(2, 3, 6), normal(6, seed=1), normal(2, 3, 6, seed=2)
    data, weight = normal(2, 5, 4, 6), normal(3, 2, 3, 3, seed=3)
    convolution = node_model("Conv", {"x": data.transpose(0, 3, 1, 2), "w": weight}, {"group": 3})
    (first,) = onnx_runtime(convolution, data.transpose(0, 3, 1, 2), weight)
    grouped = data.reshape(2, 5, 4, 2, 3)
    mean = grouped.mean((1, 2, 4), keepdims=True)
    variance = grouped.var((1, 2, 4), keepdims=True)
    normed = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(data.shape)
    affine = normed * bias + skip[0, 0]
    parameters = {"gamma": bias, "beta": skip[0, 0]}
    group = {"groups": 2, "activation": 1}
    biased = x + bias
    checked = {
        "add": (case("BiasAdd", {"x": x, "b": bias, "s": skip}), biased + skip),
        "split": (
            case("BiasSplitGelu", {"x": x, "b": bias}),
            biased[..., :3] * gelu(biased[..., 3:]),
        ),
        "conv": (case("NhwcConv", {"x": data, "w": weight}, {"group": 3}), first),
        "group": (case("GroupNorm", {"x": data} | parameters, group), affine),
    }
    checked["conv"] = (checked["conv"][0], first.transpose(0, 2, 3, 1))
    checked["group"] = (checked["group"][0], affine / (1 + np.exp(-affine)))
    models = {name: found for name, ((found, _), _) in checked.items()}
    inputs = [array for (_, arrays), _ in checked.values() for array in arrays.values()]
    results = imported_and_run(from_onnx, side_by_side(models), *inputs, optimize=False)
    for (name, (_, expected)), got in zip(checked.items(), results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_unique() -> None:
    x = np.array([2, 1, 1, 3, 4, 3], "float32")
    outputs = {"y": ("float32", 1), "index": ("int64", 1), "counts": ("int64", 1)}
    model, _ = case("Unique", {"x": x}, None, outputs)
    got = imported_and_run(from_onnx, model, x, optimize=False)
    for found, expected in zip(got, onnx_runtime(model, x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_rejects_what_is_not_supported() -> None:
    x, w = normal(1, 2, 5, 5), normal(3, 2, 3, 3)
    convolution = {"x": x, "w": w}
    flat, bias = normal(2, 3), normal(4)
    cases = {
        "FusedConv 'node': attribute activation is Erf; expected Clip,": case(
            "FusedConv", convolution, {"activation": "Erf"}
        ),
        "FusedConv 'node': attribute activation_params is [1.0]; expected 2 of Clip": case(
            "FusedConv", convolution, {"activation": "Clip", "activation_params": [1.0]}
        ),
        "BiasGelu 'node': shape of B is [4]; expected [3]": case(
            "BiasGelu", {"x": flat, "b": bias}
        ),
        "CropAndResize 'node': attribute mode is cubic; expected bilinear or nearest": case(
            "CropAndResize",
            {"x": x, "r": normal(1, 4), "b": np.zeros(1, "int32"), "s": np.ones(2, "int32")},
            {"mode": "cubic"},
        ),
    }
    for message, (model, _) in cases.items():
        assert_rejected(from_onnx, model, f"com.microsoft.{message}")


@pytest.mark.parametrize(
    "operator", ["DecoderMaskedMultiHeadAttention", "MurmurHash3", "SparseToDenseMatMul"]
)
def test_names_an_operator_without_a_converter(operator: str) -> None:
    model, _ = case(operator, {"x": normal(2, 2)})
    message = f"unsupported operator com.microsoft.{operator} at node 'node'"
    with pytest.raises(tvm.error.OpNotImplemented, match=message):
        from_onnx(model)


def operators_of_table(page: str) -> set[str]:
    """The operators in the first table of a page that follows the name of the domain."""
    lines = (ROOT / "docs" / page).read_text().partition("com.microsoft")[2].splitlines()
    rows = itertools.dropwhile(lambda line: not line.startswith("|"), lines)
    cells = [row.split("|")[1] for row in itertools.takewhile(lambda row: row[:1] == "|", rows)]
    return set(re.findall(r"[A-Z]\w+", " ".join(cells[1:])))


def test_pages_list_all_operators() -> None:
    prefix = "com.microsoft."
    ours = {name.removeprefix(prefix) for name in corrected_operators() if prefix in name}
    of_tvm = {"MatMulInteger16"}
    assert operators_of_table("onnx.md") | operators_of_table("quantized.md") == ours | of_tvm


if __name__ == "__main__":
    tvm.testing.main()
