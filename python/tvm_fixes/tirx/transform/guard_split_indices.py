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
"""GuardSplitIndices: hide an index that TVM's simplifier would get wrong.

Trigger
    A quotient or remainder of a difference, such as ``(63 - i) % 64``, of a quotient of a sum with
    a constant, such as ``(i + 12) // 7 % 4``, or of a sum of a constant and a quotient or
    remainder, such as ``(i % 15 + 38) // 15``.  Reversed, padded and reshaped tensors have such
    indices.
Mechanism
    IterMapSimplify, which FlattenBuffer uses to simplify indices, moves the constant into an inner
    quotient or remainder, or drops it: the examples become ``i % -64 * -1``, ``(i + 7) // 7`` and
    ``(i + 8) % 15 // 15 + 2``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer, iter_map_simplify
from tvm_ffi import structural_map, structural_mutate, structural_walk

from ...fixes.elements import SPLIT_INDICES as FIX_ID
from ..loop_nest import substitute
from ..loop_partition import branches_of, with_branches
from ..util import contains, prim_func_pass

_SPLITS = (tirx.FloorDiv, tirx.FloorMod)
_TERMS = (tirx.Add, tirx.Sub, tirx.Mul)
_TRUNCATED = {tirx.FloorDiv: tirx.truncdiv, tirx.FloorMod: tirx.truncmod}

# The number of iterations for which to compare an index with TVM's simplified one. A wrong constant
# changes most of them.
_SAMPLES = 256
_MIN_SAMPLES = 8
_MAX_SYMBOL = 40


def GuardSplitIndices() -> tvm.transform.Pass:
    """Hide the quotients and remainders of an index that IterMapSimplify would change.

    Before::

        y[i] = x[(63 - i) % 64]
        z[i] = x[(2 - i) % 15]

    and after::

        y[i] = x[truncmod(63 - i, 64)]
        z[i] = x[truncmod(truncmod(2 - i, 15) + 15, 15)]

    For a non-negative number, ``truncmod`` equals ``%``.  The pass simplifies each index that has a
    split and a constant as FlattenBuffer does, under the conditions around it, and compares the two
    for random iterations. An index that agrees in all of them is not changed, because other passes
    can analyze it better.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.  Run it after all schedules.
    """
    return prim_func_pass("GuardSplitIndices", FIX_ID, _guard, any_target=True)


def _guard(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    if not _may_be_misread(function.body):
        return function
    iterations = _Iterations.of(function.body)

    def guard_load(
        load: tvm.ir.TensorLoad, mutator: tvm_ffi.structural.StructuralMutator
    ) -> tirx.Expr:
        if iterations.is_misread(load):
            load = tirx.BufferLoad(load.source, [iterations.hide(index) for index in load.indices])
        return mutator.default_mutate(load)

    def guard_store(
        store: tirx.BufferStore, mutator: tvm_ffi.structural.StructuralMutator
    ) -> tirx.Stmt:
        if iterations.is_misread(tirx.BufferLoad(store.buffer, store.indices)):
            indices = [iterations.hide(index) for index in store.indices]
            store = tirx.BufferStore(store.buffer, store.value, indices)
        return mutator.default_mutate(store)

    def guard_branches(node: tvm.Object, mutator: tvm_ffi.structural.StructuralMutator) -> Any:
        is_statement = isinstance(node, tirx.IfThenElse)
        parts = (
            [node.condition, node.then_case, node.else_case] if is_statement else branches_of(node)
        )
        if parts is None:
            return mutator.default_mutate(node)
        condition, *branches = parts
        new = [mutator.mutate(condition)]
        for branch, holds in zip(branches, (condition, tirx.Not(condition)), strict=True):
            with iterations.where(holds):
                new.append(None if branch is None else mutator.mutate(branch))
        if all(a is b or a.same_as(b) for a, b in zip(new, parts, strict=True)):
            return node
        return tirx.IfThenElse(*new) if is_statement else with_branches(node, new)

    rewrites = (
        (tvm.ir.TensorLoad, guard_load),
        (tirx.BufferStore, guard_store),
        ((tirx.IfThenElse, tirx.Select, tvm.ir.Call), guard_branches),
    )
    body = structural_mutate(function.body, rewrites)
    return function if body.same_as(function.body) else function.with_body(body)


@dataclass
class _Iterations:
    """The loops of a PrimFunc, and random samples of their iterations."""

    ranges: dict[tirx.Var, tvm.ir.Range] = field(default_factory=dict)
    """The ranges of loops and block iterators."""
    bindings: dict[tirx.Var, tirx.Expr] = field(default_factory=dict)
    shared: set[tirx.Var] = field(default_factory=set)
    """Variables with different ranges or values in different loops or blocks."""
    analyzer: Analyzer = field(default_factory=Analyzer)
    samples: dict[tirx.Var, Any] = field(default_factory=dict)
    conditions: list[tirx.Expr] = field(default_factory=list)
    """The conditions that hold at the current statement."""
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @classmethod
    def of(cls, body: tirx.Stmt) -> "_Iterations":
        new = cls()
        structural_walk(body, [(tirx.For, new._add_loop), (SBlockRealize, new._add_block)])
        for var, bounds in new.ranges.items():
            if var not in new.shared:
                new.analyzer.bind(var, bounds)
        return new

    def is_misread(self, access: tvm.ir.TensorLoad) -> bool:
        """Whether TVM's simplifier changes the position of an access, or may do so."""
        if not any(_may_be_misread(index) for index in access.indices):
            return False
        if access.source.strides:
            return True
        indices = [self._resolved(index) for index in access.indices]
        position = _position(indices, access.source)
        condition = tirx.all(tirx.const(True, "bool"), *map(self._resolved, self.conditions))

        def mentions(is_meant: Callable[[tirx.Var], bool]) -> bool:
            return any(contains(expr, tirx.Var, is_meant) for expr in (position, condition))

        if mentions(self.shared.__contains__):
            return True
        loops = {var: bounds for var, bounds in self.ranges.items() if mentions(var.same_as)}
        try:
            return self._differs(position, indices, access.source, loops, condition)
        except (tvm.error.InternalError, _UnknownError):
            return True

    @contextmanager
    def where(self, condition: tirx.Expr) -> Iterator[None]:
        """Assume a condition within the ``with`` block, as TVM does to simplify indices."""
        self.conditions.append(self.analyzer.simplify(condition))
        try:
            yield
        finally:
            self.conditions.pop()

    def _differs(
        self,
        position: tirx.Expr,
        indices: list[tirx.Expr],
        buffer: tirx.Buffer,
        loops: dict[tirx.Var, tvm.ir.Range],
        condition: tirx.Expr,
    ) -> bool:
        """Whether a simplified position differs in a sample in which the condition holds."""
        expected = self._evaluate(position)
        try:
            holds = np.broadcast_to(self._evaluate(condition), _SAMPLES)
        except _UnknownError:  # it reads data
            holds = np.ones(_SAMPLES, bool)
        if holds.sum() < _MIN_SAMPLES:
            return True
        candidates: list[tirx.Expr] = []
        with self.analyzer.constraint_scope(condition):
            simplify = self.analyzer.simplify
            # The passes before FlattenBuffer determine which of these occurs.
            for start in (
                position,
                simplify(position),
                simplify(_position(list(map(simplify, indices)), buffer)),
            ):
                candidates += iter_map_simplify([start], loops)
                candidates += iter_map_simplify([start], loops, condition)
                candidates += iter_map_simplify([start], loops, condition, analyzer=self.analyzer)
        return any(
            bool((np.broadcast_to(expected != self._evaluate(candidate), _SAMPLES) & holds).any())
            for candidate in candidates
        )

    def _resolved(self, expr: tirx.Expr) -> tirx.Expr:
        """An expression of loops instead of block iterators."""
        while contains(expr, tirx.Var, lambda var: var in self.bindings):
            expr = substitute(expr, self.bindings)
        return expr

    def hide(self, index: tirx.Expr) -> tirx.Expr:
        """Hide the quotients and remainders of `index` from IterMapSimplify."""
        return structural_map(index, (_SPLITS, self._hide_split))

    def _hide_split(self, node: tirx.Expr) -> tirx.Expr:
        if not self.analyzer.can_prove(node.b > 0):
            return node
        if self.analyzer.can_prove(node.a >= 0):
            return _TRUNCATED[type(node)](node.a, node.b)
        remainder = tirx.truncmod(tirx.truncmod(node.a, node.b) + node.b, node.b)
        if isinstance(node, tirx.FloorMod):
            return remainder
        return tirx.truncdiv(node.a - remainder, node.b)

    def _add_loop(self, loop: tirx.For) -> None:
        bounds = tvm.ir.Range.from_min_extent(loop.min, loop.extent)
        self._add(self.ranges, loop.loop_var, bounds)

    def _add_block(self, realize: SBlockRealize) -> None:
        for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            self._add(self.bindings, iterator.var, value)
            self._add(self.ranges, iterator.var, iterator.dom)

    def _add(self, known: dict[tirx.Var, Any], var: tirx.Var, value: tvm.Object) -> None:
        if not tvm_ffi.structural_equal(known.setdefault(var, value), value):
            self.shared.add(var)

    def _evaluate(self, expr: tirx.Expr) -> Any:
        """The values of an integer expression in all samples."""
        if isinstance(expr, tirx.IntImm):
            return np.int64(expr.value)
        if isinstance(expr, tirx.Var):
            return self._sample(expr)
        if isinstance(expr, tirx.Cast):
            return self._evaluate(expr.value)
        if isinstance(expr, tirx.Not):
            return np.logical_not(self._evaluate(expr.a))
        operator = _OPERATORS.get(type(expr))
        if operator is None:
            raise _UnknownError
        return operator(self._evaluate(expr.a), self._evaluate(expr.b))

    def _sample(self, var: tirx.Var) -> Any:
        if var not in self.samples:
            low, end = np.int64(1), np.int64(_MAX_SYMBOL)
            if var in self.ranges:
                low = self._evaluate(self.ranges[var].min)
                end = low + np.maximum(self._evaluate(self.ranges[var].extent), 1)
            values = self.random.integers(low, end, _SAMPLES)
            # The first and the last iteration are special more often than others.
            values[0] = np.broadcast_to(low, _SAMPLES)[0]
            values[1] = np.broadcast_to(end, _SAMPLES)[1] - 1
            self.samples[var] = values
        return self.samples[var]


def _position(indices: Sequence[tirx.Expr], buffer: tirx.Buffer) -> tirx.Expr:
    """The position of an element in memory, in the dtype of the indices, as in FlattenBuffer."""
    position, *rest = indices
    for index, extent in zip(rest, buffer.shape[1:], strict=True):
        position = position * extent + index
    return position


class _UnknownError(Exception):
    """An expression that :class:`_Iterations` does not evaluate."""


def _truncated_quotient(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


_OPERATORS: dict[type[tirx.Expr], Callable[[Any, Any], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Div: _truncated_quotient,
    tirx.Mod: np.fmod,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}


def _may_be_misread(node: tvm.Object) -> bool:
    """Whether `node` contains a quotient or remainder of a shifted or negated number."""
    return contains(node, _SPLITS, lambda split: contains(split.a, _TERMS, _is_shift))


def _is_shift(node: tirx.Expr) -> bool:
    """Whether `node` adds a constant, subtracts, or multiplies by a negative constant."""
    constants = [term.value for term in (node.a, node.b) if isinstance(term, tirx.IntImm)]
    if isinstance(node, tirx.Mul):
        return any(value < 0 for value in constants)
    return isinstance(node, tirx.Sub) or any(constants)
