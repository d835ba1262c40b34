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
"""A small model for the test of the wheels.

``wheel_model.py MODEL`` writes it; ``wheel_model.py MODEL --run ARTIFACT`` runs its artifact, and
compares the outputs with those of ONNX's reference evaluator.
"""

import argparse

import numpy as np
import onnx
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

TEXT = """<ir_version: 8, opset_import: ["" : 18]>
classifier (float[n, 3, 16, 16] image) => (float[n, 10] scores) {
    hidden = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(image, kernel)
    active = Relu(hidden)
    mean = GlobalAveragePool(active)
    features = Flatten(mean)
    logits = Gemm(features, weight)
    scores = Softmax<axis = -1>(logits)
}"""


def write(path: str) -> None:
    """Write the model with random weights."""
    model = parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in (("kernel", (8, 3, 3, 3)), ("weight", (8, 10))):
        values = rng.standard_normal(shape).astype("float32")
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(model, path)


def run(path: str, artifact: str) -> None:
    """Compare the artifact with the reference evaluator on batches of two sizes."""
    import tvm_fixes

    model = tvm_fixes.CompiledModel.load(artifact)
    for batch in (1, 5):
        image = np.random.default_rng(batch).standard_normal((batch, 3, 16, 16), dtype="float32")
        [expected] = ReferenceEvaluator(path).run(None, {"image": image})
        np.testing.assert_allclose(model.run(image), expected, rtol=1e-4, atol=1e-6)
    print("equal to the reference evaluator")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model")
    options.add_argument("--run", metavar="ARTIFACT")
    arguments = options.parse_args()
    if arguments.run:
        run(arguments.model, arguments.run)
    else:
        write(arguments.model)
