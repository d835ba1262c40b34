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
"""The probabilities of the classes of an SVM, from the scores of each two of them.

A sigmoid turns each score into the probability of one class against another.  The class
probabilities minimize a quadratic form of these; as in LIBSVM, an iteration finds them that stops
at a small error, so its number of steps is part of the result.
"""

# mypy: disable-error-code="valid-type"

import numpy as np
from tvm import relax, tirx
from tvm.script import tirx as T

from ...elementary import Elementary
from ..node import Node
from .operands import constant

__all__ = ["pair_grid", "probabilities"]

_STEPS = 100
_ERROR = 0.005
_LEAST = 1e-7
"""The least probability of a class against another."""


def pair_grid(classes: int) -> np.ndarray:
    """The number of the pair (i, j) at [i, j] and [j, i], in the order of the scores."""
    grid = np.zeros([classes, classes], "int64")
    i, j = np.triu_indices(classes, k=1)
    grid[i, j] = grid[j, i] = np.arange(len(i))
    return grid


def probabilities(
    node: Node, pairs: relax.Expr, slopes: np.ndarray, offsets: np.ndarray, classes: int
) -> relax.Expr:
    """The probability of each class.

    Parameters
    ----------
    pairs : Expr
        A row of scores per row of X; see :func:`pair_grid`.
    slopes, offsets : np.ndarray
        The parameters of the sigmoid of each pair, prob_a and prob_b.
    """
    a, grid = Elementary(node.emit), pair_grid(classes).ravel()
    scores = node.emit(relax.op.take(pairs, constant(grid), axis=1))
    values = a("multiply", scores, constant(slopes[grid]))
    values = a("add", values, constant(offsets[grid]))
    wins = a("sigmoid", a("negative", values))
    wins = a("minimum", a("maximum", wins, _LEAST), 1 - _LEAST)
    is_first = constant(np.triu(np.ones([classes, classes], bool), k=1).ravel())
    wins = a("where", is_first, wins, a("subtract", 1.0, wins))
    rows = pairs.ty.shape.values[0]
    extent = int(rows) if isinstance(rows, tirx.IntImm) else tirx.Var("rows", "int64")
    kernel = node.builder.add_func(_kernel(extent, classes), "couple_probabilities")
    return node.emit(relax.call_tir(kernel, [wins], relax.TensorType([rows, classes], "float32")))


def _kernel(rows: int | tirx.Var, classes: int) -> tirx.PrimFunc:
    @T.prim_func(private=True, s_tir=True)
    def kernel(
        wins: T.Buffer((rows, classes * classes), "float32"),
        p: T.Buffer((rows, classes), "float32"),
    ) -> None:
        T.func_attr({"tirx.noalias": True})
        for n in range(rows):
            with T.sblock("couple"):
                row = T.axis.spatial(rows, n)
                T.reads(wins[row, 0 : classes * classes])
                T.writes(p[row, 0:classes])
                # The form is the matrix Q with Q[i, i] = sum of squares of the wins against i, and
                # Q[i, j] = -wins[i, j] * wins[j, i]; product is Q @ p, and form is p @ Q @ p.
                diagonal = T.alloc_buffer((classes,), "float32", scope="local")
                product = T.alloc_buffer((classes,), "float32", scope="local")
                form = T.alloc_buffer((1,), "float32", scope="local")
                error = T.alloc_buffer((1,), "float32", scope="local")
                step = T.alloc_buffer((1,), "int32", scope="local")
                for i in range(classes):
                    p[row, i] = T.float32(1 / classes)
                    diagonal[i] = T.float32(0)
                    for j in range(classes):
                        if i != j:
                            diagonal[i] = (
                                diagonal[i]
                                + wins[row, j * classes + i] * wins[row, j * classes + i]
                            )
                step[0] = 0
                while step[0] < _STEPS:
                    form[0] = T.float32(0)
                    for i in range(classes):
                        product[i] = diagonal[i] * p[row, i]
                        for j in range(classes):
                            if i != j:
                                product[i] = (
                                    product[i]
                                    - wins[row, j * classes + i]
                                    * wins[row, i * classes + j]
                                    * p[row, j]
                                )
                        form[0] = form[0] + p[row, i] * product[i]
                    error[0] = T.float32(0)
                    for i in range(classes):
                        error[0] = T.max(error[0], T.fabs(product[i] - form[0]))
                    step[0] = step[0] + 1
                    if error[0] < T.float32(_ERROR / classes):
                        step[0] = _STEPS
                    else:
                        for i in range(classes):
                            # How much the probability of class i grows before all are scaled.
                            growth = T.alloc_buffer((1,), "float32", scope="local")
                            growth[0] = (form[0] - product[i]) / diagonal[i]
                            p[row, i] = p[row, i] + growth[0]
                            form[0] = (
                                form[0] + growth[0] * (growth[0] * diagonal[i] + 2.0 * product[i])
                            ) / ((1.0 + growth[0]) * (1.0 + growth[0]))
                            for j in range(classes):
                                product[j] = (
                                    product[j]
                                    + growth[0]
                                    * T.if_then_else(
                                        i == j,
                                        diagonal[i],
                                        -wins[row, j * classes + i] * wins[row, i * classes + j],
                                    )
                                ) / (1.0 + growth[0])
                                p[row, j] = p[row, j] / (1.0 + growth[0])

    return kernel
