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
"""TVM's converters, as the last link of a chain, and its reader of shapes."""

from collections.abc import Iterable
from typing import Any

import onnx
from tvm import relax, tirx
from tvm.relax.frontend.onnx.onnx_frontend import (
    _get_convert_map,
    _is_empty_optional,
    get_info,
    onnx_input,
)

from .call import Call
from .values.known import Params

__all__ = ["STOCK_OPERATORS", "convert_stock", "is_empty_optional", "stock_shapes"]

STOCK_OPERATORS = frozenset(_get_convert_map())
"""The operators that TVM has a converter for."""


def convert_stock(call: Call, names: dict[str, Any], params: Params) -> Any:
    """Convert a call with TVM's converter.

    Parameters
    ----------
    call : Call
    names : dict
        What the names of the graph are bound to.
    params : mapping
        The variable and the value of each parameter of the function.
    """
    convert = _get_convert_map()[call.operator].get_converter(call.version)
    custom = {"name": call.source.name, "num_outputs": call.outputs, "rank": call.rank}
    attributes = {**call.attributes, "tvm_custom": custom}
    result = convert(call.builder, onnx_input(list(call.operands)), attributes, [names, params])
    return call.builder.normalize(result) if isinstance(result, relax.Expr) else result


def stock_shapes(inputs: Iterable[onnx.ValueInfoProto]) -> dict[str, list[Any] | None]:
    """The shapes of inputs as TVM reads them, by name; None for an unknown rank."""
    symbols: dict[str, tirx.Var] = {}
    return {value.name: get_info(value, symbols)[1] for value in inputs}


def is_empty_optional(value: Any) -> bool:
    """Whether a result is TVM's empty optional."""
    return bool(_is_empty_optional(value))
