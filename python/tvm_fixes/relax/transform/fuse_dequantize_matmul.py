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
"""FuseDequantizeMatmul: multiply by weights of 2, 4 or 8 bits, without dequantizing them first.

Trigger
    A product of floats and a constant that is dequantized in blocks: MatMulNBits, a blocked
    DequantizeLinear, a weight-only linear layer of torchao.
Mechanism
    TVM computes the whole matrix in float32 each time: eight times the bytes of its weights are
    written to memory, and read again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from ...fixes.low_precision import FUSE_DEQUANTIZE_MATMUL as FIX_ID
from ...support.tensors import array_of
from ..analysis import bindings, is_matmul
from ..constants.evaluate import evaluate
from ..constants.fold_plan import FoldPlan
from ..constants.growth import MAX_GROWTH
from ..guard import fix_pass
from ..ir import operator_name, relax_functions, tensor_of
from ..legalize.matmul.blocks import PackedBlocks, multiply_blocks, pack_blocks, tile_of
from ..legalize.targets import schedules_for_cpu
from ..quantized import is_static
from ..quantized_blocks import BlockMatrix
from .fold_constant import rebind_variables

# The maximum bytes of factors that are computed at once.
_AT_ONCE = 512 << 20

# The maximum number of calls between the integers and the product.
_MAX_STEPS = 8


def FuseDequantizeMatmul(max_growth: float = MAX_GROWTH) -> tvm.transform.Pass:
    """Multiply by the integers of a weight that is quantized in blocks, and scale the sums.

    Before::

        factors = R.subtract(R.astype(weight, "float32"), zero)     # (N, K / 32, 32)
        matrix = R.reshape(R.multiply(factors, scale), (N, K))      # scale: (N, K / 32, 1)
        y = R.matmul(x, R.permute_dims(matrix))

    and after::

        y = R.call_tir(matmul_blocks, (x, words, scales, zeros), …)   # words: eight rows in each

    The integers are packed again at compile time, for the kernel. The pass finds blocks by the
    elements of the factors and scales, so it does not matter which operators compute them.

    Parameters
    ----------
    max_growth : float
        As for :func:`FoldConstant`: a matrix that it folds is left to it.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators. A product stays unchanged if it is not in float32,
        if the blocks have fewer than 16 rows, or if both operands have 8 bits and the weight has
        one scale per column, which :func:`FuseQuantized` handles.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        plan = FoldPlan(mod, max_growth)
        products = _products(mod, plan)
        builder = relax.BlockBuilder(mod)
        values: dict[relax.Var, relax.Expr] = {}
        bound = _bound_in(mod)
        for weight, matrix in _matrices(mod, plan, list(products)):
            chosen = products[weight]
            if _is_of_bytes(matrix):
                chosen = [each for each in chosen if not _is_dequantized(each.value.args[0], bound)]
            if chosen:
                values |= _multiplied(builder, chosen, matrix, weight)
        if not values:
            return None
        return rebind_variables(builder.get(), values)

    return fix_pass("FuseDequantizeMatmul", FIX_ID, rewrite)


@dataclass(frozen=True)
class _Weight:
    """A matrix that is the product of two constants, whose elements may then have been moved.

    Attributes
    ----------
    product : relax.VarBinding
        Its value is a call of ``relax.multiply`` or ``relax.dequantize``.
    moves : tuple of relax.Call
        The calls that move the elements, last first.
    constants : tuple of Tensor
        The constants it is computed from.
    made_by : str
    """

    product: relax.VarBinding
    moves: tuple[relax.Call, ...]
    constants: tuple[tvm.runtime.Tensor, ...]
    made_by: str

    @property
    def operands(self) -> list[relax.Expr]:
        return list(self.product.value.args)

    def matrix(self, arrays: list[np.ndarray]) -> BlockMatrix | None:
        """The matrix as integers, for the values of the operands."""
        shape = [int(extent) for extent in self.product.var.ty.shape]
        if str(self.product.value.op.name) == "relax.multiply":
            choices = [(arrays[0], arrays[1]), (arrays[1], arrays[0])]
        else:
            data, scale, zero = arrays
            axis = int(self.product.value.attrs.axis) % len(shape)
            spread = [-1 if i == axis else 1 for i in range(len(shape))]
            scale, zero = (a.reshape(spread) if a.ndim == 1 else a for a in (scale, zero))
            choices = [(data.astype("int32") - zero.astype("int32"), scale)]
        for factors, scale in choices:
            moved = [self._moved(np.broadcast_to(array, shape)) for array in (factors, scale)]
            matrix = BlockMatrix.of(*moved)
            if matrix is not None:
                return matrix
        return None

    def _moved(self, array: np.ndarray) -> np.ndarray:
        for call in reversed(self.moves):
            array = _MOVES[str(call.op.name)](array, call)
        return array


def _reshaped(array: np.ndarray, call: relax.Call) -> np.ndarray:
    return array.reshape([int(extent) for extent in call.ty.shape])


def _permuted(array: np.ndarray, call: relax.Call) -> np.ndarray:
    axes = call.attrs.axes
    return array.transpose(None if axes is None else [int(axis) for axis in axes])


def _sliced(array: np.ndarray, call: relax.Call) -> np.ndarray:
    axes, begins, ends = ([int(n.value) for n in part] for part in call.args[1:4])
    steps = [int(n.value) for n in call.args[4]] if len(call.args) > 4 else [1] * len(axes)
    index = [slice(None)] * array.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        index[axis] = slice(begin, end, step)
    return array[tuple(index)]


_MOVES: dict[str, Callable[[np.ndarray, relax.Call], np.ndarray]] = {
    "relax.expand_dims": _reshaped,
    "relax.flatten": _reshaped,
    "relax.permute_dims": _permuted,
    "relax.reshape": _reshaped,
    "relax.squeeze": _reshaped,
    "relax.strided_slice": _sliced,
}


def _products(mod: tvm.IRModule, plan: FoldPlan) -> dict[_Weight, list[relax.VarBinding]]:
    """The products that read each weight that is not folded."""
    products: dict[_Weight, list[relax.VarBinding]] = {}
    for function in relax_functions(mod).values():
        for binding in bindings(function):
            if _is_product(binding) and plan.values.get(binding.value.args[1]) in plan.kept:
                weight = _weight(plan, binding.value.args[1])
                if weight is not None:
                    products.setdefault(weight, []).append(binding)
    return products


def _is_product(binding: relax.Binding) -> bool:
    """Whether a binding is a product of floats and a static matrix, for a CPU.

    The number of columns of the floats is known, too: they are padded to whole blocks.
    """
    call = binding.value
    return (
        is_matmul(binding)
        and {str(expr.ty.dtype) for expr in (*call.args, call)} == {"float32"}
        and call.args[1].ty.ndim == 2
        and is_static(call.args[1])
        and schedules_for_cpu(call)
        and isinstance(call.args[0].ty.shape.values[-1], tvm.tirx.IntImm)
    )


def _weight(plan: FoldPlan, var: relax.Var) -> _Weight | None:
    """The weight that a variable stands for, if its last steps are known."""
    value = plan.values[var]
    moves: list[relax.Call] = []
    binding = value.binding
    while isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.Op):
        call, operator = binding.value, str(binding.value.op.name)
        if operator in ("relax.multiply", "relax.dequantize"):
            return _Weight(binding, tuple(moves), value.constants, value.made_by)
        if operator not in _MOVES or call.args[0] not in plan.values:
            return None
        moves.append(call)
        binding = plan.values[call.args[0]].binding
    return None


def _matrices(
    mod: tvm.IRModule, plan: FoldPlan, weights: list[_Weight]
) -> Iterator[tuple[_Weight, BlockMatrix]]:
    """The weights that are quantized in blocks."""
    while weights:
        size = 0
        part: list[_Weight] = []
        while weights and (not part or size < _AT_ONCE):
            part.append(weights.pop(0))
            size += 4 * int(np.prod([int(extent) for extent in part[-1].product.var.ty.shape]))
        computed = dict.fromkeys(
            operand for weight in part for operand in weight.operands if operand in plan.values
        )
        values = [plan.values[var] for var in computed]
        evaluated = evaluate(plan.computation(values), [v.binding.var for v in values], mod)
        for weight in part:
            tensors = [
                evaluated.get(plan.values[operand].binding.var)
                if operand in plan.values
                else tensor_of(operand)
                for operand in weight.operands
            ]
            if None not in tensors:
                matrix = weight.matrix([array_of(tensor) for tensor in tensors])
                if matrix is not None:
                    yield weight, matrix


def _is_of_bytes(matrix: BlockMatrix) -> bool:
    """Whether a matrix has 8 bits and one scale per column."""
    return matrix.bits == 8 and matrix.zero is None and len(matrix.scale) == 1


def _bound_in(mod: tvm.IRModule) -> dict[relax.Var, relax.Expr]:
    return {
        binding.var: binding.value
        for function in relax_functions(mod).values()
        for binding in bindings(function)
    }


def _is_dequantized(data: relax.Expr, bound: dict[relax.Var, relax.Expr]) -> bool:
    """Whether the other operand of a product is computed from integers, as its last steps."""
    pending = [data] if isinstance(data, relax.Var) else []
    for _ in range(_MAX_STEPS):
        if not pending:
            return False
        call = bound.get(pending.pop())
        if not isinstance(call, relax.Call):
            continue
        name = operator_name(call)
        is_cast = name == "relax.astype"
        if name == "relax.dequantize" or (is_cast and "int" in str(call.args[0].ty.dtype)):
            return True
        if is_cast or name in (*_MOVES, "relax.multiply", "relax.subtract"):
            pending += [arg for arg in call.args if isinstance(arg, relax.Var)]
    return False


def _multiplied(
    builder: relax.BlockBuilder,
    products: list[relax.VarBinding],
    matrix: BlockMatrix,
    weight: _Weight,
) -> dict[relax.Var, relax.Expr]:
    """The products with a matrix; products with equal tiles share the packed matrix."""
    packed: dict[int, PackedBlocks] = {}
    values = {}
    for binding in products:
        tile = tile_of(binding.value)
        assert tile.columns is not None
        if tile.columns not in packed:
            packed[tile.columns] = pack_blocks(
                matrix, tile.columns, list(weight.constants), weight.made_by
            )
        values[binding.var] = multiply_blocks(builder, binding.value, packed[tile.columns], tile)
    return values
