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

"""Where the constants of a module come from: parameters of the model, and what was made of them."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...runtime.manifest import ConstantRecord
from ...runtime.tensors import raw_bytes
from ..analysis import bindings
from .fold_plan import Value, leaves, operator_of, tensor_of

# How much of either end of a tensor tells it from others before all of it is compared.
_END = 64


@dataclass(frozen=True)
class Origin:
    """Where a constant comes from.

    Attributes
    ----------
    parameters : tuple of str
        The parameters of the model that it is, or was computed of.
    roots : frozenset of int
        These parameters, of which those that are equal are one, by number.
    made_by : str
        The operator, variable and function that computed it; empty for a parameter as it is, and
        for what the importer made.
    read_by : str
        The operator, variable and function that read it first, or what it was computed of.
    """

    parameters: tuple[str, ...]
    roots: frozenset[int]
    made_by: str
    read_by: str

    def __str__(self) -> str:
        of = ", ".join(self.parameters)
        if not self.made_by:
            return of or f"a constant of the importer's, read by {self.read_by}"
        return f"{self.made_by} of {of or 'constants of the importer'}"


class Origins:
    """The origins of a module's constants, from its import to its last pass.

    Parameters
    ----------
    mod : tvm.IRModule
        The module as it was imported.
    parameters : iterable of (str, numpy.ndarray)
        The model's parameters: a name, and the bytes as an array of uint8 of one dimension.
        Constants that hold the same bytes are taken for them.
    """

    def __init__(self, mod: tvm.IRModule, parameters: Iterable[tuple[str, np.ndarray]]):
        self._of: dict[tvm.runtime.Tensor, Origin] = {}
        self._sizes: list[int] = []
        tensors: dict[Any, list[tvm.runtime.Tensor]] = {}
        readers = _first_readers(mod)
        for tensor in constants_of(mod):
            self._of[tensor] = Origin((), frozenset(), "", readers.get(tensor, "a result"))
            tensors.setdefault(_key(raw_bytes(tensor)), []).append(tensor)
        for name, data in parameters:
            root = self._name(name, data, tensors.get(_key(data), []))
            if root is not None:
                self._sizes.append(data.size)

    def _name(self, name: str, data: np.ndarray, tensors: list[tvm.runtime.Tensor]) -> int | None:
        """Name the constants that hold `data`; the parameter's number where it is a new one."""
        equal = [tensor for tensor in tensors if np.array_equal(raw_bytes(tensor), data)]
        roots = {root for tensor in equal for root in self._of[tensor].roots}
        root = min(roots, default=len(self._sizes))
        for tensor in equal:
            origin = self._of[tensor]
            names = (*origin.parameters, name) if name else origin.parameters
            self._of[tensor] = replace(origin, parameters=names, roots=frozenset({root}))
        return root if equal and not roots else None

    def of(self, tensor: tvm.runtime.Tensor) -> Origin:
        """The origin of a constant; empty for one of which nothing is known."""
        return self._of.get(tensor, Origin((), frozenset(), "", "the module as it is lowered"))

    def add(self, tensor: tvm.runtime.Tensor, value: Value) -> None:
        """Say that `tensor` is what `value` was folded to."""
        operands = [self.of(constant) for constant in value.constants]
        names = dict.fromkeys(name for operand in operands for name in operand.parameters)
        self._of[tensor] = Origin(
            tuple(names),
            frozenset().union(*(operand.roots for operand in operands)),
            _describe(value.binding, value.function),
            operands[0].read_by if operands else "",
        )

    def forget_others(self, mod: tvm.IRModule) -> None:
        """Hold no tensor that `mod` does not."""
        kept = set(constants_of(mod))
        self._of = {tensor: origin for tensor, origin in self._of.items() if tensor in kept}

    def records(self) -> tuple[ConstantRecord, ...]:
        """What a manifest says of the constants that are parameters, or computed of something."""
        return tuple(
            ConstantRecord(
                hashlib.sha256(raw_bytes(tensor).data).hexdigest(),
                origin.parameters,
                origin.made_by,
            )
            for tensor, origin in self._of.items()
            if any(origin.parameters) or origin.made_by
        )

    def growth(self, mod: tvm.IRModule) -> list[tuple[int, Origin, int]]:
        """What the constants of `mod` take beyond the parameters that they take the place of.

        Returns
        -------
        grown : list of (int, Origin, int)
            The bytes that it adds, the origin and the bytes of each constant that adds some, the
            largest first.
        """
        left = list(self._sizes)
        grown = []
        tensors = constants_of(mod)
        # A parameter that is still there takes its own place, and no other constant does.
        for tensor in sorted(tensors, key=lambda tensor: bool(self.of(tensor).made_by)):
            origin, size = self.of(tensor), raw_bytes(tensor).size
            adds = size
            for root in origin.roots:
                taken = min(left[root], adds)
                left[root] -= taken
                adds -= taken
            if adds:
                grown.append((adds, origin, size))
        return sorted(grown, key=lambda row: -row[0])


_current: ContextVar[Origins | None] = ContextVar("tvm_fixes_origins", default=None)


@contextmanager
def track_origins(origins: Origins) -> Iterator[None]:
    """Have :func:`FoldConstant` say in `origins` what it makes within the ``with`` block."""
    token = _current.set(origins)
    try:
        yield
    finally:
        _current.reset(token)


def note_folded(constants: dict[Value, tvm.ir.GenericConst]) -> None:
    """Tell the :class:`Origins` that are tracked, if any, what was folded."""
    origins = _current.get()
    if origins is not None:
        for value, constant in constants.items():
            origins.add(constant.value, value)


def constants_of(mod: tvm.IRModule) -> list[tvm.runtime.Tensor]:
    """The tensors of a module's constants, each once."""
    found: dict[tvm.runtime.Tensor, None] = {}

    def visit(expr: relax.Expr) -> None:
        tensor = tensor_of(expr)
        if tensor is not None:
            found.setdefault(tensor)

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return list(found)


def _first_readers(mod: tvm.IRModule) -> dict[tvm.runtime.Tensor, str]:
    """What reads each constant first, as far as it is an operand of something."""
    readers: dict[tvm.runtime.Tensor, str] = {}
    for global_var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            for binding in bindings(function):
                for leaf in leaves(binding.value):
                    tensor = tensor_of(leaf)
                    if tensor is not None:
                        readers.setdefault(tensor, _describe(binding, str(global_var.name_hint)))
    return readers


def _describe(binding: relax.Binding, function: str) -> str:
    value = binding.value
    what = operator_of(value) if isinstance(value, relax.Call) else type(value).__name__
    return f"{what} `{binding.var.name}` in {function}"


def _key(data: np.ndarray) -> tuple[int, bytes, bytes]:
    return data.size, data[:_END].tobytes(), data[-_END:].tobytes()
