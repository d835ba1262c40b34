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
"""Random Relay programs."""

import random
from typing import Any

import numpy as np

from tvm_fixes import relay

TENSOR = relay.TensorType([2, 3], "float32")

_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")


class RandomProgram:
    """Makes one random module.

    Parameters
    ----------
    rng : random.Random
        The source of all choices.
    typed : bool
        Whether the program is well-typed. Otherwise it also has unknown operators with attributes
        of all kinds, and types of all kinds.
    """

    def __init__(self, rng: random.Random, *, typed: bool = True):
        self.rng = rng
        self.typed = typed
        self.names = 0
        self.globals: list[str] = []
        head = relay.GlobalTypeVar("List")
        item = relay.TypeVar("A")
        self.cons = relay.Constructor("Cons", [item, relay.TypeCall(head, [item])], head)
        self.nil = relay.Constructor("Nil", [], head)
        self.list = relay.TypeData(head, [item], [self.cons, self.nil])

    def module(self) -> relay.IRModule:
        """Return a module with "main" and up to two more functions."""
        functions = {}
        for name in [*("f", "g")[: self.rng.randrange(3)], "main"]:
            params = [self.var(TENSOR) for _ in range(self.rng.randrange(1, 3))]
            body = self.tensor(list(params), 4)
            result = TENSOR if self.rng.random() < 0.5 else None
            attrs = {} if self.rng.random() < 0.7 else {"Primitive": 1, "hash": 'a"b\\'}
            functions[name] = relay.Function(params, body, result, attrs=attrs)
            if len(params) == 1:
                self.globals.append(name)
        return relay.IRModule(functions, {"List": self.list})

    def var(self, ty: relay.Type | None = None) -> relay.Var:
        """Return a new variable; names repeat."""
        self.names += 1
        name = self.rng.choice(["x", "y", "features.0.weight", "a/b:0", "", "1x", "_"])
        return relay.Var(name, ty)

    def tensor(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        """Return an expression of type TENSOR; `pool` has those that are visible."""
        makers = [self._reuse, self._constant, self._call, self._call, self._item]
        if depth > 0:
            makers += [self._let, self._if, self._closure, self._match, self._ref, self._chain]
            makers += [self._global] if self.globals else []
            makers += [] if self.typed else [self._unknown]
        expr = self.rng.choice(makers)(pool, depth - 1)
        pool.append(expr)
        return expr

    def _reuse(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        return self.rng.choice(pool)

    def _constant(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        return relay.Constant(np.array([[self.rng.random() for _ in range(3)]] * 2, "float32"))

    def _call(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        first = self.tensor(pool, depth)
        kind = self.rng.randrange(3)
        if kind == 0:
            return relay.Call("add", [first, self.tensor(pool, depth)])
        if kind == 1:
            return relay.Call("nn.relu", [first])
        return relay.Call("nn.softmax", [first], {"axis": self.rng.choice([-1, 0, 1])})

    def _item(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        fields = [self.tensor(pool, depth) for _ in range(self.rng.randrange(1, 3))]
        return relay.TupleGetItem(relay.Tuple(fields), self.rng.randrange(len(fields)))

    def _let(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        var = self.var(TENSOR if self.rng.random() < 0.5 else None)
        value = self.tensor(list(pool), depth)
        return relay.Let(var, value, self.tensor([*pool, var], depth))

    def _chain(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        inner = list(pool)
        bindings = []
        for _ in range(self.rng.randrange(1, 5)):
            value = self.tensor(inner, depth // 2)
            bindings.append((self.var(), value))
            inner.append(bindings[-1][0])
        body = self.tensor(inner, depth)
        for var, value in reversed(bindings):
            body = relay.Let(var, value, body)
        return body

    def _if(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        condition = relay.Constant(np.array(self.rng.random() < 0.5))
        yes, no = (self.tensor(list(pool), depth) for _ in range(2))
        return relay.If(condition, yes, no)

    def _closure(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        param = self.var(TENSOR if self.rng.random() < 0.5 else None)
        function = relay.Function([param], self.tensor([*pool, param], depth))
        argument = self.tensor(pool, depth)
        if self.rng.random() < 0.5:
            return relay.Call(function, [argument])
        name = self.var()
        once = relay.Call(name, [argument])
        return relay.Let(name, function, relay.Call(name, [once]))

    def _global(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        name = self.rng.choice(self.globals)
        return relay.Call(relay.GlobalVar(name), [self.tensor(pool, depth)])

    def _match(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        data = relay.Call(self.nil, [])
        for _ in range(self.rng.randrange(1, 3)):
            data = relay.Call(self.cons, [self.tensor(pool, depth // 2), data])
        head = self.var()
        pattern = relay.PatternConstructor(
            self.cons, [relay.PatternVar(head), relay.PatternWildcard()]
        )
        clauses = [
            relay.Clause(pattern, self.tensor([*pool, head], depth)),
            relay.Clause(relay.PatternWildcard(), self.tensor(list(pool), depth)),
        ]
        return relay.Match(data, clauses, self.rng.random() < 0.5)

    def _ref(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        ref = self.var()
        write = relay.RefWrite(ref, self.tensor(list(pool), depth))
        body = relay.Let(self.var(), write, relay.RefRead(ref))
        return relay.Let(ref, relay.RefCreate(self.tensor(list(pool), depth)), body)

    def _unknown(self, pool: list[relay.Expr], depth: int) -> relay.Expr:
        attrs = {f"a{i}": self.attribute(2) for i in range(self.rng.randrange(3))}
        args = [self.tensor(pool, depth), self.scalar()]
        type_args = [self.type(2)] if self.rng.random() < 0.3 else []
        call = relay.Call("custom.op", args, attrs, type_args)
        function = relay.Function([self.var(self.type(2))], call, self.type(2))
        return relay.Tuple([call, function]) if self.rng.random() < 0.5 else call

    def scalar(self) -> relay.Constant:
        """Return a scalar of any dtype, often with an unusual value."""
        dtype = np.dtype(self.rng.choice(_DTYPES))
        with np.errstate(all="ignore"):
            if dtype.kind in "iu":
                limits = np.iinfo(dtype)
                return relay.Constant(np.array(self.rng.choice([limits.min, limits.max, 7]), dtype))
            values = [0.0, -0.0, 1 / 3, 1e30, -1e-7, np.inf, -np.inf, np.nan, self.rng.random()]
            return relay.Constant(np.array(self.rng.choice(values)).astype(dtype))

    def attribute(self, depth: int) -> Any:
        """Return the value of an attribute."""
        values: list[Any] = [
            None,
            True,
            3,
            -(2**63),
            0.1,
            -1e300,
            float("inf"),
            "",
            'q"\\\n é',
            1e-5,
        ]
        values += [relay.Any(), relay.Constant(np.arange(3)), relay.GlobalVar("main")]
        if depth > 0:
            values.append([self.attribute(depth - 1) for _ in range(self.rng.randrange(3))])
            values.append({"k.1": self.attribute(depth - 1), "a b": 1})
        return self.rng.choice(values)

    def type(self, depth: int) -> relay.Type:
        """Return a type."""
        kind = self.rng.randrange(6 if depth > 0 else 2)
        if kind == 0:
            return relay.IncompleteType()
        if kind == 1:
            dims = [self.rng.choice([1, 7, relay.Any()]) for _ in range(self.rng.randrange(3))]
            return relay.TensorType(dims, self.rng.choice(_DTYPES))
        parts = [self.type(depth - 1) for _ in range(self.rng.randrange(3))]
        if kind == 2:
            return relay.TupleType(parts)
        if kind == 3:
            return relay.FuncType(parts, self.type(depth - 1))
        if kind == 4:
            return relay.RefType(self.type(depth - 1))
        return relay.TypeCall(relay.GlobalTypeVar("List"), [self.type(depth - 1)])
