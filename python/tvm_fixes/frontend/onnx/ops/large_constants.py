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
"""Operators on large constants, which the importer leaves to the constant folder.

Trigger
    A Transpose of an embedding that is also the weight of the last layer; 8-bit weights that Cast
    and Mul dequantize.
Mechanism
    The converters compute results of constants with NumPy.
"""

from collections.abc import Callable

import tvm
from onnx import helper
from tvm import relax
from tvm.relax import op

from ....fixes.weights import FOLD_CONSTANT
from ....support.tensors import nbytes_of
from ...convert import EVERY
from ...dtypes import dtype_of
from ..call import Call, Extent, converts, extents_of

__all__ = ["taken_rows"]

_FLOATS = ("float16", "bfloat16", "float32", "float64")

_MAX_FOLDED_BYTES = 1 << 16
"""The maximum size of a result that the importer computes."""


@converts(EVERY, place="large constants", fix=FOLD_CONSTANT)
def convert_deferred(call: Call) -> relax.Expr:
    """Convert a call on large constants to an operator, for FoldConstant and its budget."""
    result = _deferred(call)
    return call.proceed() if result is None else result


def _deferred(call: Call) -> relax.Expr | None:
    """The operator of a node on large constants, which FoldConstant computes within its budget.

    Returns
    -------
    relax.Expr or None
        None for other nodes, which TVM's converter converts.
    """
    convert = _OPERATORS.get(call.operator)
    operands = call.operands
    if convert is None or not all(isinstance(x, tvm.ir.GenericConst) for x in operands):
        return None
    if all(nbytes_of(x.value.shape, dtype_of(x)) <= _MAX_FOLDED_BYTES // 8 for x in operands):
        return None
    return convert(call)


def _transpose(call: Call) -> relax.Expr | None:
    axes = call.attributes.get("perm")
    rank = len(extents_of(call.operands[0]) or [])
    if axes is not None and sorted(axes) != list(range(rank)):
        return None
    return op.permute_dims(call.operands[0], None if axes is None else list(axes))


def _cast(call: Call) -> relax.Expr | None:
    """A cast to floats, which rounds in one way."""
    target = str(helper.tensor_dtype_to_np_dtype(call.attributes["to"]))
    return op.astype(call.operands[0], target) if target in _FLOATS else None


def _binary(operator: Callable[..., relax.Expr]) -> Callable[[Call], relax.Expr | None]:
    def convert(call: Call) -> relax.Expr | None:
        is_float = all(dtype_of(operand) in _FLOATS for operand in call.operands)
        return operator(*call.operands) if is_float else None

    return convert


_OPERATORS: dict[str, Callable[[Call], relax.Expr | None]] = {
    "Add": _binary(op.add),
    "Cast": _cast,
    "Mul": _binary(op.multiply),
    "Sub": _binary(op.subtract),
    "Transpose": _transpose,
}


_ELEMENTWISE = ("relax.add", "relax.multiply", "relax.subtract")

_MAX_STEPS = 4
"""The maximum number of operators in a row that compute a table, such as a cast and a scale."""


def taken_rows(
    call: Call, table: relax.Expr, indices: relax.Expr, steps: int = _MAX_STEPS
) -> relax.Expr | None:
    """Rows of a table that deferred operators compute: computed after they are taken.

    Otherwise, a model dequantizes all of its embedding for a few rows.

    Parameters
    ----------
    table : Expr
        An operand that :func:`convert_deferred` computes.
    indices : Expr
    steps : int
        The maximum number of operators in a row.

    Returns
    -------
    Expr or None
        None if the table is computed from anything but constants with as many rows, or constants
        that broadcast along them.
    """
    extents = extents_of(table)
    value = call.builder.lookup_binding(table) if isinstance(table, relax.Var) else table
    if not extents or not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if str(value.op.name) not in ("relax.astype", *_ELEMENTWISE):
        return None
    parts = []
    for part in value.args:
        rows = _rows_of(call, part, len(extents), extents[0], indices, steps - 1)
        if rows is None:
            return None
        parts.append(rows)
    if value.op.name == "relax.astype":
        return op.astype(parts[0], dtype_of(table))
    return relax.Call(value.op, [call.emit(part) for part in parts], value.attrs)


def _rows_of(
    call: Call, part: relax.Expr, rank: int, count: Extent, indices: relax.Expr, steps: int
) -> relax.Expr | None:
    """The rows of an operand of a table of this rank and number of rows."""
    extents = extents_of(part)
    if extents is None:
        return None
    if not isinstance(part, tvm.ir.GenericConst):
        is_table = steps > 0 and len(extents) == rank and extents[0] == count
        return taken_rows(call, part, indices, steps) if is_table else None
    if len(extents) == rank and extents[0] == count:
        return op.take(part, indices, 0)
    if len(extents) == rank and extents[0] == 1:
        return op.reshape(part, extents[1:])
    return part if len(extents) < rank else None
