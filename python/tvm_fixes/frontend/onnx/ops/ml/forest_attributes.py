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
"""Forests from the attributes of tree ensembles."""

from collections.abc import Iterator

import numpy as np

from ...call import Call
from .forest import MODES, Forest, Leaves, Splits
from .operands import array, check_count

__all__ = ["read_forest", "read_listed_forest"]

_LEAF = "LEAF"


def read_listed_forest(call: Call, kind: str, count: int, dtype: str) -> Forest:
    """The forest of a TreeEnsembleRegressor or TreeEnsembleClassifier.

    Parameters
    ----------
    kind : str
        The prefix of the attributes of leaves, ``"target"`` or ``"class"``.
    count : int
        The number of targets or classes.
    dtype : str
        The dtype of comparisons and weights.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not describe trees.
    """
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    lists = {name: array(call, f"nodes_{name}", "int64") for name in names}
    total = len(lists["nodeids"])
    values = array(call, "nodes_values", dtype)
    modes = _modes(call)
    tracks = array(call, "nodes_missing_value_tracks_true", "int64")
    for name, found in (*lists.items(), ("values", values), ("modes", modes)):
        check_count(call, f"nodes_{name}", len(found), total)
    check_count(call, "nodes_missing_value_tracks_true", len(tracks), 0, total)
    if not total:
        raise call.invalid("attribute nodes_nodeids", [], "expected one or more nodes")
    is_leaf = modes == len(MODES)
    places = _places(call, lists["treeids"], lists["nodeids"])
    # The index of a node among the inner nodes, or -1 - the index among the leaves.
    numbers = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1)

    def successors(name: str) -> np.ndarray:
        return np.array(
            [
                numbers[_found(call, places, tree, child, f"nodes_{name}")]
                for tree, child in _pairs(lists["treeids"][~is_leaf], lists[name][~is_leaf])
            ],
            "int64",
        )

    splits = Splits(
        lists["featureids"][~is_leaf],
        modes[~is_leaf],
        values[~is_leaf],
        successors("truenodeids"),
        successors("falsenodeids"),
        tracks[~is_leaf] != 0 if len(tracks) else np.zeros(int((~is_leaf).sum()), bool),
    )
    _, first = np.unique(lists["treeids"], return_index=True)
    roots = numbers[np.sort(first)]
    inner = np.isin(roots, [splits.on_true, splits.on_false])
    if inner.any():
        tree = lists["treeids"][np.sort(first)[inner][0]]
        raise call.invalid("first node of tree", tree, "expected its root, but it has a parent")
    leaves = _listed_leaves(call, kind, count, dtype, places, numbers)
    return _checked(call, splits, roots, leaves)


def _modes(call: Call) -> np.ndarray:
    known = {name.encode(): number for number, name in enumerate(MODES[:6])}
    known[_LEAF.encode()] = len(MODES)
    modes = call.attributes.get("nodes_modes", ())
    unknown = next((mode for mode in modes if mode not in known), None)
    if unknown is not None:
        reason = f"expected one of {[*MODES[:6], _LEAF]}"
        raise call.invalid("element of nodes_modes", repr(unknown.decode()), reason)
    return np.array([known[mode] for mode in modes], "int64")


def _pairs(trees: np.ndarray, ids: np.ndarray) -> Iterator[tuple[int, int]]:
    return zip(trees.tolist(), ids.tolist(), strict=True)


def _places(call: Call, trees: np.ndarray, ids: np.ndarray) -> dict[tuple[int, int], int]:
    """The position of each node by its tree and id."""
    places: dict[tuple[int, int], int] = {}
    for place, pair in enumerate(_pairs(trees, ids)):
        if places.setdefault(pair, place) != place:
            tree, name = pair
            reason = f"expected distinct nodes, but tree {tree} has it twice"
            raise call.invalid("element of nodes_nodeids", name, reason)
    return places


def _found(
    call: Call, places: dict[tuple[int, int], int], tree: int, name: int, attribute: str
) -> int:
    place = places.get((tree, name))
    if place is None:
        reason = f"expected the id of a node of tree {tree}"
        raise call.invalid(f"element of {attribute}", name, reason)
    return place


def _listed_leaves(
    call: Call,
    kind: str,
    count: int,
    dtype: str,
    places: dict[tuple[int, int], int],
    numbers: np.ndarray,
) -> Leaves:
    names = ("treeids", "nodeids", "ids")
    trees, ids, targets = (array(call, f"{kind}_{name}", "int64") for name in names)
    weights = array(call, f"{kind}_weights", dtype)
    for name, found in (("treeids", trees), ("nodeids", ids), ("weights", weights)):
        check_count(call, f"{kind}_{name}", len(found), len(targets))
    owners = np.array(
        [
            numbers[_found(call, places, tree, name, f"{kind}_nodeids")]
            for tree, name in _pairs(trees, ids)
        ],
        "int64",
    )
    _check_targets(call, f"{kind}_ids", targets, count)
    used = owners < 0  # weights of inner nodes have no effect
    total = int((numbers < 0).sum())
    return Leaves.of(total, -1 - owners[used], targets[used], weights[used])


def read_forest(call: Call, count: int, dtype: str) -> Forest:
    """The forest of a TreeEnsemble with `count` targets.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not describe trees.
    """
    targets = array(call, "leaf_targetids", "int64")
    weights = array(call, "leaf_weights", dtype)
    check_count(call, "leaf_weights", len(weights), len(targets))
    _check_targets(call, "leaf_targetids", targets, count)
    features = array(call, "nodes_featureids", "int64")
    total, modes = len(features), array(call, "nodes_modes", "int64")
    values = array(call, "nodes_splits", dtype)
    tracks = array(call, "nodes_missing_value_tracks_true", "int64")
    check_count(call, "nodes_modes", len(modes), total)
    check_count(call, "nodes_splits", len(values), total)
    check_count(call, "nodes_missing_value_tracks_true", len(tracks), 0, total)
    if ((modes < 0) | (modes >= len(MODES))).any():
        raise call.invalid("attribute nodes_modes", modes.tolist(), "expected 0 to 6")
    splits = Splits(
        features,
        modes,
        values,
        _children(call, "true", total, len(targets)),
        _children(call, "false", total, len(targets)),
        tracks != 0 if len(tracks) else np.zeros(total, bool),
        _members(call, modes, dtype),
    )
    roots = array(call, "tree_roots", "int64")
    if not len(roots) or not ((roots >= 0) & (roots < total)).all():
        reason = f"expected one or more nodes, 0 to {total - 1}"
        raise call.invalid("attribute tree_roots", roots.tolist(), reason)
    leaves = Leaves.of(len(targets), np.arange(len(targets)), targets, weights)
    return _checked(call, splits, roots, leaves)


def _children(call: Call, branch: str, nodes: int, leaves: int) -> np.ndarray:
    found = array(call, f"nodes_{branch}nodeids", "int64")
    is_leaf = array(call, f"nodes_{branch}leafs", "int64") != 0
    check_count(call, f"nodes_{branch}nodeids", len(found), nodes)
    check_count(call, f"nodes_{branch}leafs", len(is_leaf), nodes)
    limits = np.where(is_leaf, leaves, nodes)
    wrong = np.flatnonzero((found < 0) | (found >= limits))
    if len(wrong):
        reason = f"expected 0 to {limits[wrong[0]] - 1}"
        raise call.invalid(f"element of nodes_{branch}nodeids", found[wrong[0]], reason)
    return np.where(is_leaf, -1 - found, found)


def _members(call: Call, modes: np.ndarray, dtype: str) -> dict[int, np.ndarray]:
    """The values of each node of mode BRANCH_MEMBER; a NaN ends those of one node."""
    nodes = np.flatnonzero(modes == MODES.index("BRANCH_MEMBER")).tolist()
    values = array(call, "membership_values", dtype)
    groups = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    groups = groups[:-1] if not len(groups[-1]) else groups
    check_count(call, "membership_values separated by NaN", len(groups), len(nodes))
    return dict(zip(nodes, groups, strict=True))


def _check_targets(call: Call, name: str, targets: np.ndarray, count: int) -> None:
    wrong = targets[(targets < 0) | (targets >= count)]
    if len(wrong):
        raise call.invalid(f"element of {name}", wrong[0], f"expected 0 to {count - 1}")


def _checked(call: Call, splits: Splits, roots: np.ndarray, leaves: Leaves) -> Forest:
    limit = np.iinfo("int32").max
    wrong = splits.features[(splits.features < 0) | (splits.features > limit)]
    if len(wrong):
        raise call.invalid("element of nodes_featureids", wrong[0], f"expected 0 to {limit}")
    cycle = splits.cycle()
    if cycle is not None:
        reason = "expected trees, but a node is its own descendant"
        raise call.invalid("inner node", cycle, reason)
    return Forest.of(splits, roots, leaves)
