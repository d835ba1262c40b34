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
"""LazyGetInput: fetch each weight with a callback when it is needed, also from a weight tuple.

Mechanism
    The pass fetches each parameter where it is read.  A transform function has a single parameter,
    a tuple; and the use of a symbol does not count as a read of the weight that defines it.
"""

import tvm
from tvm import relax

from ...attributes import LIFTED
from ...fixes.weights import LIFTED_PARAMS as FIX_ID
from ...support import switches
from ..analysis import weights_of
from ..guard import corrected
from ..ir import relax_functions, with_body, with_functions
from ..lift.callers import public_functions, reject_callers
from .bundle_model_params import is_bundled
from .lift_transform_params import unbundle

NAME = "LazyGetInput"


def LazyGetInput() -> tvm.transform.Pass:
    """Let each public function fetch its weights with a callback when it needs them.

    TVM's pass of this name; in addition, a function whose weights are one tuple fetches the fields
    of the tuple: ``fget_param(index, name)`` instead of ``model_params[index]``.  A transform
    function passes the names of the original weights.  Weights whose types define symbols are
    fetched before all others.

    Returns
    -------
    tvm.transform.Pass
        A module pass.

    Raises
    ------
    UsageError
        When the pass runs: if a function of the module calls a public one.
    """
    stock = relax.transform.LazyGetInput()

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        reject_callers(mod, public_functions(mod), NAME)
        names = _weight_names(mod)
        public = public_functions(mod)
        public |= {
            var: unbundle(var, function, mod, names.get(str(var.name_hint), ()))
            for var, function in public.items()
            if is_bundled(function)
        }
        shown = {
            var: _with_symbols_first(function)
            for var, function in public.items()
            if "num_input" in function.attrs
        }
        if any(not function.same_as(mod[var]) for var, function in shown.items()):
            switches.note(FIX_ID)
        return stock(with_functions(mod, public | shown))

    return corrected(stock, FIX_ID, run, NAME)


def _with_symbols_first(function: relax.Function) -> relax.Function:
    """Read each weight that defines symbols before all other bindings of the function."""
    weights = weights_of(function)
    inputs = list(function.params)[: len(function.params) - len(weights)]
    known = set(_symbols_of(*inputs))
    read = []
    for param in weights:
        symbols = set(_symbols_of(param))
        if symbols - known:
            known |= symbols
            read.append(relax.VarBinding(relax.Var(f"{param.name}_read", param.ty), param))
    if not read:
        return function
    blocks = [relax.BindingBlock(read), *function.body.blocks]
    return with_body(function, relax.SeqExpr(blocks, function.body.body))


def _symbols_of(*params: relax.Var) -> list[tvm.tirx.Var]:
    types = relax.TupleType([param.ty for param in params])
    return list(relax.analysis.definable_tir_vars_in_type(types))


def _weight_names(mod: tvm.IRModule) -> dict[str, list[str]]:
    """The names of the weights of each transform function, by the name of that function."""
    names = {}
    for function in relax_functions(mod).values():
        if LIFTED in (function.attrs or {}):
            record = function.attrs[LIFTED]
            weights = list(record["names"])[int(record["num_input"]) :]
            names[str(record["transform"])] = list(map(str, weights))
    return names
