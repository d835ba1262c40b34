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
"""Converters of operators, as all importers define and find them.

A converter is a function of one call.  It stands in the file of its operator family, in the package
``ops`` of its importer, and is found there::

    @converts("Softmax", "LogSoftmax", fix=ACTIVATIONS)
    def convert_softmax(call: Call) -> relax.Expr:
        if call.version >= 13:
            return call.proceed()
        ...

The converters of an operator form a chain: each one may change the call and pass it on.  The places
of an importer tell their order, and the last link is the importer's own choice, TVM's converter.
"""

import importlib
import pkgutil
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Generic, Protocol, Self, TypeVar

from tvm import relax

from ..relax.source_nodes import SourceNode
from ..support import switches

__all__ = ["EVERY", "OPERATOR", "Call", "Context", "Converter", "Converters"]

EVERY = "*"
"""In place of an operator: each operator of the importer."""

OPERATOR = "operator"
"""The place of the converter itself, which each importer has."""


class Context(Protocol):
    """State that the calls of one import share."""

    builder: relax.BlockBuilder

    def convert(self, call: Any) -> Any:
        """Convert a call with the whole chain of its operator."""


def _no_more(call: "Call") -> Any:
    raise NotImplementedError(f"{call.operator} {call.source.name!r}: no converter is left")


@dataclass(frozen=True)
class Call:
    """One call of an operator, whose operands are converted.

    Attributes
    ----------
    operator : str
        The operator, e.g. ``"Conv"`` or ``"linear.default"``.
    operands : tuple
        Relax expressions, and None for an optional operand that is omitted.
    attributes : mapping
        The attributes by name.
    version : int
        The version of the operator set; 0 if the format has none.
    source : SourceNode
        The node of the model.
    context : Context
        What the calls of one import share.
    rest : callable
        Converts a call with the converters that follow in the chain; see :meth:`proceed`.
    """

    operator: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]
    version: int
    source: SourceNode
    context: Any
    rest: Callable[[Any], Any] = field(default=_no_more, repr=False, compare=False)

    @property
    def builder(self) -> relax.BlockBuilder:
        """The builder of the function under construction."""
        builder: relax.BlockBuilder = self.context.builder
        return builder

    def operand(self, index: int) -> Any:
        """The operand at `index`, or None if it is omitted."""
        return self.operands[index] if index < len(self.operands) else None

    def emit(self, value: relax.Expr) -> relax.Expr:
        """Bind `value` to a variable."""
        return self.builder.emit(value)

    def with_operands(self, *operands: Any) -> Self:
        """This call with other operands."""
        return replace(self, operands=operands)

    def proceed(self) -> Any:
        """The result of the next converter in the chain for this call, or of TVM's."""
        return self.rest(self)

    def convert(self) -> Any:
        """The result of the whole chain of this call's operator, which may be another by now."""
        return self.context.convert(self)


C = TypeVar("C", bound=Call)

Converter = Callable[[C], Any]
"""Converts a call to a Relax expression, or to what else the importer's format has for values."""


@dataclass(frozen=True)
class _Entry(Generic[C]):
    """A converter in the chains of its operators."""

    convert: Converter[C]
    place: int
    fix: str | None
    since: int
    until: float
    is_noted: bool

    def serves(self, version: int, disabled: frozenset[str]) -> bool:
        return self.since <= version < self.until and self.fix not in disabled

    def clashes_with(self, other: "_Entry[C]") -> bool:
        since, until = max(self.since, other.since), min(self.until, other.until)
        return self.place == other.place and since < until

    def link(self, rest: Converter[C], is_only: bool, call: C) -> Any:
        if self.fix is not None and (self.is_noted or is_only):
            switches.note(self.fix)
        return self.convert(replace(call, rest=rest))


class Converters(Generic[C]):
    """The converters of one format.

    Parameters
    ----------
    package : str
        The package that defines them; its modules are imported when the first chain is needed.
    places : mapping of str to str
        The places in a chain, outermost first, each with the reason why it stands there.
    """

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        if OPERATOR not in places:
            raise ValueError(f"places are {', '.join(places)}; expected {OPERATOR!r} among them")
        self.places = places
        self._package = package
        self._entries: dict[str, list[_Entry[C]]] = {}

    def converts(
        self,
        *operators: str,
        place: str = OPERATOR,
        fix: str | None = None,
        since: int = 0,
        until: float = float("inf"),
        noted: bool = False,
    ) -> Callable[[Converter[C]], Converter[C]]:
        """Register the decorated function as a converter.

        Parameters
        ----------
        *operators : str
            The operators, or :data:`EVERY`.
        place : str
            Its place in the chain.
        fix : str, optional
            The fix that it belongs to; without, it has no switch.
        since, until : int
            The first version that it serves, and the first that it does not.
        noted : bool
            Report each call as a use of the fix; otherwise, the converter calls
            :func:`~tvm_fixes.support.switches.note` where it differs from TVM's.

        Raises
        ------
        ValueError
            If the place or the fix is unknown, or another converter has the place for a version.
        """
        if place not in self.places:
            raise ValueError(f"place is {place!r}; expected one of {', '.join(self.places)}")

        if fix is not None:
            switches.check_known([fix])

        def register(convert: Converter[C]) -> Converter[C]:
            position = list(self.places).index(place)
            added = _Entry(convert, position, fix, since, until, noted)
            for operator in operators:
                chain = self._entries.setdefault(operator, [])
                if any(added.clashes_with(other) for other in chain):
                    raise ValueError(f"{operator}: two converters at the place {place!r}")
                chain.append(added)
            return convert

        return register

    @cached_property
    def _loaded(self) -> Mapping[str, list[_Entry[C]]]:
        package = importlib.import_module(self._package)
        for module in pkgutil.walk_packages(package.__path__, f"{self._package}."):
            importlib.import_module(module.name)
        return self._entries

    def operators(self) -> frozenset[str]:
        """The operators with a converter."""
        return frozenset(self._loaded) - {EVERY}

    def fixes(self) -> frozenset[str]:
        """The fixes that the converters belong to."""
        entries = (entry for chain in self._loaded.values() for entry in chain)
        return frozenset(entry.fix for entry in entries if entry.fix is not None)

    def has(self, operator: str, places: Container[str] | None = None) -> bool:
        """Whether an operator has a converter of its own, of any version.

        With `places`, only a converter at one of these counts.
        """
        names, disabled = list(self.places), switches.disabled()
        return any(
            entry.serves(entry.since, disabled)
            for entry in self._loaded.get(operator, ())
            if places is None or names[entry.place] in places
        )

    def convert(self, call: C, stock: Converter[C], *, is_new: bool = False) -> Any:
        """Convert a call with the chain of its operator; `stock` is the last link.

        If `is_new`, TVM lacks the operator, so each call of the converter is a use of its fix.
        """
        loaded, disabled = self._loaded, switches.disabled()
        entries = [*loaded.get(EVERY, ()), *loaded.get(call.operator, ())]
        chain = [entry for entry in entries if entry.serves(call.version, disabled)]
        convert = stock
        for entry in sorted(chain, key=lambda entry: entry.place, reverse=True):
            is_only = is_new and entry.place == list(self.places).index(OPERATOR)
            convert = partial(entry.link, convert, is_only)
        return convert(call)
