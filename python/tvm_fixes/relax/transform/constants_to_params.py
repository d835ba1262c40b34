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
"""Constants become parameters: for weights that lie outside the library."""

from collections.abc import Sequence

import tvm
from tvm import relax

from ...runtime.tensors import raw_bytes
from ..analysis import bindings
from .fold_constant import rebind
from .fold_plan import tensor_of


def ConstantsToParams(
    least: int, collected: dict[tvm.runtime.Tensor, relax.Var]
) -> tvm.transform.Pass:
    """Make parameters of the large constants of ``main``, behind those that it has.

    Before::

        @R.function
        def main(x: R.Tensor((1, 64), "float32")):
            y = R.call_tir(cls.matmul, (x, w), …)        # w: a constant

    and after::

        @R.function
        def main(x: R.Tensor((1, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            y = R.call_tir(cls.matmul, (x, w), …)

    To be run when everything that is computed of constants alone has been folded: what comes after
    it takes them for inputs.

    Parameters
    ----------
    least : int
        The size, in bytes, from which on a constant is large.
    collected : dict of Tensor to relax.Var
        The constants and their parameters, in order, are added to it.

    Returns
    -------
    tvm.transform.Pass
        A module pass.  Constants of other functions, such as those of loops, stay what they are,
        and so do those that are no operands of calls.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        names = {str(param.name) for param in main.params}
        builder = relax.BlockBuilder(mod)

        def replace(expr: relax.Expr) -> relax.Expr:
            if isinstance(expr, relax.Tuple):
                fields = list(map(replace, expr.fields))
                return relax.Tuple(fields) if _differ(fields, expr.fields) else expr
            tensor = tensor_of(expr)
            if tensor is None or raw_bytes(tensor).size < least:
                return expr
            if tensor not in collected:
                number = len(collected)
                name = next(
                    name
                    for name in (f"weight{'_' * more}{number}" for more in range(len(names) + 1))
                    if name not in names
                )
                collected[tensor] = relax.Var(name, expr.ty)
            return collected[tensor]

        calls: dict[relax.Var, relax.Expr] = {}
        for binding in bindings(main):
            call = binding.value
            if isinstance(binding, relax.VarBinding) and isinstance(call, relax.Call):
                args = list(map(replace, call.args))
                if _differ(args, call.args):
                    new = relax.Call(call.op, args, call.attrs, call.ty_args, call.span)
                    calls[binding.var] = builder.normalize(new)
        if not collected:
            return mod
        wider = relax.Function(
            [*main.params, *collected.values()],
            main.body,
            main.ret_ty,
            main.is_pure,
            main.attrs,
            main.span,
        )
        variable = mod.get_global_var("main")
        functions = dict(mod.functions_items()) | {variable: wider}
        opened = tvm.IRModule(functions, mod.attrs, mod.global_infos)
        return rebind(opened, {variable: calls})

    return tvm.transform.module_pass(run, opt_level=0, name="ConstantsToParams")


def _differ(new: Sequence[relax.Expr], old: Sequence[relax.Expr]) -> bool:
    return not all(one.same_as(other) for one, other in zip(new, old, strict=True))
