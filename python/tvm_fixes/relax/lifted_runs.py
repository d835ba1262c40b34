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
"""Runs of kernels outside of dataflow blocks, which FuseOps does not see.

A function with a branch has no dataflow blocks: TVM's FuseOps fails for a block in a branch.  Each
run becomes a function with one dataflow block while FuseOps runs, and then the bindings of that
function take its place again.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_walk

from ..attributes import RUN
from .ir import is_kernel_call, operator_name, relax_functions, renamed, typed, with_body

__all__ = ["is_simple", "lift_runs", "lower_runs", "readers_of"]

_MIN_KERNELS = 2
"""A run of fewer kernels has nothing to fuse."""


def lift_runs(mod: tvm.IRModule) -> tvm.IRModule:
    """Move the runs of kernels outside of dataflow blocks to functions.

    Parameters
    ----------
    mod : tvm.IRModule
        A module of kernels.

    Returns
    -------
    tvm.IRModule
        The module itself if it has no such run.
    """
    lifting = _Lifting(mod)
    changed = {}
    for variable, function in relax_functions(mod).items():
        body = lifting.lift(function)
        if not body.same_as(function.body):
            changed[variable] = with_body(function, body)
    if not changed:
        return mod
    return tvm.IRModule(dict(mod.functions_items()) | changed | lifting.functions, mod.attrs)


def lower_runs(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace the calls of the functions that :func:`lift_runs` made by their bindings."""
    functions = dict(mod.functions_items())
    lifted = {
        variable: function
        for variable, function in functions.items()
        if isinstance(function, relax.Function) and function.attrs and RUN in function.attrs
    }
    if not lifted:
        return mod
    lowered = {}
    for variable, function in functions.items():
        if variable in lifted:
            continue
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
            body = _lowered(function.body, lifted)
            function = function if body.same_as(function.body) else with_body(function, body)
        lowered[variable] = function
    return tvm.IRModule(lowered, mod.attrs)


class _Lifting:
    """Lifts runs; `functions` are those that it made."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self._names = {str(variable.name_hint) for variable in mod.functions}
        self.functions: dict[tvm.ir.GlobalVar, relax.Function] = {}

    def lift(self, function: relax.Function) -> relax.Expr:
        """The body of a function, with its runs in other functions."""
        if not isinstance(function.body, relax.SeqExpr):
            return function.body
        self._readers = readers_of(function.body)
        return self._lift(function.body)

    def _lift(self, body: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [
            block if isinstance(block, relax.DataflowBlock) else self._lift_block(block)
            for block in body.blocks
        ]
        pairs = zip(blocks, body.blocks, strict=True)
        if all(new.same_as(old) for new, old in pairs):
            return body
        return typed(relax.SeqExpr(blocks, body.body), body.ty)

    def _lift_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        bindings: list[relax.Binding] = []
        for run in _runs(block):
            kernels = sum(is_kernel_call(binding.value) for binding in run)
            if kernels >= _MIN_KERNELS and all(map(_is_extent, _symbols(run))):
                bindings += self._call(run)
            else:
                bindings += map(self._in_branches, run)
        if len(bindings) == len(block.bindings):
            pairs = zip(bindings, block.bindings, strict=True)
            if all(new.same_as(old) for new, old in pairs):
                return block
        return relax.BindingBlock(bindings)

    def _in_branches(self, binding: relax.Binding) -> relax.Binding:
        value = binding.value
        if not isinstance(binding, relax.VarBinding) or not isinstance(value, relax.If):
            return binding
        branches = [self._lift(branch) for branch in (value.true_branch, value.false_branch)]
        if branches[0].same_as(value.true_branch) and branches[1].same_as(value.false_branch):
            return binding
        lifted = relax.If(value.cond, *branches, value.span)
        return relax.VarBinding(binding.var, typed(lifted, value.ty))

    def _call(self, run: Sequence[relax.VarBinding]) -> list[relax.Binding]:
        """Bindings that call a new function with the bindings of a run."""
        own = {binding.var for binding in run}
        outputs = [binding.var for binding in run if self._readers[binding.var] - own]
        operands = [var for var in _operands(run) if var not in own]
        symbols = _symbols(run)
        # Only the dataflow variables of a block are fused with their readers.
        copies = {var: relax.Var(var.name, var.ty, var.span) for var in (*operands, *outputs)}
        for var in own.difference(outputs):
            copies[var] = relax.DataflowVar(var.name, var.ty, var.span)
        params = [copies[var] for var in operands]
        arguments: list[relax.Expr] = [*operands]
        if symbols:
            params.append(relax.Var("symbols", relax.ShapeType(symbols)))
            arguments.append(relax.ShapeExpr(symbols))
        variable = self._function(params, renamed(run, copies), [copies[var] for var in outputs])
        ty = self.functions[variable].ret_ty
        result = relax.Var("run", ty, run[-1].var.span)
        fields = [
            relax.VarBinding(output, relax.TupleGetItem(result, index))
            for index, output in enumerate(outputs)
        ]
        return [relax.VarBinding(result, typed(relax.Call(variable, arguments), ty)), *fields]

    def _function(
        self, params: list[relax.Var], bindings: list[relax.Binding], outputs: list[relax.Var]
    ) -> tvm.ir.GlobalVar:
        """Add a function of one dataflow block; return its variable."""
        whole = relax.Tuple(outputs)
        body = typed(relax.SeqExpr([relax.DataflowBlock(bindings)], whole), whole.ty)
        function = relax.Function(params, body, whole.ty).with_attr(RUN, True)
        number = len(self.functions)
        while f"run{number}" in self._names:
            number += 1
        self._names.add(f"run{number}")
        variable = tvm.ir.GlobalVar(f"run{number}")
        relax.expr._update_type(variable, function.ty)
        self.functions[variable] = function
        return variable


def _runs(block: relax.BindingBlock) -> Iterator[list[relax.VarBinding]]:
    """The runs of bindings that may be in a dataflow block, and each other binding by itself."""
    run: list[relax.VarBinding] = []
    for binding in block.bindings:
        if is_simple(binding):
            run.append(binding)
            continue
        if run:
            yield run
        yield [binding]
        run = []
    if run:
        yield run


def is_simple(binding: relax.Binding) -> bool:
    """Whether a binding only computes a value, and binds no symbol."""
    value = binding.value
    return isinstance(binding, relax.VarBinding) and (
        is_kernel_call(value)
        or operator_name(value) == "relax.reshape"
        or isinstance(value, relax.Tuple | relax.TupleGetItem | relax.ShapeExpr)
    )


def readers_of(body: relax.SeqExpr) -> dict[relax.Var, set[relax.Var | None]]:
    """For each variable, those whose values read it; None stands for the result of a body."""
    readers: dict[relax.Var, set[relax.Var | None]] = defaultdict(set)

    def note(value: relax.Expr, reader: relax.Var | None) -> None:
        structural_walk(value, (relax.Var, lambda var: readers[var].add(reader)))

    def look(body: relax.SeqExpr) -> None:
        for binding in (binding for block in body.blocks for binding in block.bindings):
            if isinstance(binding.value, relax.If):
                note(binding.value.cond, binding.var)
                look(binding.value.true_branch)
                look(binding.value.false_branch)
            else:
                note(binding.value, binding.var)
        note(body.body, None)

    look(body)
    return readers


def _operands(run: Sequence[relax.VarBinding]) -> list[relax.Var]:
    """The variables that the values of a run read, other than symbols."""
    found: dict[relax.Var, None] = {}
    for binding in run:
        structural_walk(binding.value, (relax.Var, found.setdefault))
    return [var for var in found if not _is_symbol(var)]


def _symbols(run: Sequence[relax.VarBinding]) -> list[tirx.Var]:
    """The symbols of a run, in its values and in the types of its variables."""
    found: dict[tirx.Var, None] = {}
    types = [var.ty for var in (*_operands(run), *(binding.var for binding in run))]
    for part in (*types, *(binding.value for binding in run)):
        structural_walk(part, (tirx.Var, found.setdefault))
    return [var for var in found if _is_symbol(var)]


def _is_symbol(var: relax.Var) -> bool:
    """Whether a variable is a scalar; TVM has one class for both kinds of variables."""
    return isinstance(var.ty, tvm.ir.PrimType)


def _is_extent(symbol: tirx.Var) -> bool:
    """Whether a symbol may be in a shape."""
    return str(symbol.ty.dtype) == "int64"


def _lowered(
    body: relax.SeqExpr, lifted: Mapping[tvm.ir.GlobalVar, relax.Function]
) -> relax.SeqExpr:
    """The body of a function or branch, with the bindings of the lifted functions that it calls."""
    blocks = []
    for block in body.blocks:
        if isinstance(block, relax.DataflowBlock):
            blocks.append(block)
            continue
        bindings: list[relax.Binding] = []
        left = deque(block.bindings)
        while left:
            binding = left.popleft()
            value = binding.value
            if isinstance(value, relax.If):
                parts = (_lowered(part, lifted) for part in (value.true_branch, value.false_branch))
                value = typed(relax.If(value.cond, *parts, value.span), value.ty)
                bindings.append(relax.VarBinding(binding.var, value))
            elif isinstance(value, relax.Call) and value.op in lifted:
                function = lifted[value.op]
                outputs = [left.popleft().var for _ in function.ret_ty.fields]
                bindings += _inlined(function, value.args, outputs)
            else:
                bindings.append(binding)
        blocks.append(relax.BindingBlock(bindings))
    return typed(relax.SeqExpr(blocks, body.body), body.ty)


def _inlined(
    function: relax.Function, arguments: Sequence[relax.Expr], outputs: Sequence[relax.Var]
) -> list[relax.Binding]:
    """The bindings of a lifted function, whose results are bound to `outputs`."""
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    # The last parameter and argument may be symbols, which have the same names in both.
    names: dict[relax.Var, relax.Expr] = dict(zip(function.params, arguments, strict=True))
    names |= {
        binding.var: relax.Var(binding.var.name, binding.var.ty, binding.var.span)
        for binding in bindings
    }
    names |= dict(zip(function.body.body.fields, outputs, strict=True))
    return renamed(bindings, names)
