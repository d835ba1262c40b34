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

"""Provenance of a module's constants: the model's parameters, and the operators that made them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from ...support.tensors import raw_bytes
from ..analysis import bindings
from ..ir import leaves, relax_functions, tensor_of
from .fold_plan import operator_of

# The bytes of either end of a tensor to compare first, and the bytes to compare at a time.
_END = 64
_CHUNK = 1 << 20


@dataclass(frozen=True)
class ConstantRecord:
    """The provenance of a constant in the library.

    Attributes
    ----------
    sha256 : str
        The hash of its bytes, which identifies it.
    parameters : tuple of str
        The parameters of the model that it equals or was computed from.
    made_by : str
        The operator, variable and function that computed it; empty for an unchanged parameter.
    """

    sha256: str
    parameters: tuple[str, ...]
    made_by: str


class Weight(NamedTuple):
    """A tensor to write to a file of weights.

    Attributes
    ----------
    tensor : Tensor
        A contiguous tensor on the CPU.
    parameters : tuple of str
        The parameters of the model that it equals or was computed from.
    made_by : str
        The operator that computed it; empty for an unchanged parameter.
    """

    tensor: tvm.runtime.Tensor
    parameters: tuple[str, ...]
    made_by: str


@dataclass(frozen=True)
class Origin:
    """The provenance of a constant.

    Attributes
    ----------
    parameters : tuple of str
        The parameters of the model that it equals or was computed from.
    roots : frozenset of int
        The numbers of these parameters; equal parameters share a number.
    made_by : str
        The operator, variable and function that computed it; empty for an unchanged parameter or a
        constant from the importer.
    read_by : str
        The operator, variable and function that first read it, or read what it was computed from.
    """

    parameters: tuple[str, ...]
    roots: frozenset[int]
    made_by: str
    read_by: str

    def __str__(self) -> str:
        of = ", ".join(self.parameters)
        if not self.made_by:
            return of or f"a constant from the importer, read by {self.read_by}"
        return f"{self.made_by} of {of or 'constants from the importer'}"


class Origins:
    """The provenance of a module's constants, from its import to its last pass.

    Parameters
    ----------
    mod : tvm.IRModule
        The imported module.
    parameters : iterable of (str, numpy.ndarray)
        The name of each parameter of the model, and its bytes as a one-dimensional uint8 array.
        A constant with the same bytes counts as the parameter.
    """

    def __init__(self, mod: tvm.IRModule, parameters: Iterable[tuple[str, np.ndarray]]):
        self._of: dict[tvm.runtime.Tensor, Origin] = {}
        self._sizes: list[int] = []
        tensors: dict[Any, list[tvm.runtime.Tensor]] = {}
        readers = _first_readers(mod)
        for tensor in constants_of(mod):
            self._of[tensor] = Origin((), frozenset(), "", readers.get(tensor, "a result"))
            tensors.setdefault(key_of(raw_bytes(tensor)), []).append(tensor)
        for name, data in parameters:
            root = self._name(name, data, tensors.get(key_of(data), []))
            if root is not None:
                self._sizes.append(data.size)

    def _name(self, name: str, data: np.ndarray, tensors: list[tvm.runtime.Tensor]) -> int | None:
        """Name the constants that equal `data`; return the number of the parameter if it is new."""
        equal = [tensor for tensor in tensors if have_equal_bytes(raw_bytes(tensor), data)]
        roots = {root for tensor in equal for root in self._of[tensor].roots}
        root = min(roots, default=len(self._sizes))
        for tensor in equal:
            origin = self._of[tensor]
            names = (*origin.parameters, name) if name else origin.parameters
            self._of[tensor] = replace(origin, parameters=names, roots=frozenset({root}))
        return root if equal and not roots else None

    def of(self, tensor: tvm.runtime.Tensor) -> Origin:
        """The origin of a constant; it has no parameters if the constant is unknown."""
        return self._of.get(tensor, Origin((), frozenset(), "", "the lowered module"))

    def described(self) -> list[Any]:
        """All that it knows, as values of JSON, in the order of the constants."""
        origins = (
            [[*one.parameters], sorted(one.roots), one.made_by, one.read_by]
            for one in self._of.values()
        )
        return [[*origins], self._sizes]

    def add(
        self, tensor: tvm.runtime.Tensor, made_of: Sequence[tvm.runtime.Tensor], made_by: str
    ) -> None:
        """Record that `made_by` computed `tensor` from the tensors `made_of`."""
        operands = [self.of(operand) for operand in made_of]
        names = dict.fromkeys(name for operand in operands for name in operand.parameters)
        self._of[tensor] = Origin(
            tuple(names),
            frozenset().union(*(operand.roots for operand in operands)),
            made_by,
            operands[0].read_by if operands else "",
        )

    def forget_others(self, tensors: Iterable[tvm.runtime.Tensor]) -> None:
        """Release all tensors except `tensors`."""
        self._of = {tensor: self.of(tensor) for tensor in tensors}

    def records(self, tensors: Iterable[tvm.runtime.Tensor]) -> tuple[ConstantRecord, ...]:
        """The manifest's records of `tensors` that are parameters or were computed."""
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
        """Give each of `tensors` a unique name, based on its parameter, for a file of weights."""
        named: dict[str, Weight] = {}
        for tensor in tensors:
            origin = self.of(tensor)
            # The file format reserves names that begin with two underscores.
            base = next(filter(None, origin.parameters), "constant")
            base = f"weight.{base}" if base.startswith("__") else base
            numbered = (f"{base}.{number}" for number in range(1, len(named) + 2))
            name = next(name for name in (base, *numbered) if name not in named)
            named[name] = Weight(tensor, origin.parameters, origin.made_by)
        return named

    def growth(self, tensors: Iterable[tvm.runtime.Tensor]) -> list[tuple[int, Origin, int]]:
        """The constants that take more bytes than the parameters they replace.

        Returns
        -------
        grown : list of (int, Origin, int)
            For each such constant the bytes that it adds, its origin and its size; the largest
            addition first.
        """
        left = list(self._sizes)
        grown = []
        # Unchanged parameters come first: each uses up its own bytes before computed constants do.
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
    """The distinct tensors of a module's constants."""
    tensors: dict[tvm.runtime.Tensor, None] = {}

    def visit(expr: relax.Expr) -> None:
        tensor = tensor_of(expr)
        if tensor is not None:
            tensors.setdefault(tensor)

    for function in relax_functions(mod).values():
        relax.analysis.post_order_visit(function, visit)
    return list(tensors)


def _first_readers(mod: tvm.IRModule) -> dict[tvm.runtime.Tensor, str]:
    """A description of the first binding that reads each constant."""
    readers: dict[tvm.runtime.Tensor, str] = {}
    for global_var, function in relax_functions(mod).items():
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


def have_equal_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of bytes are equal; large ones are compared in parts."""
    if one.size != other.size:
        return False
    return one.ctypes.data == other.ctypes.data or all(
        np.array_equal(one[begin : begin + _CHUNK], other[begin : begin + _CHUNK])
        for begin in range(0, one.size, _CHUNK)
    )


def key_of(data: np.ndarray) -> tuple[int, bytes, bytes]:
    """The size and the ends of an array of bytes, which few different arrays share."""
    return data.size, data[:_END].tobytes(), data[-_END:].tobytes()
