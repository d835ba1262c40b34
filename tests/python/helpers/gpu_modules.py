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
"""Models compiled for a GPU, run by the interpreter of its kernels."""

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_fixes.lowering import stages
from tvm_fixes.tirx.loop_nest import substitute
from tvm_fixes.tirx.transform import ApplyGpuSchedule

from .gpu_kernels import GPU, functions
from .lowering import lowered_before
from .simt import execute


def scheduled(mod: tvm.IRModule) -> tvm.IRModule:
    """A module whose operators are calls of scheduled kernels."""
    lowering = stages("gpu")
    with GPU:
        return ApplyGpuSchedule()(lowered_before(mod, lowering, "Lower"))


def run_on_gpu(mod: tvm.IRModule, *inputs: np.ndarray) -> Any:
    """The outputs of a module of operators: of ``main``, one dataflow block without branches."""
    return run_scheduled(scheduled(mod), *inputs)


def run_scheduled(mod: tvm.IRModule, *inputs: np.ndarray) -> Any:
    """The outputs of a module whose kernels are scheduled."""
    return _Run(mod, inputs).result()


class _Run:
    def __init__(self, mod: tvm.IRModule, inputs: tuple[np.ndarray, ...]) -> None:
        self.main, self.kernels = mod["main"], functions(mod)
        self.values: dict[tvm.ir.Var, Any] = {}
        self.sizes: dict[tirx.Var, tirx.Expr] = {}
        for parameter, array in zip(self.main.params, inputs, strict=True):
            self.values[parameter] = array
            for extent, size in zip(parameter.ty.shape, array.shape, strict=True):
                if isinstance(extent, tirx.Var):
                    self.values[extent], self.sizes[extent] = size, tirx.const(size, "int64")

    def result(self) -> Any:
        for binding in (each for block in self.main.body.blocks for each in block.bindings):
            self.values[binding.var] = self.value(binding.value)
        return self.value(self.main.body.body)

    def value(self, expr: relax.Expr) -> Any:
        if isinstance(expr, relax.Var):
            return self.values[expr]
        if isinstance(expr, relax.Tuple):
            return [self.value(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self.value(expr.tuple_value)[expr.index]
        if isinstance(expr, tvm.ir.GenericConst):
            return expr.value.numpy()
        if expr.op.name == "relax.call_tir":
            return self.call(*expr.args, ty=expr.ty)
        assert expr.args[0].global_symbol == "vm.builtin.reshape", expr
        return self.value(expr.args[1]).reshape(self.shape(expr.args[2]))

    def call(
        self, kernel: tvm.ir.GlobalVar, operands: Any, symbols: Any = (), *, ty: tvm.ir.Type
    ) -> Any:
        types = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
        # What a kernel does not write differs from any result of the tests.
        outputs = [np.full(self.shape(each.shape), 99).astype(str(each.dtype)) for each in types]
        given = self.value(operands)
        execute(self.kernels[kernel.name_hint], [*given, *outputs, *self.shape(symbols)])
        return outputs if isinstance(ty, relax.TupleType) else outputs[0]

    def shape(self, extents: Any) -> list[int]:
        simplify = tvm.sym.Analyzer().simplify
        return [int(simplify(substitute(extent, self.sizes))) for extent in extents]
