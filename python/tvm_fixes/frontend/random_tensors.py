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
"""Tensors of random numbers.

A compiled program has no random state: the numbers follow from a key, so that each run has the same
ones.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer

from ..tirx.loop_kernels import computed, when
from .threefry import WORDS, hashed, u64

__all__ = ["Key", "computing_dtype", "random_tensor"]

Key = tuple[int, int]
"""Two 64-bit words that determine the numbers of a tensor."""


def computing_dtype(dtype: str) -> str:
    """The dtype to compute random numbers of `dtype` in."""
    return "float64" if dtype == "float64" else "float32"


def _words(key: Key, count: tirx.Expr) -> te.Tensor:
    """`count` random 64-bit words."""
    first, second = key

    def body(numbers: Any) -> None:
        zero = u64(0)
        with T.serial(0, tirx.floordiv(count + WORDS - 1, WORDS)) as block:
            counter = [zero, zero, zero, block.astype("uint64")]
            words = hashed([u64(first), u64(second), zero, zero], counter)
            for index, word in enumerate(words):
                with when(block * WORDS + index < count):
                    numbers[block * WORDS + index] = word

    return computed("random_words", [], [((count,), "uint64")], body)


def random_tensor(
    builder: relax.BlockBuilder,
    key: Key,
    shape: Sequence[Any],
    make: Callable[[list[tirx.Expr]], tirx.Expr],
    *,
    size: tirx.Expr,
    words_each: int = 1,
) -> relax.Expr:
    """Emit a tensor of random numbers.

    Parameters
    ----------
    builder : BlockBuilder
    key : Key
        Tensors of different keys are independent.
    shape : sequence of extents
    make : function
        Computes an element from random 64-bit words.
    size : tirx.Expr
        The product of the extents.
    words_each : int
        The number of words per element.
    """
    count = Analyzer().simplify(size * words_each)
    words = builder.emit_te(lambda count: _words(key, count), count)

    def made(words: te.Tensor, size: tirx.Expr) -> te.Tensor:
        def element(i: tirx.Var) -> tirx.Expr:
            return make([words(i + place * size) for place in range(words_each)])

        return te.compute((size,), element, name="random")

    flat = builder.emit_te(made, words, size)
    return builder.emit(relax.op.reshape(flat, relax.ShapeExpr(list(shape))))
