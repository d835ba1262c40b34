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
"""The kernels that sort on a CPU: the stable order of each row of a matrix of integers.

A radix sort takes a round for each byte of the keys, from the lowest one on, and skips a byte that
all keys share.  In a row of few keys, the place of each is the number of keys before it.  If only
the first places are wanted, the keys are first selected by their upper bits.
"""

import math
from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from ...tirx.loop_kernels import Outputs, local, loops, when

__all__ = ["argsort_rows", "first_of_rows", "selects"]

_MAX_COUNTED = 96
"""The longest rows whose places are counted; a radix sort is faster for others."""

_MIN_PARALLEL = 1 << 14
"""The minimum number of keys that several threads sort."""

_BYTES = 4
_VALUES = 256
_SELECTING_BITS = 11

Rows = Callable[..., Any]
"""A function for ``emit_te``; its operand is a matrix of keys."""


def argsort_rows(descending: bool, dtype: str) -> Rows:
    """Return a function that computes the order of the int32 or int64 keys of each row.

    Equal keys keep their order.

    Parameters
    ----------
    descending : bool
        Whether the largest key comes first.
    dtype : str
        The integer dtype of the order.
    """

    def outputs(keys: te.Tensor) -> Outputs:
        return [(keys.shape, dtype)]

    def row_of(keys: Any, order: Any, row: Any) -> None:
        length = keys.shape[1]
        if isinstance(length, tirx.IntImm) and length.value <= _MAX_COUNTED:
            _count_places(keys, order, row, descending)
        else:
            _sort_row(keys, order, row, descending)

    def body(keys: Any, order: Any) -> None:
        _for_each_row(keys, order, row_of)

    return loops("argsort", outputs, body)


def first_of_rows(count: int, descending: bool, dtype: str) -> Rows:
    """Return a function that computes the first `count` places of that order, of int32 keys."""

    def outputs(keys: te.Tensor) -> Outputs:
        return [((keys.shape[0], count), dtype)]

    def row_of(keys: Any, order: Any, row: Any) -> None:
        _select_row(keys, order, row, count, descending)

    def body(keys: Any, order: Any) -> None:
        _for_each_row(keys, order, row_of)

    return loops("topk", outputs, body)


def selects(count: int, length: int) -> bool:
    """Whether :func:`first_of_rows` is faster than TVM's heap, whose time grows with `count`."""
    return 24 * count * math.log2(count + 1) > length + 3000


def _for_each_row(keys: Any, order: Any, row_of: Callable[..., None]) -> None:
    rows, length = keys.shape
    count = rows * length
    is_small = isinstance(count, tirx.IntImm) and count.value < _MIN_PARALLEL
    is_single = isinstance(rows, tirx.IntImm) and rows.value == 1
    with (T.serial if is_small or is_single else T.parallel)(0, rows) as row:
        row_of(keys, order, row)


def _count_places(keys: Any, order: Any, row: Any, descending: bool) -> None:
    length, dtype = keys.shape[1], str(keys.dtype)
    own, places = (_buffer(length, dtype) for _ in range(2))
    with T.serial(0, length) as i:
        own[i] = keys[row, i]
        places[i] = tirx.const(0, dtype)
    with T.serial(0, length) as k, T.serial(0, length) as i:
        is_before = own[k] > own[i] if descending else own[k] < own[i]
        # A key is before equal ones that come later.
        ties = own[k] >= own[i] if descending else own[k] <= own[i]
        places[i] = places[i] + tirx.Select(k < i, ties, is_before).astype(dtype)
    with T.serial(0, length) as i:
        order[row, places[i].astype("int64")] = i.astype(order.dtype)


class _Pairs:
    """Pairs of 32 bits of a key, above, and its place, below; the halves take turns."""

    def __init__(self, capacity: Any, count: Any) -> None:
        self.count = count
        # One more, because the first one is read without any.
        self._pairs = _buffer(2 * capacity + 1, "uint64")
        self._counts = _buffer(_BYTES * _VALUES, "int32")
        self._start = local("int64", 0)

    def __getitem__(self, i: Any) -> Any:
        return self._pairs[self._start[0] + i]

    def __setitem__(self, i: Any, pair: Any) -> None:
        self._pairs[self._start[0] + i] = pair

    def sort(self) -> None:
        """Sort by the keys."""
        with T.serial(0, _BYTES * _VALUES) as value:
            self._counts[value] = tirx.const(0, "int32")
        with T.serial(0, self.count) as i:
            pair = local("uint64", 0)
            pair[0] = self[i]
            for byte in range(_BYTES):
                at = byte * _VALUES + _byte(pair[0], byte)
                self._counts[at] = self._counts[at] + 1
        for byte in range(_BYTES):
            self._sort_byte(byte)

    def _sort_byte(self, byte: int) -> None:
        """Sort by one byte, into the other half."""
        counts, first = self._counts, byte * _VALUES
        shared = counts[first + _byte(self[0], byte)]
        with when(shared.astype("int64") < self.count):
            total, own = local("int32", 0), local("int32", 0)
            with T.serial(0, _VALUES) as value:
                own[0] = counts[first + value]
                counts[first + value] = total[0]
                total[0] = total[0] + own[0]
            pair = local("uint64", 0)
            with T.serial(0, self.count) as i:
                pair[0] = self[i]
                at = first + _byte(pair[0], byte)
                target = self.count - self._start[0] + counts[at].astype("int64")
                self._pairs[target] = pair[0]
                counts[at] = counts[at] + 1
            self._start[0] = self.count - self._start[0]


def _sort_row(keys: Any, order: Any, row: Any, descending: bool) -> None:
    length, dtype = keys.shape[1], str(keys.dtype)
    pairs = _Pairs(length, length)
    limit = None
    if dtype == "int64":
        # The distances of small integers from the limit share their upper bytes.
        limit, extremum = local(dtype, 0), tirx.max if descending else tirx.min
        with T.serial(0, length) as i:
            key = keys[row, i]
            limit[0] = tirx.Select(i.equal(0), key, extremum(limit[0], key))
    for part in range(1 if limit is None else 2):
        with T.serial(0, length) as i:
            place = i.astype("uint64") if part == 0 else _place(pairs[i])
            key = keys[row, place.astype("int64")]
            bits = _ascending(key, None if limit is None else limit[0], part, descending)
            pairs[i] = _pair(bits, place)
        pairs.sort()
    with T.serial(0, length) as i:
        order[row, i] = _place(pairs[i]).astype(order.dtype)


def _select_row(keys: Any, order: Any, row: Any, count: int, descending: bool) -> None:
    length = keys.shape[1]
    counts = _buffer(1 << _SELECTING_BITS, "int32")

    def upper(key: Any) -> Any:
        bits = _ascending(key, None, 0, descending)
        return (bits >> tirx.const(32 - _SELECTING_BITS, "uint64")).astype("int64")

    with T.serial(0, 1 << _SELECTING_BITS) as value:
        counts[value] = tirx.const(0, "int32")
    with T.serial(0, length) as i:
        at = upper(keys[row, i])
        counts[at] = counts[at] + 1
    # The least upper bits up to which there are enough keys.
    total, last = local("int32", 0), local("int64", -1)
    with T.serial(0, 1 << _SELECTING_BITS) as value, when(total[0] < count):
        total[0] = total[0] + counts[value]
        last[0] = value.astype("int64")
    position = local("int64", 0)
    pairs = _Pairs(length, total[0].astype("int64"))
    with T.serial(0, length) as i:
        key = keys[row, i]
        pairs[position[0]] = _pair(_ascending(key, None, 0, descending), i.astype("uint64"))
        position[0] = position[0] + (upper(key) <= last[0]).astype("int64")
    pairs.sort()
    with T.serial(0, count) as i:
        order[row, i] = _place(pairs[i]).astype(order.dtype)


def _ascending(key: Any, limit: Any, part: int, descending: bool) -> Any:
    """32 bits of a key as uint64, whose order is the ascending one of unsigned integers."""
    if limit is None:
        flipped = tirx.const(0x7FFFFFFF if descending else 0x80000000, "uint32")
        return (tirx.reinterpret("uint32", key) ^ flipped).astype("uint64")
    ends = [tirx.reinterpret("uint64", end) for end in (key, limit)]
    distance = ends[1] - ends[0] if descending else ends[0] - ends[1]
    return (distance >> tirx.const(32 * part, "uint64")) & tirx.const(0xFFFFFFFF, "uint64")


def _pair(bits: Any, place: Any) -> Any:
    return (bits << tirx.const(32, "uint64")) | place


def _place(pair: Any) -> Any:
    return pair & tirx.const(0xFFFFFFFF, "uint64")


def _byte(pair: Any, byte: int) -> Any:
    """One byte of the upper half of a pair."""
    shifted = pair >> tirx.const(32 + 8 * byte, "uint64")
    return (shifted & tirx.const(_VALUES - 1, "uint64")).astype("int64")


def _buffer(length: Any, dtype: str) -> Any:
    return T.buffer_proxy(T.alloc_buffer((length,), dtype))
