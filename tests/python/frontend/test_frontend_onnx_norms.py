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
"""Normalizations, compared with ONNX Runtime."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm.relax.frontend import onnx as tvm_onnx

from onnx_helpers import (
    assert_as_onnx_runtime,
    assert_refused,
    imported_and_run,
    node_model,
    normal,
)
from tvm_fixes import switches
from tvm_fixes.frontend.onnx import from_onnx

FIX_ID = "onnx-norms"


def layer_norm(axis: int):
    x = normal(2, 3, 4) * 3 + 5
    shape = x.shape[axis:]
    constants = {"scale": normal(*shape, seed=1), "bias": normal(*shape, seed=2)}
    outputs = {name: ("float32", 3) for name in ("y", "mean", "deviation")}
    attributes = {"axis": axis, "epsilon": 1e-3}
    return node_model(
        "LayerNormalization", {"x": x}, attributes, constants=constants, outputs=outputs
    ), {"x": x}


def test_mean_and_deviation_of_layer_norm() -> None:
    assert_as_onnx_runtime(from_onnx, {str(a): layer_norm(a) for a in (-1, 1, 2)}, 1e-5)


def test_batch_norm_in_training() -> None:
    """ONNX operator specification, BatchNormalization; ONNX Runtime has no kernel for it."""
    x = normal(5, 2, 3)
    constants = {
        name: normal(2, seed=seed) for seed, name in enumerate(("scale", "bias", "mean"), 1)
    }
    constants["var"] = np.array([0.5, 2], "float32")
    attributes = {"training_mode": 1, "momentum": 0.75}
    outputs = {"y": ("float32", 3), "mean_out": ("float32", 1), "var_out": ("float32", 1)}
    model = node_model(
        "BatchNormalization", {"x": x}, attributes, constants=constants, outputs=outputs
    )
    y, mean, var = imported_and_run(from_onnx, model, x)
    wide = x.astype("float64")
    now = wide.mean((0, 2)), wide.var((0, 2))
    np.testing.assert_allclose(mean, 0.75 * constants["mean"] + 0.25 * now[0], rtol=1e-5)
    np.testing.assert_allclose(var, 0.75 * constants["var"] + 0.25 * now[1], rtol=1e-5)
    scale = constants["scale"] / np.sqrt(now[1] + 1e-5)
    expected = (wide - now[0][:, None]) * scale[:, None] + constants["bias"][:, None]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def lp_norm(p: int, axis: int):
    x = normal(2, 3, 4)
    x[0, :, 1] = 0
    return node_model("LpNormalization", {"x": x}, {"p": p, "axis": axis}), {"x": x}


def test_lp_norm() -> None:
    cases = {f"{p} {axis}": lp_norm(p, axis) for p in (1, 2) for axis in (-1, 0, 1)}
    assert_as_onnx_runtime(from_onnx, cases, 1e-6)


def test_other_lp_norms_are_refused() -> None:
    message = "LpNormalization 'node': attribute p is 3; expected 1 or 2"
    assert_refused(from_onnx, lp_norm(3, 0)[0], message)


def test_switched_off_is_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = layer_norm(1)
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {FIX_ID}
    with pytest.raises(ValueError):
        tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(model))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


if __name__ == "__main__":
    tvm.testing.main()
