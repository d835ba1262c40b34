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
"""The attribute post_transform, and the labels and scores of classifiers, as in ONNX Runtime."""

import numpy as np
from tvm import relax

from ....elementary import Elementary
from ...call import Call
from .operands import cast, choice, constant

__all__ = ["TRANSFORMS", "labels_of", "post_transform", "transformed", "two_scores"]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The values of post_transform; TreeEnsemble has their numbers."""

# Winitzki's approximation of the inverse error function, with ONNX Runtime's constants.
_WINITZKI, _PI, _SQRT_2 = 0.147, 3.14159, 1.41421356

# Scores of smaller magnitude count as zero in SOFTMAX_ZERO.
_ZERO = 1e-7


def post_transform(call: Call) -> str:
    """The attribute post_transform."""
    return choice(call, "post_transform", "NONE", TRANSFORMS)


def transformed(call: Call, scores: relax.Expr, transform: str) -> relax.Expr:
    """Apply a transform to a matrix of float32 scores.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the transform needs several scores per row, but there is one: ONNX Runtime ignores it.
    """
    is_single = int(scores.ty.shape.values[1]) == 1
    if is_single and transform not in ("NONE", "PROBIT"):
        reason = "expected NONE or PROBIT for one score, as ONNX Runtime ignores others"
        raise call.invalid("attribute post_transform", transform, reason)
    a = Elementary(call.emit)
    match transform:
        case "SOFTMAX":
            return call.emit(relax.op.nn.softmax(scores, axis=1))
        case "LOGISTIC":
            return a("sigmoid", scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(call, a, scores)
        case "PROBIT":
            return _probit(a, scores)
    return scores


def _softmax_zero(call: Call, a: Elementary, scores: relax.Expr) -> relax.Expr:
    """The softmax of the scores that are not zero; zeros stay zero."""
    greatest = call.emit(relax.op.max(scores, axis=[1], keepdims=True))
    is_zero = a("less_equal", a("abs", scores), _ZERO)
    exponential = a("exp", a("subtract", scores, greatest))
    zeros = a("multiply", scores, a("exp", a("negative", greatest)))
    kept = a("where", is_zero, 0.0, exponential)
    total = call.emit(relax.op.sum(kept, axis=[1], keepdims=True))
    return a("divide", a("where", is_zero, zeros, exponential), total)


def _probit(a: Elementary, scores: relax.Expr) -> relax.Expr:
    x = a("subtract", a("multiply", scores, 2.0), 1.0)
    logarithm = a("log", a("multiply", a("subtract", 1.0, x), a("add", x, 1.0)))
    first = a("add", a("multiply", logarithm, 0.5), 2 / (_PI * _WINITZKI))
    second = a("multiply", logarithm, 1 / _WINITZKI)
    root = a("sqrt", a("subtract", a("multiply", first, first), second))
    magnitude = a("sqrt", a("subtract", root, first))
    signed = a("where", a("less", x, 0.0), a("negative", magnitude), magnitude)
    return a("multiply", signed, _SQRT_2)


def two_scores(call: Call, score: relax.Expr, transform: str, is_share: bool) -> relax.Expr:
    """The scores of two classes from one: of shape (n, 2) from (n, 1).

    Parameters
    ----------
    is_share : bool
        Whether the score is a share of 1 without a transform; otherwise, 0 separates the classes.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the transform is not one that ONNX Runtime applies to one score.
    """
    a = Elementary(call.emit)
    negative = a("negative", score)
    if transform == "LOGISTIC":
        score, negative = a("sigmoid", score), a("sigmoid", negative)
    elif transform != "NONE":
        reason = "expected NONE or LOGISTIC for two classes with one score"
        raise call.invalid("attribute post_transform", transform, reason)
    elif is_share:
        negative = a("add", negative, 1.0)
    return call.emit(relax.op.concat([negative, score], axis=1))


def labels_of(call: Call, labels: np.ndarray, index: relax.Expr) -> relax.Expr:
    """The class labels at a vector of positions."""
    index = cast(call, index, "int64")
    return call.emit(relax.op.take(constant(labels), index, axis=0, mode="clip"))
