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
"""Fixes of the ONNX importer."""

import re
from collections.abc import Callable

import numpy as np
import tvm

from ._run import run
from .record import Fix, Kind, Probe


def _import_with_output_shape(from_onnx: Callable[..., tvm.IRModule]) -> None:
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 2, 2), "float32")
    weight = rng.standard_normal((2, 3, 2, 2), "float32")
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], output_shape=[3, 3])
    graph = helper.make_graph(
        [node],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3, 3, 3))],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    got = run(from_onnx(model, keep_params_in_input=False), x)
    # The kernel is as large as the stride, so the windows do not overlap; the one row and column
    # that output_shape leaves out are the first (ONNX specification, auto_pad NOTSET).
    whole = np.einsum("nihw,ioab->nohawb", x, weight).reshape(1, 3, 4, 4)
    expected = whole[:, :, 1:, 1:]
    assert got.shape == expected.shape, f"expected shape {expected.shape}, got {got.shape}"
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def _stock() -> None:
    from tvm.relax.frontend.onnx import from_onnx

    _import_with_output_shape(from_onnx)


def _fixed() -> None:
    from ..frontend.onnx import from_onnx

    _import_with_output_shape(from_onnx)


CONV_TRANSPOSE_OUTPUT_SHAPE = Fix(
    id="onnx-conv-transpose-output-shape",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="ConvTranspose takes its pads from output_shape where that is given",
    upstream=(19450,),
    probe=Probe(
        stock=_stock,
        fixed=_fixed,
        symptom=re.compile(r"AssertionError: expected shape \(1, 3, 3, 3\), got \(1, 3, 4, 4\)"),
        modules=("onnx",),
    ),
)
