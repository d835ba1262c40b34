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

from ...fixes.weights import LIFTED_PARAMS as FIX_ID
from ...support import switches
from ..guard import corrected
from ..ir import taken_apart, with_body, with_functions
from ..lift.callers import public_functions, refuse_callers

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

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        refuse_callers(mod, public_functions(mod), NAME)
        switches.note(FIX_ID)
        # A call with effects does not stand in a dataflow block.
        flat = relax.transform.ToNonDataflow()(mod)
        functions = {
            var: _with_fields(function) for var, function in public_functions(flat).items()
        }
        return stock(with_functions(mod, functions))

    return corrected(stock, FIX_ID, run, NAME)


def _with_fields(function: relax.Function) -> relax.Function:
    """The function, with the fields of the tuple that it returns in its result."""
    blocks, result = list(function.body.blocks), function.body.body
    if not isinstance(result, relax.Var) or not isinstance(result.ty, relax.TupleType):
        return function
    bound = {b.var: b.value for block in blocks for b in block.bindings}
    whole = bound.get(result)
    if not isinstance(whole, relax.Tuple):
        taken, whole = taken_apart(result)
        blocks.append(relax.BindingBlock(taken))
    return relax.analysis.remove_all_unused(with_body(function, relax.SeqExpr(blocks, whole)))
