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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from ...support.tensors import raw_bytes
from ..analysis import bindings
from ..ir import leaves, tensor_of
from .fold_plan import operator_of

# How much of either end of a tensor tells it from others before all of it is compared, and how much
# is compared at once.
_END = 64
_CHUNK = 1 << 20


@dataclass(frozen=True)
class ConstantRecord:
    """Where a constant of the library comes from.

    Attributes
    ----------
    sha256 : str
        Of its bytes, by which it is found.
    parameters : tuple of str
        The parameters of the model that it is, or was computed of.
    made_by : str
        The operator, variable and function that computed it of them; empty for one as it was.
    """

    sha256: str
    parameters: tuple[str, ...]
    made_by: str


class Weight(NamedTuple):
    """A tensor that goes into a file of weights.

    Attributes
    ----------
    tensor : Tensor
        On the CPU, contiguous.
    parameters : tuple of str
        The parameters of the model that it is, or was computed of.
    made_by : str
        What computed it of them; empty for one as it was.
    """

    tensor: tvm.runtime.Tensor
    parameters: tuple[str, ...]
    made_by: str


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
        equal = [tensor for tensor in tensors if _equal(raw_bytes(tensor), data)]
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

    def add(
        self, tensor: tvm.runtime.Tensor, made_of: Sequence[tvm.runtime.Tensor], made_by: str
    ) -> None:
        """Say what `tensor` was made of, and by what."""
        operands = [self.of(operand) for operand in made_of]
        names = dict.fromkeys(name for operand in operands for name in operand.parameters)
        self._of[tensor] = Origin(
            tuple(names),
            frozenset().union(*(operand.roots for operand in operands)),
            made_by,
            operands[0].read_by if operands else "",
        )

    def forget_others(self, tensors: Iterable[tvm.runtime.Tensor]) -> None:
        """Hold no tensor but `tensors`."""
        self._of = {tensor: self.of(tensor) for tensor in tensors}

    def records(self, tensors: Iterable[tvm.runtime.Tensor]) -> tuple[ConstantRecord, ...]:
        """What a manifest says of those of `tensors` that are parameters, or made by something."""
        return tuple(
            ConstantRecord(
                hashlib.sha256(raw_bytes(tensor).data).hexdigest(),
                origin.parameters,
                origin.made_by,
            )
            for tensor, origin in ((tensor, self.of(tensor)) for tensor in tensors)
            if any(origin.parameters) or origin.made_by
        )

    def named(self, tensors: Iterable[tvm.runtime.Tensor]) -> dict[str, Weight]:
        """What of `tensors` goes into a file, by names of their own: those of the parameters."""
        named: dict[str, Weight] = {}
        for tensor in tensors:
            origin = self.of(tensor)
            # Names that begin so are the file's own.
            base = next(filter(None, origin.parameters), "constant")
            base = f"weight.{base}" if base.startswith("__") else base
            numbered = (f"{base}.{number}" for number in range(1, len(named) + 2))
            name = next(name for name in (base, *numbered) if name not in named)
            named[name] = Weight(tensor, origin.parameters, origin.made_by)
        return named

    def growth(self, tensors: Iterable[tvm.runtime.Tensor]) -> list[tuple[int, Origin, int]]:
        """What constants take beyond the parameters that they take the place of.

        Returns
        -------
        grown : list of (int, Origin, int)
            The bytes that it adds, the origin and the bytes of each constant that adds some, the
            largest first.
        """
        left = list(self._sizes)
        grown = []
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


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    if one.size != other.size:
        return False
    return one.ctypes.data == other.ctypes.data or all(
        np.array_equal(one[begin : begin + _CHUNK], other[begin : begin + _CHUNK])
        for begin in range(0, one.size, _CHUNK)
    )


def _key(data: np.ndarray) -> tuple[int, bytes, bytes]:
    return data.size, data[:_END].tobytes(), data[-_END:].tobytes()
