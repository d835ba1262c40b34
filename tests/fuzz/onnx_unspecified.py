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
"""Operands for which ONNX does not specify the result.

The generator avoids them at the sizes at which it builds a graph; other sizes have other inputs.
"""

from collections.abc import Mapping

import numpy as np
import onnx

from . import onnx_oracle
from .onnx_layers import exceeds_data
from .values import FLOATS, INTEGERS

_POOLS = ("AveragePool", "LpPool", "MaxPool")
_ORDERS = ("ArgMax", "ArgMin", "GlobalMaxPool", "MaxPool", "TopK")


def has_unspecified_result(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether ONNX leaves the result of a node of `model` unspecified for `inputs`."""
    return any(
        _is_unspecified(node, [operands[name] for name in node.input if name], results)
        for node, operands, results in onnx_oracle.steps(model, inputs)
    )


def _is_unspecified(
    node: onnx.NodeProto, operands: list[np.ndarray], results: list[np.ndarray]
) -> bool:
    if not operands:
        return False
    if operands[0].dtype.name not in FLOATS:
        # ONNX defines no logarithm of integers; opset 28 drops them.
        if node.op_type in ("ReduceLogSum", "ReduceLogSumExp"):
            return True
        # An integer mean of no elements divides by zero.
        return node.op_type == "ReduceMean" and operands[0].size == 0
    data = operands[0].astype("float64")
    if node.op_type in _POOLS:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if not attributes.get("auto_pad", b"").startswith(b"SAME"):
            # ONNX Runtime computes parts of windows, against the specification.
            if exceeds_data(data.shape[2:], attributes):
                return True
    if node.op_type in _ORDERS:
        return bool(np.isnan(data).any())
    if node.op_type == "QuantizeLinear":
        return bool(np.isnan(data).any())
    if node.op_type == "Resize":
        # Implementations may or may not read neighbors of weight 0.
        return not np.isfinite(data).all()
    to = results[0].dtype.name
    if node.op_type in ("Cast", "CastLike") and to in INTEGERS:
        limits = np.iinfo(to)
        return not bool(((data > limits.min - 1.0) & (data < limits.max + 1.0)).all())
    return False
