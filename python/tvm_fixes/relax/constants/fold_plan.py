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
"""Which values of a module are computed at compile time, by how large they become."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx

from ...support.tensors import nbytes_of
from ..ir import is_kernel_call, leaves, tensor_of, variables

SMALL = 8192
"""A value of this many bytes or less is folded, whatever its operands are: 1024 numbers of 64 bits,
up to which TVM folds what has no operands."""

SCRATCH = 64 << 20
"""The bytes that anything on the way to a value may take while it is computed ahead."""

SCRATCH_GROWTH = 8
"""How many times as large as its constants it may be beyond that: int8 goes by way of float64."""

_LITERALS = (tirx.IntImm, tirx.FloatImm, tvm.ir.StringImm)


@dataclass(eq=False)
class Value:
    """What a binding computes of constants alone; equal computations are one.

    Attributes
    ----------
    function : str
        Where it is bound first.
    binding : relax.VarBinding
        That binding.
    operands : tuple of Value and tvm.runtime.Tensor
        What it is computed of; the tensors are those of constants.
    constants : tuple of tvm.runtime.Tensor
        What it is computed of in the end.
    nbytes : int or None
        The size; None for what cannot be a constant, a tuple.
    peak : int
        The size of the largest of it and all that it is computed of, without the constants.
    """

    function: str
    binding: relax.VarBinding
    operands: tuple["Operand", ...]
    constants: tuple[tvm.runtime.Tensor, ...]
    nbytes: int | None
    peak: int

    @property
    def operator(self) -> str:
        value = self.binding.value
        return operator_of(value) if isinstance(value, relax.Call) else "field of a tuple"

    @property
    def made_by(self) -> str:
        """The operator, variable and function."""
        return f"{self.operator} `{self.binding.var.name}` in {self.function}"

    def __str__(self) -> str:
        of = sum(map(bytes_of, self.constants))
        text = (
            f"{self.function}: `{self.binding.var.name}`: {self.operator} of constants of {of} "
            f"bytes is not folded, which would take {self.nbytes} bytes"
        )
        return text if self.peak == self.nbytes else f"{text}, and {self.peak} on the way"


Operand: TypeAlias = Value | tvm.runtime.Tensor


def operator_of(call: relax.Call) -> str:
    """What a call is of: the name of an operator, a kernel or a function."""
    callee = call.args[0] if is_kernel_call(call) else call.op
    for attribute in ("name_hint", "global_symbol", "name"):
        if hasattr(callee, attribute):
            return str(getattr(callee, attribute))
    return type(callee).__name__


def bytes_of(tensor: tvm.runtime.Tensor) -> int:
    """The size of the elements of a tensor."""
    return nbytes_of(tensor.shape, str(tensor.dtype))


class FoldPlan:
    """What is folded, and what is not because it would become too large.

    Parameters
    ----------
    mod : tvm.IRModule
        Its functions are normalized.
    max_growth : float
        How many times as large as the constants that it takes the place of a constant may be.  One
        that something else still reads is not replaced.

    Attributes
    ----------
    values : dict of relax.Var to Value
        All that is computed of constants, by variable.
    bindings : dict of relax.Var to relax.VarBinding
        Theirs, and those of shapes and constants that have a variable.
    folded : set of Value
        What is read by something else than a value that is folded, and is folded.
    kept : set of Value
        What has to be computed when the model runs.
    unfolded : list of Value
        That of it which could be a constant, in program order.
    """

    def __init__(self, mod: tvm.IRModule, max_growth: float):
        self.values: dict[relax.Var, Value] = {}
        self.folded: set[Value] = set()
        self.kept: set[Value] = set()
        self.unfolded: list[Value] = []
        self._mod = mod
        self._max_growth = max_growth
        # By variable, what it stands for: an operand, or None for a shape that is known.
        self._known: dict[relax.Var, Operand | None] = {}
        self.bindings: dict[relax.Var, relax.VarBinding] = {}
        self._unique: dict[Any, Value] = {}
        self._read: set[Operand] = set()
        self._refused: set[Value] = set()
        for global_var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                self._function = str(global_var.name_hint)
                self._visit(function.body)
        self._decide()

    def refuse(self, values: set[Value]) -> None:
        """Leave out what TVM cannot compute."""
        self._refused |= values
        self._decide()

    def computation(self, values: Iterable[Value]) -> list[relax.VarBinding]:
        """The bindings that compute `values`, in program order."""
        pending = [value.binding.var for value in values]
        needed = set()
        while pending:
            var = pending.pop()
            if var not in needed:
                needed.add(var)
                pending += variables(self.bindings[var].value)
        return [binding for var, binding in self.bindings.items() if var in needed]

    def _visit(self, expr: relax.Expr) -> None:
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    self._visit_binding(binding, isinstance(block, relax.DataflowBlock))
            self._visit(expr.body)
        elif isinstance(expr, relax.Function):
            self._visit(expr.body)
        elif isinstance(expr, relax.If):
            self._visit(expr.cond)
            self._visit(expr.true_branch)
            self._visit(expr.false_branch)
        else:
            self._read.update(self._operands_among(expr))

    def _visit_binding(self, binding: relax.Binding, in_dataflow: bool) -> None:
        value, var = binding.value, binding.var
        if not isinstance(binding, relax.VarBinding) or isinstance(
            value, relax.If | relax.Function
        ):
            return self._visit(value)
        operands: list[Operand] = []
        key = self._key(value, operands, in_dataflow)
        if key is None:
            return self._visit(value)
        self.bindings[var] = binding
        if isinstance(value, relax.ShapeExpr):
            self._known[var] = None
        elif isinstance(value, relax.Var | tvm.ir.GenericConst):
            self._known[var] = operands[0] if operands else None
        else:
            unique = self._unique.get(key)
            if unique is None:
                constants: dict[tvm.runtime.Tensor, None] = {}
                for operand in operands:
                    found = operand.constants if isinstance(operand, Value) else (operand,)
                    constants |= dict.fromkeys(found)
                unique = Value(
                    self._function,
                    binding,
                    tuple(operands),
                    tuple(constants),
                    _bytes_of_type(var.ty),
                    max([_bytes_held(var.ty), *(v.peak for v in operands if isinstance(v, Value))]),
                )
                self._unique[key] = unique
            self._known[var] = self.values[var] = unique
        return None

    def _key(self, value: relax.Expr, operands: list[Operand], in_dataflow: bool) -> Any:
        """What equal computations have in common; None for what depends on more than constants."""
        if isinstance(value, relax.Call):
            if not self._can_evaluate(value, in_dataflow):
                return None
            args = [self._argument_key(arg, operands) for arg in value.args]
            if any(arg is None for arg in args):
                return None
            parts = [part for part in (value.attrs, *value.ty_args) if part is not None]
            return value.op, *args, *map(tvm_ffi.StructuralKey, parts)
        if isinstance(value, relax.TupleGetItem):
            key = self._argument_key(value.tuple_value, operands)
            return None if key is None else ("field", int(value.index), key)
        key = self._argument_key(value, operands)
        return None if key is None else ("value", key)

    def _can_evaluate(self, call: relax.Call, in_dataflow: bool) -> bool:
        """Whether TVM's pass would try, with constants as operands."""
        if is_kernel_call(call):
            return isinstance(self._mod.functions.get(call.args[0]), tirx.PrimFunc)
        return (
            in_dataflow
            and isinstance(call.op, tvm.ir.Op)
            and call.op.get_attr("FLegalize") is not None
        )

    def _argument_key(self, expr: relax.Expr, operands: list[Operand]) -> Any:
        if isinstance(expr, relax.Var):
            if expr not in self._known:
                return None
            operand = self._known[expr]
            if operand is None:
                return self._argument_key(self.bindings[expr].value, operands)
            operands.append(operand)
            return operand
        tensor = tensor_of(expr)
        if tensor is not None:
            operands.append(tensor)
            return tensor
        if isinstance(expr, relax.Tuple):
            keys = tuple(self._argument_key(field, operands) for field in expr.fields)
            return None if any(key is None for key in keys) else keys
        if isinstance(expr, relax.ShapeExpr):
            is_known = all(isinstance(dim, tirx.IntImm) for dim in expr.values)
            return tvm_ffi.StructuralKey(expr) if is_known else None
        if isinstance(expr, tvm.ir.GlobalVar):
            return expr
        return tvm_ffi.StructuralKey(expr) if isinstance(expr, _LITERALS) else None

    def _operands_among(self, expr: relax.Expr) -> Iterator[Operand]:
        """What an expression reads of constants and what is computed of them."""
        for leaf in leaves(expr):
            operand = self._known.get(leaf) if isinstance(leaf, relax.Var) else tensor_of(leaf)
            if operand is not None:
                yield operand

    def _decide(self) -> None:
        values = list(self._unique.values())
        budget = Budget(self._max_growth, bytes_of, SMALL)
        self._refused.update(value for value in values if self._takes_too_much(value))
        chosen, needed = within_budget(values, self._read, self._refused, budget)
        self.folded = set(chosen)
        self.kept = {value for value in values if value in needed and value not in self.folded}
        self.unfolded = [v for v in values if v in self.kept and v.nbytes is not None]

    def _takes_too_much(self, value: Value) -> bool:
        """Whether something on the way to a value is far larger than its constants."""
        growth = max(self._max_growth, SCRATCH_GROWTH)
        return value.peak > SCRATCH and value.peak > growth * max(
            sum(map(bytes_of, value.constants)), 1
        )


@dataclass(frozen=True)
class Budget:
    """How large what is computed ahead may be.

    Attributes
    ----------
    max_growth : float
        How many times as large as the constants that it takes the place of.
    size_of : callable
        The bytes of a constant.
    small : int
        A value of this many bytes or less is free.
    allowance : int
        The bytes that all of it together may take beyond that.
    """

    max_growth: float
    size_of: Callable[[Any], int]
    small: int
    allowance: int = 0


def within_budget(
    values: Sequence[Any], read: Set[Any], refused: set[Any], budget: Budget
) -> tuple[list[Any], set[Any]]:
    """Choose what to compute ahead.

    Parameters
    ----------
    values : sequence of Value
        In an order in which operands come first.  Any class with ``operands``, ``constants`` and
        ``nbytes`` (None for what cannot be computed ahead) serves.
    read : set of Value and constants
        What the rest of the program reads.
    refused : set of Value
        What is not to be chosen; that which would become too large is added.
    budget : Budget

    Returns
    -------
    chosen : list of Value
        In the order of `values`.
    needed : set of Value and constants
        What is read once these are there: by the rest, and by values that are not chosen.
    """
    while True:
        needed = set(read)
        chosen: list[Any] = []
        for value in reversed(values):
            if value not in needed:
                continue
            if value.nbytes is not None and value not in refused:
                chosen.append(value)
            else:
                needed.update(value.operands)
        chosen.reverse()
        too_large = _too_large(chosen, needed, budget)
        if not too_large:
            return chosen, needed
        refused |= too_large


def _too_large(chosen: list[Any], needed: set[Any], budget: Budget) -> set[Any]:
    """The values for which the constants that they take the place of leave no room."""
    room: dict[Any, float] = {}
    allowance: float = budget.allowance
    too_large = set()
    for value in chosen:
        for constant in value.constants:
            if constant not in room:
                left = budget.max_growth - (1 if constant in needed else 0)
                size = budget.size_of(constant)
                # Not 0 * math.inf.
                room[constant] = max(left, 0) * size if size else 0
        nbytes: float = value.nbytes
        if nbytes <= budget.small:
            continue
        if nbytes > sum(room[constant] for constant in value.constants) + allowance:
            too_large.add(value)
            continue
        for constant in value.constants:
            taken = min(room[constant], nbytes)
            room[constant] -= taken
            nbytes -= taken
        allowance -= nbytes
    return too_large


def _bytes_held(ty: tvm.ir.Type) -> int:
    """The size of a tensor or of those of a tuple, 0 for one that is not known."""
    if isinstance(ty, relax.TupleType):
        return sum(map(_bytes_held, ty.fields))
    return _bytes_of_type(ty) or 0


def _bytes_of_type(ty: tvm.ir.Type) -> int | None:
    """The size of a tensor that can be a constant; None for any other type."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    extents = list(ty.shape.values)
    if ty.vdevice is not None or not all(isinstance(dim, tirx.IntImm) for dim in extents):
        return None
    return None if ty.dtype is None else nbytes_of([int(dim) for dim in extents], str(ty.dtype))
