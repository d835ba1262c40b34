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
"""Extents compared: proved equal, disproved (an error), or unknown (a warning)."""

import operator

import pytest
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from helpers.verifying import assert_found, found, module, var

pytestmark = pytest.mark.native

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


def bound_to(wanted, actual):
    """A variable of extent `wanted` bound to a value of extent `actual`."""
    x, y = var("x", actual), var("y", wanted)
    return module([var("s", N, M), x], [(y, x)], y)


PLACE = "main.body.blocks[0].bindings[0].var"

PROVED = {
    "a literal": (4, 4),
    "a symbol": (N, N),
    "a sum and a product": (N + N, 2 * N),
    "another order": (N * M + 1, 1 + M * N),
    "a distributed product": ((N + 1) * (N - 1), N * N - 1),
    "a quotient of a multiple": (N * 4 // 4, N),
    "a quotient of a multiple and less": ((N * 4 + 3) // 4, N),
    "a remainder of a multiple": (N * 4 % 4 + 1, 1),
    "a remainder from its quotient": (N - N // 4 * 4, N % 4),
    "a minimum in another order": (tirx.min(N, M), tirx.min(M, N)),
    "a minimum that is decided": (tirx.min(N, N + 2), N),
    "a maximum with 0": (tirx.max(N, 0), N),
    "a truncated quotient": (tirx.truncdiv(N, tirx.IntImm("int64", 2)), N // 2),
    "64 bits are exceeded on both sides": (N * 2**62 * 4, N * 2**62 * 4),
}
DISPROVED = {
    "literals": (4, 5, "5 != 4"),
    "a symbol and more": (N, N + 1, "n + 1 != n"),
    "a multiple and what is none": (3, 2 * N, "2 * n != 3"),
    "a multiple and an odd number": (2 * N + 1, 4 * M, "4 * m != 2 * n + 1"),
    "what is always greater": (N + M, N + M + N + 1, "2 * n + m + 1 != n + m"),
    "a large literal": (2**62, 2**62 - 1, f"{2**62 - 1} != {2**62}"),
}
UNKNOWN = {
    "two symbols": (N, M, "m != n"),
    "a symbol and a literal": (N, 4, "4 != n"),
    "a symbol and its double": (N, 2 * N, "2 * n != n"),
    "a quotient and a literal": (N // 2, 4, "4 != n // 2"),
    "a square and a literal": (N * N, 16, "16 != n * n"),
}


@pytest.mark.parametrize("wanted, actual", PROVED.values(), ids=PROVED)
def test_proved(wanted, actual):
    assert_found(bound_to(wanted, actual))
    assert_found(bound_to(actual, wanted))


@pytest.mark.parametrize("wanted, actual, text", DISPROVED.values(), ids=DISPROVED)
def test_disproved(wanted, actual, text):
    message = f"`y` cannot hold its value: dim 0: {text}"
    assert_found(bound_to(wanted, actual), ("type.binding", PLACE, message))


@pytest.mark.parametrize("wanted, actual, text", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown(wanted, actual, text):
    message = f"`y` cannot hold its value: dim 0: {text}"
    assert_found(bound_to(wanted, actual), warnings=[("type.binding", PLACE, message)])


# Expression trees, which are both built for TVM and evaluated in Python.
LEAVES = st.sampled_from(["n", "m"]) | st.integers(-3, 8)
DIVISORS = st.integers(1, 6)
OPERATIONS = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "//": (tirx.floordiv, operator.floordiv),
    "%": (tirx.floormod, operator.mod),
    "truncdiv": (tirx.truncdiv, lambda a, b: int(a / b)),
    "truncmod": (tirx.truncmod, lambda a, b: a - int(a / b) * b),
    "min": (tirx.min, min),
    "max": (tirx.max, max),
}


def trees():
    def grow(inner):
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
            st.tuples(st.sampled_from(["//", "%", "truncdiv", "truncmod"]), inner, DIVISORS),
        )

    return st.recursive(LEAVES, grow, max_leaves=8)


def expression(tree):
    if isinstance(tree, str):
        return {"n": N, "m": M}[tree]
    if isinstance(tree, int):
        return tirx.IntImm("int64", tree)
    return OPERATIONS[tree[0]][0](expression(tree[1]), expression(tree[2]))


def value(tree, n, m):
    if isinstance(tree, str):
        return {"n": n, "m": m}[tree]
    if isinstance(tree, int):
        return tree
    return OPERATIONS[tree[0]][1](value(tree[1], n, m), value(tree[2], n, m))


POINTS = [(n, m) for n in (0, 1, 2, 3, 5, 8, 12, 60) for m in (0, 1, 2, 4, 7, 12, 35)]


@given(trees(), trees(), st.booleans())
def test_no_verdict_is_contradicted_by_a_point(first, second, near):
    # Trees with common parts are proved and disproved more often.
    second = ("+", first, ("-", second, second)) if near else second
    mod = bound_to(expression(first), expression(second))
    pairs = [(value(first, n, m), value(second, n, m)) for n, m in POINTS]
    errors = {rule for rule, _, _ in found(mod)}
    if "shape.negative" in errors:
        assert any(max(side) < 0 for side in zip(*pairs, strict=True))
    elif errors:
        assert errors == {"type.binding"}
        assert all(a != b for a, b in pairs)
    elif not found(mod, "warning"):
        assert all(a == b for a, b in pairs)


if __name__ == "__main__":
    tvm.testing.main()
