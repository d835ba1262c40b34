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
"""TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble."""

import numpy as np
from tvm import relax

from ...dtypes import dtype_of
from ...elementary import Elementary
from ..extents import expression
from ..node import Converter, Node
from ..shape_operands import require
from .forest import Forest
from .forest_attributes import read_forest, read_listed_forest
from .forest_kernel import evaluate
from .operands import array, cast, check_count, choice, class_labels, constant, rows
from .scores import TRANSFORMS, labels_of, post_transform, transformed, two_scores

__all__ = ["convert_tree_classifier", "convert_tree_ensemble", "convert_tree_regressor"]

_FUNCTIONS = ("AVERAGE", "SUM", "MIN", "MAX")
"""The values of aggregate_function; TreeEnsemble has their numbers."""


def convert_tree_regressor(node: Node, convert: Converter) -> relax.Expr:
    """Convert a TreeEnsembleRegressor.

    float64 is compared and summed in float64, and all other dtypes in float32.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not describe trees with targets, or do not agree with the operand.
    """
    count, dtype = _target_count(node), _dtype(node)
    forest = read_listed_forest(node, "target", count, dtype)
    base = array(node, "base_values", dtype)
    check_count(node, "base_values", len(base), 0, count)
    function = choice(node, "aggregate_function", "SUM", _FUNCTIONS)
    scores = _aggregated(node, forest, count, function)
    if len(base):
        scores = node.emit(relax.op.add(scores, constant(base)))
    return transformed(node, cast(node, scores, "float32"), post_transform(node))


def convert_tree_ensemble(node: Node, convert: Converter) -> relax.Expr:
    """Convert a TreeEnsemble, of any floating-point dtype; float16 is compared in float32.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not describe trees with targets, or do not agree with the operand.
    """
    count, own = _target_count(node), dtype_of(node.operands[0])
    function = _numbered(node, "aggregate_function", 1, _FUNCTIONS)
    transform = _numbered(node, "post_transform", 0, TRANSFORMS)
    scores = _aggregated(node, read_forest(node, count, _dtype(node)), count, function)
    if transform == "NONE":
        return cast(node, scores, own)
    return cast(node, transformed(node, cast(node, scores, "float32"), transform), own)


def _numbered(node: Node, name: str, default: int, choices: tuple[str, ...]) -> str:
    number = node.attributes.get(name, default)
    if not 0 <= number < len(choices):
        raise node.invalid(f"attribute {name}", number, f"expected 0 to {len(choices) - 1}")
    return choices[number]


def _target_count(node: Node) -> int:
    count = int(node.attributes.get("n_targets", 0))
    if count < 1:
        raise node.invalid("attribute n_targets", count, "expected at least 1")
    return count


def _dtype(node: Node) -> str:
    return "float64" if dtype_of(node.operands[0]) == "float64" else "float32"


def _evaluated(
    node: Node, forest: Forest, count: int, function: str, *, marks_absent: bool
) -> relax.Expr:
    x, (_, columns) = rows(node)
    used = int(forest.features.max(initial=-1)) + 1
    reason = f"expected at least {used}, as nodes_featureids has {used - 1}"
    require(node, expression(columns) >= used, "columns of X", columns, reason)
    x = cast(node, x, str(forest.thresholds.dtype))
    return evaluate(node, x, forest, count, function, marks_absent=marks_absent)


def _aggregated(node: Node, forest: Forest, count: int, function: str) -> relax.Expr:
    """The weights per target; 0 for a target without a weight in any reached leaf."""
    a = Elementary(node.emit)
    if function in ("SUM", "AVERAGE"):
        scores = _evaluated(node, forest, count, "SUM", marks_absent=False)
        return scores if function == "SUM" else a("divide", scores, float(len(forest.roots)))
    if np.isnan(forest.leaves.weights).any():
        raise node.invalid("weight of a leaf", "NaN", f"expected a number for {function}")
    scores = _evaluated(node, forest, count, function, marks_absent=True)
    return a("where", node.emit(relax.op.isnan(scores)), 0.0, scores)


def convert_tree_classifier(node: Node, convert: Converter) -> relax.Expr:
    """Convert a TreeEnsembleClassifier, with a score per class, or one for two classes.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the labels are strings, or the attributes do not describe trees with classes.
    """
    labels, dtype = class_labels(node, "classlabels_int64s"), _dtype(node)
    forest = read_listed_forest(node, "class", len(labels), dtype)
    base, transform = array(node, "base_values", dtype), post_transform(node)
    if len(labels) == 2 and len(np.unique(forest.leaves.targets)) < 2:
        return _two_classes(node, forest, labels, base, transform)
    check_count(node, "base_values", len(base), 0, len(labels))
    # ONNX Runtime chooses among the classes that have a weight in a reached leaf, or a base value.
    marks = len(labels) > 2 and not len(base)
    scores = _evaluated(node, forest, len(labels), "SUM", marks_absent=marks)
    a = Elementary(node.emit)
    ranked = scores
    if marks:
        is_absent = node.emit(relax.op.isnan(scores))
        ranked = a("where", is_absent, -np.inf, scores)
        scores = a("where", is_absent, 0.0, scores)
    elif len(base):
        ranked = scores = node.emit(relax.op.add(scores, constant(base)))
    index = node.emit(relax.op.argmax(ranked, axis=1))
    out = transformed(node, cast(node, scores, "float32"), transform)
    return relax.Tuple([labels_of(node, labels, index), out])


def _two_classes(
    node: Node, forest: Forest, labels: np.ndarray, base: np.ndarray, transform: str
) -> relax.Expr:
    """Labels and scores of two classes if all weights belong to one class.

    As in ONNX Runtime, that class is the second one, and its score is a share of 1 if no weight is
    negative.
    """
    is_share = bool((forest.leaves.weights >= 0).all())
    own = int(forest.leaves.targets.max(initial=0))
    check_count(node, "base_values", len(base), 0, 1 - own)
    scores = _evaluated(node, forest, 2, "SUM", marks_absent=False)
    score = node.emit(relax.op.strided_slice(scores, [1], [own], [own + 1]))
    if len(base):
        score = node.emit(relax.op.add(score, constant(base)))
    limit = relax.const(0.5 if is_share else 0.0, dtype_of(score))
    index = node.emit(relax.op.squeeze(node.emit(relax.op.greater(score, limit)), [1]))
    if own:
        out = transformed(node, cast(node, scores, "float32"), transform)
    else:
        out = two_scores(node, cast(node, score, "float32"), transform, is_share)
    return relax.Tuple([labels_of(node, labels, index), out])
