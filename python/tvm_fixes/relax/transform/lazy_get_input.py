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
"""Weights that are asked for when they are needed, also where they are one tuple.

Upstream
    None yet.
Versions
    Seen in 0.27.0.post1.
Trigger
    ``LazyGetInput`` on what ``LiftTransformParams`` or ``BundleModelParams`` has made.
Symptom
    The callback is asked once, for all weights as one tuple; one that gives a tensor for an index
    ends in a TypeError.  A symbol that weights alone define is not defined where it is used first.
Mechanism
    The pass asks for each parameter, of which the transform has one, when it is read: the values
    of symbols never are.
How to remove
    When TVM's pass asks for the fields of a tuple; delete this file, its test and its part of the
    fix id ``lifted-params``.
"""

import tvm
from tvm import relax

from ...fixes.weights import LIFTED_PARAMS as FIX_ID
from ...support import switches
from ..guard import corrected
from ..ir import with_body, with_functions
from ..lift.callers import RECORD, public_functions, refuse_callers
from ..lift.plan import weights_of
from .bundle_model_params import is_bundled
from .lift_transform_params import unbundle

NAME = "LazyGetInput"


def LazyGetInput() -> tvm.transform.Pass:
    """Have each public function ask for its weights when it needs them.

    TVM's pass of this name, and a function whose weights are one tuple asks for the fields of the
    tuple: ``fget_param(index, name)`` in the place of ``model_params[index]``.  The names of those
    that a transform asks for are the weights'.  A weight whose type defines a symbol is asked for
    before all others.

    Returns
    -------
    tvm.transform.Pass
        A module pass.

    Raises
    ------
    UsageError
        From the pass: if a function of the module calls a public one.
    """
    stock = relax.transform.LazyGetInput()

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        refuse_callers(mod, public_functions(mod), NAME)
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
    """The function, with weights that define symbols read before all else."""
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
    """The names of the weights that each transform takes."""
    names = {}
    for _, function in mod.functions_items():
        if isinstance(function, relax.Function) and RECORD in (function.attrs or {}):
            record = function.attrs[RECORD]
            weights = list(record["names"])[int(record["num_input"]) :]
            names[str(record["transform"])] = list(map(str, weights))
    return names
