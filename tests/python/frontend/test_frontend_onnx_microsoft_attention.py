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
"""Attention of the domain com.microsoft, compared with ONNX Runtime."""

import numpy as np
import pytest
import tvm.testing

from helpers.grids import sample
from helpers.microsoft_cases import Case, case
from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    normal,
    onnx_runtime,
    side_by_side,
)
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

BATCH, LENGTH, HEADS, SIZE = 2, 3, 2, 4
WIDTH = HEADS * SIZE


def attention(dtype: str) -> dict[str, Case]:
    past = normal(2, BATCH, HEADS, 2, SIZE, seed=4, dtype=dtype)
    given = {
        "x": normal(BATCH, LENGTH, 5, dtype=dtype),
        "w": normal(5, 3 * WIDTH, seed=1, dtype=dtype),
        "b": normal(3 * WIDTH, seed=2, dtype=dtype),
    }
    two = {"y": (dtype, 3), "present": (dtype, 5)}
    raw = np.array([[1, 1, 0], [0, 2, 1]], "int32")
    ends, starts = np.array([2, 3], "int32"), np.array([0, 1], "int32")
    bounds = np.array([2, 1, 0, 2, 3, 0, 2, 3], "int32")
    rows = np.array([[[1, 0, 1], [1, 1, 1], [0, 1, 0]]] * 2, "int32")
    bias = normal(1, HEADS, LENGTH, LENGTH, seed=5, dtype=dtype)
    longer = np.concatenate([np.ones((BATCH, 2), "int32"), raw], 1)
    parts = 2 * WIDTH + 6
    narrow = given | {"w": normal(5, parts, seed=1, dtype=dtype), "b": normal(parts, dtype=dtype)}
    sizes = {"num_heads": HEADS, "qkv_hidden_sizes": [WIDTH, WIDTH, 6]}
    heads = {"num_heads": HEADS}
    causal = heads | {"unidirectional": 1}
    return {
        "plain": case("Attention", given, heads | {"scale": 0.7}),
        "sizes": case("Attention", narrow, sizes),
        "raw": case("Attention", given | {"m": raw}, heads),
        "rows": case("Attention", given | {"m": rows}, heads | {"mask_filter_value": -3.0}),
        "no key": case("Attention", given | {"m": 0 * raw}, heads | {"mask_filter_value": -50.0}),
        "ends": case("Attention", given | {"m": ends}, heads),
        "padded": case("Attention", given | {"m": bounds}, heads),
        "ends and starts": case("Attention", given | {"m": np.concatenate([ends, starts])}, heads),
        "causal": case("Attention", given | {"m": raw}, causal),
        "present": case("Attention", given | {"m": None, "p": past[:, :, :, :0]}, causal, two),
        "past": case("Attention", given | {"m": longer, "p": past}, causal, two),
        "bias": case("Attention", given | {"m": raw, "p": None, "q": bias}, heads),
    }


def multi_head(dtype: str) -> dict[str, Case]:
    q, k = normal(BATCH, LENGTH, WIDTH, dtype=dtype), normal(BATCH, 5, WIDTH, seed=1, dtype=dtype)
    v, bias = normal(BATCH, 5, 6, seed=2, dtype=dtype), normal(2 * WIDTH + 6, seed=3, dtype=dtype)
    given = {"q": q, "k": k, "v": v}
    past = normal(BATCH, HEADS, 2, SIZE, seed=4, dtype=dtype)
    wide = {"q": q, "k": normal(BATCH, LENGTH, WIDTH, seed=5, dtype=dtype)}
    wide["v"] = normal(BATCH, LENGTH, WIDTH, seed=6, dtype=dtype)
    heads = {"num_heads": HEADS}
    three = {"y": (dtype, 3), "pk": (dtype, 4), "pv": (dtype, 4)}
    mask = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 1, 0]], "int32")
    rows = np.random.default_rng(0).integers(0, 2, (BATCH, LENGTH, 5)).astype("int32")
    qk = normal(BATCH, 1, LENGTH, 5, seed=7, dtype=dtype)
    cross = {"q": q, "k": past, "v": past + np.array(1, dtype)}
    with_past = wide | {"b": None, "m": None, "a": None, "pk0": past, "pv0": -past}
    empty = wide | {"b": None, "m": None, "a": None, "pk0": past[:, :, :0], "pv0": past[:, :, :0]}
    causal = heads | {"unidirectional": 1}
    return {
        "separate": case("MultiHeadAttention", given, heads),
        "bias": case("MultiHeadAttention", given | {"b": bias}, heads | {"scale": 0.4}),
        "lengths": case(
            "MultiHeadAttention", given | {"b": None, "m": np.array([3, 5], "int32")}, heads
        ),
        "mask": case("MultiHeadAttention", given | {"b": None, "m": mask}, heads),
        "rows": case(
            "MultiHeadAttention",
            given | {"b": None, "m": rows},
            heads | {"mask_filter_value": -2.0},
        ),
        "scores": case(
            "MultiHeadAttention",
            given | {"b": bias, "m": mask, "a": qk},
            heads | {"mask_filter_value": -3.0},
            three | {"qk": (dtype, 4)},
        ),
        "cross": case("MultiHeadAttention", cross, heads),
        "past": case("MultiHeadAttention", with_past, causal, three),
        "no past": case("MultiHeadAttention", empty, heads, three),
    }


def group_query(dtype: str) -> dict[str, Case]:
    size = 16
    q = normal(BATCH, LENGTH, 4 * size, dtype=dtype)
    k, v = (normal(BATCH, LENGTH, 2 * size, seed=seed, dtype=dtype) for seed in (1, 2))
    packed = np.concatenate([q, k, v], -1)
    cos, sin = (normal(9, 8, seed=seed, dtype=dtype) for seed in (3, 4))
    old = [normal(BATCH, 2, 5, size, seed=seed, dtype=dtype) for seed in (5, 6)]
    none = [part[:, :, :0] for part in old]
    heads = {"num_heads": 4, "kv_num_heads": 2}
    three = {"y": (dtype, 3), "pk": (dtype, 4), "pv": (dtype, 4)}

    def call(attributes, cache, ends, total, *, rows=LENGTH, form="apart", **more) -> Case:
        apart = {"q": q[:, :rows], "k": k[:, :rows], "v": v[:, :rows]}
        given = apart if form == "apart" else {"q": packed[:, :rows], "k": None, "v": None}
        given |= {"pk0": cache[0], "pv0": cache[1], "ends": np.array(ends, "int32") - 1}
        given |= {"total": np.array(total, "int32")}
        return case("GroupQueryAttention", given | more, heads | attributes, three)

    rotary = {"do_rotary": 1}
    caches = {"cos": cos, "sin": sin}
    sink = {"cos": None, "sin": None, "ids": None, "bias": None, "sink": normal(4, dtype=dtype)}
    bias = normal(BATCH, 1, LENGTH, LENGTH, seed=7, dtype=dtype)
    return {
        "prompt": call({}, none, [3, 3], 3),
        "rotary": call(rotary, none, [3, 3], 3, **caches),
        "interleaved": call(
            rotary | {"rotary_interleaved": 1, "scale": 0.2}, none, [3, 3], 3, form="p", **caches
        ),
        "step": call(rotary, old, [6, 4], 6, rows=1, **caches),
        "both ways": call({"causal": 0}, old, [6, 4], 6, rows=1),
        "ids": call(rotary, none, [3, 3], 3, **caches, ids=np.array([[2, 3, 1], [4, 2, 5]])),
        "ids of a step": call(rotary, old, [6, 4], 6, rows=1, **caches, ids=np.array([[2], [7]])),
        "shared": call(rotary, old, [5, 3], 5, rows=1, form="p", **caches),
        "window": call({"local_window_size": 2}, none, [3, 3], 3),
        "window step": call({"local_window_size": 2}, old, [6, 4], 6, rows=1),
        "cap": call({"softcap": 0.8}, none, [3, 3], 3),
        "smooth": call({"smooth_softmax": 1}, none, [3, 3], 3),
        "sink": call({}, none, [3, 3], 3, **sink),
        "bias": call({"softcap": 0.8}, none, [3, 3], 3, cos=None, sin=None, ids=None, bias=bias),
    }


def rotary(dtype: str) -> dict[str, Case]:
    x, heads = normal(BATCH, LENGTH, WIDTH, dtype=dtype), normal(BATCH, 3, LENGTH, 6, dtype=dtype)
    cos, sin = (normal(7, 2, seed=seed, dtype=dtype) for seed in (1, 2))
    first, ids = np.array([2], "int64"), np.array([[0, 6, 3], [1, 2, 2]], "int64")
    caches = {"c": cos, "s": sin}
    wider = {name: np.concatenate([part, part[:, :1]], 1) for name, part in caches.items()}
    part = {"num_heads": HEADS, "rotary_embedding_dim": 4}
    wide = np.concatenate([x, x], -1)
    return {
        "first": case("RotaryEmbedding", {"x": x, "p": first} | caches),
        "ids": case("RotaryEmbedding", {"x": x, "p": ids} | caches),
        "interleaved": case("RotaryEmbedding", {"x": x, "p": ids} | caches, {"interleaved": 1}),
        "part": case("RotaryEmbedding", {"x": wide, "p": ids} | caches, part),
        "packed": case("RotaryEmbedding", {"x": x, "p": ids} | caches, {"is_packed_batching": 1}),
        "heads": case("RotaryEmbedding", {"x": heads, "p": ids} | wider),
    }


@pytest.mark.parametrize(
    ("dtype", "count", "rtol"), [("float32", 14, 1e-5), ("float16", 4, 2**-10)]
)
def test_as_onnx_runtime(dtype: str, count: int, rtol: float) -> None:
    """`count` is the number of cases in the ci tier."""
    cases = {
        f"{family.__name__} {name}": found
        for family in (attention, multi_head, group_query, rotary)
        for name, found in family(dtype).items()
    }
    chosen = {name: cases[name] for name in sample(list(cases), count)}
    assert_as_onnx_runtime(from_onnx, chosen, rtol=rtol, optimize=False)


def test_symbolic_extents() -> None:
    x, past = normal(BATCH, LENGTH, WIDTH), normal(BATCH, HEADS, 2, SIZE, seed=1)
    mask = np.array([[1, 1, 0, 1, 1], [1, 0, 0, 1, 1]], "int32")
    shapes = {
        "q": ("n", "m", WIDTH),
        "k": ("n", "m", WIDTH),
        "v": ("n", "m", WIDTH),
        "m": ("n", "t"),
        "pk0": ("n", HEADS, "p", SIZE),
        "pv0": ("n", HEADS, "p", SIZE),
    }
    inputs = {"q": x, "k": -x, "v": x, "b": None, "m": mask, "a": None, "pk0": past, "pv0": -past}
    outputs = {"y": ("float32", 3), "pk": ("float32", 4), "pv": ("float32", 4)}
    attributes = {"num_heads": HEADS, "unidirectional": 1}
    model, given = case("MultiHeadAttention", inputs, attributes, outputs, shapes=shapes)
    assert_follows_onnx_runtime(from_onnx, model, list(given.values()), rtol=1e-5)


def test_symbolic_cache() -> None:
    size, heads = 16, 2
    x, new = normal(1, 1, heads * size), normal(1, 1, size, seed=1)
    past = normal(1, 1, 4, size, seed=2)
    shapes = {"pk0": ("n", 1, "p", size), "pv0": ("n", 1, "p", size)}
    shapes |= {"q": ("n", "m", heads * size), "k": ("n", "m", size), "v": ("n", "m", size)}
    shapes |= {"ends": ("n",)}
    inputs = {"q": x, "k": new, "v": -new, "pk0": past, "pv0": -past}
    inputs |= {"ends": np.array([4], "int32"), "total": np.array(5, "int32")}
    caches = {"cos": normal(9, 8, seed=3), "sin": normal(9, 8, seed=4)}
    outputs = {"y": ("float32", 3), "pk": ("float32", 4), "pv": ("float32", 4)}
    attributes = {"num_heads": heads, "kv_num_heads": 1, "do_rotary": 1}
    model, given = case(
        "GroupQueryAttention", inputs, attributes, outputs, constants=caches, shapes=shapes
    )
    assert_follows_onnx_runtime(from_onnx, model, list(given.values()), rtol=1e-5)


def test_packed_operands() -> None:
    """ONNX Runtime has no CPU kernel for packed operands; the unpacked ones are the reference."""
    parts = [normal(BATCH, LENGTH, HEADS, SIZE, seed=seed) for seed in range(3)]
    flat = [part.reshape(BATCH, LENGTH, WIDTH) for part in parts]
    heads = {"num_heads": HEADS}
    reference, inputs = case("MultiHeadAttention", dict(zip("qkv", flat, strict=True)), heads)
    (expected,) = onnx_runtime(reference, *inputs.values(), optimize=False)
    three = {"q": np.stack(parts, 3)}
    two = {"q": flat[0], "k": np.stack(parts[1:], 3)}
    one = {"y": ("float32", 3)}
    models = {
        "three": case("MultiHeadAttention", three, heads, one),
        "two": case("MultiHeadAttention", two, heads, one),
    }
    arrays = [array for _, given in models.values() for array in given.values()]
    merged = side_by_side({name: model for name, (model, _) in models.items()})
    for got in imported_and_run(from_onnx, merged, *arrays, optimize=False):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_rejects_what_is_not_supported() -> None:
    x, w = normal(BATCH, LENGTH, WIDTH), normal(WIDTH, 3 * WIDTH)
    heads = {"num_heads": HEADS}
    lengths = {"x": x, "w": w, "b": None, "m": np.ones(7, "int32")}
    packed = {"q": x, "k": x, "v": x, "pk": None, "pv": None, "ends": np.ones(BATCH, "int32")}
    packed |= {"total": np.array(LENGTH, "int32")}
    groups = {"num_heads": 2, "kv_num_heads": 2}
    cases = {
        "Attention 'node': attribute do_rotary is 1; expected 0": case(
            "Attention", {"x": x, "w": w}, heads | {"do_rotary": 1}
        ),
        "Attention 'node': attribute qkv_hidden_sizes is [8, 4, 12]; expected three": case(
            "Attention", {"x": x, "w": w}, heads | {"qkv_hidden_sizes": [8, 4, 12]}
        ),
        "Attention 'node': shape of mask_index is [7]; expected [2], the batch": case(
            "Attention", lengths, heads
        ),
        "MultiHeadAttention 'node': number of heads is 3; expected a divisor of the width of": case(
            "MultiHeadAttention", {"q": x, "k": x, "v": x}, {"num_heads": 3}
        ),
        "MultiHeadAttention 'node': operand value is missing": case(
            "MultiHeadAttention", {"q": x, "k": x}, heads
        ),
        "GroupQueryAttention 'node': attribute kv_num_heads is 3; expected a divisor of": case(
            "GroupQueryAttention", packed, groups | {"kv_num_heads": 3}
        ),
        "GroupQueryAttention 'node': attribute sliding_window_cache is 1; expected 0": case(
            "GroupQueryAttention", packed, groups | {"sliding_window_cache": 1}
        ),
        "RotaryEmbedding 'node': attribute scale is 2.0; expected 1": case(
            "RotaryEmbedding",
            {"x": x, "p": np.array([0]), "c": normal(4, 2), "s": normal(4, 2)},
            {"scale": 2.0},
        ),
        "GroupQueryAttention 'node': operand cos_cache is missing": case(
            "GroupQueryAttention", packed, groups | {"do_rotary": 1}
        ),
    }
    for message, (model, _) in cases.items():
        assert_rejected(from_onnx, model, f"com.microsoft.{message}")


if __name__ == "__main__":
    tvm.testing.main()
