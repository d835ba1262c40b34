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
"""The node of the exported program that a node of the decomposed one was made from."""

from torch import fx

from ....relax.source_nodes import SourceNode


def source_node(node: fx.Node) -> SourceNode:
    """The node of the program before its decomposition that `node` was made from."""
    path = next((path for path, _ in reversed(_modules(node))), "")
    made_from = node.meta.get("from_node") or []
    origin = made_from[-1] if made_from else None
    while origin is not None and origin.from_node:
        origin = origin.from_node[-1]
    if origin is None or not origin.name:
        return SourceNode(node.name, str(node.target), path)
    return SourceNode(origin.name, origin.target, path)


def _modules(node: fx.Node) -> list[tuple[str, object]]:
    """The paths and classes of the modules around a node, the outermost first."""
    return list((node.meta.get("nn_module_stack") or {}).values())
