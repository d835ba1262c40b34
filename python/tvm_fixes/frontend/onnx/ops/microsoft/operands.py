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
"""Operands of the operators of the domain com.microsoft, and calls of ONNX's operators.

Floating-point operators compute in the accumulation dtype, and round once.
"""

from dataclasses import replace
from typing import Any

from tvm import relax

from ....dtypes import accumulation_dtype, dtype_of
from ....extents import equal
from ...call import Call, Extent, float_defaults
from ..shape_operands import require

__all__ = ["as_onnx", "check_rank", "check_vector", "named_shape", "reject", "round_to", "widen"]


def widen(call: Call, value: relax.Expr) -> relax.Expr:
    """`value` in its accumulation dtype."""
    dtype = dtype_of(value)
    wide = accumulation_dtype(dtype)
    return value if wide == dtype else call.emit(relax.op.astype(value, wide))


def round_to(call: Call, value: relax.Expr, dtype: str) -> relax.Expr:
    """`value` in `dtype`, bound to a variable."""
    value = call.emit(value)
    return value if dtype_of(value) == dtype else call.emit(relax.op.astype(value, dtype))


def as_onnx(
    call: Call,
    operator: str,
    *operands: relax.Expr | None,
    opset: int | None = None,
    **attributes: Any,
) -> relax.Expr:
    """The first result of ONNX's `operator`; by default with the version of the model's opset."""
    opset = call.version if opset is None else opset
    called = replace(
        call,
        operator=operator,
        operands=operands,
        attributes=float_defaults(operator, opset) | attributes,
        version=opset,
        outputs=1,
        narrow=(),
    )
    result = called.convert()
    if isinstance(result, relax.Tuple):
        result = result.fields[0]
    result = call.emit(result)
    is_tuple = isinstance(result.ty, relax.TupleType)
    return call.emit(relax.TupleGetItem(result, 0)) if is_tuple else result


# Checks


def named_shape(call: Call, name: str, value: relax.Expr) -> list[Extent]:
    """The extents of an operand, which must be known."""
    extents = call.known.extents(value)
    if extents is None:
        raise call.invalid(f"shape of {name}", value.ty, "expected a known shape")
    return extents


def check_rank(call: Call, name: str, value: relax.Expr, *ranks: int) -> list[Extent]:
    """The extents of an operand whose rank must be one of `ranks`."""
    extents = named_shape(call, name, value)
    if len(extents) not in ranks:
        expected = " or ".join(map(str, ranks))
        raise call.invalid(f"rank of {name}", len(extents), f"expected {expected}")
    return extents


def check_vector(call: Call, name: str, value: relax.Expr | None, extent: Extent) -> None:
    """Reject an operand that is not a vector of `extent` elements; None is allowed."""
    if value is not None:
        (found,) = check_rank(call, name, value, 1)
        reason = f"expected [{extent}]"
        require(call, equal(call.known, found, extent), f"shape of {name}", [found], reason)


def reject(call: Call, inputs: dict[str, Any], *names: str) -> None:
    """Reject operands that are given, and attributes that are not 0, among `names`."""
    for name in names:
        if inputs.get(name) is not None:
            raise call.invalid(f"operand {name}", "given", "expected none")
        value = call.attributes.get(name, 0)
        if value:
            raise call.invalid(f"attribute {name}", value, "expected 0")
