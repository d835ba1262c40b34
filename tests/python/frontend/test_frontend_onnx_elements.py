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
"""BitCast, Det, TensorScatter and AffineGrid with a computed size."""

import numpy as np
import pytest
import tvm.testing
from onnx import TensorProto

from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_as_reference,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    whole,
)
from tvm_fixes.frontend.onnx import from_onnx


def test_det() -> None:
    """Singular, of sizes 0 and 1, with a zero pivot, in batches, of dynamic size."""
    cases = {}
    for name, x in {
        "batch": normal(2, 3, 4, 4),
        "one": normal(1, 1),
        "swap": np.array([[0, 2], [3, 4]], "float32"),
        "singular": np.ones((3, 3), "float32"),
        "wide": normal(2, 5, 5, dtype="float64"),
    }.items():
        outputs = {"y": (str(x.dtype), x.ndim - 2)}
        dims = {"x": [None] * x.ndim} if name == "batch" else None
        cases[name] = node_model("Det", {"x": x}, outputs=outputs, shapes=dims, opset=22), {"x": x}
    assert_as_reference(from_onnx, cases, rtol=1e-6)


def test_bit_cast() -> None:
    """Each width, both ways; bools are bytes."""
    pairs = {
        ("float32", "INT32"): normal(3, 2),
        ("int32", "FLOAT"): whole(5, dtype="int32"),
        ("float16", "UINT16"): normal(4).astype("float16"),
        ("int64", "DOUBLE"): whole(3, dtype="int64"),
        ("int8", "UINT8"): whole(6, dtype="int8"),
        ("bool", "UINT8"): np.array([True, False]),
        ("uint8", "BOOL"): np.array([0, 1], "uint8"),
    }
    cases = {}
    for (source, target), x in pairs.items():
        number = getattr(TensorProto, target)
        result = x.view(
            np.dtype(
                {"BOOL": "bool", "FLOAT": "float32", "DOUBLE": "float64"}.get(
                    target, target.lower()
                )
            )
        )
        model = node_model(
            "BitCast",
            {"x": x},
            {"to": number},
            outputs={"y": (str(result.dtype), x.ndim)},
            opset=26,
        )
        cases[f"{source}_{target}"] = model, {"x": x}
    assert_as_reference(from_onnx, cases)
    model = node_model("BitCast", {"x": normal(2)}, {"to": TensorProto.INT64}, opset=26)
    assert_rejected(from_onnx, model, "attribute to is int64; expected a dtype of 32 bits")


def test_tensor_scatter() -> None:
    """Linear and circular, with and without indices, on each axis but the first."""
    cases = {}
    for name, axis, mode, starts in (
        ("linear", 1, "linear", [0, 2]),
        ("circular", -1, "circular", [4, 1]),
        ("from_zero", -2, "linear", None),
    ):
        cache = normal(2, 5, 6)
        update = normal(*(3 if a == axis % 3 else e for a, e in enumerate(cache.shape)), seed=1)
        inputs = {"cache": cache, "update": update}
        if starts is not None:
            inputs["starts"] = np.array(starts, "int64")
        model = node_model("TensorScatter", inputs, {"axis": axis, "mode": mode}, opset=24)
        cases[name] = model, inputs
    assert_as_reference(from_onnx, cases)


def test_tensor_scatter_checks_indices() -> None:
    inputs = {"cache": normal(1, 3, 2), "update": normal(1, 2, 2), "starts": np.array([2])}
    model = node_model("TensorScatter", inputs, opset=24)
    with pytest.raises(RuntimeError, match="match_cast error"):
        imported_and_run(from_onnx, model, *inputs.values())


def test_affine_grid() -> None:
    cases = {}
    for rank, size in ((2, [2, 3, 4, 5]), (3, [1, 1, 2, 3, 4])):
        for centered in (0, 1):
            inputs = {"theta": normal(size[0], rank, rank + 1), "size": np.array(size)}
            attributes = {"align_corners": centered}
            outputs = {"y": ("float32", rank + 2)}
            model = node_model("AffineGrid", inputs, attributes, outputs=outputs, opset=20)
            cases[f"{rank}_{centered}"] = model, inputs
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
