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
"""The generator Threefry with 4 words and 20 rounds, as TVM 0.19 computes it.

It differs from the published one: the second word of a pair is added twice, and no key is added
after the last round.
"""

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

__all__ = ["WORDS", "hashed", "normal_number", "plus", "u64", "uniform_number"]

WORDS = 4
"""The number of words of a key, a counter and a result."""

_ROUNDS = 20
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22


def u64(value: int) -> Any:
    return tirx.const(value, "uint64")


def plus(a: Any, b: Any) -> Any:
    """Add words modulo 2**64.

    TVM tells LLVM that 64-bit sums do not overflow, so the halves are added separately.
    """
    low_half, half = u64(2**32 - 1), u64(32)
    low = (a & low_half) + (b & low_half)
    high = (a >> half) + (b >> half) + (low >> half)
    return (high << half) | (low & low_half)


def hashed(key: Sequence[Any], counter: Sequence[Any]) -> list[Any]:
    """Emit the 20 rounds, and return the 4 random words."""
    words = T.buffer_proxy(T.alloc_buffer((WORDS,), "uint64", scope="local"))
    keys = T.buffer_proxy(T.alloc_buffer((WORDS + 1,), "uint64", scope="local"))
    parity = u64(_PARITY)
    for j in range(WORDS):
        words[j], keys[j] = counter[j], key[j]
        parity = parity ^ key[j]
    keys[WORDS] = parity
    places = list(range(WORDS))
    for turn in range(_ROUNDS):
        group, step = divmod(turn, 4)
        if step == 0:
            for j, place in enumerate(places):
                words[place] = plus(words[place], keys[(group + j) % (WORDS + 1)])
            words[places[-1]] = plus(words[places[-1]], u64(group))
        for pair, rotation in enumerate(_ROTATIONS[turn % len(_ROTATIONS)]):
            a, b = places[2 * pair : 2 * pair + 2]
            words[a] = plus(words[a], words[b])
            turned = (words[b] << u64(rotation)) | (words[b] >> u64(64 - rotation))
            words[b] = plus(words[a], words[b]) ^ turned
        places[1], places[3] = places[3], places[1]
    return [words[place] for place in places]


_FRACTION_BITS = {"float32": 23, "float64": 52}


def uniform_number(word: Any, dtype: str) -> Any:
    """Convert the lowest bits of a word to a number in [0, 1)."""
    bits = 32 if dtype == "float32" else 64
    fraction, integer = _FRACTION_BITS[dtype], f"uint{bits}"
    exponent = (1 << (bits - fraction - 2)) - 1
    digits = word.astype(integer) >> tirx.const(bits - fraction, integer)
    number = digits | tirx.const(exponent << fraction, integer)
    return tirx.reinterpret(dtype, number) - tirx.const(1.0, dtype)


def normal_number(words: Sequence[Any], dtype: str) -> Any:
    """Convert two words to a normally distributed number, by the Box-Muller method."""
    first = tirx.const(1.0, dtype) - uniform_number(words[0], dtype)
    distance = tirx.sqrt(tirx.const(-2.0, dtype) * tirx.log(first))
    return distance * tirx.sin(tirx.const(2.0 * math.pi, dtype) * uniform_number(words[1], dtype))
