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
"""Reading of flatbuffers by the schema, with a check of each offset."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ....errors import TfliteError
from .schema import ENUMS, TABLES, UNIONS

__all__ = ["IDENTIFIER", "Reader"]

IDENTIFIER = b"TFL3"
"""The bytes 4 to 8 of each file."""

_SCALARS = {
    "bool": "?",
    "byte": "b",
    "ubyte": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "float": "f",
}

_DTYPES = {
    "bool": "uint8",
    "byte": "int8",
    "ubyte": "uint8",
    "short": "<i2",
    "ushort": "<u2",
    "int": "<i4",
    "uint": "<u4",
    "long": "<i8",
    "ulong": "<u8",
    "float": "<f4",
}

# Vectors of bytes are views of the file; all else that is read may be this multiple of its size,
# because tables may share parts.
_MAX_SHARING = 4
_MIN_BUDGET = 1 << 16

# What a table counts beside its list of offsets: its Python form is much larger than its bytes.
_TABLE_COST = 64


@dataclass(frozen=True)
class _Field:
    name: str
    kind: str
    default: int
    number: int


@cache
def _fields(table: str) -> tuple[_Field, ...]:
    """The fields of a table of the schema."""
    fields, number = [], 0
    for text in TABLES.get(table, "").split():
        name, _, rest = text.partition(":")
        kind, _, default = rest.partition("=")
        is_union = kind.startswith("|")
        if name != "_":
            fields.append(_Field(name, kind, int(default or 0), number + is_union))
        number += 1 + is_union
    return tuple(fields)


class Reader:
    """Reads the tables of a flatbuffer.

    Parameters
    ----------
    data : memoryview
        The bytes of the file.

    Raises
    ------
    TfliteError
        By each method, if an offset is outside the file or a value is unknown.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._budget = _MAX_SHARING * len(data) + _MIN_BUDGET

    def root(self) -> dict[str, Any]:
        """The fields of the model."""
        if len(self._data) < 8 or bytes(self._data[4:8]) != IDENTIFIER:
            raise TfliteError("not a TFLite file: the identifier TFL3 is missing")
        return self._table("Model", self._target(0, "the root"))

    def _table(self, table: str, position: int) -> dict[str, Any]:
        """The fields of the table at a position."""
        vtable = position - self._scalar("i", position, table)
        size = self._scalar("H", vtable, f"the vtable of {table}")
        if size < 4 or size % 2:
            raise TfliteError(f"malformed file: the vtable of {table} has {size} bytes")
        self._spend(size + _TABLE_COST, table)
        offsets = struct.unpack_from(f"<{size // 2}H", self.bytes_at(vtable, size, table))[2:]
        fields = _fields(table)
        values = {}
        for field in fields:
            offset = offsets[field.number] if field.number < len(offsets) else 0
            where = f"{table}.{field.name}"
            place = position + offset if offset else None
            if field.kind.startswith("|"):
                number = field.number - 1
                kind = offsets[number] if number < len(offsets) else 0
                chosen = self._scalar("B", position + kind, where) if kind else 0
                values[field.name] = self._union(field.kind[1:], chosen, place, where)
            else:
                values[field.name] = self._field(field, place, where)
        return values

    def _field(self, field: _Field, place: int | None, where: str) -> Any:
        """The value of a field, which is absent without a place."""
        kind = field.kind
        if kind in _SCALARS or kind in ENUMS:
            code = _SCALARS.get(kind, "b")
            value = field.default if place is None else self._scalar(code, place, where)
            return _member(kind, value, where) if kind in ENUMS else type_of(kind)(value)
        if place is None:
            return None
        target = self._target(place, where)
        if kind == "string":
            return self._string(target, where)
        if kind.startswith("["):
            return self._vector(kind[1:-1], target, where)
        return self._table(kind, target)

    def _union(
        self, union: str, chosen: int, place: int | None, where: str
    ) -> tuple[str, Mapping[str, Any]] | None:
        """The name and the fields of the table of a union; no fields if it is unknown."""
        if not chosen or place is None:
            return None
        tables = UNIONS[union]
        if chosen > len(tables):
            return f"{union} {chosen}", {}
        return tables[chosen - 1], self._table(tables[chosen - 1], self._target(place, where))

    def _vector(self, kind: str, position: int, where: str) -> Any:
        """An array of scalars, or a list of tables."""
        count = self._scalar("I", position, where)
        position += 4
        if kind in _DTYPES:
            dtype = np.dtype(_DTYPES[kind])
            data = self.bytes_at(position, count * dtype.itemsize, where)
            self._spend(16 if kind == "ubyte" else 16 + len(data), where)
            return np.frombuffer(data, dtype)
        self.bytes_at(position, 4 * count, where)
        self._spend(4 * count, where)
        return [
            self._table(kind, self._target(position + 4 * index, where)) for index in range(count)
        ]

    def _string(self, position: int, where: str) -> str:
        count = self._scalar("I", position, where)
        data = self.bytes_at(position + 4, count, where)
        self._spend(count, where)
        return bytes(data).decode("utf-8", "replace")

    def _target(self, place: int, where: str) -> int:
        """The position that an offset refers to."""
        return place + int(self._scalar("I", place, where))

    def _scalar(self, code: str, position: int, where: str) -> Any:
        return struct.unpack(f"<{code}", self.bytes_at(position, struct.calcsize(code), where))[0]

    def bytes_at(self, position: int, size: int, where: str) -> memoryview:
        """A part of the file; `where` names it in an error."""
        if position < 0 or position + size > len(self._data):
            raise TfliteError(
                f"malformed file: {where} is at byte {position}, with {size} bytes; "
                f"the file has {len(self._data)}"
            )
        return self._data[position : position + size]

    def _spend(self, size: int, where: str) -> None:
        """Limit what is read, as a small file may refer to one part very often."""
        self._budget -= size
        if self._budget < 0:
            raise TfliteError(
                f"malformed file: its tables share parts that together are more than "
                f"{_MAX_SHARING} times as large as the file (at {where})"
            )


def type_of(kind: str) -> type:
    """The Python type of a scalar."""
    return {"bool": bool, "float": float}.get(kind, int)


def _member(enum: str, number: int, where: str) -> str:
    members = ENUMS[enum]
    if not 0 <= number < len(members):
        raise TfliteError(f"unknown value: {where} is {number}; expected 0 to {len(members) - 1}")
    return members[number]
