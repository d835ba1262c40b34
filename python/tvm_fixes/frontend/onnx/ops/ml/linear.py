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

from .....fixes.onnx_importer import ML
from ...call import Call, converts
from .operands import array, cast, check_columns, check_count, class_labels, constant, rows
from .scores import labels_of, post_transform, transformed, two_scores

__all__ = ["product"]


@converts("ai.onnx.ml.LinearRegressor", fix=ML, noted=True)
def convert_linear_regressor(call: Call) -> relax.Expr:
    """Convert a LinearRegressor.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the attributes do not agree with each other or with the operand.
    """
    targets = call.attributes.get("targets", 1)
    if targets < 1:
        raise call.invalid("attribute targets", targets, "expected at least 1")
    scores = _scores(call, targets, array(call, "intercepts", "float32"))
    return transformed(call, scores, post_transform(call))


@converts("ai.onnx.ml.LinearClassifier", fix=ML, noted=True)
def convert_linear_classifier(call: Call) -> relax.Expr:
    """Convert a LinearClassifier, with one score per class, or one for two classes.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the labels are strings, or the attributes do not agree with each other or the operand.
    """
    labels, transform = class_labels(call, "classlabels_ints"), post_transform(call)
    intercepts = array(call, "intercepts", "float32")
    count = len(intercepts) or len(labels)
    check_count(call, "intercepts", count, *([1] if len(labels) == 2 else []), len(labels))
    scores = _scores(call, count, intercepts)
    if count > 1:
        index = call.emit(relax.op.argmax(scores, axis=1))
        out = transformed(call, scores, transform)
        return relax.Tuple([labels_of(call, labels, index), out])
    if transform != "NONE":
        reason = "expected NONE for two classes with one row of coefficients"
        raise call.invalid("attribute post_transform", transform, reason)
    index = call.emit(relax.op.greater(scores, relax.const(0, "float32")))
    index = call.emit(relax.op.squeeze(index, [1]))
    return relax.Tuple([labels_of(call, labels, index), two_scores(call, scores, "NONE", True)])


def _scores(call: Call, count: int, intercepts: np.ndarray) -> relax.Expr:
    coefficients = array(call, "coefficients", "float32")
    if not len(coefficients) or len(coefficients) % count:
        reason = f"expected a positive multiple of {count}"
        raise call.invalid("number of elements of coefficients", len(coefficients), reason)
    check_count(call, "intercepts", len(intercepts), 0, count)
    x, (_, columns) = rows(call)
    matrix = coefficients.reshape(count, -1)
    check_columns(call, columns, matrix.shape[1])
    scores = product(call, cast(call, x, "float32"), matrix)
    return call.emit(relax.op.add(scores, constant(intercepts))) if len(intercepts) else scores


def product(call: Call, x: relax.Expr, matrix: np.ndarray) -> relax.Expr:
    """``x @ matrix.T`` for a constant matrix."""
    return call.emit(relax.op.matmul(x, constant(matrix.T)))
