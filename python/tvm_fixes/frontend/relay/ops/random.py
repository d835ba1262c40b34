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

A key has 10 words: 4 for the key itself, 2 for the path of splits, 2 for the counter, and 2 with
one bit that marks the next position in the path. As in TVM 0.19, the path counts as full when the
first word of that position is 0.
"""

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T

from ....tirx.loop_kernels import cast, local, when
from ...extents import NO_FACTS, is_static, product
from ...threefry import WORDS, hashed, normal_number, plus, u64, uniform_number
from ..call import Call, converts
from ..values.extents import reshaped, shaped
from .loop_kernels import loop_kernel

_ALL_ONES = 2**64 - 1
_FIRST_PLACE = 1 << 63
_KEY = ((10,), "uint64")


def _next_place(key: Any) -> list[Any]:
    """Return the mark of the position after that of a key."""
    high, low = key[8], key[9]
    crosses = high == u64(1)
    return [
        tirx.Select(crosses, u64(0), high >> u64(1)),
        tirx.Select(crosses, u64(_FIRST_PLACE), tirx.Select(high == u64(0), low >> u64(1), u64(0))),
    ]


def _fill(target: Any, values: Sequence[Any]) -> None:
    for i, value in enumerate(values):
        target[i] = value


def _with_room(key: Any, count: int) -> Any:
    """Emit a copy of a key; another one if its counter has no room for `count` numbers."""
    zeros = [u64(0)] * 2
    state = T.buffer_proxy(T.alloc_buffer((10,), "uint64", scope="local"))
    with T.If(key[7] < u64(_ALL_ONES - count)):
        with T.Then():
            _fill(state, [key[i] for i in range(10)])
        with T.Else(), T.If(key[8] == u64(0)):
            with T.Then():
                # TVM 0.19 hashes two words of ones, and two words that it reads out of bounds.
                words = hashed([key[i] for i in range(4)], [u64(_ALL_ONES)] * 4)
                _fill(state, [*words, *zeros, *zeros, u64(_FIRST_PLACE), u64(0)])
            with T.Else():
                path = [key[4] | key[8], key[5] | key[9]]
                _fill(state, [*(key[i] for i in range(4)), *path, *zeros, *_next_place(key)])
    return state


def _random_words(call: Call, count: int) -> list[relax.Expr]:
    """Return the next key and `count` 64-bit words."""
    if count >= 2**31:
        raise call.fail(f"{count} numbers at once; fewer than 2**31 are supported")
    whole, rest = count // WORDS, count % WORDS

    def body(key: Any, new_key: Any, numbers: Any) -> None:
        state = _with_room(key, count)
        start = [state[i] for i in range(4)]
        counter = [state[i] for i in range(4, 8)]
        if whole:
            with T.serial(0, whole) as i:
                # The block number is added to all words, not only to the counter.
                words = hashed(start, [plus(word, i.astype("uint64")) for word in counter])
                for j, word in enumerate(words):
                    numbers[i * WORDS + j] = word
        if rest:
            counter[3] = plus(counter[3], u64(whole * WORDS))
            for j, word in enumerate(hashed(start, counter)[:rest]):
                numbers[whole * WORDS + j] = word
        used = (whole + (rest > 0)) * WORDS
        _fill(new_key, [state[i] for i in range(10)])
        new_key[6] = u64(0)
        new_key[7] = plus(state[7], u64(used))

    return loop_kernel(call, call.operands[:1], lambda _: [_KEY, ((count,), "uint64")], body)


@converts("random.threefry_generate")
def threefry_generate(call: Call) -> tuple[relax.Expr, ...]:
    """Return the next key and random integers."""
    shape = call.ints("out_shape")
    key, words = _random_words(call, product(NO_FACTS, shape))
    return key, reshaped(call, words, shape)


@converts("random.threefry_split")
def threefry_split(call: Call) -> tuple[relax.Expr, ...]:
    """Return two keys that give different numbers."""

    def body(key: Any, left: Any, right: Any) -> None:
        zero, second = u64(0), u64(_FIRST_PLACE >> 1)
        with T.If(key[8] == zero):
            with T.Then():
                words = hashed([key[i] for i in range(4)], [key[i] for i in range(4, 8)])
                for target, path in ((left, zero), (right, u64(_FIRST_PLACE))):
                    _fill(target, [*words, path, zero, zero, zero, second, zero])
            with T.Else():
                for target in (left, right):
                    _fill(target, [*(key[i] for i in range(8)), *_next_place(key)])
                for i in (4, 5):
                    right[i] = key[i] | key[i + 4]

    return tuple(loop_kernel(call, call.operands, lambda _: [_KEY, _KEY], body))


@converts("random.uniform")
def uniform(call: Call) -> tuple[relax.Expr, ...]:
    """Return the next key and numbers in [low, high)."""
    shape, dtype = call.ints("out_shape"), str(call.attributes["out_dtype"])
    key, words = _random_words(call, product(NO_FACTS, shape))

    def scaled(words: te.Tensor, low: te.Tensor, high: te.Tensor) -> te.Tensor:
        def element(i: Any) -> Any:
            return uniform_number(words[i], dtype) * (high() - low()) + low()

        return te.compute(words.shape, element, name="uniform")

    return key, reshaped(call, call.emit_te(scaled, words, *call.operands[1:]), shape)


@converts("random.normal")
def normal(call: Call) -> tuple[relax.Expr, ...]:
    """Return the next key and normally distributed numbers, by the Box-Muller method."""
    shape, dtype = call.ints("out_shape"), str(call.attributes["out_dtype"])
    count = product(NO_FACTS, shape)
    key, words = _random_words(call, 2 * count)

    def scaled(words: te.Tensor, mean: te.Tensor, scale: te.Tensor) -> te.Tensor:
        def element(i: Any) -> Any:
            return normal_number((words[i], words[i + count]), dtype) * scale() + mean()

        return te.compute((count,), element, name="normal")

    return key, reshaped(call, call.emit_te(scaled, words, *call.operands[1:]), shape)


@converts("random.multinomial")
def multinomial(call: Call) -> tuple[relax.Expr, ...]:
    """Return the next key and indices, drawn with the given probabilities.

    An index is that of the smallest cumulative probability above a random number; as in TVM 0.19, a
    cumulative probability of 1 does not count for the number 0.
    """
    probs, extents = shaped(call, 1)
    if not is_static(*extents) or 0 in extents:
        raise call.fail(f"expected a known shape without 0, but found {extents}")
    samples = int(call.attributes["num_samples"])
    rows, choices = product(NO_FACTS, extents[:-1]), extents[-1]
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
                number = local("float32", uniform_number(words[row * samples + sample], "float32"))
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
