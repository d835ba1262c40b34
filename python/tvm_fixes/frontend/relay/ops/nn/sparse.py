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
"""Converters of operators on sparse matrices: values, columns, and where each row begins."""

from typing import Any

from tvm import relax, te
from tvm.script.ir_builder import tirx as T

from .....tirx.loop_kernels import cast, local, when
from ....extents import NO_FACTS
from ...call import Call, converts
from ...values.extents import quotient, reshaped, shaped
from ..indices import checked_indices
from ..loop_kernels import loop_kernel


def _places(call: Call, columns: int, extent: Any) -> list[relax.Expr]:
    """Return the columns and the beginnings of rows, which a kernel reads with."""
    count = shaped(call, columns - 1)[1][0]
    return [
        checked_indices(call, call.operands[columns], extent),
        checked_indices(call, call.operands[columns + 1], NO_FACTS.simplify(count + 1)),
    ]


@converts("nn.sparse_dense")
def sparse_dense(call: Call) -> relax.Expr:
    """Multiply by a transposed matrix; one of both is sparse, its values are numbers or blocks."""
    dense, (_, inner) = shaped(call)
    values, (count, *block) = shaped(call, 1)
    height, width = block or (1, 1)
    if not block:
        values = reshaped(call, values, [count, 1, 1])
    is_left = bool(call.attributes["sparse_lhs"])

    def outputs(dense: te.Tensor, *others: te.Tensor) -> Any:
        shape = [dense.shape[0], (others[2].shape[0] - 1) * height]
        return [(shape[::-1] if is_left else shape, dense.dtype)]

    def body(dense: Any, values: Any, columns: Any, begins: Any, result: Any) -> None:
        with (
            T.serial(0, dense.shape[0]) as i,
            T.serial(0, begins.shape[0] - 1) as row,
            T.serial(0, height) as j,
        ):
            total = local(dense.dtype, cast(0, dense.dtype))
            with T.serial(begins[row], begins[row + 1]) as at, T.serial(0, width) as c:
                total[0] = total[0] + values[at, j, c] * dense[i, columns[at] * width + c]
            place = row * height + j
            if is_left:
                result[place, i] = total[0]
            else:
                result[i, place] = total[0]

    inputs = [dense, values, *_places(call, 2, quotient(inner, width))]
    return loop_kernel(call, inputs, outputs, body)[0]


@converts("nn.sparse_add")
def sparse_add(call: Call) -> relax.Expr:
    """Add a sparse matrix to a dense one."""
    dense, (_, width) = shaped(call)

    def outputs(dense: te.Tensor, *_: te.Tensor) -> Any:
        return [(dense.shape, dense.dtype)]

    def body(dense: Any, values: Any, columns: Any, begins: Any, result: Any) -> None:
        with T.serial(0, dense.shape[0]) as i:
            with T.serial(0, dense.shape[1]) as j:
                result[i, j] = dense[i, j]
            with T.serial(begins[i], begins[i + 1]) as at:
                result[i, columns[at]] = result[i, columns[at]] + values[at]

    inputs = [dense, shaped(call, 1)[0], *_places(call, 2, width)]
    return loop_kernel(call, inputs, outputs, body)[0]


@converts("nn.sparse_transpose")
def sparse_transpose(call: Call) -> tuple[relax.Expr, ...]:
    """Transpose a square sparse matrix."""
    begins = shaped(call, 2)[1][0]

    def outputs(values: te.Tensor, columns: te.Tensor, begins: te.Tensor) -> Any:
        types = [call.input_types[i].dtype for i in (1, 2)]
        places = [(columns.shape, str(types[0])), (begins.shape, str(types[1]))]
        return [(values.shape, values.dtype), *places, (begins.shape, "int64")]

    def body(values: Any, columns: Any, begins: Any, *results: Any) -> None:
        data, rows, starts, free = results
        size, count = begins.shape[0], values.shape[0]
        with T.serial(0, size) as i:
            free[i] = cast(0, "int64")
        with T.serial(0, count) as at:
            free[columns[at] + 1] = free[columns[at] + 1] + 1
            data[at], rows[at] = cast(0, values.dtype), cast(0, rows.dtype)
        with T.serial(0, size - 1) as i:
            free[i + 1] = free[i + 1] + free[i]
        with T.serial(0, size) as i:
            starts[i] = cast(free[i], starts.dtype)
        with T.serial(0, size - 1) as i, T.serial(begins[i], begins[i + 1]) as at:
            place = local("int64", free[columns[at]])
            with when(place[0] < count):
                data[place[0]] = values[at]
                rows[place[0]] = cast(i, rows.dtype)
                free[columns[at]] = place[0] + 1

    inputs = [shaped(call)[0], *_places(call, 1, NO_FACTS.simplify(begins - 1))]
    return tuple(loop_kernel(call, inputs, outputs, body)[:3])
