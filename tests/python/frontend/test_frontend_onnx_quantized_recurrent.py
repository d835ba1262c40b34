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
"""DynamicQuantizeLSTM."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm.testing

from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_rejected,
    node_model,
    normal,
)
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.search.onnx_parts import by_onnx_runtime
from tvm_fixes.source.onnx import OnnxSource

pytestmark = pytest.mark.filterwarnings("ignore:.*")

STEPS, WIDTH, HIDDEN = 4, 6, 8


def lstm(
    *,
    batch: int = 1,
    dtype: str = "int8",
    direction: str = "forward",
    per_column: bool = False,
    plain: bool = False,
) -> tuple[onnx.ModelProto, Arrays]:
    """A model of a DynamicQuantizeLSTM; `plain` omits bias and initial states."""
    generator = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    zero = 0 if dtype == "int8" else 100
    inputs = {"x": normal(STEPS, batch, WIDTH)}
    constants = {}
    for name, rows in (("w", WIDTH), ("r", HIDDEN)):
        integers = generator.integers(-60, 60, (directions, rows, 4 * HIDDEN)) + zero
        constants[name] = integers.astype(dtype)
    if not plain:
        constants["b"] = 0.1 * normal(directions, 8 * HIDDEN, seed=1)
        for seed, name in enumerate(("h", "c")):
            constants[name] = normal(directions, batch, HIDDEN, seed=seed + 2)
    shape = (directions, 4 * HIDDEN) if per_column else (directions,)
    for name in ("w", "r"):
        constants[f"{name}_scale"] = generator.uniform(0.003, 0.01, shape).astype("float32")
        constants[f"{name}_zero"] = np.full(shape, zero, dtype)
    optional = ["", "", "", "", ""] if plain else ["b", "", "h", "c", ""]
    operands = ["x", "w", "r", *optional, "w_scale", "w_zero", "r_scale", "r_zero"]
    model = node_model(
        "DynamicQuantizeLSTM",
        inputs,
        {"hidden_size": HIDDEN, "direction": direction},
        constants=constants,
        operands=operands,
        outputs={"y": ("float32", 4), "y_h": ("float32", 3), "y_c": ("float32", 3)},
        domain="com.microsoft",
    )
    return model, inputs


def test_one_sequence() -> None:
    cases = {
        "plain": lstm(plain=True),
        "unsigned": lstm(dtype="uint8", direction="reverse", per_column=True),
        "both directions": lstm(direction="bidirectional"),
    }
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-5, optimize=False)


def test_batch() -> None:
    """The reference has one thread: each thread quantizes the states of a part of the batch."""
    model, inputs = lstm(batch=3)
    values = list(inputs.values())
    source = OnnxSource(model, "m")
    expected = source.reference()[1](values)
    for seed in (0, 1):
        for got, want in zip(source.rounded_reference(seed)(values), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)

    def split(options: Any) -> None:
        options.intra_op_num_threads = 3

    _, session = source.session(configure=split)
    assert np.abs(session.run(None, inputs)[0] - expected[0]).max() > 1e-4
    compiled = compile_model(model, compare=False)
    for got, want in zip(compiled.run(*values), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def test_debugging_runs_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several, ONNX Runtime quantizes parts of the batch by scales of their own."""
    used = []

    class Session:
        def __init__(self, _model: bytes, options: Any, **_options: Any) -> None:
            used.append(options.intra_op_num_threads)

        def run(self, *_arguments: object) -> list[int]:
            return used

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    assert by_onnx_runtime(*lstm(batch=16)) == [1]
    assert by_onnx_runtime(node_model("Neg", {"x": normal(2)}), {"x": normal(2)}) == [0]


def test_rejects_bad_operands() -> None:
    model, _ = lstm()
    named = "com.microsoft.DynamicQuantizeLSTM 'node': "
    del model.graph.node[0].input[11:]
    assert_rejected(from_onnx, model, f"{named}operand R_zero_point is missing; expected X, W, R")
    model, _ = lstm()
    model.graph.node[0].input[8] = "b"
    assert_rejected(from_onnx, model, "shape of W_scale is ")


if __name__ == "__main__":
    tvm.testing.main()
