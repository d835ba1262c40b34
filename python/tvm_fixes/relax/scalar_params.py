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
"""Numbers that fused kernels receive beside symbols of extents.

FuseOps passes symbols that are no extent of an operand as one shape.  TVM's FuseTIR then runs
RemoveUnusedParameters, which makes a parameter of each symbol of a function with such a shape,
including those that are parameters already: ``Check failed: (VarRemapGet(source) == nullptr)``.
"""

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm_ffi import structural_map

from .ir import is_primitive, relax_functions, with_functions

__all__ = ["scalars_in_shapes"]


def scalars_in_shapes(mod: tvm.IRModule) -> tvm.IRModule:
    """Pass the numbers of fused functions within the shape of symbols.

    Before::

        fused(x, first, R.shape([n, m]))

    and after::

        fused(x, R.shape([n, m, first]))

    Parameters
    ----------
    mod : tvm.IRModule
        The result of FuseOps.
    """
    moved: dict[tvm.ir.GlobalVar, list[int]] = {}
    changed: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    for variable, function in relax_functions(mod).items():
        if not is_primitive(function):
            continue
        places = [i for i, p in enumerate(function.params) if isinstance(p.ty, tvm.ir.PrimType)]
        if places and isinstance(function.params[-1].ty, relax.ShapeType):
            moved[variable] = places
            changed[variable] = _without_scalars(function, places)
    if not moved:
        return mod

    def replaced(call: relax.Call) -> relax.Call:
        if not isinstance(call.op, tvm.ir.GlobalVar) or call.op not in moved:
            return call
        *rest, symbols = call.args
        shape = relax.ShapeExpr([*symbols.values, *(rest[place] for place in moved[call.op])])
        args = [*_others(rest, moved[call.op]), shape]
        return relax.Call(call.op, args, call.attrs, call.ty_args, call.span, call.ty)

    for variable, function in relax_functions(mod).items():
        if variable not in changed:
            new = structural_map(function, (relax.Call, replaced))
            if not new.same_as(function):
                changed[variable] = new
    return with_functions(mod, changed)


def _without_scalars(function: relax.Function, places: Sequence[int]) -> relax.Function:
    *rest, symbols = function.params
    values = [*symbols.ty.values, *(rest[place] for place in places)]
    shape = relax.Var(symbols.name, relax.ShapeType(values))
    params = [*_others(rest, places), shape]
    return relax.Function(
        params, function.body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


def _others(found: Sequence[relax.Expr], places: Sequence[int]) -> list[relax.Expr]:
    return [one for place, one in enumerate(found) if place not in places]
