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
"""Schedules for the kernels of recurrent layers."""

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.utils import gen_call_tir_inputs

from ...fixes.matmul import MATMUL_LEGALIZE as FIX_ID
from ...support import switches
from ...target.cpu import Cpu, is_cpu
from ...tirx.recurrence import ATTRIBUTE, Cell, recurrence
from ...tirx.recurrence_schedule import CpuSchedule, Part
from ...tirx.util import OPAQUE
from ..constants.make import rearranged
from ..ir import is_kernel_call
from ..rewrite import rewrite_functions


def LowerRecurrence() -> tvm.transform.Pass:
    """Schedule the kernels of recurrent layers for a CPU, and pack their weights.

    The importers emit kernels with scalar loops, for any target.  Each becomes a kernel with
    vectors and register tiles: see :mod:`tvm_fixes.tirx.recurrence_schedule`.

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU target; it does not change modules for other targets.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        kernels = {
            variable: Cell.from_json(str(function.attrs[ATTRIBUTE]))
            for variable, function in mod.functions_items()
            if function.attrs is not None and ATTRIBUTE in function.attrs
        }
        if not kernels or not is_cpu(target) or not switches.enabled(FIX_ID):
            return mod
        switches.note(FIX_ID)
        return rewrite_functions(_Lowering(mod, kernels, Cpu.of(target)), mod)

    return tvm.transform.module_pass(run, opt_level=0, name="LowerRecurrence")


@mutator
class _Lowering(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, kernels: dict[tvm.ir.GlobalVar, Cell], cpu: Cpu) -> None:
        super().__init__(mod)
        self._kernels, self._cpu = kernels, cpu

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_kernel_call(call) or call.args[0] not in self._kernels:
            return call
        cell = self._kernels[call.args[0]]
        states = 2 if cell.kind == "LSTM" else 1
        x, *rest = call.args[1].fields
        initial, matrix, optional = rest[:states], rest[states], rest[states + 1 :]
        batch, hidden = initial[0].ty.shape.values
        schedule = CpuSchedule.of(self._cpu, str(initial[0].ty.dtype.dtype), batch)
        packed = [self._pack(matrix, part, schedule) for part in cell.parts(int(hidden))]

        def compute(*tensors: te.Tensor) -> Sequence[te.Tensor]:
            return recurrence(cell, schedule, *tensors)

        operands = [x, *initial, *packed, *optional]
        kernel, arguments, types = gen_call_tir_inputs(compute, *operands)
        kernel = kernel.with_attr("op_pattern", OPAQUE)
        variable = self.builder_.add_func(kernel, cell.kind.lower())
        return relax.call_tir(variable, arguments, types)

    def _pack(self, matrix: relax.Expr, part: Part, schedule: CpuSchedule) -> relax.Expr:
        """The weights of a product in tiles, of shape (tiles, hidden, columns of a tile)."""
        width = schedule.tile_columns(part.rows)
        tiles = schedule.padded(part.rows) // width
        missing, end = tiles * width - part.rows, part.first + part.rows
        depth = int(matrix.ty.shape.values[1])

        def arrange(array: np.ndarray) -> np.ndarray:
            rows = np.pad(array[part.first : end], [(0, missing), (0, 0)])
            return rows.reshape(tiles, width, depth).transpose(0, 2, 1)

        if isinstance(matrix, tvm.ir.GenericConst):
            return rearranged(matrix, arrange, "a recurrent layer")
        emit = self.builder_.emit
        rows = emit(relax.op.strided_slice(matrix, [0], [part.first], [end]))
        padded = emit(relax.op.nn.pad(rows, [0, missing, 0, 0])) if missing else rows
        in_tiles = emit(relax.op.reshape(padded, (tiles, width, depth)))
        return emit(relax.op.permute_dims(in_tiles, [0, 2, 1]))
