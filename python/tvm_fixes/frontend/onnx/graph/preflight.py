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
"""The operators of an ONNX model, without an import."""

from collections.abc import Mapping

import onnx
from onnx import defs

from ...operators import Operator, counted
from ..ops.ml.maps import DOMAIN, REJECTED
from .check import nodes_in, place_of
from .converted import has_converter
from .liveness import live_nodes

# The maximum nesting of operators without a converter whose bodies call each other.
_MAX_NESTING = 8


def operators_of(model: onnx.ModelProto) -> list[Operator]:
    """The operators that the outputs of a model need, including those of nested graphs.

    An operator is supported if it has a converter, or if ONNX defines it by supported ones. A node
    may still have an unsupported form, which only an import detects.

    Parameters
    ----------
    model : onnx.ModelProto
        Its initializers need no elements.
    """
    versions = {imported.domain: imported.version for imported in model.opset_import}
    versions.setdefault("", versions.get("ai.onnx", 1))
    functions = {(function.domain, function.name) for function in model.functions}
    bodies = [function.node for function in model.functions]
    return counted(
        (_full_name(node), place_of(node), _problem_of(node, versions))
        for nodes in (live_nodes(model.graph), *bodies)
        for node in nodes_in(nodes)
        if (node.domain, node.op_type) not in functions
    )


def _full_name(node: onnx.NodeProto) -> str:
    is_default = node.domain in ("", "ai.onnx")
    return node.op_type if is_default else f"{node.domain}.{node.op_type}"


def _problem_of(node: onnx.NodeProto, versions: Mapping[str, int]) -> str:
    """Why an operator is unsupported, perhaps with a remedy; empty if it is supported."""
    if not _is_supported(node, versions):
        return "no converter"
    return REJECTED.get(node.op_type, "") if node.domain == DOMAIN else ""


def _is_supported(node: onnx.NodeProto, versions: Mapping[str, int], depth: int = 0) -> bool:
    if has_converter(node):
        return True
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = versions.get(domain, 1)
    if depth > _MAX_NESTING:
        return False
    try:
        schema = defs.get_schema(node.op_type, version, domain)
    except defs.SchemaError:
        return False
    if schema.has_context_dependent_function:
        return True
    body = schema.function_body.node if schema.has_function else []
    return len(body) > 0 and all(_is_supported(one, versions, depth + 1) for one in body)
