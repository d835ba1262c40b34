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
"""A forest of decision trees whose nodes all compare with ``<=``.

Each comparison of the standard becomes such nodes: ``x < t`` compares with the next number below
`t`, ``x > t`` swaps the branches, and equality and membership become a search tree over the values.
A node also records the branch for a NaN. So one loop evaluates all trees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["MODES", "Forest", "Leaves", "Splits"]

MODES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
)
"""The comparisons of inner nodes, by their number in TreeEnsemble."""


@dataclass(frozen=True)
class Splits:
    """The inner nodes of trees, as in the model.

    Attributes
    ----------
    features, modes, on_true, on_false : np.ndarray
        The column that a node compares, the position of its mode in `MODES`, and its successors: a
        node, or ``-1 - leaf``.
    values : np.ndarray
        The values that nodes compare with, in the dtype of the comparison.
    tracks_true : np.ndarray
        Whether a NaN goes to `on_true`.
    members : mapping of int to np.ndarray
        The values of each node of mode BRANCH_MEMBER.
    """

    features: np.ndarray
    modes: np.ndarray
    values: np.ndarray
    on_true: np.ndarray
    on_false: np.ndarray
    tracks_true: np.ndarray
    members: Mapping[int, np.ndarray] = field(default_factory=dict)

    def cycle(self) -> int | None:
        """A node that is its own descendant, if there is one."""
        children = np.stack([self.on_true, self.on_false], axis=1)
        own = np.arange(len(children))[:, None]
        if (children[children >= 0] > np.broadcast_to(own, children.shape)[children >= 0]).all():
            return None
        is_done, is_open = np.zeros(len(own), bool), np.zeros(len(own), bool)
        for root in range(len(own)):
            pending = [root]
            while pending:
                node = pending[-1]
                if is_done[node] or is_open[node]:
                    is_open[node], is_done[node] = False, True
                    pending.pop()
                    continue
                is_open[node] = True
                for child in children[node]:
                    if child >= 0 and is_open[child]:
                        return int(child)
                    if child >= 0 and not is_done[child]:
                        pending.append(int(child))
        return None


@dataclass(frozen=True)
class Leaves:
    """The weights of leaves: those of leaf i are at ``starts[i]`` up to ``starts[i + 1]``."""

    starts: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(
        cls, count: int, owners: np.ndarray, targets: np.ndarray, weights: np.ndarray
    ) -> "Leaves":
        """The leaves of weights in any order; `owners` has the leaf of each weight."""
        order = np.argsort(owners, kind="stable")
        starts = np.searchsorted(owners[order], np.arange(count + 1)).astype("int32")
        return cls(starts, targets[order].astype("int32"), weights[order])


@dataclass(frozen=True)
class Forest:
    """Trees of nodes that go left if ``x[feature] <= threshold``, or to ``children[node, 0]``.

    Attributes
    ----------
    roots, features, thresholds : np.ndarray
    children : np.ndarray
        The nodes on the left and on the right; ``-1 - leaf`` for a leaf.
    nan_left : np.ndarray
        Whether a NaN goes left.
    leaves : Leaves
    """

    roots: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    children: np.ndarray
    nan_left: np.ndarray
    leaves: Leaves

    @classmethod
    def of(cls, splits: Splits, roots: np.ndarray, leaves: Leaves) -> "Forest":
        """The forest that `splits` describe."""
        builder = _Builder(splits)
        for node in np.flatnonzero(splits.modes >= MODES.index("BRANCH_EQ")):
            builder.add_search(int(node))
        features, thresholds, children, nan_left = builder.arrays()
        return cls(roots.astype("int32"), features, thresholds, children, nan_left, leaves)


class _Builder:
    """The nodes of a forest; a search tree replaces its node."""

    def __init__(self, splits: Splits) -> None:
        self.splits = splits
        mode = splits.modes
        is_nan = np.isnan(splits.values)
        # Comparisons with NaN are false, and so is ``x <= NaN``.
        is_swapped = ((mode == 2) | (mode == 3)) & ~is_nan
        self.left = np.where(is_swapped, splits.on_false, splits.on_true)
        self.right = np.where(is_swapped, splits.on_true, splits.on_false)
        is_strict = (mode == 1) | (mode == 2)
        self.thresholds = np.where(is_strict, below(splits.values), splits.values)
        self.nan_left = splits.tracks_true ^ is_swapped
        self.added: list[tuple[int, float, int, int, bool]] = []

    def add_search(self, node: int) -> None:
        """Replace the node by a search tree that finds whether x is one of its values."""
        splits = self.splits
        is_inverse = MODES[splits.modes[node]] == "BRANCH_NEQ"
        inside, outside = splits.on_true[node], splits.on_false[node]
        if is_inverse:
            inside, outside = outside, inside
        values = splits.members.get(node, splits.values[node : node + 1])
        values = np.unique(values[~np.isnan(values)])
        goes_inside = bool(splits.tracks_true[node]) and not is_inverse
        if not len(values):
            self._set(node, np.nan, inside, outside, goes_inside)
            return
        bounds = np.stack([below(values), values], axis=1).ravel()
        # Interval i is (bounds[i - 1], bounds[i]]; those with odd numbers hold one value each.
        exits = [inside if place % 2 else outside for place in range(len(bounds) + 1)]
        nan = 1 if goes_inside else len(bounds)
        pending = [(node, 0, len(bounds))]
        while pending:
            at, low, high = pending.pop()
            middle = (low + high) // 2
            children = []
            for first, last in ((low, middle), (middle + 1, high)):
                if first == last:
                    children.append(int(exits[first]))
                    continue
                children.append(self._new(node))
                pending.append((children[-1], first, last))
            left, right = children
            self._set(at, bounds[middle], left, right, nan <= middle)

    def _new(self, node: int) -> int:
        self.added.append((int(self.splits.features[node]), np.nan, 0, 0, False))
        return len(self.left) + len(self.added) - 1

    def _set(self, at: int, threshold: float, left: int, right: int, nan_left: bool) -> None:
        if at >= len(self.left):
            feature = self.added[at - len(self.left)][0]
            self.added[at - len(self.left)] = (feature, threshold, left, right, nan_left)
            return
        self.thresholds[at], self.nan_left[at] = threshold, nan_left
        self.left[at], self.right[at] = left, right

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Features, thresholds, children, and whether NaN goes left."""
        start = (self.splits.features, self.thresholds, self.left, self.right, self.nan_left)
        features, thresholds, left, right, nan_left = (
            np.concatenate([first, np.array([node[place] for node in self.added], first.dtype)])
            for place, first in enumerate(start)
        )
        children = np.stack([left, right], axis=1).astype("int32")
        return features.astype("int32"), thresholds, children, nan_left


def below(values: np.ndarray) -> np.ndarray:
    """The greatest numbers less than `values`; NaN for negative infinity."""
    negative = np.array(-np.inf, values.dtype)
    return np.where(
        values == negative, np.array(np.nan, values.dtype), np.nextafter(values, negative)
    )
