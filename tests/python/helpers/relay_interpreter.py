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
"""An interpreter of Relay programs in NumPy."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm_ffi

from helpers.relay_numpy import OPERATORS
from tvm_fixes import relay

#: Values by variable, or by expression.
Env = dict[relay.Expr, Any]


def plain(value: Any, wide: bool) -> Any:
    """An attribute as a plain value; in a wide run, floating-point dtypes are float64."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(element, wide) for element in value]
    if isinstance(value, tvm_ffi.dtype | str):
        return "float64" if wide and str(value) in ("float16", "float32") else str(value)
    return value


def operator(call: relay.Call, wide: bool = False) -> Callable[..., Any]:
    """The operator that is called, in NumPy; its arguments are arrays."""
    attrs = {name: plain(value, wide) for name, value in relay.complete_attrs(call).items()}
    return partial(OPERATORS[call.op.name], attrs)


class _Ref:
    def __init__(self, value: Any):
        self.value = value


def _match(pattern: relay.Pattern, value: Any, env: Env) -> bool:
    if isinstance(pattern, relay.PatternVar):
        env[pattern.var] = value
        return True
    if isinstance(pattern, relay.PatternWildcard):
        return True
    if isinstance(pattern, relay.PatternTuple):
        return all(_match(p, v, env) for p, v in zip(pattern.patterns, value, strict=True))
    name, *fields = value
    if name != pattern.constructor.name:
        return False
    return all(_match(p, v, env) for p, v in zip(pattern.patterns, fields, strict=True))


class Interpreter:
    """Runs the functions of a module; a shared node is computed once for each call.

    Parameters
    ----------
    mod : relay.IRModule
    wide : bool
        Whether floating-point numbers are float64, whatever the program says.
    """

    def __init__(self, mod: relay.IRModule, *, wide: bool = False):
        self.mod = mod
        self.wide = wide

    def run(self, *args: Any) -> Any:
        """Return the result of ``main``."""
        return self._apply(self.mod["main"], {}, [self._data(arg) for arg in args])

    def _data(self, array: Any) -> Any:
        return array.astype("float64") if self.wide and array.dtype.kind == "f" else array

    def _apply(self, function: relay.Function, env: Env, args: list[Any]) -> Any:
        inner = {**env, **dict(zip(function.params, args, strict=True))}
        return self._eval(function.body, inner, {})

    def _eval(self, expr: relay.Expr, env: Env, memo: Env) -> Any:
        if isinstance(expr, relay.Var):
            return env[expr]
        if isinstance(expr, relay.Let):
            # A function sees the environment of its binding, so that it can call itself.
            env = dict(env)
            while isinstance(expr, relay.Let):
                env[expr.var] = self._eval(expr.value, env, memo)
                expr = expr.body
            return self._eval(expr, env, memo)
        if expr not in memo:
            memo[expr] = self._compute(expr, env, memo)
        return memo[expr]

    def _compute(self, expr: relay.Expr, env: Env, memo: Env) -> Any:
        if isinstance(expr, relay.Constant):
            return self._data(expr.numpy())
        if isinstance(expr, relay.Tuple):
            return tuple(self._eval(field, env, memo) for field in expr.fields)
        if isinstance(expr, relay.TupleGetItem):
            return self._eval(expr.tuple, env, memo)[expr.index]
        if isinstance(expr, relay.Function):
            return lambda *args: self._apply(expr, env, list(args))
        if isinstance(expr, relay.GlobalVar):
            return lambda *args: self._apply(self.mod[expr.name], {}, list(args))
        if isinstance(expr, relay.Constructor):
            return lambda *args: (expr.name, *args)
        if isinstance(expr, relay.Call):
            is_operator = isinstance(expr.op, relay.Op)
            function = operator(expr, self.wide) if is_operator else self._eval(expr.op, env, memo)
            return function(*[self._eval(arg, env, memo) for arg in expr.args])
        if isinstance(expr, relay.If):
            taken = self._eval(expr.cond, env, memo)
            return self._eval(expr.true_branch if taken else expr.false_branch, env, dict(memo))
        if isinstance(expr, relay.Match):
            return self._match(expr, env, memo)
        if isinstance(expr, relay.RefCreate):
            return _Ref(self._eval(expr.value, env, memo))
        if isinstance(expr, relay.RefRead):
            return self._eval(expr.ref, env, memo).value
        assert isinstance(expr, relay.RefWrite)
        ref = self._eval(expr.ref, env, memo)
        ref.value = self._eval(expr.value, env, memo)
        return ()

    def _match(self, match: relay.Match, env: Env, memo: Env) -> Any:
        value = self._eval(match.data, env, memo)
        for clause in match.clauses:
            bound = dict(env)
            if _match(clause.lhs, value, bound):
                return self._eval(clause.rhs, bound, dict(memo))
        raise AssertionError("no clause matches")


def same(a: Any, b: Any) -> bool:
    """Whether two results are equal, tuples and data field by field."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return bool(np.array_equal(a, b))


PRELUDE = """
type List[A] { Cons(A, List[A]), Nil, }
def @hd[A](%xs: List[A]) -> A { match? (%xs) { Cons(%x, _) => %x, } }
def @tl[A](%xs: List[A]) -> List[A] { match? (%xs) { Cons(_, %rest) => %rest, } }
def @nth[A](%xs: List[A], %n: int32) -> A {
  if (%n == 0) { @hd(%xs) } else { @nth(@tl(%xs), %n - 1) }
}
def @map[A, B](%f: fn(A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) { Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)), Nil => Nil, }
}
def @foldl[A, B](%f: fn(A, B) -> A, %acc: A, %xs: List[B]) -> A {
  match (%xs) { Cons(%x, %rest) => @foldl(%f, %f(%acc, %x), %rest), Nil => %acc, }
}
def @update[A](%xs: List[A], %n: int32, %v: A) -> List[A] {
  if (%n == 0) { Cons(%v, @tl(%xs)) } else { Cons(@hd(%xs), @update(@tl(%xs), %n - 1, %v)) }
}
"""

#: Programs of `main(%x: int32, %y: int32)` that use each construct.
PROGRAMS = {
    "shared": "%0 = add(%x, %y); %1 = multiply(%0, %0); (add(%1, %0), %1)",
    "shared by branches": (
        "%0 = multiply(%x, %y);"
        " %1 = if (%x < %y) { add(%0, 1) } else { if (%x < 0) { %0 } else { subtract(%0, %x) } };"
        " add(%1, %0)"
    ),
    "only in a branch": "if (%x < %y) { %0 = add(%x, 1); multiply(%0, %0) } else { %y }",
    "nested lets": "let %a = { let %b = add(%x, 1); multiply(%b, %y) }; let %c = %a; add(%c, %a)",
    "known condition": "if (add(1, 2) == 3) { %x } else { %y }",
    "closure": (
        "let %k = add(%x, %y); let %f = fn (%v: int32) -> int32 { multiply(%v, %k) };"
        " add(%f(%x), %f(%y))"
    ),
    "function as a result": (
        "let %add = fn (%a: int32) { fn (%b: int32) -> int32 { add(%a, %b) } };"
        " let %f = %add(%x); multiply(%f(%y), %f(1))"
    ),
    "loop": (
        "let %loop = fn (%i: int32, %s: int32) -> int32"
        " { if (%i < %x) { %loop(%i + 1, add(%s, %y)) } else { %s } }; %loop(0, 1)"
    ),
    "references": (
        "let %r = ref(%x); let %a = ref_read(%r); ref_write(%r, add(%a, %y));"
        " let %b = ref_read(%r); ref_write(%r, multiply(%b, 2)); (%a, %b, ref_read(%r))"
    ),
    "reference in a branch": (
        "let %r = ref(%x); if (%x < %y) { ref_write(%r, %y); 1 } else { 2 }; ref_read(%r)"
    ),
    "match": "match (Cons(%x, Nil)) { Cons(%v, Nil) => add(%v, %y), _ => 0 }",
    "match on a tuple": (
        "let %l = if (%x < %y) { Cons(%x, Nil) } else { Nil };"
        " match ((%l, Cons(%y, Nil))) {"
        " (Cons(%a, _), Cons(%b, _)) => add(%a, %b), (Nil, _) => negative(%y), _ => 0 }"
    ),
    "map": (
        "let %l = @map(fn (%v: int32) -> int32 { multiply(%v, %y) }, Cons(%x, Cons(3, Nil)));"
        " (@nth(%l, 1), @hd(%l), @hd(@tl(%l)))"
    ),
    "foldl and update": (
        "let %l = @update(Cons(%x, Cons(%y, Cons(1, Nil))), 1, 7);"
        " @foldl(fn (%a: int32, %b: int32) -> int32 { subtract(%a, %b) }, 0, %l)"
    ),
    "list of unknown length": (
        "let %l = if (%x < %y) { Cons(%x, Nil) } else { Cons(%y, Cons(%x, Nil)) };"
        " @foldl(fn (%a: int32, %b: int32) -> int32 { subtract(%a, %b) }, 0,"
        " @map(fn (%v: int32) -> int32 { add(%v, %y) }, %l))"
    ),
    "list of functions": (
        "let %fs = Cons(fn (%v: int32) -> int32 { add(%v, %x) },"
        " Cons(fn (%v: int32) -> int32 { multiply(%v, %y) }, Nil));"
        " if (%x < %y) { @hd(%fs)(%y) } else { @nth(%fs, 1)(%x) }"
    ),
    "mapped by a choice": (
        "let %f = if (%x < %y) { fn (%v: int32) -> int32 { add(%v, %x) } }"
        " else { fn (%v: int32) -> int32 { multiply(%v, %y) } };"
        " @map(%f, Cons(%x, Cons(%y, Nil)))"
    ),
}


def program(name: str) -> relay.IRModule:
    """Return a program of PROGRAMS with the functions that it may call."""
    main = f"def @main(%x: int32, %y: int32) {{ {PROGRAMS[name]} }}"
    return relay.parse(PRELUDE + main)


def assert_same_results(before: relay.IRModule, after: relay.IRModule) -> None:
    """Compare the results of two modules for a few arguments."""
    for x, y in ((2, 5), (5, 2), (-1, -1), (0, 3)):
        args = [np.array(x, "int32"), np.array(y, "int32")]
        expected, actual = Interpreter(before).run(*args), Interpreter(after).run(*args)
        assert same(expected, actual), (x, y, expected, actual)
