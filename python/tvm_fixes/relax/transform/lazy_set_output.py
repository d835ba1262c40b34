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
"""LazySetOutput: pass each result, or each field of a tuple, to a callback once it is computed.

Trigger
    ``LazySetOutput`` on a function with dataflow blocks, or on one that returns a tuple as a
    variable, such as ``LiftTransformParams`` makes.
Mechanism
    The pass unpacks a tuple only if the function's result is a tuple expression, and inserts the
    call right after the binding, even in a dataflow block.
"""

import tvm
from tvm import relax

from ...errors import UsageError
from ...fixes.weights import LIFTED_PARAMS as FIX_ID
from ...support import switches
from ..analysis import bindings
from ..guard import corrected
from ..ir import operator_name, unpack_tuple, with_body, with_functions
from ..lift.callers import public_functions, reject_callers

NAME = "LazySetOutput"


def LazySetOutput() -> tvm.transform.Pass:
    """Let each public function pass its results to a callback once they are computed.

    Unlike TVM's pass of this name, it also unpacks a tuple returned as a variable, and calls
    ``fset_output(index, value)`` for each field.  It removes dataflow blocks from these functions.

    Returns
    -------
    tvm.transform.Pass
        A module pass.

    Raises
    ------
    UsageError
        When the pass runs, if a function of the module calls a public one, or memory is already
        planned.

    Notes
    -----
    The memory of a value may be reused when the callback returns: the callback must copy what it
    keeps.
    """
    stock = relax.transform.LazySetOutput()

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        reject_callers(mod, public_functions(mod), NAME)
        _reject_lowered(mod)
        switches.note(FIX_ID)
        # A call with effects is not allowed in a dataflow block.
        flat = relax.transform.ToNonDataflow()(mod)
        functions = {
            var: _with_tuple_result(function) for var, function in public_functions(flat).items()
        }
        return stock(with_functions(mod, functions))

    return corrected(stock, FIX_ID, run, NAME)


def _reject_lowered(mod: tvm.IRModule) -> None:
    """Raise a UsageError after memory is planned: a result may be freed before it is passed on."""
    for variable, function in public_functions(mod).items():
        for binding in bindings(function):
            name = operator_name(getattr(binding, "value", None))
            if name.startswith(("relax.memory.", "relax.vm.alloc", "relax.vm.kill")):
                raise UsageError(
                    f"{NAME} needs a module whose memory is not planned, but function "
                    f"{variable.name_hint!r} calls {name}: run it before StaticPlanBlockMemory"
                )


def _with_tuple_result(function: relax.Function) -> relax.Function:
    """Return a tuple expression instead of a tuple variable."""
    blocks, result = list(function.body.blocks), function.body.body
    if not isinstance(result, relax.Var) or not isinstance(result.ty, relax.TupleType):
        return function
    bound = {b.var: b.value for block in blocks for b in block.bindings}
    result_tuple = bound.get(result)
    if not isinstance(result_tuple, relax.Tuple):
        field_bindings, result_tuple = unpack_tuple(result)
        blocks.append(relax.BindingBlock(field_bindings))
    return relax.analysis.remove_all_unused(
        with_body(function, relax.SeqExpr(blocks, result_tuple))
    )
