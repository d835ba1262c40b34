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
"""LowerRecurrence: schedules for the kernels of recurrent layers."""

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.utils import gen_call_tir_inputs

from ...attributes import RECURRENCE
from ...fixes.matmul import MATMUL_LEGALIZE as FIX_ID
from ...target.cpu import Cpu, is_cpu
from ...target.gpu import is_gpu
from ...tirx.recurrence import Cell, recurrence
from ...tirx.recurrence_gpu import GpuSchedule
from ...tirx.recurrence_quantized import QuantizedCpuSchedule
from ...tirx.recurrence_schedule import CpuSchedule, Part, Schedule
from ...tirx.util import OPAQUE
from ..constants.make import rearranged
from ..guard import fix_pass
from ..ir import is_kernel_call
from ..rewrite import rewrite_functions


def LowerRecurrence() -> tvm.transform.Pass:
    """Schedule the kernels of recurrent layers, and pack their weights.

    The importers emit kernels with scalar loops, for any target.  For a CPU, each becomes a kernel
    with vectors and register tiles (:mod:`tvm_fixes.tirx.recurrence_schedule`); for a GPU, one
    whose thread blocks compute a sequence each (:mod:`tvm_fixes.tirx.recurrence_gpu`), except
    quantized ones.

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU or GPU target.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        target = tvm.target.Target.current(allow_none=True)
        kernels = {
            variable: Cell.from_json(str(function.attrs[RECURRENCE]))
            for variable, function in mod.functions_items()
            if function.attrs is not None and RECURRENCE in function.attrs
        }
        if not kernels or not (is_cpu(target) or is_gpu(target)):
            return None
        lowering = _Lowering(mod, kernels, Cpu.of(target) if is_cpu(target) else None)
        lowered = rewrite_functions(lowering, mod)
        for variable in lowering.replaced:
            del lowered[variable]
        return lowered

    return fix_pass("LowerRecurrence", FIX_ID, rewrite)


@mutator
class _Lowering(PyExprMutator):
    """Replaces the kernels, for a GPU if `cpu` is None."""

    def __init__(
        self, mod: tvm.IRModule, kernels: dict[tvm.ir.GlobalVar, Cell], cpu: Cpu | None
    ) -> None:
        super().__init__(mod)
        self._kernels, self._cpu = kernels, cpu
        self.replaced: set[tvm.ir.GlobalVar] = set()

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_kernel_call(call) or call.args[0] not in self._kernels:
            return call
        cell = self._kernels[call.args[0]]
        states = 2 if cell.kind == "LSTM" else 1
        # Numbers follow the tensors: symbols of expressions such as n - 6.
        x, *rest = (f for f in call.args[1].fields if isinstance(f.ty, relax.TensorType))
        initial, rest = rest[:states], rest[states:]
        count = 3 if cell.is_quantized else 1
        scheduled = self._schedule(cell, initial[0], rest[:count])
        if scheduled is None:
            return call
        schedule, weights = scheduled
        self.replaced.add(call.args[0])

        def compute(steps: tirx.Expr, *tensors: te.Tensor) -> Sequence[te.Tensor]:
            return recurrence(cell, schedule, steps, *tensors)

        steps = call.ty.fields[0].shape.values[0]
        operands = [steps, x, *initial, *weights, *rest[count:]]
        kernel, arguments, types = gen_call_tir_inputs(compute, *operands)
        kernel = kernel.with_attr("op_pattern", OPAQUE)
        if self._cpu is None:
            kernel = kernel.with_attr("tirx.is_scheduled", True)
        variable = self.builder_.add_func(kernel, cell.kind.lower())
        return relax.call_tir(variable, arguments, types)

    def _schedule(
        self, cell: Cell, state: relax.Expr, weights: Sequence[relax.Expr]
    ) -> tuple[Schedule, list[relax.Expr]] | None:
        """The schedule of a kernel, and the weights that it expects; None for a GPU's integers."""
        batch, hidden = state.ty.shape.values
        dtype, parts = str(state.ty.dtype.dtype), cell.parts(int(hidden))
        if self._cpu is None:
            if cell.is_quantized:
                return None
            return GpuSchedule.of(int(hidden)), [self._transposed(weights[0])]
        if cell.is_quantized:
            of_bytes = QuantizedCpuSchedule.of(self._cpu, dtype, batch)
            return of_bytes, self._pack_integers(weights, parts[0], of_bytes)
        schedule = CpuSchedule.of(self._cpu, dtype, batch)
        return schedule, [self._pack(weights[0], part, schedule) for part in parts]

    def _transposed(self, matrix: relax.Expr) -> relax.Expr:
        if isinstance(matrix, tvm.ir.GenericConst):
            return rearranged(matrix, np.transpose, "a recurrent layer")
        return self.builder_.emit(relax.op.permute_dims(matrix))

    def _pack(
        self, matrix: relax.Expr, part: Part, schedule: CpuSchedule, depth: int = 1
    ) -> relax.Expr:
        """The weights of a product in tiles.

        Their shape is (tiles, hidden / depth, columns of a tile * depth); `depth` elements of the
        second axis, which is then padded, are adjacent.
        """
        width = schedule.tile_columns(part.rows)
        tiles = schedule.padded(part.rows) // width
        missing, end = tiles * width - part.rows, part.first + part.rows
        hidden = int(matrix.ty.shape.values[1])
        padding = schedule.rounded(hidden) - hidden if depth > 1 else 0
        steps = (hidden + padding) // depth

        def arrange(array: np.ndarray) -> np.ndarray:
            rows = np.pad(array[part.first : end], [(0, missing), (0, padding)])
            in_tiles = rows.reshape(tiles, width, steps, depth).transpose(0, 2, 1, 3)
            return in_tiles.reshape(tiles, steps, width * depth)

        if isinstance(matrix, tvm.ir.GenericConst):
            return rearranged(matrix, arrange, "a recurrent layer")
        emit = self.builder_.emit
        rows = emit(relax.op.strided_slice(matrix, [0], [part.first], [end]))
        padded = (
            emit(relax.op.nn.pad(rows, [0, missing, 0, padding])) if missing + padding else rows
        )
        divided = emit(relax.op.reshape(padded, (tiles, width, steps, depth)))
        in_tiles = emit(relax.op.permute_dims(divided, [0, 2, 1, 3]))
        return emit(relax.op.reshape(in_tiles, (tiles, steps, width * depth)))

    def _pack_integers(
        self, weights: Sequence[relax.Expr], part: Part, schedule: QuantizedCpuSchedule
    ) -> list[relax.Expr]:
        """The operands of :class:`QuantizedCpuSchedule`."""
        emit = self.builder_.emit
        matrix, scales, zeros = weights
        in_int32 = emit(relax.op.astype(matrix, "int32"))
        if str(matrix.ty.dtype.dtype) == "uint8":
            middle = relax.const(128, "int32")
            in_int32, zeros = (
                emit(relax.op.subtract(value, middle)) for value in (in_int32, zeros)
            )
            matrix = emit(relax.op.astype(in_int32, "int8"))
        elements = relax.const(schedule.rounded(int(matrix.ty.shape.values[1])), "int32")
        of_zeros = emit(relax.op.multiply(zeros, elements))
        offsets = emit(relax.op.subtract(emit(relax.op.sum(in_int32, 1)), of_zeros))
        return [self._pack(matrix, part, schedule, schedule.depth), scales, zeros, offsets]
