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
"""GuardShapeBounds: hide the extents of parameters from which TVM derives wrong bounds of symbols.

Trigger
    A parameter of a kernel with an extent such as ``n * 2 - 4``, as those of strided and transposed
    convolutions and of slices.
Mechanism
    Analyzer::MarkGlobalNonNegValue derives bounds of a symbol from an extent, which is not
    negative.  It ignores the factor: from ``n * 2 - 4 >= 0`` follows ``n >= 2``, not ``n >= 4``.
"""

import tvm
from tvm import tirx
from tvm.sym import Analyzer, detect_linear_equation
from tvm_ffi import structural_equal

from ...fixes.dynamic_shapes import SHAPE_BOUNDS as FIX_ID
from ..parameters import redeclared, with_parameters
from ..util import prim_func_pass


def GuardShapeBounds() -> tvm.transform.Pass:
    """Write the extents of a kernel's parameters so that TVM derives no wrong bounds from them.

    Before::

        def kernel(x: T.Buffer((n * 2 - 4,)), y: T.Buffer((n * 4 - 5,))): ...

    and after::

        def kernel(x: T.Buffer(((n - 2) * 2,)), y: T.Buffer(((n - 2) * 4 + 3,))): ...

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.  Run it after all schedules.
    """
    return prim_func_pass("GuardShapeBounds", FIX_ID, _guard, any_target=True)


def _guard(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    replaced = {}
    for parameter in function.params:
        if not isinstance(parameter.ty, tirx.BufferType):
            continue
        shape = [_hidden(extent) for extent in parameter.shape]
        if not all(a.same_as(b) for a, b in zip(shape, parameter.shape, strict=True)):
            replaced[parameter] = redeclared(parameter, shape=shape)
    if not replaced:
        return function
    return with_parameters(function, replaced)


def _hidden(extent: tirx.Expr) -> tirx.Expr:
    """`extent`; ``factor * symbol - constant`` with the symbol inside a difference."""
    if isinstance(extent, tirx.IntImm | tirx.Var):
        return extent
    symbols = tirx.analysis.undefined_vars(extent)
    if len(symbols) != 1:
        return extent
    [symbol] = symbols
    linear = detect_linear_equation(Analyzer().simplify(extent), [symbol])
    if len(linear) != 2 or not all(isinstance(part, tirx.IntImm) for part in linear):
        return extent
    factor, offset = (int(part) for part in linear)
    if factor <= 1 or offset >= 0:
        return extent
    inside = -(offset // factor)
    hidden = (symbol - inside) * factor + (offset + inside * factor)
    return extent if structural_equal(hidden, extent) else hidden
