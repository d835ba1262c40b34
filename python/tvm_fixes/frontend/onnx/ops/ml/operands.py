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
"""Attributes, operands and class labels of the operators of ``ai.onnx.ml``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax

from ....dtypes import dtype_of
from ...call import Call, Extent
from ..shape_operands import require, shaped

__all__ = [
    "NUMERIC",
    "array",
    "cast",
    "check_columns",
    "check_count",
    "choice",
    "class_labels",
    "constant",
    "rows",
]

NUMERIC = ("float32", "float64", "int64", "int32")
"""The dtypes of operands in most operators of the domain."""


def array(call: Call, name: str, dtype: str) -> np.ndarray:
    """An attribute as a 1-D array, given as a list or a tensor; empty if omitted.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If both the list and the tensor, ``<name>_as_tensor``, are given, or one has strings.
    """
    given = {
        key: value
        for key in (name, f"{name}_as_tensor")
        if (value := call.attributes.get(key)) is not None and not _is_empty(value)
    }
    if len(given) > 1:
        raise call.invalid("attributes", list(given), "expected one of them")
    for key, value in given.items():
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        found = np.asarray(value)
        if found.dtype.kind not in "biuf":
            raise call.invalid(f"attribute {key}", value, "expected numbers")
        return found.ravel().astype(dtype)
    return np.empty(0, dtype)


def _is_empty(value: Any) -> bool:
    return isinstance(value, tuple) and not value


def choice(call: Call, name: str, default: str, choices: Sequence[str]) -> str:
    """A string attribute, which must be one of `choices`."""
    found = call.text(name, default)
    if found not in choices:
        raise call.invalid(f"attribute {name}", repr(found), f"expected one of {list(choices)}")
    return found


def check_count(call: Call, name: str, count: int, *expected: int) -> None:
    """Check the number of elements of an attribute."""
    if count not in expected:
        reason = f"expected {' or '.join(map(str, dict.fromkeys(expected)))}"
        raise call.invalid(f"number of elements of {name}", count, reason)


def rows(call: Call, index: int = 0, name: str = "X") -> tuple[relax.Expr, list[Extent]]:
    """An operand as a matrix, with its extents; a vector is one row.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the operand is not a vector or a matrix of one of the dtypes `NUMERIC`.
    """
    dtype = dtype_of(call.operands[index])
    if dtype not in (*NUMERIC, "float16"):
        raise call.invalid(f"dtype of {name}", dtype, f"expected one of {list(NUMERIC)}")
    tensor, extents = shaped(call, index, name)
    if len(extents) == 2:
        return tensor, extents
    if len(extents) != 1:
        raise call.invalid(f"shape of {name}", extents, "expected one or two axes")
    return call.emit(relax.op.expand_dims(tensor, 0)), [1, *extents]


def check_columns(call: Call, columns: Extent, expected: int) -> None:
    """Check the number of columns of X, at run time if it is unknown."""
    reason = f"expected {expected}, as many as the attributes have"
    require(call, call.known.simplify(columns - expected) == 0, "columns of X", columns, reason)


def cast(call: Call, tensor: relax.Expr, dtype: str) -> relax.Expr:
    """`tensor` in a dtype."""
    return tensor if dtype_of(tensor) == dtype else call.emit(relax.op.astype(tensor, dtype))


def class_labels(call: Call, name: str) -> np.ndarray:
    """The integer labels of two or more classes, from the attribute `name`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the labels are strings, which tensors cannot hold, or fewer than two.
    """
    if call.attributes.get("classlabels_strings"):
        names = [text.decode("utf-8") for text in call.attributes["classlabels_strings"]]
        reason = (
            f"expected integers in {name}, because tensors hold no strings: train the model with "
            "classes 0, 1, …, and look up their names outside"
        )
        raise call.invalid("attribute classlabels_strings", names, reason)
    labels = array(call, name, "int64")
    if len(labels) < 2:
        raise call.invalid(f"attribute {name}", labels.tolist(), "expected two or more classes")
    return labels


def constant(elements: np.ndarray) -> relax.Expr:
    """An array as a constant of the same dtype; ``relax.const`` narrows 64-bit ones by default."""
    return relax.const(np.ascontiguousarray(elements), str(elements.dtype))
