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
"""GuardIntegerDivision: integer divisions that do not trap for any operand.

Mechanism
    A division by 0, or of the smallest integer by -1, traps on x86, and is undefined in LLVM.
"""

import functools
import operator
from collections.abc import Callable, Sequence

import tvm
from tvm import tirx
from tvm.sym import Analyzer
from tvm.tirx.buffer import BufferType
from tvm_ffi import WalkResult, structural_equal, structural_map, structural_walk

from ...fixes.elements import INTEGER_DIVISION as FIX_ID
from ..elementary.expressions import let
from ..util import contains, is_if_then_else, prim_func_pass, scalarized

_MESSAGE = "integer division by zero"

_QUOTIENTS = (tirx.Div, tirx.FloorDiv)
_DIVISIONS = (*_QUOTIENTS, tirx.Mod, tirx.FloorMod)


def GuardIntegerDivision() -> tvm.transform.Pass:
    """Check the divisors of a CPU's integer divisions, unless they are constants.

    Before::

        y[i] = T.truncdiv(a[i], b[i])

    and after::

        assert b[i] != 0, "integer division by zero"
        divisor = T.Select(b[i] == 0 or b[i] == -1, 1, b[i])
        y[i] = T.Select(b[i] == -1, 0 - a[i], T.truncdiv(a[i], divisor))

    The most negative integer divided by -1 is itself, with remainder 0: the result wraps around, as
    in a sum.  A divisor that is provably neither 0 nor -1 costs nothing.  Other divisors are
    checked for each element, and the loop around them is not vectorized: a kernel with a division
    takes two to three times as long, and an int8 ``floor_divide`` five times.  Divisions of an
    index by an extent stay unchanged: if the extent is 0, the loops around them are empty.  So do
    divisions that an extent of an argument contains: they were checked when it was computed.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs of a CPU target.  Run it after all schedules.
    """
    return prim_func_pass("GuardIntegerDivision", FIX_ID, _guard)


def _guard(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    if not contains(function.body, _DIVISIONS, _may_trap):
        return function
    bound: set[tirx.Var] = set()
    structural_walk(function.body, ((tirx.Let, tirx.Bind), lambda node: bound.add(node.var)))
    known: list[tirx.Expr] = []
    for parameter in function.params:
        for extent in parameter.ty.shape if isinstance(parameter.ty, BufferType) else ():
            structural_walk(extent, (_DIVISIONS, known.append))
    guarded = structural_map(
        function, (tirx.BufferStore, lambda store: _guard_store(store, bound, known))
    )
    return structural_map(guarded, (tirx.For, _scalarized))


def _scalarized(loop: tirx.For) -> tirx.For:
    """Turn a vectorized loop with an assert into a scalar loop: TVM does not scalarize it."""
    return scalarized(loop, lambda body: contains(body, tirx.AssertStmt))


def _guard_store(
    store: tirx.BufferStore, bound: set[tirx.Var], known: Sequence[tirx.Expr]
) -> tirx.Stmt:
    expressions = [store.value, *store.indices]
    divisors = [divisor for e in expressions for divisor in _divisors(e, bound)]
    divisors += _divisors_of_value(store.value, known)
    if not divisors:
        return store
    checks: list[tirx.Expr] = []
    for check in (check for e in expressions for check in _checks(e, divisors)):
        if not _is_one_of(check, checks):
            checks.append(check)
    value, *indices = [
        structural_map(e, (_DIVISIONS, lambda node: _guarded(node, divisors))) for e in expressions
    ]
    result: tirx.Stmt = tirx.BufferStore(store.buffer, value, indices)
    for check in reversed(checks):
        # The constructor takes the condition first, despite its parameter names.
        failed = tirx.AssertStmt(
            check, tvm.ir.StringImm("RuntimeError"), [tvm.ir.StringImm(_MESSAGE)]
        )
        result = tirx.SeqStmt([failed, result])
    return result


def _may_trap(division: tirx.Expr) -> bool:
    """Whether this is an integer division whose divisor is not provably safe."""
    dtype = str(division.ty)
    if not dtype.startswith(("int", "uint")):
        return False
    divisor = division.b
    if isinstance(divisor, tirx.IntImm):  # TVM rejects 0; LLVM needs no division for a constant
        return False
    analyzer = Analyzer()
    if analyzer.can_prove(divisor > 0):
        return False
    return dtype.startswith("int") or not analyzer.can_prove(divisor != 0)


def _divisors(expression: tirx.Expr, bound: set[tirx.Var]) -> list[tirx.Expr]:
    """The divisors in an expression that may trap and depend on tensor elements."""
    divisors: list[tirx.Expr] = []

    def look(division: tirx.Expr) -> None:
        is_data = contains(division.b, tvm.ir.TensorLoad) or contains(
            division.b, tirx.Var, lambda var: var in bound
        )
        if is_data and _may_trap(division):
            divisors.append(division.b)

    structural_walk(expression, (_DIVISIONS, look))
    return divisors


def _divisors_of_value(value: tirx.Expr, known: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """The divisors in a value that may trap, without those in indices and `known` divisions."""
    divisors: list[tirx.Expr] = []

    def look(node: tirx.Expr) -> WalkResult | None:
        if isinstance(node, tvm.ir.TensorLoad):
            return WalkResult.SKIP
        if _may_trap(node) and not _is_one_of(node, known):
            divisors.append(node.b)
        return None

    structural_walk(value, ((*_DIVISIONS, tvm.ir.TensorLoad), look), order="pre")
    return divisors


def _is_one_of(divisor: tirx.Expr, divisors: Sequence[tirx.Expr]) -> bool:
    return any(structural_equal(divisor, other) for other in divisors)


def _checks(expression: tirx.Expr, divisors: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """The conditions under which an expression never divides by 0."""
    conditions: list[tirx.Expr] = []

    def look(node: tirx.Expr) -> WalkResult | None:
        if isinstance(node, tirx.Let):
            conditions.extend(_checks(node.value, divisors))
            inner = _all(_checks(node.body, divisors))
            if inner is not None:
                conditions.append(_let(node, inner))
            return WalkResult.SKIP
        if isinstance(node, tvm.ir.Call):
            if not is_if_then_else(node):
                return None
            condition, *branches = node.args
            conditions.extend(_checks(condition, divisors))
            inner_checks = [_all(_checks(branch, divisors)) for branch in branches]
            if any(check is not None for check in inner_checks):
                true = tirx.const(True, "bool")
                sides = [true if check is None else check for check in inner_checks]
                conditions.append(tirx.if_then_else(condition, *sides))
            return WalkResult.SKIP
        if isinstance(node, _DIVISIONS) and _is_one_of(node.b, divisors):
            conditions.append(node.b != tirx.const(0, node.b.ty))
        return None

    structural_walk(expression, ((*_DIVISIONS, tirx.Let, tvm.ir.Call), look), order="pre")
    # A condition may contain divisions itself.
    return [
        structural_map(check, (_DIVISIONS, lambda node: _guarded(node, divisors)))
        for check in conditions
    ]


def _all(checks: Sequence[tirx.Expr]) -> tirx.Expr | None:
    return functools.reduce(tirx.all, checks) if checks else None


def _let(let: tirx.Let, check: tirx.Expr) -> tirx.Expr:
    """Bind the variable of `let` for `check`, renamed, since a variable may be bound only once."""
    var = tirx.Var(let.var.name, let.var.ty)
    renamed = structural_map(check, (tirx.Var, lambda v: var if v.same_as(let.var) else v))
    return tirx.Let(var, let.value, renamed)


def _guarded(division: tirx.Expr, divisors: Sequence[tirx.Expr]) -> tirx.Expr:
    """Replace a divisor of 0 or -1 by 1, and select the quotient by -1 separately."""
    if not (_may_trap(division) and _is_one_of(division.b, divisors)):
        return division
    return _named(division.b, lambda divisor: _safe(division, divisor))


def _safe(division: tirx.Expr, divisor: tirx.Expr) -> tirx.Expr:
    make, dtype = type(division), str(division.ty)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    if dtype.startswith("uint"):
        return make(division.a, tirx.Select(divisor == zero, one, divisor))
    minus_one = tirx.const(-1, dtype)
    safe = tirx.Select(tirx.any(divisor == zero, divisor == minus_one), one, divisor)
    if not isinstance(division, _QUOTIENTS):
        return make(division.a, safe)
    return _named(
        division.a,
        lambda a: tirx.Select(divisor == minus_one, operator.sub(zero, a), make(a, safe)),
    )


def _named(value: tirx.Expr, body: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """An expression of a value that is computed once."""
    is_simple = isinstance(value, tvm.ir.TensorLoad | tirx.Var | tirx.IntImm)
    return body(value) if is_simple else let(value, body)
