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
"""Transforms of weights that fetch and store them one by one, also those that change nothing.

Upstream
    None yet.
Versions
    Seen in 0.27.0.post1.
Trigger
    ``LazyTransformParams`` on a transform that returns the weights as they are, or that has
    dataflow blocks.
Symptom
    Nothing is stored, and the function returns a variable that is not defined; calls with effects
    in a dataflow block.
Mechanism
    The pass stores the fields of the tuple that is bound last, and there is none; that dataflow
    blocks are to be removed before is said in its documentation alone.
How to remove
    When TVM's pass does both; delete this file, its test and its part of the fix id
    ``lifted-params``.
"""

import importlib
from collections.abc import Sequence

import tvm
from tvm import relax

from ...fixes.weights import LIFTED_PARAMS as FIX_ID
from ...support import switches
from ..guard import corrected
from ..ir import taken_apart, with_body, with_functions
from ..lift.callers import SUFFIX

NAME = "LazyTransformParams"


def LazyTransformParams(
    fget_item: str = "get_item",
    fset_item: str | None = "set_item",
    extra_get_item_params: Sequence[relax.Var] | None = None,
    extra_set_item_params: Sequence[relax.Var] | None = None,
) -> tvm.transform.Pass:
    """Have transforms fetch each weight when they need it, and store what they make of it.

    TVM's pass of this name, for the functions named ``…transform_params``, which need not be
    without dataflow blocks.

    Parameters
    ----------
    fget_item, fset_item : str
        The global functions that are called for it.  What `fset_item` keeps stays as it is where
        :func:`tvm_fixes.pipeline` builds the module; TVM's own pipelines use the memory again when
        it returns.
    extra_get_item_params, extra_set_item_params : sequence of relax.Var, optional
        Parameters that they get in front.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """
    # It uses this module, which importing TVM does not load.
    importlib.import_module("tvm.relax.op.vm")
    extras = [
        None if v is None else list(v) for v in (extra_get_item_params, extra_set_item_params)
    ]
    stock = relax.transform.LazyTransformParams(fget_item, fset_item, *extras)

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        switches.note(FIX_ID)
        flat = relax.transform.ToNonDataflow()(mod)
        transforms = {
            var: _with_tuple(function)
            for var, function in flat.functions_items()
            if isinstance(function, relax.Function) and var.name_hint.endswith(SUFFIX)
        }
        return stock(with_functions(mod, transforms))

    return corrected(stock, FIX_ID, run, NAME)


def _with_tuple(function: relax.Function) -> relax.Function:
    """The function, with a variable for its result that is bound to a tuple."""
    blocks, result = list(function.body.blocks), function.body.body
    bound = {b.var: b.value for block in blocks for b in block.bindings}
    if isinstance(result, relax.Var) and isinstance(bound.get(result), relax.Tuple):
        return function
    if not isinstance(result.ty, relax.TupleType):
        return function
    is_whole = isinstance(result, relax.Tuple)
    bindings, whole = ([], result) if is_whole else taken_apart(result)
    out = relax.Var("output_tuple", result.ty)
    blocks.append(relax.BindingBlock([*bindings, relax.VarBinding(out, whole)]))
    return with_body(function, relax.SeqExpr(blocks, out))
