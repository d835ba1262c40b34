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
"""Models of one operator of the domain com.microsoft."""

from collections.abc import Mapping

import numpy as np
import onnx

from .onnx_graphs import Arrays, node_model

__all__ = ["Case", "case"]

Case = tuple[onnx.ModelProto, Arrays]
"""A model and its inputs."""


def case(
    operator: str,
    inputs: Mapping[str, np.ndarray | None],
    attributes: Mapping[str, object] | None = None,
    outputs: Mapping[str, tuple[str, int]] | None = None,
    *,
    constants: Arrays | None = None,
    shapes: Mapping[str, tuple] | None = None,
    domain: str = "com.microsoft",
) -> Case:
    """A model of one node; an input that is None is omitted."""
    given = {name: array for name, array in inputs.items() if array is not None}
    operands = [name if array is not None else "" for name, array in inputs.items()]
    model = node_model(
        operator,
        given,
        attributes,
        constants=constants,
        operands=[*operands, *(constants or {})],
        shapes=shapes,
        outputs=outputs,
        domain=domain,
    )
    return model, given
