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
"""Scaler, Normalizer, Imputer and Binarizer, which map each column or row independently."""

import numpy as np
from tvm import relax

from .....fixes.onnx_importer import ML
from ....dtypes import dtype_of
from ....elementary import Elementary
from ...call import Call, converts
from ..shape_operands import shaped
from .operands import NUMERIC, array, cast, check_columns, check_count, choice, constant, rows


@converts("ai.onnx.ml.Scaler", fix=ML, noted=True)
def convert_scaler(call: Call) -> relax.Expr:
    """Convert a Scaler: ``(x - offset) * scale`` in float32, or float64 for float64.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute has neither one element nor one per column.
    """
    dtype = "float64" if dtype_of(call.operands[0]) == "float64" else "float32"
    given = {name: array(call, name, "float32").astype(dtype) for name in ("offset", "scale")}
    _check_per_column(call, **given)
    a, out = Elementary(call.emit), cast(call, call.operands[0], dtype)
    for name, operator in (("offset", "subtract"), ("scale", "multiply")):
        if len(given[name]):
            out = a(operator, out, constant(given[name]))
    return cast(call, out, "float32")


def _check_per_column(call: Call, **attributes: np.ndarray) -> None:
    """Check that X has one or two axes, and attributes no element, one, or one per column."""
    _, (_, columns) = rows(call)
    for name, values in attributes.items():
        if isinstance(columns, int):
            check_count(call, name, len(values), 0, 1, columns)
        elif len(values) > 1:
            check_columns(call, columns, len(values))


@converts("ai.onnx.ml.Normalizer", fix=ML, noted=True)
def convert_normalizer(call: Call) -> relax.Expr:
    """Convert a Normalizer: each row divided by its norm, unless that is 0.

    As in the ONNX specification, the norm MAX is the largest element, not the largest magnitude.
    """
    norm = choice(call, "norm", "MAX", ("MAX", "L1", "L2"))
    x, (_, columns) = rows(call)
    if columns == 0:
        return cast(call, call.operands[0], "float32")
    a, x = Elementary(call.emit), cast(call, x, "float32")
    square = a("multiply", x, x)
    if norm == "MAX":
        total = call.emit(relax.op.max(x, axis=[1], keepdims=True))
    else:
        terms = a("abs", x) if norm == "L1" else square
        total = call.emit(relax.op.sum(terms, axis=[1], keepdims=True))
    if norm == "L2":
        magnitude = a("sqrt", a("divide", square, total))
        out = a("where", a("less", x, 0.0), a("negative", magnitude), magnitude)
    else:
        out = a("divide", x, total)
    out = a("where", a("equal", total, 0.0), x, out)
    return out if call.operands[0].ty.ndim == 2 else call.emit(relax.op.squeeze(out, [0]))


@converts("ai.onnx.ml.Imputer", fix=ML, noted=True)
def convert_imputer(call: Call) -> relax.Expr:
    """Convert an Imputer, which replaces the elements equal to a value; the value may be NaN.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the values for the operand's dtype are missing, or their number is neither 1 nor that of
        columns.
    """
    x = call.operands[0]
    dtype = dtype_of(x)
    kind, suffix = ("int64s", "int64") if "int" in dtype else ("floats", "float")
    name = f"imputed_value_{kind}"
    values = array(call, name, dtype)
    if not len(values):
        raise call.invalid(f"attribute {name}", "empty", f"expected the values for {dtype}")
    _check_per_column(call, **{name: values})
    replaced = call.attributes.get(f"replaced_value_{suffix}", 0)
    if isinstance(replaced, float) and np.isnan(replaced):
        is_missing = call.emit(relax.op.isnan(x))
    else:
        is_missing = call.emit(relax.op.equal(x, relax.const(replaced, dtype)))
    return call.emit(relax.op.where(is_missing, constant(values), x))


@converts("ai.onnx.ml.Binarizer", fix=ML, noted=True)
def convert_binarizer(call: Call) -> relax.Expr:
    """Convert a Binarizer: 1 where an element is greater than the threshold, else 0."""
    x, _ = shaped(call, 0, "X")
    dtype = dtype_of(x)
    if dtype not in NUMERIC:
        raise call.invalid("dtype of X", dtype, f"expected one of {list(NUMERIC)}")
    threshold = relax.const(call.attributes.get("threshold", 0.0), "float64")
    is_greater = call.emit(relax.op.greater(cast(call, x, "float64"), threshold))
    return cast(call, is_greater, dtype)
