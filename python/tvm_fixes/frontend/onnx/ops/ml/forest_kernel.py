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

import functools
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax, tirx
from tvm.script import tirx as T

from ...call import Call
from .forest import Forest
from .operands import constant

__all__ = ["evaluate"]

_TREES = 8
"""The trees that a row descends in lockstep, so that their loads overlap."""

_ROWS = 4
"""The rows that descend the same trees one after the other, whose nodes stay in the cache."""

_Combination = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]

_COMBINATIONS: dict[str, _Combination] = {
    "SUM": lambda total, weight: total + weight,
    "MIN": lambda total, weight: tirx.Select(weight < total, weight, total),
    "MAX": lambda total, weight: tirx.Select(weight > total, weight, total),
}


def evaluate(
    call: Call, x: relax.Expr, forest: Forest, count: int, function: str, *, marks_absent: bool
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
    features, thresholds, children, nan_left = _with_leaves(forest)
    roots = np.where(forest.roots < 0, len(forest.features) - 1 - forest.roots, forest.roots)
    arrays = [
        roots.astype("int32"),
        *(features, thresholds, children, nan_left),
        *(leaves.starts, leaves.targets, leaves.weights),
    ]
    # A buffer without elements has no address.
    constants = [
        constant(one if one.size else np.zeros([1, *one.shape[1:]], one.dtype)) for one in arrays
    ]
    kernel = _kernel(
        sizes,
        [int(one.ty.shape[0]) for one in constants],
        (len(roots), len(forest.features), count),
        str(forest.thresholds.dtype),
        _marking(_COMBINATIONS[function]) if marks_absent else _COMBINATIONS[function],
        np.nan if marks_absent else 0.0,
        bool((np.diff(leaves.starts) == 1).all()),
        _goes_left_with_nan if forest.nan_left.any() else _goes_left,
    )
    name = call.builder.add_func(kernel, "evaluate_forest")
    out = relax.TensorType([extents[0], count], str(forest.thresholds.dtype))
    return call.emit(relax.call_tir(name, [x, *constants], out))


def _marking(combine: _Combination) -> _Combination:
    """A combination that replaces NaN, the mark of a target without a weight."""
    return lambda total, weight: tirx.Select(tirx.isnan(total), weight, combine(total, weight))


def _goes_left(value: tirx.Expr, threshold: tirx.Expr, nan_left: tirx.Expr) -> tirx.Expr:
    return value <= threshold


def _goes_left_with_nan(value: tirx.Expr, threshold: tirx.Expr, nan_left: tirx.Expr) -> tirx.Expr:
    return tirx.any(value <= threshold, tirx.all(tirx.isnan(value), nan_left != 0))


def _with_leaves(forest: Forest) -> tuple[np.ndarray, ...]:
    """Features, thresholds, children and the branch for NaN of all nodes, including the leaves.

    Leaf i follows the inner nodes and is its own child, so a tree may be descended further than its
    depth.
    """
    inner, count = len(forest.features), len(forest.leaves.starts) - 1
    own = inner + np.arange(count, dtype="int32")
    children = np.where(forest.children < 0, inner - 1 - forest.children, forest.children)
    zeros = np.zeros(count, "int32")
    return (
        np.concatenate([forest.features, zeros]),
        np.concatenate([forest.thresholds, zeros.astype(forest.thresholds.dtype)]),
        np.concatenate([children.astype("int32").reshape(-1, 2), np.stack([own, own], axis=1)]),
        np.concatenate([forest.nan_left.astype("int32"), zeros]),
    )


def _kernel(
    sizes: Sequence[int | tirx.Var],
    counts: Sequence[int],
    forest: tuple[int, int, int],
    dtype: str,
    combine: _Combination,
    initial: float,
    has_one_weight: bool,
    goes_left: Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr],
) -> tirx.PrimFunc:
    """The loops over blocks of rows, blocks of trees, rows, and in lockstep over trees.

    `counts` are the lengths of the arrays, and `forest` the numbers of trees, inner nodes and
    targets.  `has_one_weight` says that each leaf has one weight.  The weights of a row are
    combined in the order of the trees.
    """
    rows, columns = sizes
    lanes, nodes, _, _, _, starts, weights, _ = counts
    trees, inner, targets = forest
    row_blocks = (rows + _ROWS - 1) // _ROWS
    blocks = (trees + _TREES - 1) // _TREES

    def start_of(first: tirx.Buffer, leaf: tirx.Expr) -> tirx.Expr:
        """The place of the first weight of a leaf."""
        return leaf if has_one_weight else first[leaf]

    def is_inside(places: list[tirx.Expr]) -> tirx.Expr:
        """Whether a tree is not at a leaf; all leaves follow the inner nodes."""
        return functools.reduce(tirx.min, places) < inner

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((rows, columns), dtype),
        roots: T.Buffer((lanes,), "int32"),
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
        for i in range(row_blocks):
            with T.sblock("forest"):
                part = T.axis.spatial(row_blocks, i)
                T.reads(
                    *(x[0:rows, 0:columns], roots[0:lanes]),
                    *(features[0:nodes], thresholds[0:nodes], children[0:nodes, 0:2]),
                    *(nan_left[0:nodes], first[0:starts], target[0:weights], weight[0:weights]),
                )
                T.writes(total[part * _ROWS : T.min((part + 1) * _ROWS, rows), 0:targets])
                node = T.alloc_buffer((_TREES,), "int32", scope="local")
                for r, k in T.grid(T.min(_ROWS, rows - part * _ROWS), targets):
                    total[part * _ROWS + r, k] = T.cast(initial, dtype)
                for block in range(blocks):
                    for r in range(T.min(_ROWS, rows - part * _ROWS)):
                        for lane in T.unroll(_TREES):
                            node[lane] = roots[T.min(block * _TREES + lane, trees - 1)]
                        while is_inside([node[lane] for lane in range(_TREES)]):
                            for lane in T.unroll(_TREES):
                                node[lane] = T.Select(
                                    goes_left(
                                        x[part * _ROWS + r, features[node[lane]]],
                                        thresholds[node[lane]],
                                        nan_left[node[lane]],
                                    ),
                                    children[node[lane], 0],
                                    children[node[lane], 1],
                                )
                        for lane in T.unroll(_TREES):
                            if block * _TREES + lane < trees:
                                for place in range(
                                    start_of(first, node[lane] - inner),
                                    start_of(first, node[lane] - inner + 1),
                                ):
                                    total[part * _ROWS + r, target[place]] = combine(
                                        total[part * _ROWS + r, target[place]], weight[place]
                                    )

    return kernel
