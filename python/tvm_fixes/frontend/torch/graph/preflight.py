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
"""The operators of a PyTorch program, without an import."""

from collections.abc import Iterator

from torch import fx
from torch.export import ExportedProgram

from ...operators import Operator, counted
from ..call import known_operators
from ..exported_program import decomposed


def operators_of(program: ExportedProgram) -> list[Operator]:
    """The operators that :func:`from_exported_program` converts, and those that it cannot.

    They are those of the decomposed program. A call may still have an unsupported form, which only
    an import detects.
    """
    converters = known_operators()
    return counted(
        (
            str(node.target),
            f"node {node.name!r}",
            "" if node.target.__name__ in converters else "no converter",
        )
        for node in _calls(decomposed(program, converters).graph_module)
    )


def _calls(module: fx.GraphModule) -> Iterator[fx.Node]:
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            yield from (node for node in part.graph.nodes if node.op == "call_function")
