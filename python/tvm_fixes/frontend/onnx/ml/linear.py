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
"""LinearRegressor and LinearClassifier."""

import numpy as np
from tvm import relax

from ..node import Converter, Node
from .operands import array, cast, check_columns, check_count, class_labels, constant, rows
from .scores import labels_of, post_transform, transformed, two_scores

__all__ = ["convert_linear_classifier", "convert_linear_regressor", "product"]


def convert_linear_regressor(node: Node, convert: Converter) -> relax.Expr:
    """Convert a LinearRegressor.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not agree with each other or with the operand.
    """
    targets = node.attributes.get("targets", 1)
    if targets < 1:
        raise node.invalid("attribute targets", targets, "expected at least 1")
    scores = _scores(node, targets, array(node, "intercepts", "float32"))
    return transformed(node, scores, post_transform(node))


def convert_linear_classifier(node: Node, convert: Converter) -> relax.Expr:
    """Convert a LinearClassifier, with one score per class, or one for two classes.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the labels are strings, or the attributes do not agree with each other or the operand.
    """
    labels, transform = class_labels(node, "classlabels_ints"), post_transform(node)
    intercepts = array(node, "intercepts", "float32")
    count = len(intercepts) or len(labels)
    check_count(node, "intercepts", count, *([1] if len(labels) == 2 else []), len(labels))
    scores = _scores(node, count, intercepts)
    if count > 1:
        index = node.emit(relax.op.argmax(scores, axis=1))
        out = transformed(node, scores, transform)
        return relax.Tuple([labels_of(node, labels, index), out])
    if transform != "NONE":
        reason = "expected NONE for two classes with one row of coefficients"
        raise node.invalid("attribute post_transform", transform, reason)
    index = node.emit(relax.op.greater(scores, relax.const(0, "float32")))
    index = node.emit(relax.op.squeeze(index, [1]))
    return relax.Tuple([labels_of(node, labels, index), two_scores(node, scores, "NONE", True)])


def _scores(node: Node, count: int, intercepts: np.ndarray) -> relax.Expr:
    coefficients = array(node, "coefficients", "float32")
    if not len(coefficients) or len(coefficients) % count:
        reason = f"expected a positive multiple of {count}"
        raise node.invalid("number of elements of coefficients", len(coefficients), reason)
    check_count(node, "intercepts", len(intercepts), 0, count)
    x, (_, columns) = rows(node)
    matrix = coefficients.reshape(count, -1)
    check_columns(node, columns, matrix.shape[1])
    scores = product(node, cast(node, x, "float32"), matrix)
    return node.emit(relax.op.add(scores, constant(intercepts))) if len(intercepts) else scores


def product(node: Node, x: relax.Expr, matrix: np.ndarray) -> relax.Expr:
    """``x @ matrix.T`` for a constant matrix."""
    return node.emit(relax.op.matmul(x, constant(matrix.T)))
