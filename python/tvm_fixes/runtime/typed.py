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
"""Checks of values read from JSON against the types that a dataclass declares.

msgspec would replace this file and the readers in ``manifest.py``, about 130 lines; the rest of the
manifest's code describes functions and is not about JSON.  But it is compiled for each version of
Python, and every machine that runs an artifact would need it.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

__all__ = ["MALFORMED", "check_types"]

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The exceptions that code raises when it reads a malformed document."""


def check_types(value: Any) -> None:
    """Check the fields of a dataclass, and those of nested dataclasses.

    Raises
    ------
    TypeError
        If a field does not have its declared type; the message names it.
    """
    for path, expected in _misfits(value, type(value), ""):
        raise TypeError(f"{path.lstrip('.')}: expected {expected}")


def _misfits(value: Any, declared: Any, path: str) -> Iterator[tuple[str, str]]:
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if declared is Any:
        return
    if origin in (typing.Union, types.UnionType):
        if all(any(_misfits(value, option, path)) for option in arguments):
            yield path, str(declared)
    elif dataclasses.is_dataclass(declared):
        if not isinstance(value, typing.cast(type, declared)):
            yield path, typing.cast(type, declared).__name__
            return
        hints = typing.get_type_hints(declared)
        for field in dataclasses.fields(declared):
            yield from _misfits(
                getattr(value, field.name), hints[field.name], f"{path}.{field.name}"
            )
    elif origin in (list, tuple):
        if not isinstance(value, origin):
            yield path, origin.__name__
            return
        is_fixed = origin is tuple and arguments[-1] is not Ellipsis
        if is_fixed and len(value) != len(arguments):
            yield path, f"{len(arguments)} values"
            return
        for index, item in enumerate(value):
            yield from _misfits(item, arguments[index if is_fixed else 0], f"{path}[{index}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield path, "an object"
            return
        for key, item in value.items():
            yield from _misfits(item, arguments[1], f"{path}[{key!r}]")
    elif declared is float:
        if type(value) not in (int, float):
            yield path, "a number"
    elif type(value) is not (types.NoneType if declared is None else declared):
        yield path, getattr(declared, "__name__", str(declared))
