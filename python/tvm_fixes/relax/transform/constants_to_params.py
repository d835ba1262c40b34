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
"""ConstantsToParams: turn constants into parameters, for weights stored outside the library."""

import tvm
from tvm import relax

from ...support.tensors import raw_bytes
from ..analysis import bindings
from ..ir import map_leaves, tensor_of, with_body, with_functions
from .fold_constant import rebind


def ConstantsToParams(
    min_bytes: int, collected: dict[tvm.runtime.Tensor, relax.Var]
) -> tvm.transform.Pass:
    """Turn the large constants of ``main`` into parameters, after its existing ones.

    Before::

        @R.function
        def main(x: R.Tensor((1, 64), "float32")):
            y = R.call_tir(cls.matmul, (x, w), …)        # w: a constant

    and after::

        @R.function
        def main(x: R.Tensor((1, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            y = R.call_tir(cls.matmul, (x, w), …)

    Run it after all constant folding: later passes see the parameters as inputs.

    Parameters
    ----------
    min_bytes : int
        The minimum size of a large constant, in bytes.
    collected : dict of Tensor to relax.Var
        The pass adds the constants and their parameters to it, in order.

    Returns
    -------
    tvm.transform.Pass
        A module pass.  Constants of other functions, such as loop bodies, stay constants, and so do
        constants that are not operands of calls.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        names = {str(param.name) for param in main.params}
        builder = relax.BlockBuilder(mod)

        def replace(leaf: relax.Expr) -> relax.Expr:
            tensor = tensor_of(leaf)
            if tensor is None or raw_bytes(tensor).size < min_bytes:
                return leaf
            if tensor not in collected:
                number = len(collected)
                name = next(
                    name
                    for name in (f"weight{'_' * more}{number}" for more in range(len(names) + 1))
                    if name not in names
                )
                collected[tensor] = relax.Var(name, leaf.ty)
            return collected[tensor]

        calls: dict[relax.Var, relax.Expr] = {}
        for binding in bindings(main):
            call = binding.value
            if isinstance(binding, relax.VarBinding) and isinstance(call, relax.Call):
                new = map_leaves(call, replace)
                if not new.same_as(call):
                    calls[binding.var] = builder.normalize(new)
        if not collected:
            return mod
        wider = with_body(main, main.body, [*main.params, *collected.values()])
        variable = mod.get_global_var("main")
        return rebind(with_functions(mod, {variable: wider}), {variable: calls})

    return tvm.transform.module_pass(run, opt_level=0, name="ConstantsToParams")
