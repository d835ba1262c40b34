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
"""A random Relay program that is evaluated while it grows."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers.relay_interpreter import operator
from tvm_fixes import relay

from .values import random_array

MAX_ELEMENTS = 4096
FLOATS = ("float32", "float64")
INTS = ("int32", "int64", "int8", "uint8")
DTYPES = ("float32",) * 6 + ("float64", *INTS, "bool")


class Impossible(Exception):
    """The chosen operator accepts none of the values."""


@dataclass
class Entry:
    """An expression, and its value for the inputs of the program."""

    expr: relay.Expr
    value: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.value.shape

    @property
    def dtype(self) -> str:
        """The name of the dtype."""
        return self.value.dtype.name


def type_of(value: np.ndarray) -> relay.TensorType:
    """The type of an array."""
    return relay.TensorType(list(value.shape), value.dtype.name)


def literal(value: Any) -> Entry:
    """A constant."""
    array = np.asarray(value)
    return Entry(relay.Constant(array), array)


@dataclass
class Program:
    """The parameters of main, and their values in this case."""

    params: list[relay.Var] = field(default_factory=list)
    inputs: list[np.ndarray] = field(default_factory=list)
    functions: dict[str, relay.Function] = field(default_factory=dict)
    names: int = 0

    def name(self, prefix: str = "v") -> str:
        """A name that is new."""
        self.names += 1
        return f"{prefix}{self.names}"


class Block:
    """The values that are visible at one place of a program, and new bindings.

    Parameters
    ----------
    rng : np.random.Generator
    program : Program
    pool : sequence of Entry
        The values that are visible at the start.
    """

    def __init__(self, rng: np.random.Generator, program: Program, pool: Sequence[Entry] = ()):
        self.rng = rng
        self.program = program
        self.pool = list(pool)
        self.bindings: list[tuple[relay.Var, relay.Expr]] = []

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def choice(self, options: Sequence[Any]) -> Any:
        """One of the options, of any type."""
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def input(self, shape: Sequence[int], dtype: str, kind: str = "normal") -> Entry:
        """A new parameter; some of its extents are unknown to the program."""
        value = random_array(self.rng, dtype, tuple(shape), kind)
        dims = [relay.Any() if self.chance(0.1) else extent for extent in shape]
        var = relay.Var(self.program.name("x"), relay.TensorType(dims, dtype))
        self.program.params.append(var)
        self.program.inputs.append(value)
        return self.add(Entry(var, value))

    def constant(self, shape: Sequence[int], dtype: str, kind: str = "normal") -> Entry:
        """A new constant."""
        return literal(random_array(self.rng, dtype, tuple(shape), kind))

    def weight(self, shape: Sequence[int], dtype: str) -> Entry:
        """A constant or a parameter of this shape."""
        if self.chance(0.7):
            return self.constant(shape, dtype)
        value = random_array(self.rng, dtype, tuple(shape), "normal")
        var = relay.Var(self.program.name("w"), type_of(value))
        self.program.params.append(var)
        self.program.inputs.append(value)
        return Entry(var, value)

    def pick(self, accepts: Callable[[Entry], bool] = lambda entry: True) -> Entry:
        """A visible value; later ones are more likely."""
        entries = [entry for entry in self.pool if accepts(entry)]
        if not entries:
            raise Impossible
        at = max(self.rng.integers(len(entries), size=2))
        return entries[int(at)]

    def call(self, name: str, args: Sequence[Any], **attrs: Any) -> Any:
        """A call of an operator: an entry, or one for each field of its result.

        Arguments are entries, or lists of entries for a tuple.
        """
        call = relay.Call(name, [self._expr(arg) for arg in args], attrs)
        values = [tuple(e.value for e in a) if isinstance(a, list) else a.value for a in args]
        with np.errstate(all="ignore"):
            result = operator(call)(*values)
        if isinstance(result, tuple):
            fields = [relay.TupleGetItem(call, i) for i in range(len(result))]
            return [self.add(Entry(f, v)) for f, v in zip(fields, result, strict=True)]
        return self.add(Entry(call, result))

    @staticmethod
    def _expr(arg: Any) -> relay.Expr:
        return relay.Tuple([entry.expr for entry in arg]) if isinstance(arg, list) else arg.expr

    def add(self, entry: Entry) -> Entry:
        """Make a value visible, sometimes through a let, unless it is too large."""
        value = entry.value
        if value.size > MAX_ELEMENTS or value.ndim > 5:
            raise Impossible
        if value.dtype.kind == "f" and not (np.abs(value) < 1e4).all():
            raise Impossible
        if self.chance(0.15):
            var = relay.Var(self.program.name(), type_of(value) if self.chance(0.3) else None)
            self.bindings.append((var, entry.expr))
            entry = Entry(var, value)
        self.pool.append(entry)
        return entry

    def bound(self, result: relay.Expr) -> relay.Expr:
        """`result` within the bindings of this block."""
        for var, value in reversed(self.bindings):
            result = relay.Let(var, value, result)
        return result

    @contextmanager
    def attempt(self) -> Any:
        """Restore the program if the ``with`` block raises :class:`Impossible`."""
        counts = len(self.pool), len(self.bindings), len(self.program.params)
        try:
            yield
        except Impossible:
            del self.pool[counts[0] :], self.bindings[counts[1] :]
            del self.program.params[counts[2] :], self.program.inputs[counts[2] :]
