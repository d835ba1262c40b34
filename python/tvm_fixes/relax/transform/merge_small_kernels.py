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
"""MergeSmallKernels: one call of the virtual machine for several small kernels.

A call takes 0.4 to 0.6 µs, with the allocation of its result: longer than the kernels of a small
model run.  Kernels in one function share a call, and what only they read needs no allocation in
the virtual machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_equal, structural_map, structural_walk

from ...errors import summarize
from ...fixes.elements import ELEMENTWISE_SCHEDULE as FIX_ID
from ...support.declined import decline
from ...tirx.loop_nest import substitute
from ...tirx.util import contains
from ..analysis import bindings
from ..guard import fix_pass
from ..ir import (
    is_kernel_call,
    leaves,
    map_leaves,
    relax_functions,
    tensor_of,
    typed,
    variables,
    with_body,
    with_functions,
)
from ..lifted_runs import is_simple, readers_of
from ..source_nodes import give_nodes, nodes_of
from .specialize_kernels import with_extents

MAX_ELEMENTS = 128
"""The size of the largest tensor of a small kernel; symbolic extents count as 1.  A kernel of more
elements takes longer than its call, and is worth a line of its own in a profile."""

MAX_KERNELS = 16
"""The number of kernels in a group, so that functions do not take long to compile."""

_ATTRIBUTES = frozenset(
    {"global_symbol", "op_pattern", "s_tir", "tirx.is_scheduled", "tirx.noalias"}
)
"""The attributes that a merged kernel does not need."""

MAX_NAME = 80
"""The length of the name of a merged kernel."""

MAX_SYMBOLIC_LOCAL = 128
"""The number of results of a group for each element along symbolic axes, which may be long: memory
in a kernel is not used again."""


def MergeSmallKernels() -> tvm.transform.Pass:
    """Merge small kernels that follow each other.

    Before::

        lv = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((n, 4)))
        y = R.call_tir(cls.softmax, (lv,), out_ty=R.Tensor((n, 4)))

    and after::

        y = R.call_tir(cls.scale_softmax, (x,), out_ty=R.Tensor((n, 4)))

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU, for scheduled kernels; it changes no loop.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        groups = [
            group
            for function in relax_functions(mod).values()
            if isinstance(function.body, relax.SeqExpr)
            for group in _Grouping(function.body, mod).groups
        ]
        if not groups:
            return None
        try:
            kernels = _merged_kernels(groups)
        except tvm.error.InternalError as error:
            decline("merging small kernels", "", f"FuseTIR rejects them: {summarize(error)}")
            return None
        builder = relax.BlockBuilder(mod)
        merged: dict[relax.Var, list[relax.Binding]] = {}
        dropped: set[relax.Var] = set()
        for group, (kernel, read) in zip(groups, kernels, strict=True):
            calls = group.replacement(builder.add_func(kernel, group.name), read)
            merged[group.calls[-1].var] = calls
            dropped.update(binding.var for binding in group.calls)
        changed = {}
        for variable, function in relax_functions(mod).items():
            if isinstance(function.body, relax.SeqExpr):
                body = _replaced(function.body, merged, dropped)
                if not body.same_as(function.body):
                    changed[variable] = with_body(function, body)
        mod = with_functions(builder.get(), changed)
        return relax.transform.DeadCodeElimination()(mod)

    return fix_pass("MergeSmallKernels", FIX_ID, rewrite)


@dataclass
class _Group:
    """Calls of kernels that become one.

    Attributes
    ----------
    block : BindingBlock
        The block of the calls.
    calls : list of VarBinding
    kernels : list of PrimFunc
        Their kernels, with the extents of the calls.
    outputs : list of Var
        The results that are read elsewhere.
    buffers : dict of Expr to BufferType
        The buffers by the tensors that they are of.
    """

    block: relax.BindingBlock
    calls: list[relax.VarBinding] = field(default_factory=list)
    kernels: list[tirx.PrimFunc] = field(default_factory=list)
    outputs: list[relax.Var] = field(default_factory=list)
    buffers: dict[relax.Expr, tirx.BufferType] = field(default_factory=dict)

    def add(self, binding: relax.VarBinding, kernel: tirx.PrimFunc) -> None:
        """Add a call of a kernel."""
        self.calls.append(binding)
        self.kernels.append(kernel)
        self.buffers.update(_buffers(binding, kernel))

    def joins(self, binding: relax.VarBinding, kernel: tirx.PrimFunc) -> bool:
        """Whether the buffers of each tensor are alike, as FuseTIR demands.

        Those of ``te.extern``, for example, have an offset and an alignment of their own.
        """
        known = dict(self.buffers)
        return all(
            structural_equal(known.setdefault(tensor, ty), ty)
            for tensor, ty in _buffers(binding, kernel)
        )

    @property
    def name(self) -> str:
        """The names of the kernels, as far as they are short."""
        names = [str(binding.value.args[0].name_hint) for binding in self.calls]
        return "_".join(dict.fromkeys(names))[:MAX_NAME].rstrip("_")

    @property
    def results(self) -> set[relax.Var]:
        """The results of the calls."""
        return {binding.var for binding in self.calls}

    @property
    def operands(self) -> list[relax.Expr]:
        """The variables and constants that the calls read."""
        own = self.results
        operands = [leaf for binding in self.calls for leaf in leaves(binding.value.args[1])]
        return [leaf for leaf in dict.fromkeys(operands) if leaf not in own]

    def function(self, kernels: Sequence[tvm.ir.GlobalVar]) -> relax.Function:
        """A function of the calls, as calls of `kernels`, which FuseTIR makes one kernel."""
        operands = self.operands
        params = [relax.Var(f"operand{n}", operand.ty) for n, operand in enumerate(operands)]
        names: dict[relax.Expr, relax.Var] = dict(zip(operands, params, strict=True))
        for binding in self.calls:
            kind = relax.Var if binding.var in self.outputs else relax.DataflowVar
            names[binding.var] = kind(binding.var.name, binding.var.ty)
        calls = []
        for binding, kernel in zip(self.calls, kernels, strict=True):
            call = map_leaves(binding.value, lambda leaf: names.get(leaf, leaf))
            call = relax.Call(call.op, [kernel, call.args[1]], call.attrs, call.ty_args)
            calls.append(relax.VarBinding(names[binding.var], typed(call, binding.value.ty)))
        whole = _whole([names[var] for var in self.outputs])
        body = typed(relax.SeqExpr([relax.DataflowBlock(calls)], whole), whole.ty)
        return relax.Function(params, body, whole.ty).with_attr("Primitive", True)

    def replacement(self, kernel: tvm.ir.GlobalVar, read: Sequence[int]) -> list[relax.Binding]:
        """Bindings that call the merged kernel, which reads the operands of these numbers."""
        nodes = dict.fromkeys(node for binding in self.calls for node in nodes_of(binding.var))
        types = [var.ty for var in self.outputs]
        call = relax.BlockBuilder().normalize(
            relax.op.call_tir(kernel, relax.Tuple([self.operands[n] for n in read]), types)
        )
        if len(types) == 1:
            (output,) = self.outputs
            give_nodes(output, nodes)
            return [relax.VarBinding(output, call)]
        kind = relax.DataflowVar if isinstance(self.block, relax.DataflowBlock) else relax.Var
        merged = kind("merged", call.ty)
        give_nodes(merged, nodes)
        fields = [
            relax.VarBinding(var, relax.TupleGetItem(merged, place))
            for place, var in enumerate(self.outputs)
        ]
        return [relax.VarBinding(merged, call), *fields]


def _whole(outputs: Sequence[relax.Var]) -> relax.Expr:
    """The result of a function with these results."""
    return outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)


class _Grouping:
    """Finds the groups of a function's body.

    Attributes
    ----------
    groups : list of _Group
    """

    def __init__(self, body: relax.SeqExpr, mod: tvm.IRModule) -> None:
        self.groups: list[_Group] = []
        self._mod = mod
        self._readers = readers_of(body)
        self._visit(body)

    def _visit(self, body: relax.SeqExpr) -> None:
        for block in body.blocks:
            self._open = _Group(block)
            for binding in block.bindings:
                self._add(binding)
            self._close()

    def _add(self, binding: relax.Binding) -> None:
        value = binding.value
        if isinstance(value, relax.If):
            self._close()
            block = self._open.block
            for branch in (value.true_branch, value.false_branch):
                self._visit(branch)
            self._open = _Group(block)
        elif (kernel := _small_kernel(binding, self._mod)) is not None:
            if not (self._fits(binding) and self._open.joins(binding, kernel)):
                self._close()
            if self._open.joins(binding, kernel):
                self._open.add(binding, kernel)
        elif not is_simple(binding) or self._open.results & set(variables(value)):
            self._close()

    def _fits(self, binding: relax.VarBinding) -> bool:
        """Whether the group may have another call."""
        calls = [*self._open.calls, binding]
        local = [_size(call.var.ty) for call in calls]
        symbolic = sum(size for size, is_static in local if not is_static)
        return len(calls) <= MAX_KERNELS and symbolic <= MAX_SYMBOLIC_LOCAL

    def _close(self) -> None:
        """End the group."""
        group, self._open = self._open, _Group(self._open.block)
        if len(group.calls) < 2:
            return
        own = group.results
        group.outputs = [call.var for call in group.calls if self._readers[call.var] - own]
        if group.outputs and _symbols([call.var for call in group.calls]) <= _bound(group.operands):
            self.groups.append(group)


def _buffers(
    binding: relax.VarBinding, kernel: tirx.PrimFunc
) -> list[tuple[relax.Expr, tirx.BufferType]]:
    """The tensors of a call, and the types of their buffers in the kernel."""
    tensors = [*binding.value.args[1].fields, binding.var]
    return list(zip(tensors, (param.ty for param in kernel.params), strict=True))


def _small_kernel(binding: relax.Binding, mod: tvm.IRModule) -> tirx.PrimFunc | None:
    """The kernel of a call that takes longer than its work; None for any other binding."""
    call = binding.value
    if not isinstance(binding, relax.VarBinding) or not is_kernel_call(call) or len(call.args) > 2:
        return None
    kernel, tensors = mod.functions.get(call.args[0]), [*call.args[1].fields, binding.var]
    if not isinstance(kernel, tirx.PrimFunc) or not _is_plain(kernel):
        return None
    if len(kernel.params) != len(tensors) or not all(map(_is_small, tensors)):
        return None
    kernel = _with_extents(kernel, tensors)
    pairs = zip(kernel.params, tensors, strict=True)
    fits = all(
        structural_equal(list(buffer.ty.shape), list(tensor.ty.shape.values))
        for buffer, tensor in pairs
    )
    return kernel if fits else None


def _is_plain(kernel: tirx.PrimFunc) -> bool:
    """Whether FuseTIR can merge a kernel with others."""
    names = set((kernel.attrs or {}).keys())
    return (
        names <= _ATTRIBUTES
        and isinstance(kernel.body, SBlockRealize)
        and all(isinstance(param.ty, tirx.BufferType) for param in kernel.params)
        # FuseTIR leaves a variable offset, or the extents beside it, undefined.
        and all(isinstance(param.ty.elem_offset, tirx.IntImm) for param in kernel.params)
        # CompactBufferAllocation would divide for the size of a buffer between the kernels, before
        # the loops: by 0 if there are no elements.
        and not contains(
            kernel.body,
            (tirx.FloorDiv, tirx.FloorMod),
            lambda node: not isinstance(node.b, tirx.IntImm),
        )
    )


def _is_small(operand: relax.Expr) -> bool:
    """Whether an operand or result is a small tensor of known rank that has elements."""
    ty = operand.ty
    return (
        (isinstance(operand, relax.Var) or tensor_of(operand) is not None)
        and isinstance(ty, relax.TensorType)
        and isinstance(ty.shape, relax.ShapeExpr)
        # TVM would compute them in float32 in the merged kernel; a lowered kernel reads their bits.
        and not str(ty.dtype).startswith(("bfloat", "float8"))
        # FuseTIR would pass other extents to the kernel as expressions of Relax.
        and all(isinstance(extent, tirx.IntImm | tirx.Var) for extent in ty.shape.values)
        and 0 < _size(ty)[0] <= MAX_ELEMENTS
    )


def _size(ty: relax.TensorType) -> tuple[int, bool]:
    """The number of elements, where symbolic extents count as 1, and whether none is symbolic."""
    extents = list(ty.shape.values)
    known = [int(extent) for extent in extents if isinstance(extent, tirx.IntImm)]
    return prod(known), len(known) == len(extents)


def _bound(operands: Sequence[relax.Expr]) -> set[tirx.Var]:
    """The symbols that are extents of operands."""
    extents = [extent for operand in operands for extent in operand.ty.shape.values]
    return {extent for extent in extents if isinstance(extent, tirx.Var)}


def _symbols(results: Sequence[relax.Var]) -> set[tirx.Var]:
    """The symbols in the shapes of tensors."""
    symbols: set[tirx.Var] = set()
    for var in results:
        structural_walk(var.ty, (tirx.Var, symbols.add))
    return symbols


def _merged_kernels(groups: Sequence[_Group]) -> list[tuple[tirx.PrimFunc, list[int]]]:
    """The merged kernels, and the numbers of the operands that they read.

    FuseTIR drops a kernel that nothing reads, and its operands.
    """
    builder = relax.BlockBuilder()
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    for place, group in enumerate(groups):
        kernels = [builder.add_func(kernel, "kernel") for kernel in group.kernels]
        function = group.function(kernels)
        merged = tvm.ir.GlobalVar(f"merged{place}")
        relax.expr._update_type(merged, function.ty)
        functions[merged] = function
        params = [relax.Var(f"operand{n}", one.ty) for n, one in enumerate(function.params)]
        call = typed(relax.Call(merged, params), function.ret_ty)
        result = relax.Var("result", function.ret_ty)
        block = relax.BindingBlock([relax.VarBinding(result, call)])
        body = typed(relax.SeqExpr([block], result), result.ty)
        caller = relax.Function(params, body, function.ret_ty)
        functions[tvm.ir.GlobalVar(f"caller{place}")] = caller.with_attr(
            "global_symbol", f"caller{place}"
        )
    fused = relax.transform.FuseTIR()(
        tvm.IRModule(dict(builder.get().functions_items()) | functions)
    )
    runs = []
    for place in range(len(groups)):
        caller = fused[f"caller{place}"]
        (binding,) = bindings(caller)
        number_of = {param: number for number, param in enumerate(caller.params)}
        read = [number_of[operand] for operand in binding.value.args[1].fields]
        runs.append((fused[binding.value.args[0]], read))
    return runs


def _with_extents(kernel: tirx.PrimFunc, tensors: Sequence[relax.Expr]) -> tirx.PrimFunc:
    """The kernel with the extents of its tensors, as int64."""
    values: dict[tirx.Var, tirx.Expr] = {}
    buffers: dict[tirx.Var, tirx.Var] = {}
    for buffer, tensor in zip(kernel.params, tensors, strict=True):
        for symbol, extent in zip(buffer.ty.shape, tensor.ty.shape.values, strict=True):
            if isinstance(symbol, tirx.Var):
                values.setdefault(symbol, extent)
        ty = structural_map(buffer.ty, (tirx.IntImm, _in_64_bits))
        if not ty.same_as(buffer.ty):
            buffers[buffer] = tirx.Var(buffer.name, ty)
    if buffers:
        params = [buffers.get(each, each) for each in kernel.params]
        body = substitute(kernel.body, buffers)
        kernel = tirx.PrimFunc(params, body, kernel.ret_type, kernel.attrs)
    return with_extents(kernel, values) if values else kernel


def _in_64_bits(value: tirx.IntImm) -> tirx.IntImm:
    return tirx.const(int(value), "int64")


def _replaced(
    body: relax.SeqExpr,
    merged: dict[relax.Var, list[relax.Binding]],
    dropped: set[relax.Var],
) -> relax.SeqExpr:
    """The body with merged calls."""
    blocks = []
    for block in body.blocks:
        new: list[relax.Binding] = []
        for binding in block.bindings:
            value = binding.value
            if binding.var in merged:
                new += merged[binding.var]
            elif isinstance(value, relax.If):
                parts = (
                    _replaced(part, merged, dropped)
                    for part in (value.true_branch, value.false_branch)
                )
                value = typed(relax.If(value.cond, *parts, value.span), value.ty)
                new.append(relax.VarBinding(binding.var, value))
            elif binding.var not in dropped:
                new.append(binding)
        blocks.append(type(block)(new))
    return typed(relax.SeqExpr(blocks, body.body), body.ty)
