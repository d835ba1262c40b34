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
"""SVMRegressor and SVMClassifier."""

from itertools import pairwise

import numpy as np
from tvm import relax, te, tirx

from ...elementary import Elementary
from ..node import Converter, Node
from .linear import product
from .operands import array, cast, check_columns, check_count, choice, class_labels, constant, rows
from .scores import labels_of, post_transform, transformed, two_scores
from .svm_probabilities import pair_grid, probabilities

__all__ = ["convert_svm_classifier", "convert_svm_regressor"]

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def convert_svm_regressor(node: Node, convert: Converter) -> relax.Expr:
    """Convert an SVMRegressor; with ``one_class``, the result is 1 or -1.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not agree with each other or with the operand.
    """
    count = int(node.attributes.get("n_supports", 0))
    coefficients = array(node, "coefficients", "float32")
    rho = array(node, "rho", "float32")
    check_count(node, "rho", len(rho), 1)
    if post_transform(node) != "NONE":
        reason = "expected NONE, as ONNX Runtime ignores others"
        raise node.invalid("attribute post_transform", post_transform(node), reason)
    if count > 0:
        check_count(node, "coefficients", len(coefficients), count)
        kernels = _kernels(node, count)
    else:
        x, (_, columns) = rows(node)
        check_columns(node, columns, len(coefficients))
        kernels = cast(node, x, "float32")
    a = Elementary(node.emit)
    out = a("add", product(node, kernels, coefficients[None]), float(rho[0]))
    if not node.attributes.get("one_class", 0):
        return out
    return a("where", a("greater", out, 0.0), 1.0, relax.const(-1.0, "float32"))


def _kernels(node: Node, count: int) -> relax.Expr:
    """The kernel of each row of X with each of `count` support vectors, in float32."""
    vectors = array(node, "support_vectors", "float32")
    if len(vectors) % count:
        reason = f"expected a multiple of the {count} vectors"
        raise node.invalid("number of elements of support_vectors", len(vectors), reason)
    vectors = vectors.reshape(count, -1)
    x, (_, columns) = rows(node)
    check_columns(node, columns, vectors.shape[1])
    x, kind = cast(node, x, "float32"), choice(node, "kernel_type", "LINEAR", _KERNELS)
    if kind == "LINEAR":
        return product(node, x, vectors)
    parameters = array(node, "kernel_params", "float32")
    check_count(node, "kernel_params", len(parameters), 3)
    gamma, offset, degree = parameters.tolist()
    a = Elementary(node.emit)
    if kind == "RBF":
        squares = node.emit(node.builder.call_te(_squared_distances, x, constant(vectors)))
        return a("exp", a("multiply", squares, -gamma))
    dot = a("add", a("multiply", product(node, x, vectors), gamma), offset)
    if kind == "SIGMOID":
        return a("tanh", dot)
    return _power(a, dot, degree)


def _squared_distances(x: te.Tensor, vectors: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, vectors.shape[1]), "k")

    def distance(row: tirx.Var, vector: tirx.Var) -> tirx.Expr:
        difference = x(row, k) - vectors(vector, k)
        return te.sum(difference * difference, axis=k)

    return te.compute([x.shape[0], vectors.shape[0]], distance, name="squared_distances")


def _power(a: Elementary, x: relax.Expr, degree: float) -> relax.Expr:
    if degree in (2, 3):  # as ONNX Runtime does, even for negative numbers
        square = a("multiply", x, x)
        return square if degree == 2 else a("multiply", square, x)
    return a("power", x, degree)


def convert_svm_classifier(node: Node, convert: Converter) -> relax.Expr:
    """Convert an SVMClassifier: a vote for each pair of classes, or a linear score per class.

    The scores are probabilities if prob_a and prob_b are given, else those of the pairs.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the labels are strings, or the attributes do not agree with each other or the operand.
    """
    labels, transform = class_labels(node, "classlabels_ints"), post_transform(node)
    counts = array(node, "vectors_per_class", "int64")
    check_count(node, "vectors_per_class", len(counts), 0, len(labels))
    if (counts < 0).any():
        reason = "expected no negative number"
        raise node.invalid("attribute vectors_per_class", counts.tolist(), reason)
    if not counts.sum():
        return _linear(node, labels, transform)
    pairs = _pair_scores(node, counts)
    index = _voted(node, pairs, len(labels))
    given = [array(node, name, "float32") for name in ("prob_a", "prob_b")]
    total = len(labels) * (len(labels) - 1) // 2
    for name, values in zip(("prob_a", "prob_b"), given, strict=True):
        check_count(node, name, len(values), *([0] if not len(given[0]) else []), total)
    if len(given[0]):
        slopes, offsets = given
        scores = probabilities(node, pairs, slopes, offsets, len(labels))
        scores = transformed(node, scores, transform)
    elif len(labels) > 2:
        scores = transformed(node, pairs, transform)
    elif transform == "NONE":
        scores = two_scores(node, pairs, "NONE", False)
    else:
        reason = "expected NONE for two classes without probabilities"
        raise node.invalid("attribute post_transform", transform, reason)
    return relax.Tuple([labels_of(node, labels, index), scores])


def _linear(node: Node, labels: np.ndarray, transform: str) -> relax.Expr:
    if len(labels) < 3:
        reason = "expected support vectors for two classes: use a LinearClassifier"
        raise node.invalid("attribute vectors_per_class", "empty", reason)
    coefficients, rho = array(node, "coefficients", "float32"), array(node, "rho", "float32")
    if not len(coefficients) or len(coefficients) % len(labels):
        reason = f"expected a positive multiple of the {len(labels)} classes"
        raise node.invalid("number of elements of coefficients", len(coefficients), reason)
    if not len(rho):
        raise node.invalid("attribute rho", [], "expected one element")
    x, (_, columns) = rows(node)
    matrix = coefficients.reshape(len(labels), -1)
    check_columns(node, columns, matrix.shape[1])
    scores = product(node, cast(node, x, "float32"), matrix)
    scores = node.emit(relax.op.add(scores, relax.const(float(rho[0]), "float32")))
    index = node.emit(relax.op.argmax(scores, axis=1))
    return relax.Tuple([labels_of(node, labels, index), transformed(node, scores, transform)])


def _pair_scores(node: Node, counts: np.ndarray) -> relax.Expr:
    """The score of each pair of classes (0, 1), (0, 2), …, (1, 2), …; positive for the first."""
    classes, total = len(counts), int(counts.sum())
    coefficients, rho = array(node, "coefficients", "float32"), array(node, "rho", "float32")
    check_count(node, "coefficients", len(coefficients), (classes - 1) * total)
    check_count(node, "rho", len(rho), classes * (classes - 1) // 2)
    matrix, kernels = coefficients.reshape(classes - 1, total), _kernels(node, total)
    parts = []
    for first, last in pairwise(np.concatenate([[0], np.cumsum(counts)]).tolist()):
        if first == last:
            first, last = 0, 1
            own = np.zeros([classes - 1, 1], "float32")
        else:
            own = matrix[:, first:last]
        part = node.emit(relax.op.strided_slice(kernels, [1], [first], [last]))
        parts.append(product(node, part, own))
    joined = node.emit(relax.op.concat(parts, axis=1))
    # Of class i, row j - 1 of the coefficients is for the pair with class j > i, and row j for
    # that with class j < i.
    i, j = np.triu_indices(classes, k=1)
    own, other = (
        node.emit(relax.op.take(joined, constant(place), axis=1))
        for place in (i * (classes - 1) + j - 1, j * (classes - 1) + i)
    )
    a = Elementary(node.emit)
    return a("add", a("add", own, other), constant(rho))


def _voted(node: Node, pairs: relax.Expr, classes: int) -> relax.Expr:
    """The class that wins the most pairs; the first one if several tie."""
    grid = pair_grid(classes)
    is_first = np.triu(np.ones([classes, classes], bool), k=1)
    a = Elementary(node.emit)
    taken = node.emit(relax.op.take(pairs, constant(grid.ravel()), axis=1))
    won = a("equal", a("greater", taken, 0.0), constant(is_first.ravel()))
    votes = cast(node, won, "float32")
    votes = node.emit(relax.op.reshape(votes, [pairs.ty.shape.values[0], classes, classes]))
    # The pair of a class with itself counts the same for every class.
    totals = node.emit(relax.op.sum(votes, axis=[2]))
    return node.emit(relax.op.argmax(totals, axis=1))
