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
"""Powers, divisors and shifts of integers."""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T

from ....fixes.torch_importer import DECOMPOSITIONS
from ....support import switches
from ....tirx.loop_kernels import Outputs, cast, local, loops, nest, when
from ...dtypes import dtype_of
from ..call import Call, converts
from ..values.operands import Kind, operands_of, result_dtype

_SHIFTS = {
    f"{name}.{overload}": op
    for names, op in (
        (("bitwise_left_shift", "__lshift__"), relax.op.left_shift),
        (("bitwise_right_shift", "__rshift__"), relax.op.right_shift),
    )
    for name in names
    for overload in ("Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor")
}


def _pairwise(
    call: Call, name: str, body: Callable[[Any, Any], Any], x: relax.Expr, y: relax.Expr
) -> relax.Expr:
    """Emit loops that compute each element from those of two tensors, which broadcast."""
    switches.note(DECOMPOSITIONS)
    emit, dtype = call.emit, dtype_of(x)
    shape = call.builder.normalize(relax.op.add(x, y)).ty.shape
    x, y = (emit(relax.op.broadcast_to(operand, shape)) for operand in (x, y))

    def outputs(first: te.Tensor, _: te.Tensor) -> Outputs:
        return [(first.shape, dtype)]

    def statements(first: Any, second: Any, out: Any) -> None:
        with nest(first.shape) as at:
            out[at] = body(first[at], second[at])

    return call.builder.emit_te(loops(name, outputs, statements), x, y, primfunc_name_hint=name)


@converts("gcd.default", fix=DECOMPOSITIONS)
def convert_gcd(call: Call) -> relax.Expr:
    """Convert the greatest common divisor, by loops."""
    dtype = result_dtype(call, Kind.DEFAULT, *call.node.args)
    x, y = operands_of(call, dtype)

    def divisor(first: Any, second: Any) -> Any:
        a, b = local(dtype, first), local(dtype, second)
        with T.While(b[0] != 0):
            rest = local(dtype, tirx.truncmod(a[0], b[0]))
            a[0] = b[0]
            b[0] = rest[0]
        return tirx.abs(a[0])

    return _pairwise(call, "gcd", divisor, x, y)


@converts("pow.Tensor_Tensor", "pow.Scalar", place="integers", fix=DECOMPOSITIONS)
def convert_integer_power(call: Call) -> relax.Expr:
    """Convert a power of integers by integers."""
    dtype = result_dtype(call, Kind.BOOL_TO_LONG, *call.node.args)
    if "int" not in dtype:
        return call.proceed()
    x, y = operands_of(call, dtype)
    return _pairwise(call, "pow", lambda a, b: _power(dtype, a, b), x, y)


@converts(*_SHIFTS, fix=DECOMPOSITIONS, noted=True)
def convert_shift(call: Call) -> relax.Expr:
    """Convert a shift of bits, by any number of them."""
    emit, op = call.emit, _SHIFTS[call.operator]
    dtype = result_dtype(call, Kind.DEFAULT, *call.node.args)
    x, count = operands_of(call, dtype)
    bits, zero = tvm.DataType(dtype).bits, relax.const(0, dtype)
    most = relax.const(bits - 1, dtype)
    is_inside = emit(
        relax.op.logical_and(
            emit(relax.op.greater_equal(count, zero)),
            emit(relax.op.less_equal(count, most)),
        )
    )
    # Shifts by other numbers are undefined in machine code.
    shifted = emit(op(x, emit(relax.op.where(is_inside, count, most))))
    if op is relax.op.right_shift:
        return shifted
    return emit(relax.op.where(is_inside, shifted, zero))


def _power(dtype: str, base: Any, exponent: Any) -> Any:
    """Multiply by squares; a power with a negative exponent is 0, except of 1 and -1."""
    result, square, rest = local(dtype, 1), local(dtype, base), local(dtype, exponent)
    with when(rest[0] < 0):
        is_odd = tirx.truncmod(rest[0], cast(2, dtype)) != 0
        sign = tirx.Select(is_odd, cast(-1, dtype), cast(1, dtype))
        of_unit = tirx.Select(square[0] == 1, cast(1, dtype), sign)
        is_unit = tirx.any(square[0] == 1, square[0] == -1)
        result[0] = tirx.Select(is_unit, of_unit, cast(0, dtype))
    with T.While(rest[0] > 0):
        with when((rest[0] & 1) == 1):
            result[0] = result[0] * square[0]
        square[0] = square[0] * square[0]
        rest[0] = rest[0] >> 1
    return result[0]
