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
"""Preparation of tests that compile in many forked children."""

import gc

import numpy as np
import onnx
import onnxruntime
import torch

import tvm_fixes

_MODEL = """
    <ir_version: 9, opset_import: ["" : 18]>
    g (float[2, 4] x, float[4, 4] w) => (float[2, 4] y) { z = MatMul (x, w) y = Softmax (z) }
"""

_prepared: set[bool] = set()


def prepare_forks(*, exports: bool = False) -> None:
    """Compile and run a model, so that no child loads what the first compilation loads.

    Parameters
    ----------
    exports : bool
        Whether the children also export PyTorch's programs, or compile such.
    """
    if exports in _prepared:
        return
    _prepared.add(exports)
    model = onnx.parser.parse_model(_MODEL)
    compiled = tvm_fixes.compile(model, compare=False)
    compiled.run(*(np.ones(shape, "float32") for shape in ((2, 4), (4, 4))))
    onnxruntime.InferenceSession(model.SerializeToString())
    if exports:
        program = torch.export.export(torch.nn.Linear(4, 4), (torch.ones(2, 4),))
        tvm_fixes.compile(program.run_decompositions(), compare=False)
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all objects
