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
"""FeatureVectorizer and ArrayFeatureExtractor."""

from tvm import relax

from .....fixes.onnx_importer import ML
from ...call import Call, converts
from ..shape_operands import shaped
from .operands import array, cast, check_count, rows


@converts("ai.onnx.ml.FeatureVectorizer", fix=ML, noted=True)
def convert_feature_vectorizer(call: Call) -> relax.Expr:
    """Convert a FeatureVectorizer: cut or pad each operand to its width, and join the columns.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the numbers of widths and operands differ, or a number of columns is unknown.
    """
    widths = array(call, "inputdimensions", "int64").tolist()
    check_count(call, "inputdimensions", len(widths), len(call.operands))
    parts = []
    for index, width in enumerate(widths):
        x, (_, columns) = rows(call, index, f"X[{index}]")
        if not isinstance(columns, int):
            raise call.invalid(f"columns of X[{index}]", columns, "expected a static extent")
        x = cast(call, x, "float32")
        if width < columns:
            x = call.emit(relax.op.strided_slice(x, [1], [0], [width]))
        elif width > columns:
            x = call.emit(relax.op.nn.pad(x, [0, 0, 0, width - columns]))
        parts.append(x)
    return relax.op.concat(parts, axis=1)


@converts("ai.onnx.ml.ArrayFeatureExtractor", fix=ML, noted=True)
def convert_array_feature_extractor(call: Call) -> relax.Expr:
    """Convert an ArrayFeatureExtractor: gather the elements at positions Y of the last axis.

    A vector gives one row, as in ONNX Runtime.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If X has no axis, or a constant position is out of range.
    """
    x, extents = shaped(call, 0, "X")
    if not extents:
        raise call.invalid("shape of X", extents, "expected at least one axis")
    positions, known = call.constant(1), extents[-1]
    if positions is not None and isinstance(known, int):
        if ((positions < 0) | (positions >= known)).any():
            reason = f"expected positions of the last axis of X, 0 to {known - 1}"
            raise call.invalid("operand Y", positions.tolist(), reason)
    index = call.emit(relax.op.flatten(call.operands[1]))
    out = call.emit(relax.op.take(x, index, axis=len(extents) - 1))
    return out if len(extents) > 1 else relax.op.expand_dims(out, 0)
