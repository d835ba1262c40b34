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
"""The probabilities of the classes of an SVM, from the scores of each pair of them.

A sigmoid turns each score into the probability of one class against another.  The class
probabilities minimize a quadratic form of these; as in LIBSVM, an iteration approximates them and
stops at a small error. To give the same result, this kernel iterates in the same way.
"""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import numpy as np
from tvm import relax, te, tirx
from tvm.script import tirx as T

from ....elementary import Elementary
from ...call import Call
from .operands import constant

__all__ = ["pair_grid", "probabilities"]

_STEPS = 100
_ERROR = 0.005
_LEAST = 1e-7
"""The minimum probability of a class against another."""


def pair_grid(classes: int) -> np.ndarray:
    """The number of the pair (i, j) at [i, j] and [j, i], in the order of the scores."""
    grid = np.zeros([classes, classes], "int64")
    i, j = np.triu_indices(classes, k=1)
    grid[i, j] = grid[j, i] = np.arange(len(i))
    return grid


def probabilities(
    call: Call, pairs: relax.Expr, slopes: np.ndarray, offsets: np.ndarray, classes: int
) -> relax.Expr:
    """The probability of each class.

    Parameters
    ----------
    pairs : Expr
        A row of scores per row of X; see :func:`pair_grid`.
    slopes, offsets : np.ndarray
        The parameters of the sigmoid of each pair, prob_a and prob_b.
    """
    a, grid = Elementary(call.emit), pair_grid(classes)
    scores = call.emit(relax.op.take(pairs, constant(grid), axis=1))
    values = a("multiply", scores, constant(slopes[grid]))
    values = a("add", values, constant(offsets[grid]))
    wins = a("sigmoid", a("negative", values))
    wins = a("minimum", a("maximum", wins, _LEAST), 1 - _LEAST)
    is_first = constant(np.triu(np.ones([classes, classes], bool), k=1))
    wins = a("where", is_first, wins, a("subtract", 1.0, wins))
    form = call.emit(call.builder.call_te(_form, wins))
    rows = pairs.ty.shape.values[0]
    extent = int(rows) if isinstance(rows, tirx.IntImm) else tirx.Var("rows", "int64")
    kernel = call.builder.add_func(_kernel(extent, classes), "couple_probabilities")
    return call.emit(relax.call_tir(kernel, [form], relax.TensorType([rows, classes], "float32")))


def _form(wins: te.Tensor) -> te.Tensor:
    """The matrix Q per row: the sum of squared wins against i at [i, i], else -win * defeat."""
    rows, classes, _ = wins.shape
    other = te.reduce_axis((0, classes), "other")
    zero = tirx.const(0, "float32")

    def square(row: tirx.Var, i: tirx.Var) -> tirx.Expr:
        win = wins(row, other, i)
        return te.sum(tirx.Select(other.var == i, zero, win * win), axis=other)

    squares = te.compute([rows, classes], square, name="squares")
    return te.compute(
        wins.shape,
        lambda row, i, j: tirx.Select(i == j, squares(row, i), -wins(row, i, j) * wins(row, j, i)),
        name="form",
    )


def _kernel(rows: int | tirx.Var, classes: int) -> tirx.PrimFunc:
    """The loop over rows that finds the probabilities p, which minimize p @ Q @ p."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        q: T.Buffer((rows, classes, classes), "float32"),
        p: T.Buffer((rows, classes), "float32"),
    ) -> None:
        T.func_attr({"tirx.noalias": True})
        for n in range(rows):
            with T.sblock("couple"):
                row = T.axis.spatial(rows, n)
                T.reads(q[row, 0:classes, 0:classes])
                T.writes(p[row, 0:classes])
                # The product Q @ p, the form p @ Q @ p, and the increase of a probability.
                product = T.alloc_buffer((classes,), "float32", scope="local")
                form = T.alloc_buffer((1,), "float32", scope="local")
                error = T.alloc_buffer((1,), "float32", scope="local")
                growth = T.alloc_buffer((1,), "float32", scope="local")
                step = T.alloc_buffer((1,), "int32", scope="local")
                for i in range(classes):
                    p[row, i] = T.float32(1 / classes)
                step[0] = 0
                while step[0] < _STEPS:
                    form[0] = T.float32(0)
                    for i in range(classes):
                        product[i] = T.float32(0)
                        for j in range(classes):
                            product[i] = product[i] + q[row, i, j] * p[row, j]
                        form[0] = form[0] + p[row, i] * product[i]
                    error[0] = T.float32(0)
                    for i in range(classes):
                        error[0] = T.max(error[0], T.fabs(product[i] - form[0]))
                    step[0] = T.if_then_else(
                        error[0] < T.float32(_ERROR / classes), _STEPS + 1, step[0] + 1
                    )
                    if step[0] <= _STEPS:
                        for i in range(classes):
                            growth[0] = (form[0] - product[i]) / q[row, i, i]
                            p[row, i] = p[row, i] + growth[0]
                            form[0] = (
                                form[0] + growth[0] * (growth[0] * q[row, i, i] + 2.0 * product[i])
                            ) / ((1.0 + growth[0]) * (1.0 + growth[0]))
                            for j in range(classes):
                                product[j] = (product[j] + growth[0] * q[row, i, j]) / (
                                    1.0 + growth[0]
                                )
                                p[row, j] = p[row, j] / (1.0 + growth[0])

    return kernel
