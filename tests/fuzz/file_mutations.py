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
"""Mutations of bytes, JSON, protobuf messages and archives."""

import json
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

__all__ = ["mutate_archive", "mutate_bytes", "mutate_json", "mutate_message", "mutate_words"]

_NUMBERS = (0, 1, -1, 2, 7, 99, 2**31 - 1, -(2**31), 2**31, 2**32, 2**40, 2**63 - 1, -(2**63))
_TEXTS = ("", "x", "y", "a b", "../../etc/passwd", "\x1b[31m", "é" * 40, "'\"\\", "\n", "9" * 400)
_MAX_COPIES = 3000


def mutate_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """Flip, cut, repeat and insert bytes a few times."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        if not changed:
            break
        at = int(rng.integers(len(changed)))
        size = int(rng.integers(1, 9))
        match rng.integers(7):
            case 0:
                changed[at] ^= 1 << int(rng.integers(8))
            case 1:
                changed[at : at + size] = rng.bytes(size)
            case 2:
                del changed[at : at + size]
            case 3:
                changed[at:at] = changed[at : at + 64 * size]
            case 4:
                number = int(rng.choice([0, 1, 0x7F, 0xFF]))
                changed[at : at + size] = bytes([number]) * size
            case 5:
                del changed[at:]
            case 6:
                changed[at:at] = b"\xff\xfe[" * int(rng.choice([1, 10, 5000]))
    return bytes(changed)


def mutate_words(rng: np.random.Generator, data: bytes) -> bytes:
    """Replace a few numbers of 1 to 8 bytes, mostly near the beginning or the end."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        size = int(rng.choice([1, 2, 4, 8]))
        span = min(len(changed), int(rng.choice([64, 2048, len(changed)])))
        at = int(rng.integers(span)) // size * size
        at = at if rng.random() < 0.5 else len(changed) - span + at
        number = _NUMBERS[rng.integers(len(_NUMBERS))] + int(rng.integers(-2, 3))
        word = (number % (1 << 8 * size)).to_bytes(size, "little")
        changed[at : at + size] = word[: len(changed) - at]
    return bytes(changed)


def mutate_json(rng: np.random.Generator, document: Any) -> bytes:
    """Replace values at random, duplicate keys, and add nesting."""
    for _ in range(rng.integers(1, 4)):
        _mutate_value(rng, document)
    text = json.dumps(document)
    match rng.integers(12):
        case 0:
            text = text.replace("{", '{"type": 1, "type": 2, ', 1)
        case 1:
            text = text.replace("null", "[" * 100_000, 1)
        case 2:
            text = text.replace("0", "NaN", 1)
    return text.encode()


def _mutate_value(rng: np.random.Generator, document: Any) -> None:
    places = _places(document)
    if not places:
        return
    holder, key = places[rng.integers(len(places))]
    match rng.integers(6):
        case 0:
            del holder[key]
        case 1:
            holder[key] = _NUMBERS[rng.integers(len(_NUMBERS))]
        case 2:
            holder[key] = _TEXTS[rng.integers(len(_TEXTS))]
        case 3:
            holder[key] = [None, True, 1e308, [], {}, [[]], {"": None}][rng.integers(7)]
        case 4:
            old = holder[key]
            holder[key] = old + int(rng.integers(-3, 4)) if isinstance(old, int) else [old] * 3
        case 5:
            if isinstance(holder, list):
                holder.extend(holder[:_MAX_COPIES])
            else:
                holder[f"{key}_"] = holder[key]


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Each value in a document, as its container and its key."""
    places: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        holder = pending.pop()
        if isinstance(holder, dict | list):
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            places.extend((holder, key) for key in keys)
            pending.extend(holder[key] for key in keys)
    return places


def mutate_message(rng: np.random.Generator, message: Message) -> None:
    """Change one field of a protobuf message or of a nested message."""
    while True:
        fields = message.ListFields()
        if not fields:
            return
        field, value = fields[rng.integers(len(fields))]
        if field.type != FieldDescriptor.TYPE_MESSAGE or rng.random() < 0.15:
            break
        message = value[rng.integers(len(value))] if _is_repeated(field) else value
    if _is_repeated(field):
        _mutate_repeated(rng, message, field, value)
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    elif field.type != FieldDescriptor.TYPE_MESSAGE:
        try:
            setattr(message, field.name, _replacement(rng, field, value))
        except ValueError:  # the value does not fit the field
            message.ClearField(field.name)


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _mutate_repeated(
    rng: np.random.Generator, message: Message, field: FieldDescriptor, values: Any
) -> None:
    at = int(rng.integers(len(values)))
    match rng.integers(4):
        case 0:
            del values[at]
        case 1:
            values.append(values[at])
        case 2:
            values.extend([values[at]] * int(rng.choice([2, 40, _MAX_COPIES])))
        case 3 if field.type != FieldDescriptor.TYPE_MESSAGE:
            try:
                values[at] = _replacement(rng, field, values[at])
            except ValueError:
                message.ClearField(field.name)


def _replacement(rng: np.random.Generator, field: FieldDescriptor, value: Any) -> Any:
    """A random value of the type of `field`."""
    if field.type == FieldDescriptor.TYPE_STRING:
        return _TEXTS[rng.integers(len(_TEXTS))]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return mutate_bytes(rng, value)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return float(rng.choice([0.0, -1.0, np.inf, np.nan, 1e38]))
    return _NUMBERS[rng.integers(len(_NUMBERS))]


def mutate_archive(
    rng: np.random.Generator, members: Sequence[tuple[str, bytes]], path: Path
) -> None:
    """Write a zip file in which one member is changed, missing, duplicated or compressed."""
    at = int(rng.integers(len(members)))
    documents = [index for index, (name, _) in enumerate(members) if name.endswith(".json")]
    if rng.random() < 0.6:
        at = documents[rng.integers(len(documents))]
    name, data = members[at]
    changed = list(members)
    mutation = int(rng.integers(8))
    if name.endswith(".json") and mutation < 6:
        changed[at] = (name, mutate_json(rng, json.loads(data)))
    elif mutation < 5:
        changed[at] = (name, mutate_bytes(rng, data))
    elif mutation == 5:
        del changed[at]
    elif mutation == 6:
        changed.append((name, mutate_bytes(rng, data)))
    else:
        changed[at] = (name, bytes(1 << 26))
    compression = zipfile.ZIP_DEFLATED if mutation == 7 else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", compression) as archive:
        warnings.simplefilter("ignore")
        for entry, content in changed:
            archive.writestr(entry, content)
    if rng.random() < 0.2:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
