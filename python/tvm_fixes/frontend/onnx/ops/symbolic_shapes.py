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
"""Operands that are shapes with symbols, for TVM's converters, which expect them as such."""

from typing import Any

from tvm import relax

from ....fixes.onnx_importer import SHAPE_VALUES
from ..call import Call, converts

_SHAPES = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Resize": 3}
"""The operand of each operator that is a shape."""


@converts(*_SHAPES, place="shape operands", fix=SHAPE_VALUES)
def convert_to_symbols(call: Call) -> Any:
    """Convert a call whose known shape has symbols, as a shape instead of a tensor."""
    index = _SHAPES[call.operator]
    value = call.value(index)
    if value is None or value.is_static:
        return call.proceed()
    operands = list(call.operands)
    operands[index] = relax.ShapeExpr(value.extents())
    return call.with_operands(*operands).proceed()
