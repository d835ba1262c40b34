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
"""The verifier on PrimFuncs: indices, buffers, iterators and loops, standalone and at calls."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax import op
from tvm.script import tirx as T

from helpers.grids import few
from helpers.relax_modules import tensor
from helpers.verifying import assert_found, copied, erase, fields, found, only, reachable
from tvm_fixes.verifier import verify

pytestmark = pytest.mark.native


def module(function: tirx.PrimFunc) -> tvm.IRModule:
    return tvm.IRModule({"f": function})


@T.prim_func(s_tir=True)
def tiled(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i, j in T.grid(16, 4):
        with T.sblock("copy"):
            v = T.axis.spatial(64, i * 4 + j)
            B[v] = A[63 - v]


@T.prim_func(s_tir=True)
def tiled_with_predicate(A: T.Buffer((62,), "float32"), B: T.Buffer((62,), "float32")):
    for i, j in T.grid(16, 4):
        with T.sblock("copy"):
            v = T.axis.spatial(62, i * 4 + j)
            T.where(i * 4 + j < 62)
            B[v] = A[v]


@T.prim_func(s_tir=True)
def under_conditions(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        B[i] = T.if_then_else(i >= 1, A[i - 1], T.float32(0)) + T.Select(
            i < 63, A[i + 1], T.float32(0)
        )
        if i < 60:
            B[i + 4] = A[i + 4]


@T.prim_func(s_tir=True)
def after_a_break(A: T.Buffer((64,), "float32")):
    for i in range(128):
        if i == 64:
            T.evaluate(T.break_loop())
        A[i] = T.float32(0)


@T.prim_func(s_tir=True)
def indirect(A: T.Buffer((4,), "float32"), at: T.Buffer((64,), "int32")):
    for i in range(64):
        A[at[i]] = T.float32(0)


@T.prim_func(s_tir=True)
def narrowed(table: T.Buffer((256,), "float32"), B: T.Buffer((1024,), "float32")):
    for i in range(1024):
        B[i] = table[T.Cast("int32", T.Cast("uint8", i))]


@T.prim_func(s_tir=True)
def triangular(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    for i in range(n):
        for j in range(i + 1):
            A[i - j, j] = T.float32(0)


@T.prim_func(s_tir=True)
def shrunk_by_the_loop_around(A: T.Buffer((14,), "float32")):
    # For i = 0 the inner loop does not run, so index 14 is not reached.
    for i in range(8):
        for j in range(i):
            A[j + 15 - i * 2] = T.float32(0)


@T.prim_func(s_tir=True)
def below_the_diagonal(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.match_buffer(b, (n - 1,), "float32")
    for i in range(n):
        for j in range(i):
            A[i, j] = B[i - 1] + B[j]
        for j in range(n - 1 - i):
            A[i, i + j + 1] = B[i + j]


@T.prim_func(s_tir=True)
def pyramid(A: T.Buffer((6, 6), "float32")):
    # The innermost loop runs only for i >= 2 and j >= 1.
    for i in range(7):
        for j in range(i):
            for k in range(j):
                A[i - 1, j - 1] = A[k + 1, i - j + k - 1]


@T.prim_func(s_tir=True)
def from_below_zero(A: T.Buffer((8,), "float32"), B: T.Buffer((2,), "float32")):
    for i in range(-3, 5):
        A[i + 3] = B[(i + 4) // 4 % 2]


@T.prim_func(s_tir=True)
def never(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        B[i] = T.if_then_else(i < 0, A[i + 64], A[i]) + T.Select(i != i, A[i - 1], A[i])
        if i >= 64 or not (i >= 0):
            B[i + 1] = T.float32(0)
        else:
            B[i] = T.float32(0)


@T.prim_func(s_tir=True)
def unsigned(A: T.Buffer((4,), "float32")):
    # -1 wraps to 2**32 - 1.
    for i in range(-1, 0):
        A[T.Cast("uint32", i) // T.uint32(2**30)] = T.float32(0)


@T.prim_func(s_tir=True)
def symbolic(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m + 1), "float32")
    B = T.match_buffer(b, (n * (m + 1),), "float32")
    for i, j in T.grid(n, m + 1):
        with T.sblock("flatten"):
            v, w = T.axis.remap("SS", [i, j])
            B[v * (m + 1) + w] = A[v, w]


@T.prim_func(s_tir=True)
def by_vectors(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(16):
        B[T.Ramp(i * 4, 1, 4)] = A[T.Ramp(i * 4 + 3, -1, 4)]


@T.prim_func(s_tir=True)
def over_threads(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            B[b * 16 + t] = A[b * 16 + t]
        for t in T.thread_binding(16, thread="threadIdx.x"):
            for u in T.thread_binding(16, thread="threadIdx.x"):
                B[b * 16 + t - u] = T.float32(0)


@T.prim_func(s_tir=True)
def empty(A: T.Buffer((0,), "float32")):
    for i in range(0):
        A[i + 1] = T.float32(0)


@T.prim_func(s_tir=True)
def strided(a: T.handle):
    A = T.match_buffer(a, (8, 8), "float32", strides=(16, 2), elem_offset=T.int32())
    for i, j in T.grid(8, 8):
        A[i, j] = T.float32(0)


@pytest.mark.parametrize(
    "function",
    [
        tiled,
        tiled_with_predicate,
        under_conditions,
        after_a_break,
        indirect,
        narrowed,
        triangular,
        shrunk_by_the_loop_around,
        below_the_diagonal,
        pyramid,
        from_below_zero,
        never,
        unsigned,
        symbolic,
        by_vectors,
        over_threads,
        empty,
        strided,
    ],
)
def test_right(function):
    assert_found(module(function))


@T.prim_func(s_tir=True)
def neighbours(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.sblock("add"):
            v = T.axis.spatial(64, i)
            B[v] = A[v - 1] + A[v + 1]


def test_index_below_and_above():
    value = "f.body.block.body.body.block.body.value"
    assert_found(
        module(neighbours),
        (
            "tir.bounds",
            f"{value}.a.indices[0]",
            "load from `A`: dim 0: index v - 1 reaches -1, expected at least 0",
        ),
        (
            "tir.bounds",
            f"{value}.b.indices[0]",
            "load from `A`: dim 0: index v + 1 reaches 64, expected less than 64",
        ),
    )
    assert verify(module(neighbours))[0].notes[0].message == '`A`: R.Tensor((64,), "float32")'


@T.prim_func(s_tir=True)
def loop_beyond_the_buffer(A: T.Buffer((64,), "float32"), B: T.Buffer((128,), "float32")):
    for i in range(128):
        with T.sblock("copy"):
            v = T.axis.spatial(128, i)
            B[v] = A[v]


def test_loop_beyond_the_buffer():
    assert_found(
        module(loop_beyond_the_buffer),
        (
            "tir.bounds",
            "f.body.block.body.body.block.body.value.indices[0]",
            "load from `A`: dim 0: index v reaches 127, expected less than 64",
        ),
    )


@T.prim_func(s_tir=True)
def domain_below_the_loop(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i, j in T.grid(17, 4):
        with T.sblock("copy"):
            v = T.axis.spatial(64, i * 4 + j)
            B[v] = A[v]


def test_domain_below_the_loop():
    """After the error the domain is trusted, so the accesses are not reported."""
    one = only(module(domain_below_the_loop))
    assert (one.severity, one.rule) == ("error", "tir.domain")
    assert one.message == "iterator `v`: value 4 * i + j reaches 67, expected less than 64"
    assert one.hint


@T.prim_func(s_tir=True)
def symbolic_beyond(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n + 1,), "float32")
    for i in range(n + 1):
        with T.sblock("copy"):
            v = T.axis.spatial(n + 1, i)
            B[v] = A[v]


@T.prim_func(s_tir=True)
def symbolic_domain(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n + 1,), "float32")
    for i in range(n + 1):
        with T.sblock("fill"):
            v = T.axis.spatial(n, i)
            A[v] = T.float32(0)


@T.prim_func(s_tir=True)
def vector_beyond(A: T.Buffer((62,), "float32")):
    for i in range(16):
        A[T.Ramp(i * 4, 1, 4)] = T.Broadcast(T.float32(0), 4)


@T.prim_func(s_tir=True)
def scratch(A: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("outer"):
            v = T.axis.spatial(8, i)
            local = T.sblock_alloc_buffer((4,), "float32", scope="local")
            for j in range(5):
                with T.sblock("inner"):
                    w = T.axis.spatial(5, j)
                    local[w] = A[v]
            A[v] = local[0]


@T.prim_func(s_tir=True)
def by_threads(A: T.Buffer((60,), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            A[b * 16 + t] = T.float32(0)


@T.prim_func(s_tir=True)
def named(A: T.Buffer((64,), "float32")):
    for i in range(64):
        k: T.let = i * 2
        A[k] = T.float32(0)


@T.prim_func(s_tir=True)
def diagonal_beyond(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        for j in range(i):
            A[i - j + n + 1] = T.float32(0)


@T.prim_func(s_tir=True)
def diagonal_below(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    for i in range(n):
        for j in range(n - i - 2):
            A[i, n - i - j - 4] = T.float32(0)


@T.prim_func(s_tir=True)
def pyramid_beyond(A: T.Buffer((6,), "float32")):
    for i in range(8):
        for j in range(i):
            for k in range(j):
                A[k + 1] = T.float32(0)


@T.prim_func(s_tir=True)
def pyramid_below(A: T.Buffer((6,), "float32")):
    for i in range(8):
        for j in range(i):
            for _ in range(j):
                A[i - 3] = T.float32(0)


@T.prim_func(s_tir=True)
def begins_below_zero(A: T.Buffer((8,), "float32")):
    for i in range(-1, 5):
        A[i] = T.float32(0)


@T.prim_func(s_tir=True)
def divided_below_zero(A: T.Buffer((500,), "float32")):
    for i in range(-1000, 1000):
        A[i // 2 + 499] = T.float32(0)


@T.prim_func(s_tir=True)
def otherwise(A: T.Buffer((64,), "float32")):
    for i in range(64):
        if i < 0 and i != 3:
            A[i] = T.float32(0)
        else:
            A[i + 1] = T.float32(0)


@T.prim_func(s_tir=True)
def chosen_otherwise(A: T.Buffer((64,), "float32")):
    for i in range(64):
        A[i] = T.if_then_else(i == 64, A[i], A[i - 1])


@T.prim_func(s_tir=True)
def selected_otherwise(A: T.Buffer((64,), "float32")):
    for i in range(64):
        A[i] = T.Select(not (i <= 63), A[i], A[i + 2])


@pytest.mark.parametrize(
    ("function", "rule", "message"),
    [
        (
            symbolic_beyond,
            "tir.bounds",
            "load from `A`: dim 0: index v reaches n, expected less than n",
        ),
        (symbolic_domain, "tir.domain", "iterator `v`: value i reaches n, expected less than n"),
        (
            vector_beyond,
            "tir.bounds",
            "store to `A`: dim 0: index reaches 63, expected less than 62",
        ),
        (
            scratch,
            "tir.bounds",
            "store to `local`: dim 0: index w reaches 4, expected less than 4",
        ),
        (
            by_threads,
            "tir.bounds",
            "store to `A`: dim 0: index 16 * b + t reaches 63, expected less than 60",
        ),
        (named, "tir.bounds", "store to `A`: dim 0: index k reaches 126, expected less than 64"),
        (
            diagonal_beyond,
            "tir.bounds",
            "store to `A`: dim 0: index n + i - j + 1 reaches 2 * n, expected less than n",
        ),
        (
            diagonal_below,
            "tir.bounds",
            "store to `A`: dim 1: index n - i - j - 4 reaches -1, expected at least 0",
        ),
        (
            pyramid_beyond,
            "tir.bounds",
            "store to `A`: dim 0: index k + 1 reaches 6, expected less than 6",
        ),
        (
            pyramid_below,
            "tir.bounds",
            "store to `A`: dim 0: index i - 3 reaches -1, expected at least 0",
        ),
        (
            begins_below_zero,
            "tir.bounds",
            "store to `A`: dim 0: index i reaches -1, expected at least 0",
        ),
        (
            divided_below_zero,
            "tir.bounds",
            "store to `A`: dim 0: index i // 2 + 499 reaches -1, expected at least 0",
        ),
        (
            otherwise,
            "tir.bounds",
            "store to `A`: dim 0: index i + 1 reaches 64, expected less than 64",
        ),
        (
            chosen_otherwise,
            "tir.bounds",
            "load from `A`: dim 0: index i - 1 reaches -1, expected at least 0",
        ),
        (
            selected_otherwise,
            "tir.bounds",
            "load from `A`: dim 0: index i + 2 reaches 65, expected less than 64",
        ),
    ],
)
def test_wrong(function, rule, message):
    one = only(module(function))
    assert (one.severity, one.rule, one.message) == ("error", rule, message)


@T.prim_func(s_tir=True)
def tiled_beyond_its_predicate(A: T.Buffer((62,), "float32"), B: T.Buffer((64,), "float32")):
    for i, j in T.grid(16, 4):
        with T.sblock("copy"):
            v = T.axis.spatial(63, i * 4 + j)
            T.where(i * 4 + j < 63)
            B[v] = A[v]


@T.prim_func(s_tir=True)
def padded(A: T.Buffer((116, 116), "float32"), B: T.Buffer((122, 122), "float32")):
    # More iterations than are enumerated.
    for i, j in T.grid(122, 122):
        B[i, j] = T.if_then_else(
            3 <= i and i < 119 and 3 <= j and j < 119, A[i - 3, j - 2], T.float32(0)
        )


@T.prim_func(s_tir=True)
def selected_beyond(A: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        A[i, j] = T.Select(i <= j, A[i - 1, j], T.float32(0))


@T.prim_func(s_tir=True)
def stored_beyond(A: T.Buffer((64,), "float32")):
    for i in range(64):
        if i % 2 == 1:
            A[i] = T.float32(0)
        else:
            A[i + 2] = T.float32(0)


@T.prim_func(s_tir=True)
def compared_beyond(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "bool")):
    # LLVM evaluates both operands.
    for i in range(8):
        B[i] = A[i] > T.float32(0) and A[i + 7] > A[i]


UNDER_CONDITIONS = {
    tiled_beyond_its_predicate: "load from `A`: dim 0: index v reaches 62, expected less than 62",
    padded: "load from `A`: dim 1: index j - 2 reaches 116, expected less than 116",
    selected_beyond: "load from `A`: dim 0: index i - 1 reaches -1, expected at least 0",
    stored_beyond: "store to `A`: dim 0: index i + 2 reaches 64, expected less than 64",
    compared_beyond: "load from `A`: dim 0: index i + 7 reaches 14, expected less than 8",
}


@pytest.mark.parametrize("function", UNDER_CONDITIONS)
def test_outside_where_conditions_are_met(function):
    one = only(module(function))
    message = UNDER_CONDITIONS[function]
    assert (one.severity, one.rule, one.message) == ("error", "tir.bounds", message)


@T.prim_func(s_tir=True)
def where_data_ask(
    A: T.Buffer((8,), "float32"), m: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")
):
    for i in range(8):
        B[i] = T.if_then_else(m[i] > 0 and i >= 1, A[i + 1], T.float32(0))
        if m[i] > 0:
            A[m[i]] = T.float32(0)
        if m[i] > 0 and i < 7:
            A[i + 1] = T.float32(0)


def test_outside_where_data_ask_for_it():
    """A warning, because the data is unknown. Indices that are data are ignored."""
    one = only(module(where_data_ask))
    assert (one.severity, one.rule) == ("warning", "tir.bounds")
    assert one.message == "load from `A`: dim 0: index i + 1 reaches 8, expected less than 8"
    note = "under a condition that depends on data, or in a loop of unknown extent"
    assert one.notes[0].message == note


@T.prim_func(s_tir=True)
def clamped_beyond(A: T.Buffer((4,), "float32"), m: T.Buffer((8,), "int32")):
    for i in range(8):
        A[T.max(T.min(m[i], 3), 0) + 4] = T.float32(0)


@T.prim_func(s_tir=True)
def clamped_below(A: T.Buffer((4,), "float32"), m: T.Buffer((8,), "int32")):
    for i in range(8):
        A[0 - T.max(1, m[i])] = T.float32(0)


@T.prim_func(s_tir=True)
def clamped(A: T.Buffer((4,), "float32"), m: T.Buffer((8,), "int32")):
    for i in range(8):
        A[T.max(T.min(m[i], 3), 0) + 3] = A[T.min(m[i], 9)] + A[T.max(m[i], 3) - 1]


def test_data_that_are_clamped():
    """A clamped index is an error if its whole range is out of bounds, and accepted otherwise."""
    one = only(module(clamped_beyond))
    assert (one.severity, one.rule) == ("error", "tir.bounds")
    index = "T.max(0, T.min(…, 3)) + 4"
    assert one.message == f"store to `A`: dim 0: index {index} reaches 4, expected less than 4"
    assert only(module(clamped_below)).message.endswith("reaches -1, expected at least 0")
    assert_found(module(clamped))


@T.prim_func(s_tir=True)
def in_unknown_loop(
    A: T.Buffer((8,), "float32"), m: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")
):
    for i in range(8):
        for j in range(m[i]):
            B[i] += A[i + 1] + A[j]
        for _ in range(0):
            B[i] = A[i + 8]


def test_outside_in_a_loop_of_unknown_extent():
    one = only(module(in_unknown_loop))
    assert (one.severity, one.rule) == ("warning", "tir.bounds")
    assert one.message == "load from `A`: dim 0: index i + 1 reaches 8, expected less than 8"


def test_outside_within_any_operator():
    """Every class of expressions is visited."""
    x, y = (tirx.decl_buffer((8,), "int32", name) for name in "xy")
    i = tirx.Var("i", "int32")
    load = tirx.BufferLoad(x, [i - 1])
    lanes = tirx.Shuffle([tirx.Broadcast(load, 2)], [1])
    binary = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift)
    values = [kind(tirx.const(1), load) for kind in binary]
    for value in (*values, tirx.BitwiseNot(load), lanes, tirx.Ramp(load, 1, 2)):
        body = tirx.For(i, 0, 8, tirx.ForKind.SERIAL, tirx.Evaluate(value))
        one = only(tvm.IRModule({"main": tirx.PrimFunc([x, y], body)}))
        assert one.message == "load from `x`: dim 0: index i - 1 reaches -1, expected at least 0"


@T.prim_func(s_tir=True)
def symbolic_padded(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n + 2,), "float32")
    for i in range(n + 2):
        B[i] = T.if_then_else(1 <= i and i <= n, A[i], T.float32(0))


def test_outside_at_some_sizes():
    """Conditions on symbols are checked for sample values."""
    one = only(module(symbolic_padded))
    assert (one.severity, one.rule) == ("warning", "tir.bounds")
    assert one.message == (
        "at some sizes: load from `A`: dim 0: index i reaches 23, expected less than 23"
    )
    assert [note.message for note in one.notes] == ["`n` is 23"]


@T.prim_func(s_tir=True)
def right_under_conditions(
    A: T.Buffer((56, 56), "float32"), m: T.Buffer((62,), "int32"), B: T.Buffer((62, 62), "float32")
):
    for i, j, k in T.grid(62, 62, 64):
        B[i, j] = T.if_then_else(
            not (i < 3 or 59 <= i) and 3 <= j and j < 59, A[i - 3, j - 3], T.float32(0)
        )
        if i // 4 * 4 == i and j % 2 != 1 and i < 56:
            B[i + 3, j + 1] = T.Select(k == 61, A[i, k - 6], T.float32(0))
        if k < 62 and m[k] >= 3 and m[k] < 59 and j < 56:
            B[i, k] = A[m[k] - 3, j]


def test_right_under_conditions():
    assert_found(module(right_under_conditions))


@T.prim_func(s_tir=True)
def copy(a: T.handle, B: T.Buffer((64,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    for i in range(n):
        with T.sblock("copy"):
            v = T.axis.spatial(n, i)
            B[v] = A[v]


@T.prim_func(s_tir=True)
def at_offset(A: T.Buffer((64,), "float32"), k: T.int64, B: T.Buffer((32,), "float32")):
    for i in range(32):
        B[i] = A[i + k]


def calling(function, *args, out):
    builder = relax.BlockBuilder()
    params = [arg for arg in args if isinstance(arg, relax.Var)]
    with builder.function("main", params):
        global_var = builder.add_func(function, "copy")
        builder.emit_func_output(builder.emit(relax.call_tir(global_var, args, out)))
    return builder.get()


def test_right_at_a_call():
    x = relax.Var("x", tensor(64))
    assert_found(calling(copy, x, out=tensor(64)))
    assert_found(calling(at_offset, x, tirx.IntImm("int64", 32), out=tensor(32)))


def test_wrong_at_a_call():
    """The PrimFunc is valid for up to 64 elements, but the call has more."""
    mod = calling(copy, relax.Var("x", tensor(128)), out=tensor(64))
    one = only(mod)
    assert (one.severity, one.rule, one.function) == ("error", "tir.bounds", "main")
    assert one.message == (
        "`copy` goes out of bounds at these shapes: "
        "store to `B`: dim 0: index v reaches 127, expected less than 64"
    )
    assert [note.message for note in one.notes] == ["here in `copy`", "`n` is 128"]
    assert found(mod)[0][1] == "main.body.blocks[0].bindings[0].value"


@T.prim_func(s_tir=True)
def folded(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (m, 4), "float32")
    for i in range(n):
        with T.sblock("fold"):
            v = T.axis.spatial(n, i)
            B[v // 4, v % 4] = A[v]


@T.prim_func(s_tir=True)
def halves(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (m,), "float32")
    for i in range(m):
        if m < n:
            B[i] = A[i]
        else:
            for j in range(i // 2):
                B[i] = A[i - j * 2]


def test_symbols_under_a_division_at_a_call():
    """A question that is undecidable for all shapes is decided for those of the call."""
    assert_found(module(folded))
    assert_found(calling(folded, relax.Var("x", tensor(16)), out=tensor(4, 4)))
    one = only(calling(folded, relax.Var("x", tensor(17)), out=tensor(4, 4)))
    assert (one.severity, one.rule, one.function) == ("error", "tir.bounds", "main")
    assert one.message == (
        "`copy` goes out of bounds at these shapes: "
        "store to `B`: dim 0: index v // 4 reaches 4, expected less than 4"
    )
    notes = ["here in `copy`", "`n` is 17", "`m` is 4"]
    assert [note.message for note in one.notes] == notes


def test_conditions_and_extents_at_a_call():
    assert_found(module(halves))
    assert_found(calling(halves, relax.Var("x", tensor(8)), out=tensor(7)))
    # The inner loop varies in an untracked way.
    assert_found(calling(halves, relax.Var("x", tensor(8)), out=tensor(9)))


def test_scalar_at_a_call():
    x = relax.Var("x", tensor(64))
    above = calling(at_offset, x, tirx.IntImm("int64", 33), out=tensor(32))
    assert only(above).message == (
        "`copy` goes out of bounds at these shapes: "
        "load from `A`: dim 0: index k + i reaches 64, expected less than 64"
    )
    below = calling(at_offset, x, tirx.IntImm("int64", -1), out=tensor(32))
    assert only(below).message == (
        "`copy` goes out of bounds at these shapes: "
        "load from `A`: dim 0: index k + i reaches -1, expected at least 0"
    )


def test_shapes_of_a_call_that_are_not_known():
    n = tirx.Var("n", "int64")
    assert_found(calling(copy, relax.Var("x", tensor(n)), out=tensor(64)))


def test_each_call_is_one_finding():
    x = relax.Var("x", tensor(128))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        global_var = builder.add_func(copy, "copy")
        for _ in range(3):
            y = builder.emit(relax.call_tir(global_var, [x], tensor(64)))
        builder.emit_func_output(y)
    assert [diagnostic.rule for diagnostic in verify(builder.get())] == ["tir.bounds"] * 3


def legalized(make, *types):
    params = [relax.Var(f"p{i}", ty) for i, ty in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(make(*params)))
    with tvm.target.Target("llvm"):
        return relax.transform.LegalizeOps()(builder.get())


N = tirx.Var("n", "int64")
H = tirx.Var("h", "int64")


@few(5)
@pytest.mark.parametrize(
    ("make", "types"),
    [
        (lambda x: op.nn.pad(x, [0, 0, 1, 2], "reflect"), [tensor(N, H)]),
        (
            lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), ceil_mode=True),
            [tensor(N, 3, H, 8)],
        ),
        (lambda x: op.image.resize2d(x, (24, 16), method="cubic"), [tensor(N, 3, H, 8)]),
        (lambda x, i: op.gather_elements(x, i, 1), [tensor(N, H), tensor(N, 5, dtype="int64")]),
        (
            lambda x, i, u: op.scatter_elements(x, i, u, 1),
            [tensor(N, H), tensor(N, 5, dtype="int64"), tensor(N, 5)],
        ),
        (lambda x: op.cumsum(x, 1), [tensor(N, H)]),
        (lambda x: op.topk(x, 3, 1), [tensor(N, H)]),
        (lambda x: op.strided_slice(x, [1], [9], [0], [-2]), [tensor(N, 12)]),
        (lambda x: op.reshape(x, (N * H, 2, 4)), [tensor(N, H, 8)]),
        (
            lambda x, w: op.nn.conv2d(x, w, 2, (0, 1, 2, 1), 2),
            [tensor(N, 3, H, 8), tensor(6, 3, 3, 3)],
        ),
        (
            lambda x, w: op.nn.conv2d_transpose(x, w, 2, 1, (1, 1)),
            [tensor(N, 3, H, 8), tensor(3, 6, 3, 3)],
        ),
        (lambda x, y: op.matmul(x, y), [tensor(N, H, 8), tensor(N, 8, 5)]),
        (lambda x, y: op.concat([x, y], 1), [tensor(N, H), tensor(N, 5)]),
    ],
)
def test_legalizations_of_tvm_are_right(make, types):
    assert_found(legalized(make, *types))


def test_scheduled_functions_are_right():
    mod = legalized(op.matmul, tensor(N, 30), tensor(30, 50))
    with tvm.target.Target("nvidia/geforce-rtx-3090"):
        rules = tvm.s_tir.dlight.gpu
        mod = tvm.s_tir.dlight.ApplyDefaultSchedule(rules.Matmul(), rules.Fallback())(mod)
    assert_found(mod)


OPERATIONS = {
    "+": (lambda a, b: a + b, tirx.Add),
    "-": (lambda a, b: a - b, tirx.Sub),
    "*": (lambda a, b: a * b, tirx.Mul),
    "//": (lambda a, b: a // b, tirx.FloorDiv),
    "%": (lambda a, b: a % b, tirx.FloorMod),
    "/": (lambda a, b: int(a / b), tirx.Div),
    "min": (min, tirx.Min),
    "max": (max, tirx.Max),
}


def random_term(rng, names, depth):
    """A number, a name, or (operation, term, term)."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(names) if names and rng.random() < 0.7 else rng.randint(-3, 6)
    name = rng.choices([*OPERATIONS], [6, 3, 3, 1, 1, 1, 1, 1])[0]
    second = random_term(rng, names, depth - 1) if name in ("+", "-") else rng.randint(1, 5)
    return name, random_term(rng, names, depth - 1), second


def is_linear(term):
    return not isinstance(term, tuple) or (term[0] in "+-*" and all(map(is_linear, term[1:])))


def names_of(term):
    if isinstance(term, tuple):
        return names_of(term[1]) | names_of(term[2])
    return {term} if isinstance(term, str) else set()


def value_of(term, values):
    if isinstance(term, tuple):
        return OPERATIONS[term[0]][0](value_of(term[1], values), value_of(term[2], values))
    return values[term] if isinstance(term, str) else term


def expr_of(term, variables):
    if isinstance(term, tuple):
        return OPERATIONS[term[0]][1](expr_of(term[1], variables), expr_of(term[2], variables))
    return variables[term] if isinstance(term, str) else tirx.IntImm("int64", term)


@dataclass
class RandomFunction:
    """Up to three loops around a block with one iterator and one store."""

    loops: list
    bound: Any
    index: Any
    domain: int = 0
    extent: int = 0

    @classmethod
    def make(cls, rng):
        loops = []
        for i in range(rng.randint(1, 3)):
            outer = [loop[0] for loop in loops]
            least = rng.choice([0, 0, 0, 1, 2, -2])
            extent = rng.randint(0, 5) if rng.random() < 0.7 else random_term(rng, outer, 1)
            loops.append((f"x{i}", least, extent, rng.choice([1, 1, 1, 2])))
        names = [loop[0] for loop in loops]
        made = cls(loops, random_term(rng, names, 2), random_term(rng, ["v"], 2))
        bound, index = made.reached()
        made.domain = max(1, max(bound, default=3) + rng.choice([0, 1, 1, 1]))
        made.extent = max(1, max(index, default=3) + rng.choice([0, 1, 1, 1]))
        return made

    def reached(self):
        """The values of the iterator and the index, found by running the loops."""
        rounds = [{}]
        for name, least, extent, step in self.loops:
            rounds = [
                {**values, name: value}
                for values in rounds
                for value in range(least, least + value_of(extent, values), step)
            ]
        bound = [value_of(self.bound, values) for values in rounds]
        return bound, [value_of(self.index, {"v": value}) for value in bound]

    @property
    def is_followed(self):
        """Whether the verifier tracks all values exactly."""
        varying = [extent for _, _, extent, _ in self.loops if not isinstance(extent, int)]
        if not varying:
            return True
        terms = [varying[0], self.bound, self.index]
        steps = {step for *_, step in self.loops}
        return (
            len(varying) == 1
            and len(names_of(varying[0])) <= 1
            and all(map(is_linear, terms))
            and steps == {1}
        )

    def module(self):
        variables = {name: tirx.Var(name, "int64") for name, *_ in self.loops}
        buffer = tirx.decl_buffer((self.extent,), "float32", "A")
        v = tirx.Var("v", "int64")
        store = tirx.BufferStore(
            buffer, tirx.FloatImm("float32", 0), [expr_of(self.index, {"v": v})]
        )
        domain = tvm.ir.Range(expr_of(0, {}), expr_of(self.domain, {}))
        block = s_tir.SBlock([tirx.IterVar(domain, v, tirx.IterVar.DataPar)], [], [], "b", store)
        body = s_tir.SBlockRealize(
            [expr_of(self.bound, variables)], tirx.const(True, "bool"), block
        )
        for name, least, extent, step in reversed(self.loops):
            begin, span = expr_of(least, {}), expr_of(extent, variables)
            kind = tirx.ForKind.SERIAL
            body = tirx.For(variables[name], begin, span, kind, body, step=expr_of(step, {}))
        return module(tirx.PrimFunc([buffer], body))


def test_bounds_agree_with_executed_loops():
    """Errors match the executed loops; for linear indices, all violations are found."""
    rng = random.Random(0)
    num_errors = 0
    for _ in range(1000):
        function = RandomFunction.make(rng)
        bound, index = function.reached()
        is_outside = {
            "tir.domain": any(value not in range(function.domain) for value in bound),
            "tir.bounds": any(value not in range(function.extent) for value in index),
        }
        rules = {diagnostic.rule for diagnostic in verify(function.module())}
        num_errors += len(rules)
        if "tir.domain" not in rules:
            assert all(is_outside[rule] for rule in rules), function
        assert "tir.domain" not in rules or is_outside["tir.domain"], function
        if function.is_followed:
            assert bool(rules) == any(is_outside.values()), function
    assert num_errors > 100


def storing(extent, *loops, index):
    """Loops around a store to a buffer; `index` is a function of the loops' variables."""
    names = [tirx.Var(f"x{i}", "int64") for i in range(len(loops))]
    buffer = tirx.decl_buffer((extent,), "float32", "A")
    body = tirx.BufferStore(buffer, tirx.FloatImm("float32", 0), [index(*names)])
    for name, rounds in zip(reversed(names), reversed(loops), strict=True):
        body = tirx.For(name, expr_of(0, {}), expr_of(rounds, {}), tirx.ForKind.SERIAL, body)
    return module(tirx.PrimFunc([buffer], body))


@pytest.mark.parametrize(
    "loops, index",
    [
        # More iterations than are enumerated.
        ((100_000,), lambda v: v // 4 * 5 + v % 4),
        ((1_000_000,), lambda v: v % 1000),
        ((1_000_003,), lambda v: v // 1000),
        ((100_001,), lambda v: tirx.min(v, 777)),
        ((100_001,), lambda v: tirx.max(v - 90_000, 0)),
        ((512, 512), lambda v, w: (v * 512 + w) // 64),
        ((512, 512), lambda v, w: v // 8 + w % 16),
        ((100_001,), lambda v: tirx.truncdiv(v, 7) + tirx.truncmod(v, 5)),
    ],
)
def test_divisions_in_long_loops(loops, index):
    values = np.stack(np.meshgrid(*map(np.arange, loops), indexing="ij")).reshape(len(loops), -1)
    reached = max(
        int(tvm.sym.Analyzer().simplify(index(*(expr_of(int(one), {}) for one in point))))
        for point in values[:, sorted({*range(-2000, 0), *range(0, values.shape[1], 997)})].T
    )
    assert_found(storing(reached + 1, *loops, index=index))
    ((rule, _, message),) = found(storing(reached, *loops, index=index))
    assert rule == "tir.bounds"
    assert message.endswith(f"reaches {reached}, expected less than {reached}")


@T.prim_func(s_tir=True)
def under_conditions_that_hold(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        B[i] = T.if_then_else(0 <= i and i < 64, A[i + 1], T.float32(0))


def test_always_true_conditions_are_ignored():
    """A condition that does not always hold excludes unknown accesses."""
    ((_, _, message),) = found(module(under_conditions_that_hold))
    assert message == "load from `A`: dim 0: index i + 1 reaches 64, expected less than 64"


@T.prim_func(s_tir=True)
def rows_by_vectors(A: T.Buffer((4, 6), "float32"), B: T.Buffer((5, 6), "float32")):
    # Each vector continues into the next row, which the last row of A lacks.
    for i in range(4):
        B[i, T.Ramp(2, 1, 8)] = A[i, T.Ramp(2, 1, 8)]


def test_a_vector_counts_all_dims():
    assert_found(
        module(rows_by_vectors),
        (
            "tir.bounds",
            "f.body.body.value.indices[1]",
            "load from `A`: a vector over all dims: element reaches 27, expected less than 24",
        ),
    )


def references(node):
    """The fields of a node that hold an object."""
    for field in fields(node):
        if field.name != "span" and field.size == 8:
            if isinstance(getattr(node, field.name), tvm_ffi.Object):
                yield field.name


@pytest.mark.parametrize("function", [tiled_with_predicate, under_conditions, by_vectors, named])
def test_null_fields(function):
    """The verifier does not crash on any null field."""
    mod = module(function)
    nodes = [(i, name) for i, node in enumerate(reachable(mod)) for name in references(node)]
    assert len(nodes) > 30
    for i, name in nodes:
        broken = copied(mod)
        erase(reachable(broken)[i], name)
        assert all(diagnostic.message for diagnostic in verify(broken)), name


@T.prim_func(s_tir=True)
def enormous(A: T.Buffer((T.int64(2**62),), "float32")):
    for i in range(T.int64(2**62)):
        A[i * T.int64(4)] = A[i + T.int64(2**62)]


def test_extents_beyond_64_bits():
    """Overflowing extents are undecided; others are decided."""
    assert [diagnostic.rule for diagnostic in verify(module(enormous))] == ["tir.bounds"]


def test_deep_functions_are_unchanged():
    i = tirx.Var("i", "int64")
    A = neighbours.params[0]
    body = tirx.BufferStore(A, tirx.FloatImm("float32", 0), [i + 64])
    for _ in range(5000):
        body = tirx.For(tirx.Var("j", "int64"), 0, 2, tirx.ForKind.SERIAL, body)
    body = tirx.For(i, 0, 64, tirx.ForKind.SERIAL, body)
    assert_found(module(tirx.PrimFunc([A], body)))


if __name__ == "__main__":
    tvm.testing.main()
