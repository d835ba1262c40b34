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
"""The importer, as the conversion of a node that contains graphs uses it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import onnx
from tvm import relax

from .values import KnownValues


class GraphImporter(Protocol):
    """What converts the graph around a node, and the graphs within it.

    Attributes
    ----------
    bb : relax.BlockBuilder
        Where expressions are emitted.
    known : KnownValues
        What is known of tensors at import time.
    opset : int
        The version of the default operator set.
    """

    bb: relax.BlockBuilder
    known: KnownValues
    opset: int

    def bound(self, names: Mapping[str, Any]) -> AbstractContextManager[None]:
        """`names` stand for Relax expressions or values within; later ones are forgotten."""

    def convert_branch(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, Any] | None = None,
        as_tensors: bool = False,
    ) -> list[Any]:
        """The outputs of a branch, whose names are its own, converted where the builder is."""

    def operand(self, name: str) -> Any:
        """What a name stands for: a Relax expression, or a value."""

    def as_tensor(self, operand: Any) -> relax.Expr:
        """A Relax expression itself, or that of a value."""
