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
"""The types that PyTorch recorded for the results of operators.

The docstring of ``shapes`` describes the faults of TVM's converters.
"""

from typing import Any

import torch
from tvm import relax
from tvm.ir import PrimType

from ....errors import OpNotImplemented
from ....fixes.torch_importer import DTYPE, DYNAMIC_SHAPES, PROMOTION
from ....support import switches
from ...convert import EVERY
from ...dtypes import dtype_of
from ...extents import static_extent
from ..call import Call, converts
from ..values.guarded_extents import with_broadcast

__all__ = ["NUMBERS"]

NUMBERS = (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)


@converts(EVERY, place="types", fix=DYNAMIC_SHAPES)
def convert_to_type(call: Call) -> Any:
    """Give the result the type that PyTorch recorded, or reject it."""
    value = call.node.meta.get("val")
    if call.context.is_in_branch:
        return call.proceed()
    if isinstance(value, NUMBERS):
        return _number(call)
    with with_broadcast(call) as cast:
        result = cast.proceed()
    if isinstance(result, relax.Call):
        # Some of TVM's converters return a call without binding it.
        result = call.emit(result)
    is_tensor = isinstance(value, torch.Tensor) and isinstance(result, relax.Expr)
    return _typed(call, result) if is_tensor and call.node.users else result


def _number(call: Call) -> Any:
    """Convert a size, or a number computed from sizes."""
    value = call.recorded
    if not call.symbols.knows(value):
        # The number comes from the elements of a tensor.
        result = call.proceed()
        if isinstance(getattr(result, "ty", None), PrimType):
            call.symbols.bind(value, result)
        return result
    number = call.symbols.convert(value)
    if isinstance(value, torch.SymBool) and isinstance(number, relax.Expr):
        return call.emit(relax.prim_value(number))
    return number


def _typed(call: Call, result: relax.Expr) -> relax.Expr:
    """Give `result` the type that PyTorch recorded for `node`.

    Sizes that TVM cannot prove are checked at run time.

    Raises
    ------
    tvm.error.OpNotImplemented
        If the dtype, rank or extents of `result` differ.
    """
    value = call.recorded
    if value.dtype.is_complex or not isinstance(result.ty, relax.TensorType):
        return result
    dtype = call.context.dtype(value.dtype)
    given = result.ty.shape if isinstance(result.ty.shape, relax.ShapeExpr) else None
    if given is not None and len(given) == len(value.shape):
        for size, extent in zip(value.shape, given, strict=True):
            if not call.symbols.knows(size):
                call.symbols.bind(size, extent)
    expected = call.symbols.shape(value.shape)
    ranks = {result.ty.ndim, len(expected)} - {-1}
    # If another switch selects TVM's converter, the result keeps the dtype that TVM computes.
    if not (switches.enabled(DTYPE) and switches.enabled(PROMOTION)):
        dtype = dtype_of(result)
    differs = dtype_of(result) != dtype or len(ranks) > 1
    if not differs and given is not None:
        pairs = [(static_extent(a), static_extent(b)) for a, b in zip(given, expected, strict=True)]
        differs = any(None not in pair and pair[0] != pair[1] for pair in pairs)
    if differs:
        raise OpNotImplemented(
            f"{call.where}: imported as {dtype_of(result)} "
            f"{'of unknown shape' if given is None else list(given)}; "
            f"PyTorch gives {dtype} {expected}"
        )
    if given is not None:
        is_proved = all(map(call.symbols.equal, given, expected))
        if is_proved or not all(map(call.symbols.is_integral, value.shape)):
            return result
    switches.note(DYNAMIC_SHAPES)
    return call.builder.match_cast(result, relax.TensorType(expected, dtype))
