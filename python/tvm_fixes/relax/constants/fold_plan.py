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
"""Choice of the values to compute at compile time, by their sizes."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx

from ...support.tensors import nbytes_of
from ..ir import is_kernel_call, leaves, relax_functions, static_bytes, tensor_of, variables

SMALL = 8192
"""A value of at most this many bytes is always folded.

These are 1024 64-bit numbers, TVM's limit for folding values without operands.
"""

SCRATCH = 64 << 20
"""The bytes that an intermediate value may always take while a value is folded."""

SCRATCH_GROWTH = 8
"""Beyond :data:`SCRATCH`, the maximum ratio of an intermediate value to the constants.

8 allows computing int8 in float64.
"""

_LITERALS = (tirx.IntImm, tirx.FloatImm, tvm.ir.StringImm)


@dataclass(eq=False)
class Value:
    """A value that depends only on constants; equal computations share one.

    Attributes
    ----------
    function : str
        The function that binds it first.
    binding : relax.VarBinding
        Its first binding.
    operands : tuple of Value and tvm.runtime.Tensor
        The values and the tensors of constants that it is computed from.
    constants : tuple of tvm.runtime.Tensor
        The constants that it depends on, directly or not.
    nbytes : int or None
        The size; None for a tuple, which cannot be a constant.
    peak : int
        The size of the largest value in its computation, including itself but not the constants.
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
            f"bytes is not folded: the result would take {self.nbytes} bytes"
        )
        if self.peak == self.nbytes:
            return text
        return f"{text}, and an intermediate value {self.peak} bytes"


Operand: TypeAlias = Value | tvm.runtime.Tensor


def operator_of(call: relax.Call) -> str:
    """The name of the operator, kernel or function that a call calls."""
    callee = call.args[0] if is_kernel_call(call) else call.op
    for attribute in ("name_hint", "global_symbol", "name"):
        if hasattr(callee, attribute):
            return str(getattr(callee, attribute))
    return type(callee).__name__


def bytes_of(tensor: tvm.runtime.Tensor) -> int:
    """The size of a tensor's elements in bytes."""
    return nbytes_of(tensor.shape, str(tensor.dtype))


class FoldPlan:
    """The values of a module to fold, and the values that are too large to fold.

    Parameters
    ----------
    mod : tvm.IRModule
        A module of normalized functions.
    max_growth : float
        The maximum ratio of a folded value to the constants that it replaces, in bytes.  It does
        not replace a constant that something else still reads.

    Attributes
    ----------
    values : dict of relax.Var to Value
        All values that depend only on constants, by variable.
    bindings : dict of relax.Var to relax.VarBinding
        The bindings of these values, and of shapes and constants that are bound to variables.
    folded : set of Value
        The values that become constants: those that something other than a folded value reads.
    kept : set of Value
        The values to compute when the model runs.
    unfolded : list of Value
        The kept values that could be constants, in program order.
    """

    def __init__(self, mod: tvm.IRModule, max_growth: float):
        self.values: dict[relax.Var, Value] = {}
        self.folded: set[Value] = set()
        self.kept: set[Value] = set()
        self.unfolded: list[Value] = []
        self._mod = mod
        self._max_growth = max_growth
        # The operand that each variable stands for; None for a static shape.
        self._known: dict[relax.Var, Operand | None] = {}
        self.bindings: dict[relax.Var, relax.VarBinding] = {}
        self._unique: dict[Any, Value] = {}
        self._read: set[Operand] = set()
        self._excluded: set[Value] = set()
        for global_var, function in relax_functions(mod).items():
            self._function = str(global_var.name_hint)
            self._visit(function.body)
        self._decide()

    def exclude(self, values: set[Value]) -> None:
        """Do not fold `values`, which TVM cannot compute."""
        self._excluded |= values
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
                    tensors = operand.constants if isinstance(operand, Value) else (operand,)
                    constants |= dict.fromkeys(tensors)
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
        """A key that equal computations share; None if `value` depends on more than constants."""
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
        """Whether TVM's pass would fold a call if its operands were constants."""
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
        """The constants, and the values that depend only on constants, that `expr` reads."""
        for leaf in leaves(expr):
            operand = self._known.get(leaf) if isinstance(leaf, relax.Var) else tensor_of(leaf)
            if operand is not None:
                yield operand

    def _decide(self) -> None:
        values = list(self._unique.values())
        budget = Budget(self._max_growth, bytes_of, SMALL)
        self._excluded.update(value for value in values if self._needs_too_much_scratch(value))
        chosen, needed = within_budget(values, self._read, self._excluded, budget)
        self.folded = set(chosen)
        self.kept = {value for value in values if value in needed and value not in self.folded}
        self.unfolded = [v for v in values if v in self.kept and v.nbytes is not None]

    def _needs_too_much_scratch(self, value: Value) -> bool:
        """Whether an intermediate value of the computation is far larger than the constants."""
        growth = max(self._max_growth, SCRATCH_GROWTH)
        return value.peak > SCRATCH and value.peak > growth * max(
            sum(map(bytes_of, value.constants)), 1
        )


@dataclass(frozen=True)
class Budget:
    """The size limits of values that are computed ahead of time.

    Attributes
    ----------
    max_growth : float
        The maximum ratio of a value to the constants that it replaces, in bytes.
    size_of : callable
        Returns the size of a constant in bytes.
    small : int
        Values of at most this many bytes do not count.
    allowance : int
        The bytes that all values together may take beyond these limits.
    """

    max_growth: float
    size_of: Callable[[Any], int]
    small: int
    allowance: int = 0


def within_budget(
    values: Sequence[Any], read: Set[Any], excluded: set[Any], budget: Budget
) -> tuple[list[Any], set[Any]]:
    """Choose the values to compute ahead of time.

    Parameters
    ----------
    values : sequence of Value
        The candidates, operands first.  Any class with ``operands``, ``constants`` and ``nbytes``
        (None for a value that cannot be computed ahead) will do.
    read : set of Value and constants
        The values and constants that the rest of the program reads.
    excluded : set of Value
        Values not to choose.  Values that are too large are added to it.
    budget : Budget

    Returns
    -------
    chosen : list of Value
        The chosen values, in the order of `values`.
    needed : set of Value and constants
        The values and constants that the rest of the program and the values that are not chosen
        read.
    """
    while True:
        needed = set(read)
        chosen: list[Any] = []
        for value in reversed(values):
            if value not in needed:
                continue
            if value.nbytes is not None and value not in excluded:
                chosen.append(value)
            else:
                needed.update(value.operands)
        chosen.reverse()
        too_large = _too_large(chosen, needed, budget)
        if not too_large:
            return chosen, needed
        excluded |= too_large


def _too_large(chosen: list[Any], needed: set[Any], budget: Budget) -> set[Any]:
    """The values that exceed the room that the replaced constants leave."""
    room: dict[Any, float] = {}
    allowance: float = budget.allowance
    too_large = set()
    for value in chosen:
        for constant in value.constants:
            if constant not in room:
                left = budget.max_growth - (1 if constant in needed else 0)
                size = budget.size_of(constant)
                # 0 * math.inf would be NaN.
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
    """The size of a tensor, or of all tensors of a tuple; an unknown size counts as 0."""
    if isinstance(ty, relax.TupleType):
        return sum(map(_bytes_held, ty.fields))
    return _bytes_of_type(ty) or 0


def _bytes_of_type(ty: tvm.ir.Type) -> int | None:
    """The size of a tensor that can be a constant; None for any other type."""
    is_placed = isinstance(ty, relax.TensorType) and ty.vdevice is not None
    return None if is_placed else static_bytes(ty)
