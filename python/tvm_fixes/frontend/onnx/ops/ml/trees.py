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

from .....fixes.onnx_importer import ML
from ....dtypes import dtype_of
from ....elementary import Elementary
from ....extents import expression
from ...call import Call, converts
from ..shape_operands import require
from .forest import Forest
from .forest_attributes import read_forest, read_listed_forest
from .forest_kernel import evaluate
from .operands import array, cast, check_count, choice, class_labels, constant, rows
from .scores import TRANSFORMS, labels_of, post_transform, transformed, two_scores

_FUNCTIONS = ("AVERAGE", "SUM", "MIN", "MAX")
"""The values of aggregate_function; TreeEnsemble has their numbers."""


@converts("ai.onnx.ml.TreeEnsembleRegressor", fix=ML, noted=True)
def convert_tree_regressor(call: Call) -> relax.Expr:
    """Convert a TreeEnsembleRegressor.

    float64 is compared and summed in float64, and all other dtypes in float32.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not describe trees with targets, or do not agree with the operand.
    """
    count, dtype = _target_count(call), _dtype(call)
    forest = read_listed_forest(call, "target", count, dtype)
    base = array(call, "base_values", dtype)
    check_count(call, "base_values", len(base), 0, count)
    function = choice(call, "aggregate_function", "SUM", _FUNCTIONS)
    scores = _aggregated(call, forest, count, function)
    if len(base):
        scores = call.emit(relax.op.add(scores, constant(base)))
    return transformed(call, cast(call, scores, "float32"), post_transform(call))


@converts("ai.onnx.ml.TreeEnsemble", fix=ML, noted=True)
def convert_tree_ensemble(call: Call) -> relax.Expr:
    """Convert a TreeEnsemble, of any floating-point dtype; float16 is compared in float32.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not describe trees with targets, or do not agree with the operand.
    """
    count, own = _target_count(call), dtype_of(call.operands[0])
    function = _numbered(call, "aggregate_function", 1, _FUNCTIONS)
    transform = _numbered(call, "post_transform", 0, TRANSFORMS)
    scores = _aggregated(call, read_forest(call, count, _dtype(call)), count, function)
    if transform == "NONE":
        return cast(call, scores, own)
    return cast(call, transformed(call, cast(call, scores, "float32"), transform), own)


def _numbered(call: Call, name: str, default: int, choices: tuple[str, ...]) -> str:
    number = call.attributes.get(name, default)
    if not 0 <= number < len(choices):
        raise call.invalid(f"attribute {name}", number, f"expected 0 to {len(choices) - 1}")
    return choices[number]


def _target_count(call: Call) -> int:
    count = int(call.attributes.get("n_targets", 0))
    if count < 1:
        raise call.invalid("attribute n_targets", count, "expected at least 1")
    return count


def _dtype(call: Call) -> str:
    return "float64" if dtype_of(call.operands[0]) == "float64" else "float32"


def _evaluated(
    call: Call, forest: Forest, count: int, function: str, *, marks_absent: bool
) -> relax.Expr:
    x, (_, columns) = rows(call)
    used = int(forest.features.max(initial=-1)) + 1
    reason = f"expected at least {used}, as nodes_featureids has {used - 1}"
    require(call, expression(columns) >= used, "columns of X", columns, reason)
    x = cast(call, x, str(forest.thresholds.dtype))
    return evaluate(call, x, forest, count, function, marks_absent=marks_absent)


def _aggregated(call: Call, forest: Forest, count: int, function: str) -> relax.Expr:
    """The weights per target; 0 for a target without a weight in any reached leaf."""
    a = Elementary(call.emit)
    if function in ("SUM", "AVERAGE"):
        scores = _evaluated(call, forest, count, "SUM", marks_absent=False)
        return scores if function == "SUM" else a("divide", scores, float(len(forest.roots)))
    if np.isnan(forest.leaves.weights).any():
        raise call.invalid("weight of a leaf", "NaN", f"expected a number for {function}")
    scores = _evaluated(call, forest, count, function, marks_absent=True)
    return a("where", call.emit(relax.op.isnan(scores)), 0.0, scores)


@converts("ai.onnx.ml.TreeEnsembleClassifier", fix=ML, noted=True)
def convert_tree_classifier(call: Call) -> relax.Expr:
    """Convert a TreeEnsembleClassifier, with a score per class, or one for two classes.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the labels are strings, or the attributes do not describe trees with classes.
    """
    labels, dtype = class_labels(call, "classlabels_int64s"), _dtype(call)
    forest = read_listed_forest(call, "class", len(labels), dtype)
    base, transform = array(call, "base_values", dtype), post_transform(call)
    if len(labels) == 2 and len(np.unique(forest.leaves.targets)) < 2:
        return _two_classes(call, forest, labels, base, transform)
    check_count(call, "base_values", len(base), 0, len(labels))
    # ONNX Runtime chooses among the classes that have a weight in a reached leaf, or a base value.
    marks = len(labels) > 2 and not len(base)
    scores = _evaluated(call, forest, len(labels), "SUM", marks_absent=marks)
    a = Elementary(call.emit)
    ranked = scores
    if marks:
        is_absent = call.emit(relax.op.isnan(scores))
        ranked = a("where", is_absent, -np.inf, scores)
        scores = a("where", is_absent, 0.0, scores)
    elif len(base):
        ranked = scores = call.emit(relax.op.add(scores, constant(base)))
    index = call.emit(relax.op.argmax(ranked, axis=1))
    out = transformed(call, cast(call, scores, "float32"), transform)
    return relax.Tuple([labels_of(call, labels, index), out])


def _two_classes(
    call: Call, forest: Forest, labels: np.ndarray, base: np.ndarray, transform: str
) -> relax.Expr:
    """Labels and scores of two classes if all weights belong to one class.

    As in ONNX Runtime, that class is the second one, and its score is a share of 1 if no weight is
    negative.
    """
    is_share = bool((forest.leaves.weights >= 0).all())
    own = int(forest.leaves.targets.max(initial=0))
    check_count(call, "base_values", len(base), 0, 1 - own)
    scores = _evaluated(call, forest, 2, "SUM", marks_absent=False)
    score = call.emit(relax.op.strided_slice(scores, [1], [own], [own + 1]))
    if len(base):
        score = call.emit(relax.op.add(score, constant(base)))
    limit = relax.const(0.5 if is_share else 0.0, dtype_of(score))
    index = call.emit(relax.op.squeeze(call.emit(relax.op.greater(score, limit)), [1]))
    if own:
        out = transformed(call, cast(call, scores, "float32"), transform)
    else:
        out = two_scores(call, cast(call, score, "float32"), transform, is_share)
    return relax.Tuple([labels_of(call, labels, index), out])
