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
"""Choice of the computations on weights to lift out of a function."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx

from ...support.tensors import nbytes_of
from ..analysis import has_known_shapes, weights_of
from ..constants.fold_plan import Budget, within_budget
from ..ir import map_leaves, with_body

NOMINAL_EXTENT = 256
"""The value of symbolic extents in size estimates."""


@dataclass(eq=False)
class Weight:
    """A weight: a parameter that is known before the function is called."""

    nbytes: int


@dataclass(eq=False)
class Liftable:
    """A value in a dataflow block that depends only on weights; equal computations share one.

    Attributes
    ----------
    operands : tuple of Liftable and Weight
        The values and weights that it is computed from.
    constants : tuple of Weight
        The weights that it depends on, directly or not.
    nbytes : int, optional
        The size; 0 for a value that is not a tensor. None for a tensor of unknown shape, which is
        not lifted, since its size is unbounded.
    functions : set of int
        The numbers of the functions that compute it.
    """

    operands: tuple["Operand", ...]
    constants: tuple[Weight, ...]
    nbytes: int | None
    functions: set[int] = field(default_factory=set)


Operand: TypeAlias = Weight | Liftable


@dataclass
class _Scope:
    """The analysis of one function.

    Attributes
    ----------
    known : dict
        The value that each variable stands for; None for a value without operands.
    read : set of Operand
        The values that the rest of the function reads.
    first : dict
        For each computation, the first variable that is bound to it, and its block.
    same : dict
        Variables, and the equal variables that replace them.
    held : set of relax.Var
        Variables that must not be lifted, even if others with the same computation are.
    copies : dict
        Held variables, and the variables that they equal.
    symbols : list of tirx.Var
        Symbols that only weights define, and that the result of the function or values without
        operands use.
    """

    known: dict[relax.Var, Operand | None] = field(default_factory=dict)
    read: set[Operand] = field(default_factory=set)
    first: dict[Any, tuple[relax.Var, relax.BindingBlock]] = field(default_factory=dict)
    same: dict[relax.Var, relax.Var] = field(default_factory=dict)
    held: set[relax.Var] = field(default_factory=set)
    copies: dict[relax.Var, relax.Var] = field(default_factory=dict)
    symbols: list[tirx.Var] = field(default_factory=list)


class LiftPlan:
    """The computations to lift out of functions that share their weights.

    Parameters
    ----------
    functions : sequence of relax.Function
        Normalized functions with ``num_input``; their weights agree in number and types.
    max_growth : float
        The maximum ratio of prepared weights to the weights they replace, in bytes.
    allowance : int
        The bytes that all prepared weights together may take beyond that ratio.
    """

    def __init__(self, functions: Sequence[relax.Function], max_growth: float, allowance: int):
        self._functions = functions
        self._params = weights_of(functions[0])
        self._weights = [Weight(bytes_of_type(param.ty)) for param in self._params]
        # For each computation, the variable that represents it in all functions, and its value.
        self._unique: dict[Any, tuple[relax.Var, Liftable | None]] = {}
        self._canonical: dict[relax.Var, relax.Var] = {}
        self._scopes = [self._visit(number) for number in range(len(functions))]
        values = [value for _, value in self._unique.values() if value is not None]
        everywhere = [value for value in values if len(value.functions) == len(functions)]
        read = {operand for scope in self._scopes for operand in scope.read}
        for value in values:
            if len(value.functions) < len(functions):
                read.update(value.operands)
        budget = Budget(max_growth, lambda weight: weight.nbytes, 0, allowance)
        chosen, needed = within_budget(everywhere, read, set(), budget)
        self._kept = needed.difference(chosen, self._weights)
        self._prepared = needed - self._kept
        # Drop dead computations: TVM's pass would prepare their operands.
        live = set(needed)
        for value in reversed(everywhere):
            if value in live:
                live.update(value.operands)
        self._dead = set(everywhere) - live

    def rewrite(self, number: int) -> relax.Function:
        """Mark the values of a function that must not be lifted, and merge equal computations.

        Read lifted results outside all dataflow blocks, where TVM's pass notices that they are
        needed; likewise symbols that it would otherwise miss.
        """
        function, scope = self._functions[number], self._scopes[number]
        blocks = [self._rewrite_block(block, scope) for block in function.body.blocks]
        body = function.body.body
        if any(scope.known.get(var) is not None for var in relax.analysis.free_vars(body)):
            result = relax.Var("gv", body.ty)
            blocks.append(relax.BindingBlock([relax.VarBinding(result, body)]))
            body = result
        prepared = [v.ty for v, operand in scope.known.items() if operand in self._prepared]
        visible = relax.analysis.definable_tir_vars_in_type(relax.TupleType(prepared))
        symbols = [symbol for symbol in scope.symbols if symbol not in visible]
        if symbols:
            read = relax.Var("symbols", relax.ShapeType(symbols))
            shape = _normalize(relax.ShapeExpr(symbols))
            blocks.append(relax.BindingBlock([relax.VarBinding(read, shape)]))
        return with_body(function, relax.SeqExpr(blocks, body))

    def _visit(self, number: int) -> _Scope:
        function, scope = self._functions[number], _Scope()
        symbols: set[tirx.Var] = set()
        weights = weights_of(function)
        for weight, var, same in zip(self._weights, weights, self._params, strict=True):
            scope.known[var] = weight
            self._canonical[var] = same
            symbols.update(relax.analysis.definable_tir_vars_in_type(var.ty))
        for block in function.body.blocks:
            for binding in block.bindings:
                reads = relax.analysis.free_vars(binding.value)
                if _is_liftable(binding, block, reads, scope.known, symbols):
                    self._add(number, scope, binding, block, reads)
                else:
                    scope.read.update(filter(None, map(scope.known.get, reads)))
        reads = relax.analysis.free_vars(function.body.body)
        scope.read.update(filter(None, map(scope.known.get, reads)))
        types = [var.ty for var, operand in scope.known.items() if operand is None]
        used = relax.analysis.tir_vars_in_type(relax.TupleType([*types, function.ret_ty]))
        inputs = [param.ty for param in function.params if param not in weights]
        of_inputs = relax.analysis.definable_tir_vars_in_type(relax.TupleType(inputs))
        scope.symbols = [s for s in used if s in symbols and s not in of_inputs]
        return scope

    def _add(
        self,
        number: int,
        scope: _Scope,
        binding: relax.Binding,
        block: relax.BindingBlock,
        reads: Sequence[relax.Var],
    ) -> None:
        """Add a computation on weights, or find an equal one."""
        var, value = binding.var, binding.value
        if isinstance(binding, relax.VarBinding) and isinstance(value, relax.Var):
            scope.known[var] = scope.known[value]
            self._canonical[var] = self._canonical[value]
            self._join(scope, var, scope.same.get(value, value), True)
            return
        cast = binding.ty if isinstance(binding, relax.MatchCast) else None
        key = self._key(value), cast and tvm_ffi.StructuralKey(cast)
        if key not in self._unique:
            known_values = [scope.known.get(read) for read in reads]
            operands = tuple(operand for operand in known_values if operand is not None)
            weights: dict[Weight, None] = {}
            for operand in operands:
                of = (operand,) if isinstance(operand, Weight) else operand.constants
                weights |= dict.fromkeys(of)
            size = bytes_of_type(var.ty) if has_known_shapes(var.ty) else None
            self._unique[key] = var, Liftable(operands, tuple(weights), size) if operands else None
        self._canonical[var], unique = self._unique[key]
        scope.known[var] = unique
        if unique is not None:
            unique.functions.add(number)
        if key in scope.first:
            first, where = scope.first[key]
            self._join(scope, var, first, where.same_as(block))
        else:
            scope.first[key] = var, block

    def _key(self, expr: relax.Expr) -> Any:
        """A key that equal computations share."""
        if isinstance(expr, relax.Var):
            return self._canonical.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            return tuple(map(self._key, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            return "field", int(expr.index), self._key(expr.tuple_value)
        if isinstance(expr, relax.Call):
            parts = [part for part in (expr.attrs, *expr.ty_args) if part is not None]
            args = map(self._key, expr.args)
            return "call", self._key(expr.op), *args, *map(tvm_ffi.StructuralKey, parts)
        return expr if isinstance(expr, tvm.ir.Op) else tvm_ffi.StructuralKey(expr)

    def _join(self, scope: _Scope, var: relax.Var, first: relax.Var, is_near: bool) -> None:
        """Replace `var` by `first` if that is in scope wherever `var` is read."""
        if isinstance(var, relax.DataflowVar) and (
            is_near or not isinstance(first, relax.DataflowVar)
        ):
            scope.same[var] = first
            return
        # TVM's pass would prepare it twice; and it treats a computation as shared if it finds as
        # many occurrences as there are functions.
        scope.held.add(var)
        if is_near:
            scope.copies[var] = first

    def _rewrite_block(self, block: relax.BindingBlock, scope: _Scope) -> relax.BindingBlock:
        if not isinstance(block, relax.DataflowBlock):
            return block
        rewritten: list[relax.Binding] = []
        stops: dict[relax.Var, relax.Var] = {}

        def canonical(leaf: relax.Expr) -> relax.Expr:
            return scope.same.get(leaf, leaf) if isinstance(leaf, relax.Var) else leaf

        def stop(var: relax.Expr) -> relax.Expr:
            """A variable with the same value that TVM's pass does not lift."""
            if not isinstance(var, relax.Var):
                return var
            operand = scope.known.get(var)
            if operand is None or operand in self._kept or var in scope.held:
                return var
            if not isinstance(var.ty, relax.TensorType):
                return var
            if var not in stops:
                stops[var] = relax.DataflowVar(f"{var.name}_kept", var.ty)
                call = _normalize(relax.op.builtin.stop_lift_params(var))
                rewritten.append(relax.VarBinding(stops[var], call))
            return stops[var]

        for binding in block.bindings:
            var, old = binding.var, binding.value
            if var in scope.same or scope.known.get(var) in self._dead:
                continue
            value = scope.copies.get(var, old)
            value = map_leaves(value, canonical)
            if var in scope.held or scope.known.get(var) in self._kept:
                value = map_leaves(value, stop)
            if value.same_as(old):
                rewritten.append(binding)
            elif isinstance(binding, relax.MatchCast):
                rewritten.append(relax.MatchCast(var, value, binding.ty))
            else:
                rewritten.append(relax.VarBinding(var, _normalize(value)))
        return relax.DataflowBlock(rewritten)


def bytes_of_type(ty: tvm.ir.Type) -> int:
    """The size in bytes of a value of type `ty`; unknown sizes count as 0."""
    if isinstance(ty, relax.TupleType):
        return sum(map(bytes_of_type, ty.fields))
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return 0
    if ty.dtype is None:
        return 0
    extents = [
        dim if isinstance(dim, tirx.IntImm) else _nominal(dim, ty) for dim in ty.shape.values
    ]
    return nbytes_of(list(map(int, extents)), str(ty.dtype))


def _is_liftable(
    binding: relax.Binding,
    block: relax.BindingBlock,
    reads: Sequence[relax.Var],
    known: dict[relax.Var, Operand | None],
    symbols: set[tirx.Var],
) -> bool:
    """Whether TVM's pass would lift a binding."""
    value = binding.value
    if not isinstance(block, relax.DataflowBlock) or isinstance(value, relax.ExternFunc):
        return False
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        if value.op.name == "relax.builtin.stop_lift_params":
            return False
    if any(var not in known and var not in symbols for var in reads):
        return False
    return all(var in symbols for var in relax.analysis.tir_vars_in_type(binding.var.ty))


def _normalize(expr: relax.Expr) -> relax.Expr:
    return relax.BlockBuilder().normalize(expr)


def _nominal(dim: tvm.ir.Expr, ty: relax.TensorType) -> int:
    analyzer = tvm.sym.Analyzer()
    for var in relax.analysis.tir_vars_in_type(ty):
        analyzer.bind(var, tirx.IntImm(str(var.ty.dtype), NOMINAL_EXTENT))
    value = analyzer.simplify(dim)
    return int(value) if isinstance(value, tirx.IntImm) else NOMINAL_EXTENT
