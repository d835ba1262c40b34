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
"""Binds the arguments of a call to names, and checks them against the model."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..support.tensors import dtype_of, is_torch, span_of
from .manifest import Dim, TensorSpec, describe_shape

Bounds = Mapping[str, tuple[int, int | None]]
"""The minimum and maximum size of each symbolic dim; None means no maximum."""


@dataclass(frozen=True)
class Role:
    """How messages name an argument and the accepted types."""

    word: str
    kinds: str


INPUT = Role("input", "a NumPy array or a PyTorch tensor")
WEIGHT = Role("weight", "a NumPy array, a PyTorch tensor or a TVM tensor")


def bind(specs: Sequence[TensorSpec], args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """Return a call's inputs in the order of the model's inputs.

    Parameters
    ----------
    specs : sequence of TensorSpec
        The model's inputs.
    args : sequence
        The positional inputs.
    named : mapping of str to object
        The remaining inputs, by name.

    Raises
    ------
    InputError
        If an input is missing, unknown or given twice, or if there are too many.
    """
    if len(args) == len(specs) and not named:
        return list(args)
    names = [spec.name for spec in specs]
    listing = f"({', '.join(names)})"
    if len(args) > len(names):
        plural = "" if len(names) == 1 else "s"
        raise InputError(f"expected {len(names)} input{plural} {listing}, got {len(args)}")
    bound = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name not in names:
            raise InputError(f"unknown input {name!r}; the model's inputs: {listing}")
        if name in bound:
            raise InputError(f"input {name!r} is given twice, by position and by name")
        bound[name] = value
    missing = [name for name in names if name not in bound]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        named_missing = ", ".join(map(repr, missing))
        raise InputError(f"missing input{plural} {named_missing}; the model's inputs: {listing}")
    return [bound[name] for name in names]


def check_arrays(
    values: Iterable[tuple[TensorSpec, Any]],
    bounds: Bounds,
    role: Role,
    integers: Mapping[str, Dim] | None = None,
) -> None:
    """Check arrays against their specifications.

    Parameters
    ----------
    values : iterable of (TensorSpec, array)
    bounds : Bounds
    role : Role
    integers : mapping of str to (int or str), optional
        The values that are integers, by name, and the dim that each equals.

    Raises
    ------
    InputError
        If a value is not an array on the CPU, or if its shape or dtype does not match; the message
        names the argument.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for spec, value in values:
        if integers and spec.name in integers:
            _check_integer(spec, integers[spec.name], value, sizes, bounds, role)
            continue
        is_array = type(value) is np.ndarray
        if is_array and value.shape == spec.shape and dtype_of(value) == spec.dtype:
            continue  # the usual case
        problem = _problem_of(spec, value, role)
        if problem:
            raise InputError(f"{role.word} {spec.name!r}: {problem}")
        if value.shape != spec.shape:
            _check_shape(spec, tuple(value.shape), sizes, bounds, role)


def _check_integer(
    spec: TensorSpec,
    dim: Dim,
    value: Any,
    sizes: dict[str, tuple[int, str]],
    bounds: Bounds,
    role: Role,
) -> None:
    """Check an input that is an integer, also against the dims that it equals."""
    is_array = is_torch(value) or isinstance(value, np.ndarray | np.generic)
    if not is_array or dtype_of(value) != "int64" or value.ndim:
        got = f"{dtype_of(value)} of rank {value.ndim}" if is_array else type(value).__name__
        raise InputError(f"{role.word} {spec.name!r}: expected an integer, got {got}")
    number = int(value)
    if isinstance(dim, int):
        problem = "" if number == dim else f"expected {dim}"
    else:
        where = f"{role.word} {spec.name!r}"
        problem = _dim_problem(dim, number, where, sizes, bounds)
    if problem:
        raise InputError(f"{role.word} {spec.name!r} is {number}: {problem}")


def _problem_of(spec: TensorSpec, value: Any, role: Role) -> str:
    """An error in the type, the device or the dtype of an array; empty if they are right."""
    if not isinstance(value, np.ndarray | np.generic):
        if not is_torch(value):
            return f"expected {role.kinds}, got {type(value).__name__}"
        if value.device.type != "cpu":
            return f"expected a tensor on the CPU, got one on {value.device}"
    if dtype_of(value) != spec.dtype:
        return f"expected dtype {spec.dtype}, got {dtype_of(value)}"
    return ""


def check_updated(
    specs: Sequence[TensorSpec], values: Sequence[Any], updated: Container[str]
) -> None:
    """Check that inputs in `updated` can be written, and share no memory with other inputs.

    Raises
    ------
    InputError
        If one is read-only, or its memory overlaps that of another input.
    """
    if not updated:
        return
    spans = []
    for spec, value in zip(specs, values, strict=True):
        if spec.name in updated and not is_torch(value) and not value.flags.writeable:
            raise InputError(
                f"input {spec.name!r}: the model updates it; expected a writable array"
            )
        start, end = span_of(value)
        if start < end:
            spans.append((start, end, spec.name))
    # The spans that end last, of all inputs so far and of the updated ones.
    last = last_updated = (0, "")
    for start, end, name in sorted(spans):
        earlier_end, earlier = last if name in updated else last_updated
        if start < earlier_end:
            written, other = (name, earlier) if name in updated else (earlier, name)
            raise InputError(
                f"input {written!r}: the model updates it; expected memory of its own, got memory "
                f"of input {other!r}"
            )
        last = max(last, (end, name))
        if name in updated:
            last_updated = max(last_updated, (end, name))


def _check_shape(
    spec: TensorSpec,
    shape: tuple[int, ...],
    sizes: dict[str, tuple[int, str]],
    bounds: Bounds,
    role: Role,
) -> None:
    """Check `shape` against `spec`, and each symbolic dim against its size in earlier arrays."""
    if spec.shape is None:
        return
    problem = "" if len(shape) == len(spec.shape) else "different rank"
    for axis, (want, got) in enumerate(zip(spec.shape, shape, strict=False)):
        if isinstance(want, int):
            problem = problem or ("" if want == got else f"axis {axis}")
            continue
        where = f"axis {axis} of {role.word} {spec.name!r}"
        problem = problem or _dim_problem(want, got, where, sizes, bounds)
    if problem:
        raise InputError(
            f"{role.word} {spec.name!r}: expected shape {describe_shape(spec.shape)}, "
            f"got {describe_shape(shape)}: {problem}"
        )


def contradiction(dim: str, first: tuple[int, str], second: tuple[int, str]) -> str:
    """The problem of two sizes, each with its place, of one symbolic dim."""
    sizes = " and ".join(f"{size} on {where}" for size, where in (first, second))
    return (
        f"{dim} is {sizes}; expected equal sizes, or compile with other names of the dims "
        "(--shape for each of the inputs)"
    )


def _dim_problem(
    dim: str,
    size: int,
    where: str,
    sizes: dict[str, tuple[int, str]],
    bounds: Bounds,
) -> str:
    """An error in the size of a symbolic dim at the place `where`; empty if it is right."""
    low, high = bounds.get(dim, (0, None))
    if size < low or (high is not None and size > high):
        bound = f"at least {low}" if high is None else f"from {low} to {high}"
        return f"{dim} must be {bound}"
    # The compiled library itself checks dim expressions such as `2 * n` on entry.
    if dim.isidentifier():
        known, first = sizes.setdefault(dim, (size, where))
        if known != size:
            return contradiction(dim, (known, first), (size, where))
    return ""
