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
"""Run a compiled library without tvm-fixes: ``python run_alone.py MODEL.onnx MODEL.so``.

The model has one input and one output; ONNX Runtime computes the expected output.
"""

import sys

import numpy as np
import onnxruntime
import tvm

# Make imports of the package fail.
sys.modules["tvm_fixes"] = None  # type: ignore[assignment]

session = onnxruntime.InferenceSession(sys.argv[1])
[spec] = session.get_inputs()
data = np.random.default_rng(1).standard_normal(spec.shape, "float32")
vm = tvm.relax.VirtualMachine(tvm.runtime.load_module(sys.argv[2]), tvm.cpu())
output = vm["main"](tvm.runtime.tensor(data)).numpy()
[expected] = session.run(None, {spec.name: data})
np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
print(f"{sys.argv[2]}: output matches ONNX Runtime, using only apache-tvm {tvm.__version__}")
