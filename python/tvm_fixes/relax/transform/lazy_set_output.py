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
"""Results that are handed out when they are there, also where they are one tuple.

Upstream
    None yet.
Versions
    Seen in 0.27.0.post1.
Trigger
    ``LazySetOutput`` on a function with dataflow blocks, or one that returns a variable that is a
    tuple, as what ``LiftTransformParams`` has made does.
Symptom
    The callback gets all results as one tuple, at the end, and in a dataflow block, where a call
    with effects may not stand.
Mechanism
    The pass takes a tuple apart only where it stands in the function's result itself, and puts the
    call behind the binding, wherever that is.
How to remove
    When TVM's pass does both; delete this file, its test and its part of the fix id
    ``lifted-params``.
"""

import tvm
from tvm import relax

from ... import switches
from .bundle_model_params import FIX_ID
from .callers import public_functions, refuse_callers
from .guard import uninstrumented
from .lift_plan import with_body

NAME = "LazySetOutput"


def LazySetOutput() -> tvm.transform.Pass:
    """Have each public function hand out its results when they are there.

    TVM's pass of this name, and a tuple that is returned by its variable is taken apart:
    ``fset_output(index, value)`` is called for each field.  These functions have no dataflow blocks
    afterwards.

    Returns
    -------
    tvm.transform.Pass
        A module pass.

    Raises
    ------
    UsageError
        From the pass: if a function of the module calls a public one.

    Notes
    -----
    What the callback gets may lie in memory that is used again when it returns: it is to copy what
    it keeps.
    """
    stock = relax.transform.LazySetOutput()

    def run(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID):
            with uninstrumented(context):
                return stock(mod)
        refuse_callers(mod, public_functions(mod), NAME)
        switches.note(FIX_ID)
        # A call with effects does not stand in a dataflow block.
        with uninstrumented(context):
            flat = relax.transform.ToNonDataflow()(mod)
        functions = dict(mod.functions_items()) | {
            var: _with_fields(function) for var, function in public_functions(flat).items()
        }
        with uninstrumented(context):
            return stock(tvm.IRModule(functions, mod.attrs, mod.global_infos))

    return tvm.transform.module_pass(run, opt_level=stock.info.opt_level, name=NAME)


def _with_fields(function: relax.Function) -> relax.Function:
    """The function, with the fields of the tuple that it returns in its result."""
    blocks, result = list(function.body.blocks), function.body.body
    if not isinstance(result, relax.Var) or not isinstance(result.ty, relax.TupleType):
        return function
    bound = {b.var: b.value for block in blocks for b in block.bindings}
    value = bound.get(result)
    if isinstance(value, relax.Tuple):
        fields = list(value.fields)
    else:
        fields = [
            relax.Var(f"{result.name}_{index}", ty) for index, ty in enumerate(result.ty.fields)
        ]
        taken = [
            relax.VarBinding(
                field, relax.BlockBuilder().normalize(relax.TupleGetItem(result, index))
            )
            for index, field in enumerate(fields)
        ]
        blocks.append(relax.BindingBlock(taken))
    whole = relax.BlockBuilder().normalize(relax.Tuple(fields))
    return relax.analysis.remove_all_unused(with_body(function, relax.SeqExpr(blocks, whole)))
