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
"""Operators of random numbers: a key gives the same numbers as in TVM 0.19.

A key has 10 words: 4 of the key proper, 2 of the path of splits, 2 of the counter, and 2 with one
bit that marks the next place of the path. The generator is Threefry as TVM 0.19 computes it. It
differs from the published one: the second word of a pair enters its sum twice, no key is added
after the last round, and the path counts as full when the first word of its place is 0.
"""

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T

from .converter import OpCall, converter
from .extents import is_static, product, reshaped, shaped
from .loop_kernels import cast, local, loop_kernel, when

_WORDS, _ROUNDS = 4, 20
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22
_ALL_ONES = 2**64 - 1
_FIRST_PLACE = 1 << 63
_FRACTION_BITS = {"float32": 23, "float64": 52}
_KEY = ((10,), "uint64")


def _u64(value: int) -> Any:
    return tirx.const(value, "uint64")


def _plus(a: Any, b: Any) -> Any:
    """Add words modulo 2**64.

    TVM tells LLVM that a sum of 64 bits does not overflow, so the halves are added.
    """
    low_half, half = _u64(2**32 - 1), _u64(32)
    low = (a & low_half) + (b & low_half)
    high = (a >> half) + (b >> half) + (low >> half)
    return (high << half) | (low & low_half)


def _hashed(key: Sequence[Any], counter: Sequence[Any]) -> list[Any]:
    """Emit the 20 rounds, and return the 4 random words."""
    words = T.buffer_proxy(T.alloc_buffer((_WORDS,), "uint64", scope="local"))
    keys = T.buffer_proxy(T.alloc_buffer((_WORDS + 1,), "uint64", scope="local"))
    parity = _u64(_PARITY)
    for j in range(_WORDS):
        words[j], keys[j] = counter[j], key[j]
        parity = parity ^ key[j]
    keys[_WORDS] = parity
    places = list(range(_WORDS))
    for turn in range(_ROUNDS):
        group, step = divmod(turn, 4)
        if step == 0:
            for j, place in enumerate(places):
                words[place] = _plus(words[place], keys[(group + j) % (_WORDS + 1)])
            words[places[-1]] = _plus(words[places[-1]], _u64(group))
        for pair, rotation in enumerate(_ROTATIONS[turn % len(_ROTATIONS)]):
            a, b = places[2 * pair : 2 * pair + 2]
            words[a] = _plus(words[a], words[b])
            turned = (words[b] << _u64(rotation)) | (words[b] >> _u64(64 - rotation))
            words[b] = _plus(words[a], words[b]) ^ turned
        places[1], places[3] = places[3], places[1]
    return [words[place] for place in places]


def _next_place(key: Any) -> list[Any]:
    """Return the mark of the place after that of a key."""
    high, low = key[8], key[9]
    crosses = high == _u64(1)
    return [
        tirx.Select(crosses, _u64(0), high >> _u64(1)),
        tirx.Select(
            crosses, _u64(_FIRST_PLACE), tirx.Select(high == _u64(0), low >> _u64(1), _u64(0))
        ),
    ]


def _fill(target: Any, values: Sequence[Any]) -> None:
    for i, value in enumerate(values):
        target[i] = value


def _with_room(key: Any, count: int) -> Any:
    """Emit a copy of a key; another one if its counter has no room for `count` numbers."""
    zeros = [_u64(0)] * 2
    state = T.buffer_proxy(T.alloc_buffer((10,), "uint64", scope="local"))
    with T.If(key[7] < _u64(_ALL_ONES - count)):
        with T.Then():
            _fill(state, [key[i] for i in range(10)])
        with T.Else(), T.If(key[8] == _u64(0)):
            with T.Then():
                # TVM 0.19 hashes two words of ones, and two that it reads outside of an array.
                words = _hashed([key[i] for i in range(4)], [_u64(_ALL_ONES)] * 4)
                _fill(state, [*words, *zeros, *zeros, _u64(_FIRST_PLACE), _u64(0)])
            with T.Else():
                path = [key[4] | key[8], key[5] | key[9]]
                _fill(state, [*(key[i] for i in range(4)), *path, *zeros, *_next_place(key)])
    return state


def _random_words(call: OpCall, count: int) -> list[relax.Expr]:
    """Return the next key and `count` words of 64 bits."""
    if count >= 2**31:
        raise call.fail(f"{count} numbers at once; fewer than 2**31 are supported")
    whole, rest = count // _WORDS, count % _WORDS

    def body(key: Any, new_key: Any, numbers: Any) -> None:
        state = _with_room(key, count)
        start = [state[i] for i in range(4)]
        counter = [state[i] for i in range(4, 8)]
        if whole:
            with T.serial(0, whole) as i:
                # The number of the block enters all words, not only the counter.
                words = _hashed(start, [_plus(word, i.astype("uint64")) for word in counter])
                for j, word in enumerate(words):
                    numbers[i * _WORDS + j] = word
        if rest:
            counter[3] = _plus(counter[3], _u64(whole * _WORDS))
            for j, word in enumerate(_hashed(start, counter)[:rest]):
                numbers[whole * _WORDS + j] = word
        used = (whole + (rest > 0)) * _WORDS
        _fill(new_key, [state[i] for i in range(10)])
        new_key[6] = _u64(0)
        new_key[7] = _plus(state[7], _u64(used))

    return loop_kernel(call, call.inputs[:1], lambda _: [_KEY, ((count,), "uint64")], body)


@converter("random.threefry_generate")
def threefry_generate(call: OpCall) -> tuple[relax.Expr, ...]:
    """Return the next key and random integers."""
    shape = call.ints("out_shape")
    key, words = _random_words(call, product(shape))
    return key, reshaped(call, words, shape)


@converter("random.threefry_split")
def threefry_split(call: OpCall) -> tuple[relax.Expr, ...]:
    """Return two keys that give different numbers."""

    def body(key: Any, left: Any, right: Any) -> None:
        zero, second = _u64(0), _u64(_FIRST_PLACE >> 1)
        with T.If(key[8] == zero):
            with T.Then():
                words = _hashed([key[i] for i in range(4)], [key[i] for i in range(4, 8)])
                for target, path in ((left, zero), (right, _u64(_FIRST_PLACE))):
                    _fill(target, [*words, path, zero, zero, zero, second, zero])
            with T.Else():
                for target in (left, right):
                    _fill(target, [*(key[i] for i in range(8)), *_next_place(key)])
                for i in (4, 5):
                    right[i] = key[i] | key[i + 4]

    return tuple(loop_kernel(call, call.inputs, lambda _: [_KEY, _KEY], body))


def _uniform_element(word: Any, dtype: str) -> Any:
    """Return a number in [0, 1) made of the lowest bits of a word."""
    bits = 32 if dtype == "float32" else 64
    fraction, integer = _FRACTION_BITS[dtype], f"uint{bits}"
    exponent = (1 << (bits - fraction - 2)) - 1
    digits = word.astype(integer) >> tirx.const(bits - fraction, integer)
    number = digits | tirx.const(exponent << fraction, integer)
    return tirx.reinterpret(dtype, number) - tirx.const(1.0, dtype)


@converter("random.uniform")
def uniform(call: OpCall) -> tuple[relax.Expr, ...]:
    """Return the next key and numbers in [low, high)."""
    shape, dtype = call.ints("out_shape"), str(call.attrs["out_dtype"])
    key, words = _random_words(call, product(shape))

    def scaled(words: te.Tensor, low: te.Tensor, high: te.Tensor) -> te.Tensor:
        def element(i: Any) -> Any:
            return _uniform_element(words[i], dtype) * (high() - low()) + low()

        return te.compute(words.shape, element, name="uniform")

    return key, reshaped(call, call.emit_te(scaled, words, *call.inputs[1:]), shape)


@converter("random.normal")
def normal(call: OpCall) -> tuple[relax.Expr, ...]:
    """Return the next key and numbers of a normal distribution, by the method of Box and Muller."""
    shape, dtype = call.ints("out_shape"), str(call.attrs["out_dtype"])
    count = product(shape)
    key, words = _random_words(call, 2 * count)

    def scaled(words: te.Tensor, mean: te.Tensor, scale: te.Tensor) -> te.Tensor:
        def element(i: Any) -> Any:
            first = tirx.const(1.0, dtype) - _uniform_element(words[i], dtype)
            second = _uniform_element(words[i + count], dtype)
            distance = tirx.sqrt(tirx.const(-2.0, dtype) * tirx.log(first))
            height = tirx.sin(tirx.const(2.0 * math.pi, dtype) * second)
            return distance * height * scale() + mean()

        return te.compute((count,), element, name="normal")

    return key, reshaped(call, call.emit_te(scaled, words, *call.inputs[1:]), shape)


@converter("random.multinomial")
def multinomial(call: OpCall) -> tuple[relax.Expr, ...]:
    """Return the next key and indices, each as often as its probability says.

    An index is that of the least sum of probabilities above a random number; as in TVM 0.19, a
    sum of 1 above the number 0 does not count.
    """
    probs, extents = shaped(call, 1)
    if not is_static(extents) or 0 in extents:
        raise call.fail(f"expected a known shape without 0, but found {extents}")
    samples = int(call.attrs["num_samples"])
    rows, choices = product(extents[:-1]), extents[-1]
    key, words = _random_words(call, rows * samples)

    def outputs(*_: te.Tensor) -> Any:
        return [((rows, samples), "int32"), ((choices,), "float32")]

    def body(probs: Any, words: Any, chosen: Any, sums: Any) -> None:
        zero, one = cast(0.0, "float32"), cast(1.0, "float32")
        with T.serial(0, rows) as row:
            total, partial = local("float32", 0.0), local("float32", 0.0)

            def weight(i: Any) -> Any:
                return tirx.max(probs[row, i].astype("float32"), zero)

            with T.serial(0, choices) as i:
                total[0] = total[0] + weight(i)
            with T.serial(0, choices) as i:
                partial[0] = partial[0] + weight(i) / total[0]
                sums[i] = partial[0]
            with T.serial(0, samples) as sample:
                number = local(
                    "float32", _uniform_element(words[row * samples + sample], "float32")
                )
                least = local("float32", one)
                chosen[row, sample] = cast(0, "int32")
                with T.serial(0, choices) as i:
                    above = sums[i] - number[0]
                    with when(above > zero, above < least[0]):
                        least[0] = above
                        chosen[row, sample] = cast(i, "int32")

    flat = reshaped(call, probs, [rows, choices])
    result, _ = loop_kernel(call, [flat, words], outputs, body)
    return key, reshaped(call, result, [*extents[:-1], samples])
