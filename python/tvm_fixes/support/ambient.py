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
"""The context of a compilation, for code that TVM calls with arguments of its own.

A pass, a lowering rule or a converter has no argument for what surrounds it, and no result but a
module or an expression.  It reads :func:`current`, and adds what it finds out with :func:`record`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeVar

import tvm

from .memory import Scratch

Fact = TypeVar("Fact")


class Facts(list[object]):
    """The facts found out, in order: each module that records facts declares their class."""

    def of(self, kind: type[Fact]) -> list[Fact]:
        """The facts of one class."""
        return [fact for fact in self if isinstance(fact, kind)]


class Place:
    """Where a fix is applied; each :func:`.switches.at` makes a new one.

    Attributes
    ----------
    what : object
        As given to :func:`.switches.at`.
    """

    __slots__ = ("what",)

    def __init__(self, what: object) -> None:
        self.what = what


class Fill(IntEnum):
    """The contents of new memory in a run that looks for reads of memory that nothing wrote."""

    NONE, NAN, LARGE = range(3)


@dataclass(frozen=True)
class Context:
    """The surroundings of the code that runs; each thread has its own.

    Attributes
    ----------
    facts : Facts or None
        Where to add facts; None if nobody collects them.
    place : Place or None
        Where fixes are applied: a node of the model, or a call.
    listener : callable or None
        Called with the text of each activity.
    trusts_indices : bool
        Whether to lower without bounds checks.
    scratch : Scratch or None
        Stores the constants that are made.
    note_constant : callable or None
        Called for each new constant with the tensor, its operands, and a description of its
        operator.
    fill : Fill
        What kernels write to their new memory, if they were compiled to.
    """

    facts: Facts | None = None
    place: Place | None = None
    listener: Callable[[str], None] | None = None
    trusts_indices: bool = False
    scratch: Scratch | None = None
    note_constant: (
        Callable[[tvm.runtime.Tensor, Sequence[tvm.runtime.Tensor], str], None] | None
    ) = None
    fill: Fill = Fill.NONE


_EMPTY = Context()
_context: ContextVar[Context] = ContextVar("tvm_fixes", default=_EMPTY)


def current() -> Context:
    """The context of the current thread."""
    return _context.get()


@contextmanager
def within(**changes: Any) -> Iterator[None]:
    """Change attributes of :func:`current` within the ``with`` block."""
    token = _context.set(replace(_context.get(), **changes))
    try:
        yield
    finally:
        _context.reset(token)


@contextmanager
def collect() -> Iterator[Facts]:
    """Collect the facts recorded within the ``with`` block, at any depth of calls.

    They are not added to the collection around it.
    """
    facts = Facts()
    with within(facts=facts):
        yield facts


def record(fact: object) -> None:
    """Add a fact to the innermost :func:`collect`, if there is one."""
    facts = _context.get().facts
    if facts is not None:
        facts.append(fact)
