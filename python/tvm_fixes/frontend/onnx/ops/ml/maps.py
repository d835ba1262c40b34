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
"""Operators on maps and strings, which tensors cannot hold."""

import warnings

from tvm import relax

from .....errors import OpNotImplemented
from .....fixes.onnx_importer import ML
from ...call import Call, converts
from .operands import check_columns, rows

__all__ = ["DOMAIN", "REJECTED", "reject"]

DOMAIN = "ai.onnx.ml"

REJECTED = {
    "CastMap": "maps have no tensor: convert the model with an input of numbers",
    "CategoryMapper": "strings have no tensor: map categories to integers before the model",
    "DictVectorizer": "maps have no tensor: convert the model with an input of numbers",
}
"""The remedy for each operator that this importer rejects."""

_MAX_NAMED = 10


@converts(*(f"{DOMAIN}.{name}" for name in REJECTED), fix=ML, noted=True)
def reject(call: Call) -> relax.Expr:
    """Raise the error for an operator on maps or strings.

    Raises
    ------
    tvm.error.OpNotImplemented
        Always; the message has the remedy.
    """
    kind, name = call.operator.rpartition(".")[2], call.source.name
    raise OpNotImplemented(f"{call.operator} {name!r}: unsupported, {REJECTED[kind]}")


@converts("ai.onnx.ml.ZipMap", fix=ML, noted=True)
def convert_zip_map(call: Call) -> relax.Expr:
    """Convert a ZipMap to the tensor of its scores, with a warning that names the columns.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the number of columns is not that of the classes.
    """
    labels = [
        label.decode() if isinstance(label, bytes) else label
        for name in ("classlabels_int64s", "classlabels_strings")
        for label in call.attributes.get(name) or ()
    ]
    scores, (_, columns) = rows(call)
    check_columns(call, columns, len(labels))
    name = call.source.name
    some = [*map(str, labels[:_MAX_NAMED]), *(["…"] if len(labels) > _MAX_NAMED else [])]
    warnings.warn(
        f"{call.operator} {name!r}: the result is a tensor of scores instead of "
        f"maps; its columns are those of the classes {', '.join(some)}",
        stacklevel=2,
    )
    return scores
