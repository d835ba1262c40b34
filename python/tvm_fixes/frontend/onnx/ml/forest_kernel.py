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
"""The kernel that evaluates a forest."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax, tirx
from tvm.script import tirx as T

from ..node import Node
from .forest import Forest
from .operands import constant

__all__ = ["evaluate"]

_Combination = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]

_COMBINATIONS: dict[str, _Combination] = {
    "SUM": lambda total, weight: total + weight,
    "MIN": lambda total, weight: tirx.Select(weight < total, weight, total),
    "MAX": lambda total, weight: tirx.Select(weight > total, weight, total),
}


def evaluate(
    node: Node, x: relax.Expr, forest: Forest, count: int, function: str, *, marks_absent: bool
) -> relax.Expr:
    """The weights of all leaves that a row reaches, combined per target.

    Parameters
    ----------
    x : Expr
        A matrix of the dtype of the thresholds, with all columns that the forest compares.
    count : int
        The number of targets.
    function : str
        ``SUM``, ``MIN`` or ``MAX``.
    marks_absent : bool
        Whether the result is NaN, not 0, for a target without a weight in any reached leaf.

    Returns
    -------
    Expr
        A matrix of shape (rows of `x`, `count`).
    """
    extents = x.ty.shape.values
    sizes = [
        int(extent) if isinstance(extent, tirx.IntImm) else tirx.Var(name, "int64")
        for name, extent in zip(("rows", "columns"), extents, strict=True)
    ]
    leaves = forest.leaves
    arrays = [
        forest.roots,
        forest.features,
        forest.thresholds,
        forest.children,
        forest.nan_left.astype("int32"),
        leaves.starts,
        leaves.targets,
        leaves.weights,
    ]
    # A buffer without elements has no address.
    constants = [
        constant(one if one.size else np.zeros([1, *one.shape[1:]], one.dtype)) for one in arrays
    ]
    kernel = _kernel(
        sizes,
        [int(one.ty.shape[0]) for one in constants],
        count,
        str(forest.thresholds.dtype),
        _marking(_COMBINATIONS[function]) if marks_absent else _COMBINATIONS[function],
        np.nan if marks_absent else 0.0,
        _goes_left_with_nan if forest.nan_left.any() else _goes_left,
    )
    name = node.builder.add_func(kernel, "evaluate_forest")
    out = relax.TensorType([extents[0], count], str(forest.thresholds.dtype))
    return node.emit(relax.call_tir(name, [x, *constants], out))


def _marking(combine: _Combination) -> _Combination:
    """A combination that replaces NaN, the mark of a target without a weight."""
    return lambda total, weight: tirx.Select(tirx.isnan(total), weight, combine(total, weight))


def _goes_left(value: tirx.Expr, threshold: tirx.Expr, nan_left: tirx.Expr) -> tirx.Expr:
    return value <= threshold


def _goes_left_with_nan(value: tirx.Expr, threshold: tirx.Expr, nan_left: tirx.Expr) -> tirx.Expr:
    return tirx.any(value <= threshold, tirx.all(tirx.isnan(value), nan_left != 0))


def _kernel(
    sizes: Sequence[int | tirx.Var],
    counts: Sequence[int],
    targets: int,
    dtype: str,
    combine: _Combination,
    initial: float,
    goes_left: Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr],
) -> tirx.PrimFunc:
    """The loop over rows, and in each row over trees; `counts` are the lengths of the arrays."""
    rows, columns = sizes
    trees, nodes, _, _, _, starts, weights, _ = counts

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((rows, columns), dtype),
        roots: T.Buffer((trees,), "int32"),
        features: T.Buffer((nodes,), "int32"),
        thresholds: T.Buffer((nodes,), dtype),
        children: T.Buffer((nodes, 2), "int32"),
        nan_left: T.Buffer((nodes,), "int32"),
        first: T.Buffer((starts,), "int32"),
        target: T.Buffer((weights,), "int32"),
        weight: T.Buffer((weights,), dtype),
        total: T.Buffer((rows, targets), dtype),
    ) -> None:
        T.func_attr({"tirx.noalias": True})
        for i in range(rows):
            with T.sblock("forest"):
                row = T.axis.spatial(rows, i)
                T.reads(
                    *(x[row, 0:columns], roots[0:trees], features[0:nodes], thresholds[0:nodes]),
                    *(children[0:nodes, 0:2], nan_left[0:nodes], first[0:starts]),
                    *(target[0:weights], weight[0:weights]),
                )
                T.writes(total[row, 0:targets])
                node = T.alloc_buffer((1,), "int32", scope="local")
                for k in range(targets):
                    total[row, k] = T.cast(initial, dtype)
                for tree in range(trees):
                    node[0] = roots[tree]
                    while node[0] >= 0:
                        node[0] = T.if_then_else(
                            goes_left(
                                x[row, features[node[0]]],
                                thresholds[node[0]],
                                nan_left[node[0]],
                            ),
                            children[node[0], 0],
                            children[node[0], 1],
                        )
                    for place in range(first[-1 - node[0]], first[-node[0]]):
                        total[row, target[place]] = combine(
                            total[row, target[place]], weight[place]
                        )

    return kernel
