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
"""LazyTransformParams: let transform functions fetch and store weights one by one.

Trigger
    ``LazyTransformParams`` on a transform function that returns the weights unchanged, or that has
    dataflow blocks, and with an ``fset_item`` that keeps the tensor it gets.
Mechanism
    The pass stores the fields of the tuple that is bound last, but here no tuple is bound.  It
    requires functions without dataflow blocks, which only its documentation says.  TVM's planner of
    memory assumes that a packed function keeps none of its arguments, and reuses their memory.
"""

import importlib
from collections.abc import Sequence

import tvm
from tvm import relax

from ...fixes.weights import LIFTED_PARAMS as FIX_ID
from ...support import switches
from ..guard import corrected
from ..ir import relax_functions, unpack_tuple, with_body, with_functions
from ..lift.callers import SUFFIX
from .fold_constant import changed_calls, rebind

NAME = "LazyTransformParams"

# Calls a packed function, too.
_INVOKE = "vm.builtin.invoke_closure"


def LazyTransformParams(
    fget_item: str = "get_item",
    fset_item: str | None = "set_item",
    extra_get_item_params: Sequence[relax.Var] | None = None,
    extra_set_item_params: Sequence[relax.Var] | None = None,
) -> tvm.transform.Pass:
    """Let transform functions fetch each weight when they need it, and store each result.

    TVM's pass of this name, for the functions named ``…transform_params``, which may have dataflow
    blocks.

    Parameters
    ----------
    fget_item, fset_item : str
        The names of the global functions that fetch and store.  `fset_item` may keep the tensor it
        gets, in TVM's pipelines too: the virtual machine calls it as a closure, whose arguments the
        planner of memory leaves alone.
    extra_get_item_params, extra_set_item_params : sequence of relax.Var, optional
        Additional parameters, passed before the others.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """
    # TVM's pass uses this module, but `import tvm` does not load it.
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
            for var, function in relax_functions(flat).items()
            if var.name_hint.endswith(SUFFIX)
        }
        lazy = stock(with_functions(mod, transforms))
        return lazy if fset_item is None else _with_kept_arguments(lazy, fset_item)

    return corrected(stock, FIX_ID, run, NAME)


def _with_kept_arguments(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Call the packed function `name` so that its arguments keep their memory."""

    def closure(call: relax.Call) -> relax.Expr | None:
        if not isinstance(call.op, relax.ExternFunc) or call.op.global_symbol != name:
            return None
        arguments = relax.Tuple([call.op, *call.args])
        invoke = relax.op.call_builtin_with_ctx(_INVOKE, arguments, ty_args=list(call.ty_args))
        return relax.BlockBuilder().normalize(invoke)

    return rebind(mod, changed_calls(mod, closure))


def _with_tuple(function: relax.Function) -> relax.Function:
    """Return a variable that is bound to a tuple expression."""
    blocks, result = list(function.body.blocks), function.body.body
    bound = {b.var: b.value for block in blocks for b in block.bindings}
    if isinstance(result, relax.Var) and isinstance(bound.get(result), relax.Tuple):
        return function
    if not isinstance(result.ty, relax.TupleType):
        return function
    is_whole = isinstance(result, relax.Tuple)
    bindings, whole = ([], result) if is_whole else unpack_tuple(result)
    out = relax.Var("output_tuple", result.ty)
    blocks.append(relax.BindingBlock([*bindings, relax.VarBinding(out, whole)]))
    return with_body(function, relax.SeqExpr(blocks, out))
