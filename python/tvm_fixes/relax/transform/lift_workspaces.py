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
"""LiftWorkspaces: let Relax allocate the memory that the launches of a kernel share.

Mechanism
    A launch passes its results to the next one in a workspace, and ``WorkspacePool::Alloc`` frees a
    page when a caller needs a larger one. The launches that a CUDA graph captured keep its
    address.
"""

import tvm
from tvm import relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_walk

from ...fixes.gpu import GPU_SCHEDULE as FIX_ID
from ...tirx.util import count_of, with_parts
from ..guard import fix_pass
from ..rewrite import rewrite_functions

_CALL = tvm.ir.Op.get("relax.call_tir")


def LiftWorkspaces() -> tvm.transform.Pass:
    """Make the global buffers of scheduled kernels results of their calls.

    Before::

        @T.prim_func
        def kernel(x, y):
            partial = T.sblock_alloc_buffer((4, 64), "float32")
            ...

        y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((64,), "float32"))

    and after::

        @T.prim_func
        def kernel(x, y, partial):
            ...

        y1 = R.call_tir(
            cls.kernel, (x,), out_ty=[R.Tensor((64,), "float32"), R.Tensor((4, 64), "float32")]
        )
        y = y1[0]

    The memory is then planned with that of the other tensors.

    Returns
    -------
    tvm.transform.Pass
        A module pass over private PrimFuncs that only ``call_tir`` uses.  Buffers of symbolic shape
        are not lifted: a function with symbolic shapes does not run as a CUDA graph.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        with_workspaces = {
            var: workspaces
            for var, function in mod.functions_items()
            if isinstance(function, tirx.PrimFunc) and (workspaces := _workspaces(function))
        }
        places = _places(mod, with_workspaces) if with_workspaces else {}
        if not places:
            return None
        others = {var: each for var, each in mod.functions_items() if var not in places}
        rest = tvm.IRModule(others, mod.attrs, mod.global_infos)
        lifting = _Lifting(rest)
        for var, place in places.items():
            lifting.lift(var, mod[var], with_workspaces[var], place)
        return rewrite_functions(lifting, rest)

    return fix_pass("LiftWorkspaces", FIX_ID, rewrite)


def _workspaces(function: tirx.PrimFunc) -> list[tirx.Var]:
    """The global buffers of static shape that a private kernel allocates for all its launches."""
    if not isinstance(function.body, s_tir.SBlockRealize) or "global_symbol" in function.attrs:
        return []
    return [
        buffer
        for buffer in function.body.block.alloc_buffers
        if buffer.scope() == "global" and isinstance(count_of(buffer.shape), tirx.IntImm)
    ]


def _places(
    mod: tvm.IRModule, kernels: dict[tvm.ir.GlobalVar, list[tirx.Var]]
) -> dict[tvm.ir.GlobalVar, int]:
    """The number of operands and results of each kernel that only ``call_tir`` uses."""
    operand_counts: dict[tvm.ir.GlobalVar, int] = {}
    calls = dict.fromkeys(kernels, 0)
    uses = dict.fromkeys(kernels, 0)

    def look(call: relax.Call) -> None:
        if call.op == _CALL and call.args[0] in kernels:
            calls[call.args[0]] += 1
            operand_counts[call.args[0]] = len(call.args[1].fields) + len(_result_types(call))

    def use(var: tvm.ir.GlobalVar) -> None:
        if var in kernels:
            uses[var] += 1

    for _, function in mod.functions_items():
        structural_walk(function, [(relax.Call, look), (tvm.ir.GlobalVar, use)])
    return {var: place for var, place in operand_counts.items() if calls[var] == uses[var]}


def _result_types(call: relax.Call) -> list[relax.TensorType]:
    """The types of the tensors that a kernel returns."""
    [types] = call.ty_args
    return list(types.fields) if isinstance(types, relax.TupleType) else [types]


def _lift(function: tirx.PrimFunc, workspaces: list[tirx.Var], place: int) -> tirx.PrimFunc:
    """Turn buffers into parameters, inserted at `place`."""
    realize = function.body
    others = [each for each in realize.block.alloc_buffers if each not in workspaces]
    root = with_parts(realize.block, alloc_buffers=others)
    params = [*function.params[:place], *workspaces, *function.params[place:]]
    body = s_tir.SBlockRealize(realize.iter_values, realize.predicate, root)
    return tirx.PrimFunc(params, body, function.ret_type, function.attrs, function.span)


@mutator
class _Lifting(PyExprMutator):
    def __init__(self, mod: tvm.IRModule):
        super().__init__(mod)
        self._lifted: dict[tvm.ir.GlobalVar, tuple[tvm.ir.GlobalVar, list[tirx.Var]]] = {}

    def lift(
        self,
        var: tvm.ir.GlobalVar,
        function: tirx.PrimFunc,
        workspaces: list[tirx.Var],
        place: int,
    ) -> None:
        """Replace a kernel by one with workspaces as parameters.

        Its variable is new too, since a variable has the type of its function.
        """
        lifted = _lift(function, workspaces, place)
        self._lifted[var] = (self.builder_.add_func(lifted, var.name_hint), workspaces)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if call.op != _CALL or call.args[0] not in self._lifted:
            return super().visit_call_(call)
        kernel, workspaces = self._lifted[call.args[0]]
        results = _result_types(call)
        made = [
            relax.TensorType(each.shape, str(each.dtype), results[0].vdevice) for each in workspaces
        ]
        args = [kernel, *map(self.visit_expr, call.args[1:])]
        every = relax.Call(_CALL, args, call.attrs, [relax.TupleType([*results, *made])])
        fields = self.builder_.emit(every)
        kept = [relax.TupleGetItem(fields, index) for index in range(len(results))]
        return relax.Tuple(kept) if isinstance(call.ty, relax.TupleType) else kept[0]
