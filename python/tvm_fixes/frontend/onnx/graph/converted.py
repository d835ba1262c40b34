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
"""The operators that the importer converts."""

import onnx

from ....fixes.onnx_importer import FUNCTIONS, LOOPS, SHAPE_VALUES
from ....support import switches
from ..call import CONVERTERS, operator_of
from ..stock import STOCK_OPERATORS
from .check import is_known_domain

__all__ = ["converts_loops", "corrected_operators", "has_converter"]

_LOOPS = frozenset({"Loop", "Scan"})
"""The operators that contain a graph, so that only the walk can convert them."""


def corrected_operators() -> frozenset[str]:
    """The operators with a correction, and those that only this importer converts."""
    return CONVERTERS.operators() | _LOOPS


def has_converter(node: onnx.NodeProto) -> bool:
    """Whether a node can be imported, if its operands and attributes are supported."""
    if not is_known_domain(node.domain):
        return False
    operator = operator_of(node)
    if operator == "Attention" and not node.domain and switches.enabled(FUNCTIONS):
        # TVM's converter is for the operator of ONNX Runtime's domain; ONNX's has a function body.
        return CONVERTERS.has(operator)
    if node.op_type in _LOOPS:
        return converts_loops()
    return node.op_type == "If" or operator in STOCK_OPERATORS or CONVERTERS.has(operator)


def converts_loops() -> bool:
    """Whether Loop and Scan are converted, which needs the values of shapes."""
    return switches.enabled(LOOPS) and switches.enabled(SHAPE_VALUES)
