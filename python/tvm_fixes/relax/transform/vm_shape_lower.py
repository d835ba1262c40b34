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
"""A guard around TVM's ``VMShapeLower``.

Mechanism
    For weights, the pass checks only symbolic extents, and reads them from the shape, which is null
    for a weight of unknown shape.
How to remove
    When TVM builds such a function, use its pass in :mod:`tvm_fixes.pipeline`; delete this file,
    its tests and the fix id ``vm-shape-lower-weights``.
"""

from collections import Counter

import tvm
from tvm import relax, tirx

from ...errors import UsageError
from ...fixes.memory import VM_SHAPE_LOWER_WEIGHTS as FIX_ID
from ...support import switches
from ..analysis import bindings, has_known_shapes, weights_of
from ..ir import relax_functions, with_body, with_functions
from ..known_checks import without_known_checks
from ..source_nodes import check_of

_ALLOC_TENSOR = tvm.ir.Op.get("relax.builtin.alloc_tensor")
_CONTEXT = "ErrorContext(match_cast"
"""The start of the text of an error at run time."""


def VMShapeLower() -> tvm.transform.Pass:
    """Lower symbolic shapes and the checks of parameters to builtins of the virtual machine.

    TVM's pass of this name. While it runs, functions with weights of unknown shape do not have the
    attribute ``num_input``, so that it checks all their parameters in full.

    Errors of a ``match_cast`` at run time name the node of the model that it belongs to.  The shape
    of a result that the function allocates is not checked.

    Returns
    -------
    tvm.transform.Pass
        A module pass.

    Raises
    ------
    UsageError
        When the pass runs: if a tensor of symbolic shape is not lowered to memory yet.
    """
    stock = relax.transform.VMShapeLower()

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        _reject_allocations(mod)
        checks = _checks_in(mod)
        functions = {
            var: function
            for var, function in relax_functions(mod).items()
            if _has_unknown_weights(function)
        }
        if not switches.enabled(FIX_ID):
            return _with_names(stock(mod), checks)
        if not functions:
            return _with_names(_shortened(stock(mod)), checks)
        switches.note(FIX_ID)
        bare = {var: function.without_attr("num_input") for var, function in functions.items()}
        lowered = stock(with_functions(mod, bare))
        whole = {
            var: lowered[var].with_attr("num_input", function.attrs["num_input"])
            for var, function in functions.items()
        }
        return _with_names(_shortened(with_functions(lowered, whole)), checks)

    return tvm.transform.module_pass(run, opt_level=stock.info.opt_level, name=stock.info.name)


def _reject_allocations(mod: tvm.IRModule) -> None:
    """Raise a UsageError for shapes that TVM's LowerAllocTensor would not find any more."""
    for variable, function in mod.functions_items():
        for binding in bindings(function) if isinstance(function, relax.Function) else ():
            call = binding.value
            if not isinstance(call, relax.Call) or not call.op.same_as(_ALLOC_TENSOR):
                continue
            extents = getattr(call.args[0], "values", ())
            if not all(isinstance(extent, tirx.IntImm) for extent in extents):
                raise UsageError(
                    f"VMShapeLower needs a module whose allocations are lowered, but function "
                    f"{variable.name_hint!r} allocates {binding.var.name!r} of the symbolic "
                    f"shape {list(extents)}: run it after LowerAllocTensor"
                )


def _shortened(mod: tvm.IRModule) -> tvm.IRModule:
    """The lowered module without checks that always hold."""
    functions = {
        var: without_known_checks(function) for var, function in relax_functions(mod).items()
    }
    changed = {var: new for var, new in functions.items() if not new.same_as(mod[var])}
    return with_functions(mod, changed)


def _has_unknown_weights(function: relax.Function) -> bool:
    has_weights = "num_input" in (function.attrs or {})
    return has_weights and not all(has_known_shapes(var.ty) for var in weights_of(function))


def _checks_in(mod: tvm.IRModule) -> dict[str, str]:
    """The requirement of each ``match_cast``, by the name of the variable that it checks.

    The pass replaces the variables; a name that is not unique is left out.
    """
    named = [
        (str(binding.value.name), check_of(binding.var))
        for function in relax_functions(mod).values()
        for binding in bindings(function)
        if isinstance(binding, relax.MatchCast) and isinstance(binding.value, relax.Var)
    ]
    counts = Counter(name for name, _ in named)
    return {name: text for name, text in named if text and counts[name] == 1}


def _with_names(mod: tvm.IRModule, checks: dict[str, str]) -> tvm.IRModule:
    """The lowered module with `checks` in the texts of errors."""
    if not checks:
        return mod
    named = {}
    for var, function in relax_functions(mod).items():
        if isinstance(function.body, relax.SeqExpr):
            blocks = [
                relax.BindingBlock([_named(binding, checks) for binding in block.bindings])
                for block in function.body.blocks
            ]
            body = relax.SeqExpr(blocks, function.body.body, function.body.span)
            named[var] = relax.BlockBuilder().normalize(with_body(function, body))
    return with_functions(mod, named)


def _named(binding: relax.Binding, checks: dict[str, str]) -> relax.Binding:
    call = binding.value
    if not isinstance(call, relax.Call) or not isinstance(call.op, relax.ExternFunc):
        return binding
    checked, context = (call.args[0], call.args[-1]) if call.args else (None, None)
    if not isinstance(checked, relax.Var) or not isinstance(context, tvm.ir.StringImm):
        return binding
    text = checks.get(str(checked.name))
    if text is None or not context.value.startswith(_CONTEXT):
        return binding
    args = [*call.args[:-1], tvm.ir.StringImm(f"{text}; {context.value}")]
    named = relax.Call(call.op, args, call.attrs, call.ty_args, call.span)
    return relax.VarBinding(binding.var, named)
