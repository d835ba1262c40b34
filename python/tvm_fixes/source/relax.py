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
"""Models that are Relax modules already."""

import math

import tvm

from ..errors import UsageError
from .base import Reference, Source, numpy_dtype


class RelaxSource(Source):
    """A Relax module, which has no reference.

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
        self.parameter_bytes = _constant_bytes(module["main"])

    def to_relax(self) -> tvm.IRModule:
        return self._module

    def reference(self) -> tuple[str, Reference]:
        raise UsageError("a Relax module has no reference to compare with: pass compare=False")


def _constant_bytes(function: tvm.relax.Function) -> int:
    sizes: dict[tvm.runtime.Tensor, int] = {}

    def visit(expr: tvm.relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor):
            itemsize = numpy_dtype(str(expr.value.dtype)).itemsize
            sizes[expr.value] = math.prod(map(int, expr.value.shape)) * itemsize

    tvm.relax.analysis.post_order_visit(function, visit)
    return sum(sizes.values())
