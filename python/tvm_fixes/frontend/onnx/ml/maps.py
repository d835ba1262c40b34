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

import tvm
from tvm import relax

from ..node import Converter, Node

__all__ = ["REJECTED", "reject"]

REJECTED = {
    "CastMap": "maps have no tensor: convert the model with an input of numbers",
    "CategoryMapper": "strings have no tensor: map categories to integers before the model",
    "DictVectorizer": "maps have no tensor: convert the model with an input of numbers",
    "ZipMap": (
        "maps have no tensor: convert the model with zipmap=False "
        "(skl2onnx: options={'zipmap': False}), so that it returns the scores"
    ),
}
"""The remedy for each operator that this importer rejects."""


def reject(node: Node, convert: Converter) -> relax.Expr:
    """Raise the error for an operator on maps or strings.

    Raises
    ------
    tvm.error.OpNotImplemented
        Always; the message has the remedy.
    """
    kind, name = node.operator.rpartition(".")[2], node.attributes["tvm_custom"]["name"]
    raise tvm.error.OpNotImplemented(f"{node.operator} {name!r}: unsupported, {REJECTED[kind]}")
