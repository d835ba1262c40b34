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

from .....fixes.onnx_importer import ML
from ....elementary import Elementary
from ...call import Call, converts
from .linear import product
from .operands import array, cast, check_columns, check_count, choice, class_labels, constant, rows
from .scores import labels_of, post_transform, transformed, two_scores
from .svm_probabilities import pair_grid, probabilities

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@converts("ai.onnx.ml.SVMRegressor", fix=ML, noted=True)
def convert_svm_regressor(call: Call) -> relax.Expr:
    """Convert an SVMRegressor; with ``one_class``, the result is 1 or -1.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not agree with each other or with the operand.
    """
    count = int(call.attributes.get("n_supports", 0))
    coefficients = array(call, "coefficients", "float32")
    rho = array(call, "rho", "float32")
    check_count(call, "rho", len(rho), 1)
    if post_transform(call) != "NONE":
        reason = "expected NONE, as ONNX Runtime ignores others"
        raise call.invalid("attribute post_transform", post_transform(call), reason)
    if count > 0:
        check_count(call, "coefficients", len(coefficients), count)
        kernels = _kernels(call, count)
    else:
        x, (_, columns) = rows(call)
        check_columns(call, columns, len(coefficients))
        kernels = cast(call, x, "float32")
    a = Elementary(call.emit)
    out = a("add", product(call, kernels, coefficients[None]), float(rho[0]))
    if not call.attributes.get("one_class", 0):
        return out
    return a("where", a("greater", out, 0.0), 1.0, relax.const(-1.0, "float32"))


def _kernels(call: Call, count: int) -> relax.Expr:
    """The kernel of each row of X with each of `count` support vectors, in float32."""
    vectors = array(call, "support_vectors", "float32")
    if len(vectors) % count:
        reason = f"expected a multiple of the {count} vectors"
        raise call.invalid("number of elements of support_vectors", len(vectors), reason)
    vectors = vectors.reshape(count, -1)
    x, (_, columns) = rows(call)
    check_columns(call, columns, vectors.shape[1])
    x, kind = cast(call, x, "float32"), choice(call, "kernel_type", "LINEAR", _KERNELS)
    if kind == "LINEAR":
        return product(call, x, vectors)
    parameters = array(call, "kernel_params", "float32")
    check_count(call, "kernel_params", len(parameters), 3)
    gamma, offset, degree = parameters.tolist()
    a = Elementary(call.emit)
    if kind == "RBF":
        squares = call.emit(call.builder.call_te(_squared_distances, x, constant(vectors)))
        return a("exp", a("multiply", squares, -gamma))
    dot = a("add", a("multiply", product(call, x, vectors), gamma), offset)
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


@converts("ai.onnx.ml.SVMClassifier", fix=ML, noted=True)
def convert_svm_classifier(call: Call) -> relax.Expr:
    """Convert an SVMClassifier: a vote for each pair of classes, or a linear score per class.

    The scores are probabilities if prob_a and prob_b are given, else those of the pairs.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the labels are strings, or the attributes do not agree with each other or the operand.
    """
    labels, transform = class_labels(call, "classlabels_ints"), post_transform(call)
    counts = array(call, "vectors_per_class", "int64")
    check_count(call, "vectors_per_class", len(counts), 0, len(labels))
    if (counts < 0).any():
        reason = "expected no negative number"
        raise call.invalid("attribute vectors_per_class", counts.tolist(), reason)
    if not counts.sum():
        return _linear(call, labels, transform)
    pairs = _pair_scores(call, counts)
    index = _voted(call, pairs, len(labels))
    given = [array(call, name, "float32") for name in ("prob_a", "prob_b")]
    total = len(labels) * (len(labels) - 1) // 2
    for name, values in zip(("prob_a", "prob_b"), given, strict=True):
        check_count(call, name, len(values), *([0] if not len(given[0]) else []), total)
    if len(given[0]):
        slopes, offsets = given
        scores = probabilities(call, pairs, slopes, offsets, len(labels))
        scores = transformed(call, scores, transform)
    elif len(labels) > 2:
        scores = transformed(call, pairs, transform)
    elif transform == "NONE":
        scores = two_scores(call, pairs, "NONE", False)
    else:
        reason = "expected NONE for two classes without probabilities"
        raise call.invalid("attribute post_transform", transform, reason)
    return relax.Tuple([labels_of(call, labels, index), scores])


def _linear(call: Call, labels: np.ndarray, transform: str) -> relax.Expr:
    if len(labels) < 3:
        reason = "expected support vectors for two classes: use a LinearClassifier"
        raise call.invalid("attribute vectors_per_class", "empty", reason)
    coefficients, rho = array(call, "coefficients", "float32"), array(call, "rho", "float32")
    if not len(coefficients) or len(coefficients) % len(labels):
        reason = f"expected a positive multiple of the {len(labels)} classes"
        raise call.invalid("number of elements of coefficients", len(coefficients), reason)
    if not len(rho):
        raise call.invalid("attribute rho", [], "expected one element")
    x, (_, columns) = rows(call)
    matrix = coefficients.reshape(len(labels), -1)
    check_columns(call, columns, matrix.shape[1])
    scores = product(call, cast(call, x, "float32"), matrix)
    scores = call.emit(relax.op.add(scores, relax.const(float(rho[0]), "float32")))
    index = call.emit(relax.op.argmax(scores, axis=1))
    return relax.Tuple([labels_of(call, labels, index), transformed(call, scores, transform)])


def _pair_scores(call: Call, counts: np.ndarray) -> relax.Expr:
    """The score of each pair of classes (0, 1), (0, 2), …, (1, 2), …; positive for the first."""
    classes, total = len(counts), int(counts.sum())
    coefficients, rho = array(call, "coefficients", "float32"), array(call, "rho", "float32")
    check_count(call, "coefficients", len(coefficients), (classes - 1) * total)
    check_count(call, "rho", len(rho), classes * (classes - 1) // 2)
    matrix, kernels = coefficients.reshape(classes - 1, total), _kernels(call, total)
    parts = []
    for first, last in pairwise(np.concatenate([[0], np.cumsum(counts)]).tolist()):
        if first == last:
            first, last = 0, 1
            own = np.zeros([classes - 1, 1], "float32")
        else:
            own = matrix[:, first:last]
        part = call.emit(relax.op.strided_slice(kernels, [1], [first], [last]))
        parts.append(product(call, part, own))
    joined = call.emit(relax.op.concat(parts, axis=1))
    # Of class i, row j - 1 of the coefficients is for the pair with class j > i, and row j for
    # that with class j < i.
    i, j = np.triu_indices(classes, k=1)
    own, other = (
        call.emit(relax.op.take(joined, constant(place), axis=1))
        for place in (i * (classes - 1) + j - 1, j * (classes - 1) + i)
    )
    a = Elementary(call.emit)
    return a("add", a("add", own, other), constant(rho))


def _voted(call: Call, pairs: relax.Expr, classes: int) -> relax.Expr:
    """The class that wins the most pairs; the first one if several tie."""
    grid = pair_grid(classes)
    is_first = np.triu(np.ones([classes, classes], bool), k=1)
    a = Elementary(call.emit)
    taken = call.emit(relax.op.take(pairs, constant(grid.ravel()), axis=1))
    won = a("equal", a("greater", taken, 0.0), constant(is_first.ravel()))
    votes = cast(call, won, "float32")
    votes = call.emit(relax.op.reshape(votes, [pairs.ty.shape.values[0], classes, classes]))
    # The pair of a class with itself counts the same for every class.
    totals = call.emit(relax.op.sum(votes, axis=[2]))
    return call.emit(relax.op.argmax(totals, axis=1))
