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
"""QAttention."""

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

BATCH, LENGTH, WIDTH, HEADS = 2, 5, 12, 3


def attention(
    attributes: Mapping[str, object] | None = None,
    *,
    mask: np.ndarray | None = None,
    past: int | None = None,
    columns: bool = False,
    weight: str = "int8",
    shape: tuple = (BATCH, LENGTH, WIDTH),
) -> tuple[onnx.ModelProto, Arrays]:
    """A model of a QAttention; `past` is the number of earlier positions."""
    generator = np.random.default_rng(0)
    inputs = {"x": generator.integers(0, 256, (BATCH, LENGTH, WIDTH)).astype("uint8")}
    integers = generator.integers(-60, 60, (WIDTH, 3 * WIDTH)) + (0 if weight == "int8" else 100)
    scales = np.linspace(0.01, 0.02, 3 * WIDTH) if columns else np.array(0.015)
    constants = {
        "w": integers.astype(weight),
        "bias": normal(3 * WIDTH, seed=2),
        "x_scale": np.array(0.02, "float32"),
        "w_scale": scales.astype("float32"),
        "x_zero": np.array(120, "uint8"),
        "w_zero": np.full(scales.shape, 0 if weight == "int8" else 100, weight),
    }
    if mask is not None:
        inputs["mask"] = mask
    if past is not None:
        inputs["past"] = normal(2, BATCH, HEADS, past, WIDTH // HEADS, seed=3)
    operands = ["x", "w", "bias", "x_scale", "w_scale", "mask" if mask is not None else ""]
    operands += ["x_zero", "w_zero", *(["past"] if past is not None else [])]
    outputs = {"y": ("float32", 3)} | ({} if past is None else {"present": ("float32", 5)})
    model = node_model(
        "QAttention",
        inputs,
        {"num_heads": HEADS} | dict(attributes or {}),
        constants=constants,
        operands=operands,
        shapes={"x": shape},
        outputs=outputs,
        domain="com.microsoft",
    )
    return model, inputs


def test_attention() -> None:
    lengths = np.array([5, 2], "int32")
    raw = np.array([[1, 1, 1, 1, 0], [0, 1, 1, 0, 1]], "int32")
    per_query = np.random.default_rng(4).integers(0, 2, (BATCH, LENGTH, LENGTH)).astype("int32")
    longer = np.concatenate([np.ones((BATCH, 4), "int32"), raw], 1)
    cases = {
        "columns": attention(columns=True),
        "unsigned": attention(weight="uint8"),
        "scale": attention({"scale": 0.3}),
        "lengths": attention(mask=lengths),
        "lengths and starts": attention(mask=np.array([5, 4, 1, 0], "int32")),
        "mask per query": attention(mask=per_query),
        "filter": attention({"mask_filter_value": -3.0}, mask=raw),
        "causal past": attention({"unidirectional": 1}, past=4),
        "masked past": attention({"unidirectional": 1}, past=4, mask=longer),
    }
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-5, optimize=False)


def test_symbolic_batch_and_length() -> None:
    model, inputs = attention(shape=("n", "m", WIDTH))
    assert_follows_onnx_runtime(from_onnx, model, list(inputs.values()), rtol=1e-5)


def test_rejects_what_is_not_supported() -> None:
    named = "com.microsoft.QAttention 'node': "
    cases = {
        "attribute do_rotary is 1; expected 0": {"do_rotary": 1},
        "attribute num_heads is 5; expected a third of the width of weight, 36,": {"num_heads": 5},
    }
    for message, attributes in cases.items():
        assert_rejected(from_onnx, attention(attributes)[0], named + message)
    bounds = np.array([5, 2, 0, 0, 1], "int32")
    message = "shape of mask_index is [5]; expected [2], the batch"
    assert_rejected(from_onnx, attention(mask=bounds)[0], named + message)


if __name__ == "__main__":
    tvm.testing.main()
