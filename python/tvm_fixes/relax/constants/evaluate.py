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
"""Evaluation of values that depend only on constants, by building and running their computation.

TVM's ``FoldConstant`` builds a separate library for each kernel, and does not compute values that
depend on a tensor of more than 1024 elements without operands, such as a mask of ones.
"""

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.backend.cpu_generic import pipeline as stock

from ...errors import ArtifactError, summarize
from ...support import logs
from ...support.instruments import unwatched
from ...support.tensors import raw_bytes
from ...tirx import semantics
from ...tirx.dot_product import has_instruction
from ..ir import (
    is_kernel_call,
    leaves,
    map_leaves,
    static_bytes,
    tensor_of,
    variables,
    with_body,
)
from .make import empty_constant

_TARGET = "llvm"

# To optimize a kernel takes longer than to compute this many bytes without optimizations.
_UNOPTIMIZED = tvm.target.Target({"kind": "llvm", "opt-level": 0})
_SMALL = 1 << 16


def evaluate(
    computation: list[relax.VarBinding],
    results: list[relax.Var],
    mod: tvm.IRModule,
) -> dict[relax.Var, tvm.runtime.Tensor]:
    """Compute the values of variables.

    Parameters
    ----------
    computation : list of relax.VarBinding
        The bindings of `results` and of everything that they depend on, in program order: calls of
        high-level operators and kernels, tuples and their fields, and static shapes.
    results : list of relax.Var
        Tensors of static shapes.
    mod : tvm.IRModule
        The module with the kernels.

    Returns
    -------
    dict of relax.Var to Tensor
        The values of `results`, except those that cannot be computed here: a kernel may be
        scheduled for another machine.
    """
    if not results:
        return {}
    try:
        with unwatched():
            tensors = _run(_needed(computation, results), results, mod)
    except ArtifactError:
        raise
    except Exception as error:
        if len(results) == 1:
            logs.debug("FoldConstant", f"`{results[0].name}` is not folded: {summarize(error)}")
            return {}
        middle = len(results) // 2
        halves = (results[:middle], results[middle:])
        return {k: v for half in halves for k, v in evaluate(computation, half, mod).items()}
    return dict(zip(results, tensors, strict=True))


def _needed(
    computation: list[relax.VarBinding], results: Iterable[relax.Var]
) -> list[relax.VarBinding]:
    needed = set(results)
    kept = []
    for binding in reversed(computation):
        if binding.var in needed:
            needed.update(variables(binding.value))
            kept.append(binding)
    return kept[::-1]


def _run(
    computation: list[relax.VarBinding], results: list[relax.Var], mod: tvm.IRModule
) -> list[tvm.runtime.Tensor]:
    """Build the computation as one function, and call it with the constants as arguments."""
    params: dict[tvm.runtime.Tensor, relax.Var] = {}

    def argument(leaf: relax.Expr) -> relax.Expr:
        tensor = tensor_of(leaf)
        if tensor is None:
            return leaf
        return params.setdefault(tensor, relax.Var(f"constant{len(params)}", leaf.ty))

    bound = [relax.VarBinding(b.var, map_leaves(b.value, argument)) for b in computation]
    out = relax.Var("out", relax.TupleType([var.ty for var in results]))
    block = relax.DataflowBlock([*bound, relax.VarBinding(out, relax.Tuple(results))])
    body = relax.SeqExpr([block], out)
    function = relax.Function(list(params.values()), body, out.ty).with_attr(
        "global_symbol", "main"
    )
    functions = {"main": function} | {
        leaf: mod[leaf]
        for binding in computation
        for leaf in leaves(binding.value)
        if isinstance(leaf, tvm.ir.GlobalVar)
    }
    for name, kernel in functions.items():
        # LLVM would end the process.
        if isinstance(kernel, tirx.PrimFunc) and has_instruction(kernel):
            raise ValueError(f"{name} has an instruction that only some CPUs have")
    module = _legalized(functions)
    module["main"] = _writing_to_parameters(module["main"])
    values = [*params.values(), *(binding.var for binding in bound)]
    is_small = sum(static_bytes(var.ty) or 0 for var in values) <= _SMALL
    target = _UNOPTIMIZED if is_small else tvm.target.Target(_TARGET)
    executable = relax.build(module, target, relax_pipeline=_lowering())
    machine = relax.VirtualMachine(executable, tvm.cpu())
    memory = [empty_constant(_extents(var), str(var.ty.dtype)) for var in results]
    for tensor, found in zip(memory, machine["main"](*params, *memory), strict=True):
        if not tensor.same_as(found):
            raw_bytes(tensor)[:] = raw_bytes(found)
    return memory


def _extents(var: relax.Var) -> list[int]:
    return [int(dim) for dim in var.ty.shape]


def _legalized(functions: dict[Any, Any]) -> tvm.IRModule:
    with tvm.target.Target(_TARGET):
        passes = [relax.transform.Normalize(), relax.transform.LegalizeOps()]
        return tvm.transform.Sequential(passes)(tvm.IRModule(functions))


def _writing_to_parameters(function: relax.Function) -> relax.Function:
    """Append a parameter for each tensor of the returned tuple.

    Kernels that compute these tensors write them there::

        r = R.call_tir(f, (a,), out_ty)   =>   r = R.call_tir_inplace(f, (a, memory), [1], out_ty)
    """
    [block] = function.body.blocks
    results = block.bindings[-1].value.fields
    memory = {result: relax.Var(f"memory{i}", result.ty) for i, result in enumerate(results)}

    def written(binding: relax.VarBinding) -> relax.VarBinding:
        var, call = binding.var, binding.value
        if var not in memory or not is_kernel_call(call):
            return binding
        kernel, args = call.args
        into = relax.op.call_tir_inplace(kernel, [*args, memory[var]], len(args), call.ty_args[0])
        return relax.VarBinding(var, into)

    body = relax.SeqExpr(
        [relax.DataflowBlock([written(binding) for binding in block.bindings])], function.body.body
    )
    return with_body(function, body, [*function.params, *memory.values()])


def _lowering() -> tvm.transform.Pass:
    """TVM's lowering pipeline for a CPU, without legalization, folding and fusion."""
    target = tvm.target.Target(_TARGET)
    passes = [*stock.dataflow_lower_passes(target), *stock.finalize_passes(target)]
    first, *others = [relax.transform.Normalize(), *passes]
    return tvm.transform.Sequential(
        [first, *semantics.before_lowering(), *others, *semantics.after_lowering()]
    )
