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
"""Models of the domain ai.onnx.ml: one node, and random forests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from helpers import grids
from helpers.onnx_graphs import Arrays, assert_as_onnx_runtime, node_model
from tvm_fixes.frontend.onnx import from_onnx

DOMAIN = "ai.onnx.ml"

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")

LABELS = {"y": ("int64", 1), "scores": ("float32", 2)}
"""The outputs of a classifier."""


def ml_model(
    operator: str,
    inputs: Arrays,
    attributes: Mapping[str, object],
    *,
    outputs: Mapping[str, tuple[str, int]] | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    constants: Arrays | None = None,
    version: int = 3,
) -> onnx.ModelProto:
    """A model of one node of the domain, with the version of its operator set."""
    model = node_model(
        operator,
        inputs,
        attributes,
        outputs=outputs or {"y": ("float32", 2)},
        shapes=shapes,
        constants=constants,
        domain=DOMAIN,
    )
    model.opset_import[-1].version = version
    return model


def assert_sample_as_onnx_runtime(
    cases: Mapping[str, tuple[onnx.ModelProto, Arrays]], count: int, rtol: float
) -> None:
    """Assert that cases equal ONNX Runtime: all in the full tier, otherwise `count` of them."""
    chosen = dict(grids.sample(list(cases.items()), count))
    assert_as_onnx_runtime(from_onnx, chosen, rtol=rtol, optimize=False)


@dataclass(frozen=True)
class Split:
    """An inner node; `value` is an array for the mode MEMBER."""

    feature: int
    mode: str
    value: float | np.ndarray
    tracks_true: bool
    on_true: "Tree"
    on_false: "Tree"


Leaf: TypeAlias = list[tuple[int, float]]
"""Pairs of a target and its weight."""

Tree: TypeAlias = Split | Leaf


@dataclass(frozen=True)
class Garden:
    """The form of random trees.

    Attributes
    ----------
    modes : sequence of str
        The modes of inner nodes.
    targets : sequence of int
        The targets that leaves have weights of.
    each : int
        The number of weights per leaf.
    low, high : float
        The range of weights.
    """

    modes: Sequence[str] = ("LEQ",)
    targets: Sequence[int] = (0,)
    each: int = 1
    low: float = -1.0
    high: float = 1.0
    tracks_true: bool = False
    features: int = 4
    depth: int = 4

    def tree(self, generator: np.random.Generator, depth: int | None = None) -> Tree:
        """A tree whose nodes compare with whole numbers, zeros and infinities."""
        depth = self.depth if depth is None else depth
        if depth == 0 or (depth < self.depth and generator.random() < 0.2):
            chosen = generator.choice(self.targets, self.each, replace=False)
            weights = generator.uniform(self.low, self.high, self.each)
            return [(int(t), float(np.float32(w))) for t, w in zip(chosen, weights, strict=True)]
        mode, value = (
            generator.choice(self.modes),
            generator.choice([-1, -0.0, 0, 0.5, 1, 2, np.inf]),
        )
        if mode == "MEMBER":
            value = generator.choice([-2.0, -1.0, 0.0, 1.0, 2.0], generator.integers(1, 5))
        return Split(
            int(generator.integers(self.features)),
            str(mode),
            value,
            self.tracks_true and bool(generator.random() < 0.5),
            self.tree(generator, depth - 1),
            self.tree(generator, depth - 1),
        )

    def trees(self, count: int = 3, seed: int = 0) -> list[Tree]:
        generator = np.random.default_rng(seed)
        return [self.tree(generator) for _ in range(count)]


def elements(
    rows: int, columns: int = 4, seed: int = 0, dtype: str = "float32", *, whole: bool = False
) -> np.ndarray:
    """Elements that trees of a garden compare equal to, and special values of floats."""
    choices = [-2, -1, -0.0, 0, *([] if whole else [0.5]), 1, 2, np.inf, -np.inf, np.nan]
    choices = choices if dtype.startswith("float") else [-2, -1, 0, 1, 2]
    return np.random.default_rng(seed).choice(choices, (rows, columns)).astype(dtype)


def listed(trees: Sequence[Tree], kind: str, dtype: str = "float32") -> dict[str, object]:
    """The attributes of a TreeEnsembleRegressor or -Classifier; kind is ``target`` or ``class``."""
    nodes: list[tuple[int, int, int, float, str, int, int, int]] = []
    weights: list[tuple[int, int, int, float]] = []

    def add(number: int, tree: Tree, first: int) -> int:
        place, name = len(nodes), len(nodes) - first
        nodes.append((number, name, 0, 0.0, "LEAF", 0, 0, 0))
        if isinstance(tree, list):
            weights.extend((number, name, target, weight) for target, weight in tree)
            return name
        mode, value = f"BRANCH_{tree.mode}", float(tree.value)
        children = [add(number, child, first) for child in (tree.on_true, tree.on_false)]
        nodes[place] = (number, name, tree.feature, value, mode, *children, int(tree.tracks_true))
        return name

    for number, tree in enumerate(trees):
        add(number, tree, len(nodes))
    names = "treeids nodeids featureids values modes truenodeids falsenodeids"
    names += " missing_value_tracks_true"
    columns = zip(names.split(), zip(*nodes, strict=True), strict=True)
    found: dict[str, object] = {f"nodes_{name}": list(column) for name, column in columns}
    ends = zip(("treeids", "nodeids", "ids", "weights"), zip(*weights, strict=True), strict=True)
    found |= {f"{kind}_{name}": list(column) for name, column in ends}
    if dtype == "float64":
        for name in ("nodes_values", f"{kind}_weights"):
            values = np.array(found.pop(name), dtype)
            found[f"{name}_as_tensor"] = numpy_helper.from_array(values)
    if not any(found["nodes_missing_value_tracks_true"]):
        del found["nodes_missing_value_tracks_true"]
    return found


def joined(trees: Sequence[Tree], dtype: str = "float32") -> dict[str, object]:
    """The attributes of a TreeEnsemble, for trees with one weight per leaf."""
    nodes: list[Split] = []
    leaves: list[tuple[int, float]] = []
    children: list[list[tuple[int, int]]] = []

    def add(tree: Tree) -> tuple[int, int]:
        if isinstance(tree, list):
            leaves.extend(tree)
            return 1, len(leaves) - 1
        nodes.append(tree)
        children.append([])
        place = len(nodes) - 1
        children[place] = [add(tree.on_true), add(tree.on_false)]
        return 0, place

    roots = [add(tree)[1] for tree in trees]
    members = [v for node in nodes if node.mode == "MEMBER" for v in (*node.value, np.nan)]
    splits = [0.0 if node.mode == "MEMBER" else float(node.value) for node in nodes]
    found: dict[str, object] = {
        "tree_roots": roots,
        "nodes_featureids": [node.feature for node in nodes],
        "nodes_modes": np.array([MODES.index(node.mode) for node in nodes], "uint8"),
        "nodes_splits": np.array(splits, dtype),
        "leaf_targetids": [target for target, _ in leaves],
        "leaf_weights": np.array([weight for _, weight in leaves], dtype),
    }
    if members:
        found["membership_values"] = np.array(members, dtype)
    if any(node.tracks_true for node in nodes):
        found["nodes_missing_value_tracks_true"] = [int(node.tracks_true) for node in nodes]
    for branch, name in enumerate(("true", "false")):
        found[f"nodes_{name}leafs"] = [pair[branch][0] for pair in children]
        found[f"nodes_{name}nodeids"] = [pair[branch][1] for pair in children]
    return {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in found.items()
    }
