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
"""Write a small ONNX model: ``python tiny_model.py FILE.onnx``.

It has a transposed convolution, which stock TVM computes slowly or rejects, and a linear layer.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tiny_model() -> onnx.ModelProto:
    """Make the model: from ``image`` (1, 3, 8, 8) to ``scores`` (1, 10), both float32."""
    rng = np.random.default_rng(0)
    weights = {
        "kernel": rng.standard_normal((3, 4, 4, 4)),
        "matrix": rng.standard_normal((4 * 16 * 16, 10)) / 32,
        "bias": rng.standard_normal(10),
    }
    nodes = [
        helper.make_node(
            "ConvTranspose", ["image", "kernel"], ["larger"], strides=[2, 2], pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", ["larger"], ["positive"]),
        helper.make_node("Flatten", ["positive"], ["flat"]),
        helper.make_node("Gemm", ["flat", "matrix", "bias"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, 10))],
        [numpy_helper.from_array(v.astype("float32"), name) for name, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    onnx.save(tiny_model(), sys.argv[1])
