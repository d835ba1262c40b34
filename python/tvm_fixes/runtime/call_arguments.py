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
"""The arguments of a call, as the original model takes them: nested, and with constants."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import InputError
from ..support.tensors import is_torch, leaves_with_paths

__all__ = ["Argument", "Constant", "bind_call", "check_arguments", "read_argument", "size_of"]

Constant = bool | int | float | str | None
Path = tuple[str | int, ...]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Argument:
    """A leaf of the arguments of the original, which may be nested or constant.

    Attributes
    ----------
    path : tuple of (str or int)
        The name of the parameter, and the keys and places that lead to the leaf.
    is_input : bool
        Whether it is the next one of the model's inputs.  Otherwise, it is a constant: the model
        was compiled for `value`.
    value : bool, int, float, str or None
    """

    path: Path
    is_input: bool
    value: Constant = None

    @property
    def name(self) -> str:
        """The parts of the path, with dots."""
        return ".".join(map(str, self.path))


def read_argument(value: Mapping[str, Any]) -> Argument:
    """Convert the JSON value of an argument."""
    return Argument(tuple(value["path"]), value["is_input"], value["value"])


def check_arguments(
    arguments: Sequence[Argument], sizes: Mapping[str, Any], inputs: Sequence[_Named]
) -> None:
    """Check the fields of a manifest against each other.

    Raises
    ------
    ValueError
        If one does not fit; the message names it.
    """
    names = {spec.name for spec in inputs}
    unknown = [name for name in sizes if name not in names]
    if unknown:
        raise ValueError(f"sizes: expected names of inputs, got {unknown[0]!r}")
    number = sum(argument.is_input for argument in arguments)
    if arguments and number != len(inputs):
        raise ValueError(f"arguments: expected {len(inputs)} inputs, got {number}")
    if not all(argument.path for argument in arguments):
        raise ValueError("arguments: expected names")


def bind_call(
    arguments: Sequence[Argument],
    inputs: Sequence[_Named],
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    """Convert the arguments of a call to the model's inputs, and check its constants.

    Parameters
    ----------
    arguments : sequence of Argument
        The arguments of the original.
    inputs : sequence of TensorSpec
        The model's inputs.
    args : sequence
        Either the inputs, or what the original takes.
    named : mapping of str to object
        Arguments by the name of a parameter or of a leaf.

    Returns
    -------
    args, named
        The inputs by position and by name.

    Raises
    ------
    InputError
        If an argument is unknown or given twice, or if a constant has another value.
    """
    if not arguments or (not named and _are_inputs(args, inputs)):
        return list(args), dict(named)
    names = list(dict.fromkeys(str(argument.path[0]) for argument in arguments))
    listing = f"({', '.join(names)})"
    if len(args) > len(names):
        plural = "" if len(names) == 1 else "s"
        raise InputError(f"expected {len(names)} argument{plural} {listing}, got {len(args)}")
    values = dict(_leaves(dict(zip(names, args, strict=False)), ()))
    of_leaves = {argument.name: argument.path for argument in arguments}
    for name, value in named.items():
        if name not in names and name not in of_leaves:
            raise InputError(f"unknown input {name!r}; the model's arguments: {listing}")
        for path, leaf in _leaves(value, (name,) if name in names else of_leaves[name]):
            if path in values:
                raise InputError(f"input {name!r} is given twice, by position and by name")
            values[path] = leaf
    bound: dict[str, Any] = {}
    for argument, spec in _with_specs(arguments, inputs):
        if argument.path not in values:
            continue
        value = values.pop(argument.path)
        if spec is not None:
            bound[spec.name] = value
        elif not _equals(value, argument.value):
            raise InputError(
                f"argument {argument.name!r}: the model was compiled for {argument.value!r}, "
                f"got {_shown(value)}; compile it again for another value"
            )
    # An optional part that the original does not use, too.
    unused = [path for path, value in values.items() if value is not None]
    if unused:
        name = ".".join(map(str, unused[0]))
        leaves = ", ".join(argument.name for argument in arguments)
        raise InputError(f"unknown input {name!r}; the model's arguments: ({leaves})")
    return [], bound


def size_of(value: Any) -> Any:
    """An integer as an array of rank 0; any other value itself."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return np.asarray(value, "int64") if is_integer else value


def _are_inputs(args: Sequence[Any], inputs: Sequence[_Named]) -> bool:
    """Whether `args` may be the inputs without the constants among the original's arguments."""
    return len(args) == len(inputs) and all(
        is_torch(value) or isinstance(value, np.ndarray | np.generic) for value in args
    )


def _with_specs(
    arguments: Sequence[Argument], inputs: Sequence[_Named]
) -> Iterator[tuple[Argument, _Named | None]]:
    rest = iter(inputs)
    for argument in arguments:
        yield argument, next(rest) if argument.is_input else None


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """The leaves of nested containers, with their paths."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, (*path, key if isinstance(key, int) else str(key)))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name, part in zip(value._fields, value, strict=True):
            yield from _leaves(part, (*path, name))
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from _leaves(part, (*path, place))
    else:
        yield from leaves_with_paths(value, path)


def _equals(value: Any, constant: Constant) -> bool:
    """Whether an argument equals a constant of the original, as its guards compare them."""
    if constant is None or isinstance(constant, str):
        return type(value) is type(constant) and value == constant
    if not isinstance(value, bool | int | float | np.generic):
        return False
    return bool(value == constant) or (value != value and constant != constant)


def _shown(value: Any) -> str:
    """A short text of an argument."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value) if plain else f"a {type(value).__name__}"
