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
"""Creation of tensors: ``arange`` and ``empty``.

Trigger
    An ``arange`` that is empty or floating-point, or has a negative step or arguments of another
    dtype; an ``empty`` of symbolic sizes, such as PyTorch makes for a circular pad.
Mechanism
    The type of an ``arange`` assumes a positive step; the converter of ``empty`` uses the
    arguments of PyTorch's graph without converting them.
"""

from typing import Any

from tvm import relax, te, tirx

from ....fixes.torch_importer import CREATION
from ....support import switches
from ...dtypes import accumulation_dtype
from ...extents import static_extent
from ..call import Call, converts


@converts("arange.default", "arange.start", "arange.start_step", fix=CREATION)
def convert_arange(call: Call) -> relax.Expr:
    """Convert a range of the length that PyTorch recorded."""
    has_start = len(call.operands) != 1
    normalized_call = call if has_start else call.with_operands(0, *call.operands)
    start, end, step = normalized_call.arguments(start=0, end=None, step=1)
    dtype = call.dtype
    count = call.recorded.shape[0]
    numbers = [end, start, step]
    if not call.symbols.knows(count):
        return call.proceed()
    length = call.symbols.convert(count)
    is_integral = all(_is_integer(number) for number in numbers) and "int" in dtype
    if is_integral and static_extent(step) == 1 and length != 0:
        return call.proceed()
    switches.note(CREATION)
    # Like PyTorch, compute float32 elements in float64.
    compute_dtype = "float64" if dtype == "float32" else accumulation_dtype(dtype)
    if "int" in dtype:
        compute_dtype = "int64"

    def element(index: tirx.Var) -> tirx.Expr:
        first, stride = (_cast(number, compute_dtype) for number in (start, step))
        return (first + index.astype(compute_dtype) * stride).astype(dtype)

    def compute() -> te.Tensor:
        return te.compute((length,), element, name="arange")

    return call.builder.emit_te(compute, primfunc_name_hint="arange")


@converts("empty.memory_format", "empty_permuted.default", fix=CREATION, noted=True)
def convert_empty(call: Call) -> relax.Expr:
    """Convert an uninitialized tensor to zeros."""
    return call.emit(relax.op.zeros(relax.ShapeExpr(call.shape), call.dtype))


def _is_integer(number: Any) -> bool:
    if isinstance(number, relax.Expr):
        return "int" in str(number.ty)
    return isinstance(number, int)


def _cast(number: Any, dtype: str) -> tirx.Expr:
    """Cast a number or an expression of sizes to `dtype`; an integer dtype drops the fraction."""
    if isinstance(number, relax.Expr):
        return number.astype(dtype)
    return tirx.const(int(number) if "int" in dtype else float(number), dtype)
