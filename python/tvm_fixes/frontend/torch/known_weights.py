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
"""The values of weights that are known at import."""

from typing import Any

import torch
import tvm
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from .corrections import Corrections

__all__ = ["KnownWeights"]


class KnownWeights(Corrections):
    """Records which parameters, buffers and constants become constants."""

    # Their values, by the names of their nodes.
    _known: dict[str, torch.Tensor]
    _keeps_parameters = False

    def from_exported_program(
        self,
        exported_program: ExportedProgram,
        keep_params_as_input: bool,
        *options: Any,
        **named_options: Any,
    ) -> tvm.IRModule:
        """Import like TVM; record whether the parameters stay inputs."""
        self._keeps_parameters = keep_params_as_input
        return super().from_exported_program(
            exported_program, keep_params_as_input, *options, **named_options
        )

    def create_input_vars(self, exported_program: ExportedProgram) -> Any:
        """Create the inputs like TVM; record the values that become constants."""
        kinds = {InputKind.BUFFER, InputKind.CONSTANT_TENSOR}
        if not self._keeps_parameters:
            kinds.add(InputKind.PARAMETER)
        values = exported_program.state_dict | exported_program.constants
        self._known = {
            spec.arg.name: values[spec.target].detach()
            for spec in exported_program.graph_signature.input_specs
            if spec.kind in kinds and isinstance(values.get(spec.target), torch.Tensor)
        }
        return super().create_input_vars(exported_program)
