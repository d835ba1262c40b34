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
"""SpecializeKernels: kernels with the extents of their calls."""

import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from ...tirx.loop_nest import substitute
from .fold_constant import changed_calls, rebind

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)


def SpecializeKernels() -> tvm.transform.Pass:
    """Give kernels the extents of their calls, if these are less general.

    Before, after ``BindSymbolicVars`` has bound ``n`` in the caller::

        y = R.call_tir(one_hot, (x,), out_ty=R.Tensor((m, 4)))
        def one_hot(x: T.Buffer((m,)), y: T.Buffer((m, n))): …

    and after::

        y = R.call_tir(one_hot, (x,), out_ty=R.Tensor((m, 4)))
        def one_hot(x: T.Buffer((m,)), y: T.Buffer((m, 4))): …

    Otherwise, FuseTIR fails with "Inconsistent buffers" if it fuses the kernel with another one.

    Returns
    -------
    tvm.transform.Pass
        A module pass.  A kernel with several calls is copied.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        builder = relax.BlockBuilder(mod)

        def change(call: relax.Call) -> relax.Expr | None:
            special = _specialized(mod, call)
            if special is None:
                return None
            kernel, operands = special
            callee = builder.add_func(kernel, str(call.args[0].name_hint))
            args = [callee, relax.Tuple(operands)]
            return builder.normalize(relax.Call(call.op, args, call.attrs, call.ty_args, call.span))

        changed = changed_calls(mod, change)
        if not changed:
            return mod
        mod = rebind(builder.get(), changed)
        return relax.transform.DeadCodeElimination()(mod)

    return tvm.transform.module_pass(run, opt_level=0, name="SpecializeKernels")


def _specialized(
    mod: tvm.IRModule, call: relax.Call
) -> tuple[tirx.PrimFunc, list[relax.Expr]] | None:
    """The kernel of a call with its extents, and its operands; None if it has them already."""
    if getattr(call.op, "name", "") != "relax.call_tir":
        return None
    kernel, operands = mod[call.args[0]], list(call.args[1].fields)
    if not isinstance(kernel, tirx.PrimFunc):
        return None
    outputs = call.ty_args[0]
    results = list(outputs.fields) if isinstance(outputs, relax.TupleType) else [outputs]
    values: dict[tirx.Var, tirx.Expr] = {}
    symbols = _Symbols(values)
    for parameter, operand in zip(kernel.params, operands, strict=False):
        if tvm.ir.is_prim_expr(operand):
            symbols.add(parameter, operand)
    tensors = [each for each in operands if not tvm.ir.is_prim_expr(each)]
    buffers = [each.ty for each in kernel.params if isinstance(each.ty, tirx.BufferType)]
    for buffer, ty in zip(buffers, [*(each.ty for each in tensors), *results], strict=True):
        extents = ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else []
        for symbol, extent in zip(buffer.shape, extents, strict=False):
            symbols.add(symbol, extent)
    if not values:
        return None
    pairs = zip(kernel.params, operands, strict=False)
    kept = [operand for parameter, operand in pairs if parameter not in values]
    return with_extents(kernel, values), kept


class _Symbols:
    """Finds the symbols of a kernel that are constants in a call, or equal to an earlier symbol."""

    def __init__(self, values: dict[tirx.Var, tirx.Expr]) -> None:
        self._values = values
        self._first: dict[tirx.Var, tirx.Var] = {}
        self._seen: set[tirx.Var] = set()

    def add(self, symbol: tirx.Expr, value: tirx.Expr) -> None:
        """Look at the value of a scalar or an extent of the kernel."""
        if not isinstance(symbol, tirx.Var) or symbol in self._seen:
            return
        self._seen.add(symbol)
        if isinstance(value, tirx.IntImm):
            self._values[symbol] = tirx.const(int(value), symbol.ty.dtype)
        elif isinstance(value, tirx.Var):
            first = self._first.setdefault(value, symbol)
            if first is not symbol:
                self._values[symbol] = first


def with_extents(kernel: tirx.PrimFunc, values: dict[tirx.Var, tirx.Expr]) -> tirx.PrimFunc:
    """The kernel with some symbols replaced, including those in the types of its buffers."""
    buffers = [each for each in kernel.params if each not in values]
    structural_walk(kernel.body, (SBlock, lambda block: buffers.extend(block.alloc_buffers)))
    replaced: dict[tirx.Var, tirx.Expr] = dict(values)
    simplify = Analyzer().simplify
    for buffer in buffers:
        ty = substitute(buffer.ty, values)
        if not ty.same_as(buffer.ty):
            # Other kernels have sums of constants as constants.
            ty = structural_map(ty, tuple((kind, simplify) for kind in _ARITHMETIC))
            replaced[buffer] = tirx.Var(buffer.name, ty)
    params = [replaced.get(each, each) for each in kernel.params if each not in values]
    return tirx.PrimFunc(params, substitute(kernel.body, replaced), kernel.ret_type, kernel.attrs)
