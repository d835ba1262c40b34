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
"""Relay's random numbers against the steps of TVM 0.19 in Python's integers."""

import numpy as np
import pytest
import tvm.testing

from helpers.grids import is_full
from helpers.relay_calls import Program, assert_rejected, assert_same

F32 = np.float32
ONES = 2**64 - 1
ROTATIONS = [[14, 16], [52, 57], [23, 40], [5, 37], [25, 33], [46, 12], [58, 22], [32, 32]]


def hashed(key: list[int], counter: list[int]) -> list[int]:
    parity = 0x1BD11BDAA9FC1A22
    for word in key:
        parity ^= word
    keys = [*key, parity]
    words = list(counter)
    for turn in range(20):
        if turn % 4 == 0:
            words = [(word + keys[(turn // 4 + j) % 5]) & ONES for j, word in enumerate(words)]
            words[3] = (words[3] + turn // 4) & ONES
        for pair in range(2):
            a, b = words[2 * pair : 2 * pair + 2]
            rotation = ROTATIONS[turn % 8][pair]
            # TVM computes the second word after it has written the first, a + b, over a.
            a = (a + b) & ONES
            turned = ((b << rotation) | (b >> (64 - rotation))) & ONES
            words[2 * pair : 2 * pair + 2] = [a, ((a + b) & ONES) ^ turned]
        words = [words[0], words[3], words[2], words[1]]
    return words


def next_place(high: int, low: int) -> list[int]:
    if high == 1:
        return [0, 1 << 63]
    return [0, low >> 1] if high == 0 else [high >> 1, 0]


def generated(key: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    words = [int(word) for word in key]
    if not words[7] < ONES - count:
        if words[8] == 0:
            words = [*hashed(words[:4], [ONES] * 4), 0, 0, 0, 0, 1 << 63, 0]
        else:
            path = [words[4] | words[8], words[5] | words[9]]
            words = [*words[:4], *path, 0, 0, *next_place(words[8], words[9])]
    numbers: list[int] = []
    for block in range(count // 4):
        numbers += hashed(words[:4], [(word + block) & ONES for word in words[4:8]])
    words[7] = (words[7] + count // 4 * 4) & ONES
    if count % 4:
        numbers += hashed(words[:4], words[4:8])[: count % 4]
        words[7] = (words[7] + 4) & ONES
    words[6] = 0
    return np.array(words, "uint64"), np.array(numbers, "uint64")


def split(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    words = [int(word) for word in key]
    if words[8] == 0:
        new = hashed(words[:4], words[4:8])
        left, right = ([*new, path, 0, 0, 0, 1 << 62, 0] for path in (0, 1 << 63))
    else:
        place = next_place(words[8], words[9])
        left = [*words[:8], *place]
        right = [*words[:4], words[4] | words[8], words[5] | words[9], *words[6:8], *place]
    return np.array(left, "uint64"), np.array(right, "uint64")


def key_of(seed: int) -> np.ndarray:
    """Return the result of relay.random.threefry_key."""
    state = np.frombuffer(seed.to_bytes(32, "little"), "uint64")
    return np.concatenate([state, np.array([0, 0, 0, 0, 1 << 63, 0], "uint64")])


def keys() -> list[np.ndarray]:
    """Fresh keys, keys in use, and keys whose counter or path is used up."""
    rng = np.random.default_rng(1)
    result = [key_of(0), key_of(7**80)]
    for place in ([1 << 63, 0], [1, 0], [0, 1 << 63], [0, 1], [0, 0], [6, 0]):
        for used in (0, 12, ONES - 3, ONES - 40, ONES):
            words = [int(word) for word in rng.integers(0, ONES, 6, "uint64", endpoint=True)]
            result.append(np.array([*words, 0, used, *place], "uint64"))
    return result


def some_keys() -> list[np.ndarray]:
    """All keys, or every third one: each place and each use is among them."""
    return keys() if is_full() else keys()[::3]


def check(program: Program, expected: list) -> None:
    """Compare the new keys and the numbers, which may differ by a tolerance if there is one."""
    for case, (results, references) in enumerate(zip(program.run(), expected, strict=True)):
        key, numbers, *tolerance = references
        if not tolerance:
            assert_same(results, {f"{case}.key": key, f"{case}.numbers": numbers})
            continue
        assert_same(results[:1], {f"{case}.key": key})
        assert (results[1].shape, results[1].dtype) == (numbers.shape, numbers.dtype)
        np.testing.assert_allclose(results[1], numbers, *tolerance, *tolerance, err_msg=str(case))


def test_threefry_generate() -> None:
    program, expected = Program(), []
    for i, key in enumerate(some_keys()):
        shape = [[4], [7], [2, 6], [1]][i % 4]
        program.call("random.threefry_generate", [program.input(key)], out_shape=shape)
        new_key, numbers = generated(key, int(np.prod(shape)))
        expected.append((new_key, numbers.reshape(shape)))
    check(program, expected)


def test_threefry_split() -> None:
    program, expected = Program(), []
    for key in keys():
        program.call("random.threefry_split", [program.input(key)])
        expected.append(split(key))
    check(program, expected)
    # The keys that TVM's own test expects.
    left, right = split(key_of(0))
    assert list(left) == [0, 0, 0, 0, 0, 0, 0, 0, 1 << 62, 0]
    assert list(right) == [0, 0, 0, 0, 1 << 63, 0, 0, 0, 1 << 62, 0]


def uniform_of(key: np.ndarray, count: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    new_key, numbers = generated(key, count)
    if dtype == "float32":
        digits = numbers.astype("uint32") >> np.uint32(9)
        return new_key, (digits | np.uint32(127 << 23)).view(F32) - F32(1)
    digits = numbers >> np.uint64(12)
    return new_key, (digits | np.uint64(1023 << 52)).view("float64") - 1


def normal_of(key: np.ndarray, count: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    new_key, numbers = uniform_of(key, 2 * count, dtype)
    first, second = np.split(numbers, 2)
    return new_key, np.sqrt(-2 * np.log(1 - first)) * np.sin(np.array(2 * np.pi, dtype) * second)


def test_uniform_and_normal() -> None:
    program, expected = Program(), []
    for i, key in enumerate(keys()[: 8 if is_full() else 4]):
        dtype = ["float32", "float64"][i % 2]
        a, b = np.array([0, -1, 4][i % 3], dtype), np.array([1, 8][i % 4 // 2], dtype)
        args = [program.input(key), program.input(a), program.input(b)]
        shape = [[14], [2, 6]][i // 2 % 2]
        program.call("random.uniform", args, out_shape=shape, out_dtype=dtype)
        new_key, numbers = uniform_of(key, int(np.prod(shape)), dtype)
        exact = abs(b - a) in (1, 8)
        tolerance = [] if exact else [1e-6]
        expected.append((new_key, (numbers * (b - a) + a).reshape(shape), *tolerance))
        shape = [[7], [3, 2]][i // 2 % 2]
        program.call("random.normal", args, out_shape=shape, out_dtype=dtype)
        new_key, numbers = normal_of(key, int(np.prod(shape)), dtype)
        tolerance = [2e-6 if dtype == "float32" else 1e-13]
        expected.append((new_key, (numbers * b + a).reshape(shape), *tolerance))
    check(program, expected)


def multinomial_of(key, probs, samples):
    rows = probs.reshape(-1, probs.shape[-1]).astype(F32)
    new_key, numbers = uniform_of(key, len(rows) * samples, "float32")
    result = np.zeros((len(rows), samples), np.int32)
    for row, weights in enumerate(np.maximum(rows, 0)):
        total = F32(0)
        for weight in weights:
            total += weight
        with np.errstate(invalid="ignore"):
            sums = np.cumsum(weights / total)
        for sample in range(samples):
            above = sums - numbers[row * samples + sample]
            result[row, sample] = np.argmin(np.where(above > 0, above, F32(1)))
    return new_key, result.reshape(*probs.shape[:-1], samples)


def test_multinomial() -> None:
    program, expected = Program(), []
    rng = np.random.default_rng(2)
    cases = [((5,), "float32"), ((3, 7), "float64"), ((2, 2, 3), "float32"), ((4, 1), "int32")]
    for i, (shape, dtype) in enumerate(cases if is_full() else cases[1:3]):
        for key in keys()[2 * i : 2 * i + (3 if is_full() else 1)]:
            probs = rng.integers(-2, 9, shape).astype(dtype)
            probs[..., :1] = 0 if i % 2 else probs[..., :1]
            args = [program.input(key), program.input(probs)]
            program.call("random.multinomial", args, num_samples=[1, 6][i % 2])
            expected.append(multinomial_of(key, probs, [1, 6][i % 2]))
    program.call("random.multinomial", [key_of(3), np.zeros((2, 3), F32)])
    expected.append(multinomial_of(key_of(3), np.zeros((2, 3), F32), 1))
    check(program, expected)


def test_many_samples_follow_the_distributions() -> None:
    program = Program()
    key, zero, one = key_of(42), F32(0), F32(1)
    for name, count in (("uniform", 20000), ("normal", 10000)):
        attrs = {"out_shape": [count], "out_dtype": "float32"}
        program.call(f"random.{name}", [key, zero, one], **attrs)
    program.call("random.multinomial", [key, np.array([1, 0, 3], F32)], num_samples=20000)
    (_, uniform), (_, normal), (_, drawn) = program.run()
    assert 0 <= uniform.min() < 0.001 and 0.999 < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01 and abs(uniform.std() - 12**-0.5) < 0.01
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, [0.25, 0, 0.75], atol=0.015)


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "reason"),
    [
        ("threefry_generate", [np.zeros(10, np.int64)], {"out_shape": [2]}, "key"),
        ("threefry_generate", [key_of(0)], {"out_shape": [2, 0]}, "out_shape"),
        ("threefry_split", [np.zeros(9, np.uint64)], {}, "key"),
        (
            "uniform",
            [key_of(0), np.float16(0), np.float16(1)],
            {"out_shape": [2], "out_dtype": "float16"},
            "out_dtype",
        ),
        ("normal", [key_of(0), F32(0), 1.0], {"out_shape": [2], "out_dtype": "float32"}, "scale"),
        ("multinomial", [key_of(0), np.zeros((2, 0), F32)], {}, "shape without 0"),
        ("multinomial", [key_of(0), np.zeros(2, F32)], {"num_samples": 0}, "num_samples"),
    ],
)
def test_rejected(name: str, inputs: list, attrs: dict, reason: str) -> None:
    assert_rejected(f"random.{name}", inputs, attrs, reason)


if __name__ == "__main__":
    tvm.testing.main()
