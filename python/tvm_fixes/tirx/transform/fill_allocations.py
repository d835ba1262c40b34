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
"""A pass that fills the memory within kernels, to find reads of memory that nothing wrote."""

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock
from tvm_ffi import structural_map

from ...support import ambient
from ...support.ambient import Fill
from ...target.cpu import is_cpu
from ..util import contains
from .keep_tiles_on_stack import without_blocks

LARGE = {"float64": 4e307, "float32": 8e37, "bfloat16": 8e37, "float16": 2.0**14}
"""Large numbers by dtype."""

_FILL = "tvm_fixes.fill"

# A run of the same code writes NaN or a large number: other code may round in other ways.
tvm_ffi.register_global_func(_FILL, lambda: int(ambient.current().fill), override=True)


def FillAllocations() -> tvm.transform.Pass:
    """Fill each buffer that a kernel allocates, as a run asks for.

    Before::

        sums = T.alloc_buffer((16,))
        …

    and after::

        fill = T.call_packed("tvm_fixes.fill")
        sums = T.alloc_buffer((16,))
        if fill != 0:
            for i in range(16):
                sums[i] = T.Select(fill == 1, NaN, 8e37)
        …

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs of a CPU target.  Run it after all other passes on kernels:
        it lowers them to loops.  The kernels run only in a process with this package.

    Notes
    -----
    Integers become extreme values.  Integers of less than a byte and 8-bit floats are not
    filled.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_cpu(tvm.target.Target.current()):
            return mod
        filled = {
            variable: _filled(function) if isinstance(function, tirx.PrimFunc) else function
            for variable, function in mod.functions_items()
        }
        return tvm.IRModule(filled, attrs=mod.attrs)

    return tvm.transform.module_pass(run, opt_level=0, name="FillAllocations")


def _filled(function: tirx.PrimFunc) -> tirx.PrimFunc:
    # KeepTilesOnStack has lowered some kernels.
    lowered = without_blocks(function) if contains(function.body, SBlock) else function
    if not contains(lowered.body, tirx.AllocBuffer):
        return function
    fill = tirx.Var("fill", "int32")

    def with_fill(alloc: tirx.AllocBuffer) -> tirx.Stmt:
        buffer = alloc.buffer
        values = _values(str(buffer.dtype))
        if values is None:
            return alloc
        indices = [tirx.Var(f"i{axis}", extent.ty) for axis, extent in enumerate(buffer.shape)]
        value = tirx.Select(fill == int(Fill.NAN), *values)
        filled: tirx.Stmt = tirx.BufferStore(buffer, value, indices)
        for index, extent in reversed(list(zip(indices, buffer.shape, strict=True))):
            zero = tirx.const(0, str(extent.ty))
            filled = tirx.For(index, zero, extent, tirx.ForKind.SERIAL, filled)
        return tirx.SeqStmt([alloc, tirx.IfThenElse(fill != int(Fill.NONE), filled, None)])

    body = structural_map(lowered.body, (tirx.AllocBuffer, with_fill))
    asked = tirx.Bind(fill, tirx.call_packed(_FILL))
    return lowered.with_body(tirx.SeqStmt([asked, body]))


def _values(dtype: str) -> tuple[tirx.Expr, tirx.Expr] | None:
    """The elements for :attr:`.Fill.NAN` and :attr:`.Fill.LARGE`; None for less usual dtypes."""
    kind, element = tvm.DataType(dtype), dtype.partition("x")[0]
    if element == "bool":
        values = tirx.const(True, element), tirx.const(False, element)
    elif element in LARGE:
        values = tirx.const(np.nan, element), tirx.const(LARGE[element], element)
    elif element.startswith(("int", "uint")) and kind.bits >= 8:
        values = tirx.max_value(element), tirx.const(tirx.max_value(element).value // 2, element)
    else:
        return None
    return values if kind.lanes == 1 else tuple(tirx.Broadcast(v, kind.lanes) for v in values)
