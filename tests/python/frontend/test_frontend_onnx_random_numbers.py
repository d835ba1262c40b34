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
"""Random numbers: their distribution, and that the seed determines them."""

import numpy as np
import tvm.testing
from onnx import TensorProto, helper

from helpers.models import onnx_model
from helpers.onnx_graphs import assert_rejected, imported_and_run, node_model, normal
from tvm_fixes.frontend.onnx import from_onnx

COUNT = 20_000


def test_distributions() -> None:
    """Mean and deviation are within five standard errors; a seed gives the same numbers."""
    make, shape = helper.make_node, [COUNT // 4, 4]
    uniform = {"low": -2.0, "high": 4.0}
    nodes = [
        make("RandomUniform", [], ["uniform"], shape=shape, seed=1.0, **uniform),
        make("RandomUniform", [], ["same"], shape=shape, seed=1.0, **uniform),
        make("RandomUniform", [], ["other"], shape=shape, seed=2.0, **uniform),
        make("RandomNormalLike", ["p"], ["normal"], mean=3.0, scale=2.0, dtype=TensorProto.DOUBLE),
        make("Bernoulli", ["p"], ["coin"], dtype=TensorProto.INT32),
        make("Multinomial", ["weights"], ["drawn"], sample_size=COUNT, seed=3.0),
    ]
    dtypes = {
        "uniform": TensorProto.FLOAT,
        "same": TensorProto.FLOAT,
        "other": TensorProto.FLOAT,
        "normal": TensorProto.DOUBLE,
        "coin": TensorProto.INT32,
        "drawn": TensorProto.INT32,
    }
    model = onnx_model(
        nodes,
        [("p", TensorProto.FLOAT, [None]), ("weights", TensorProto.FLOAT, [1, 3])],
        [(name, dtype, None) for name, dtype in dtypes.items()],
        {},
        opset=22,
    )
    p = np.full(COUNT, 0.3, "float32")
    weights = np.log(np.array([[1, 0, 3]], "float32") + np.float32(1e-30))
    results = imported_and_run(from_onnx, model, p, weights)
    found = dict(zip(dtypes, results, strict=True))
    assert [found[name].dtype.name for name in ("uniform", "normal", "coin")] == [
        "float32",
        "float64",
        "int32",
    ]
    np.testing.assert_array_equal(found["uniform"], found["same"])
    assert (found["uniform"] != found["other"]).mean() > 0.99
    assert found["uniform"].min() >= -2
    assert found["uniform"].max() < 4
    five = 5 / np.sqrt(COUNT)
    assert abs(found["uniform"].mean() - 1) < five * 6 / np.sqrt(12)
    assert abs(found["uniform"].std() - 6 / np.sqrt(12)) < five * 6
    assert abs(found["normal"].mean() - 3) < five * 2
    assert abs(found["normal"].std() - 2) < five * 2
    assert abs(np.mean((found["normal"] - 3) ** 3)) < 8 * five * np.sqrt(15)
    assert abs(found["coin"].mean() - 0.3) < five / 2
    assert set(np.unique(found["coin"])) == {0, 1}
    assert set(np.unique(found["drawn"])) == {0, 2}
    assert abs((found["drawn"] == 2).mean() - 0.75) < five / 2
    neighbors = np.corrcoef(found["uniform"].ravel()[:-1], found["uniform"].ravel()[1:])[0, 1]
    assert abs(neighbors) < five


def test_rejected() -> None:
    model = node_model("RandomUniformLike", {"x": normal(2).astype("int32")}, opset=22)
    assert_rejected(from_onnx, model, "dtype is int32; expected floating-point numbers")
    model = node_model("Multinomial", {"x": normal(2)}, opset=22)
    assert_rejected(from_onnx, model, "shape of input is [2]; expected rank 2")


if __name__ == "__main__":
    tvm.testing.main()
