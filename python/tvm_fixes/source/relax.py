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
"""Relax modules as models."""

from collections.abc import Iterator

import numpy as np
import tvm

from ..errors import UsageError
from ..relax.constants.provenance import constants_of
from ..support.tensors import raw_bytes
from .base import Reference, Source


class RelaxSource(Source):
    """A Relax module; it has no reference.

    Parameters
    ----------
    module : tvm.IRModule
        The module, with a function ``main``.
    """

    def __init__(self, module: tvm.IRModule):
        super().__init__("IRModule")
        self._module = module
        if "main" not in [var.name_hint for var in module.get_global_vars()]:
            raise UsageError("the module has no function 'main'")
        self.inputs = ()
        self.output_names = ()
        self.parameter_bytes = sum(raw_bytes(tensor).size for tensor in constants_of(module))

    def to_relax(self) -> tvm.IRModule:
        return self._module

    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        for tensor in constants_of(self._module):
            yield "", raw_bytes(tensor)

    def reference(self) -> tuple[str, Reference]:
        raise UsageError("a Relax module has no reference to compare with: pass compare=False")
