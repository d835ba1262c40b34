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
"""Range and EyeLike.

Trigger
    A Range up to a dim whose result is combined with a tensor of that dim, such as position
    embeddings; an EyeLike whose dtype differs from its input's.
Mechanism
    The converter of Range computes the number of elements at run time, so TVM cannot prove that it
    equals the dim. The converter of EyeLike rejects the dtype, which Relax's operator ignores.
"""

import tvm
from onnx import helper
from tvm import relax
from tvm.relax import op

from ....fixes.onnx_importer import PARAMETERS
from ....support import switches
from ...dtypes import dtype_of
from ...extents import is_static, maximum
from ..call import Call, Extent, converts
from .shape_operands import shaped

_ASTYPE = tvm.ir.Op.get("relax.astype")


@converts("Range", fix=PARAMETERS)
def convert_range(call: Call) -> relax.Expr:
    """Convert a Range; its extent is an expression if the operands are known and the step static.

    The operands are integers, or integers cast to floats, as PyTorch's exporters write them.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the step is 0.
    """
    start, limit, step = (_whole_number(call, index) for index in range(3))
    if step is not None and call.known.equal(step, 0):
        raise call.invalid("operand delta", step, "expected a nonzero step")
    if start is None or limit is None or not isinstance(step, int) or is_static(start, limit):
        return call.proceed()
    switches.note(PARAMETERS)
    span = limit - start if step > 0 else start - limit
    count = maximum(call.known, (span + abs(step) - 1) // abs(step), 0)
    dtype = dtype_of(call.operands[0])
    result = call.emit(op.arange(0, count, 1, "int64"))
    if dtype != "int64":
        result = call.emit(op.astype(result, dtype))
    if step != 1:
        result = call.emit(op.multiply(result, relax.const(step, dtype)))
    if not call.known.equal(start, 0):
        result = op.add(result, call.operands[0])
    return result


def _whole_number(call: Call, index: int) -> Extent | None:
    """The value of an operand if it is known to be a whole number, else None."""
    operand, value = call.operands[index], call.value(index)
    if value is None:
        is_bound = isinstance(operand, relax.Var)
        source = call.builder.lookup_binding(operand) if is_bound else operand
        if isinstance(source, relax.Call) and source.op == _ASTYPE:
            value = call.known.of(source.args[0])
    if value is None:
        return None
    element = value.elements.item()
    if isinstance(element, float) and element.is_integer():
        return int(element)
    return None if isinstance(element, bool | float) else element


@converts("EyeLike", fix=PARAMETERS)
def convert_eye_like(call: Call) -> relax.Expr:
    """Convert an EyeLike of any dtype.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the input does not have two dims.
    """
    data, extents = shaped(call, 0, "input")
    if len(extents) != 2:
        raise call.invalid("shape of input", extents, "expected two dimensions")
    given = call.attributes.get("dtype")
    dtype = dtype_of(data) if given is None else str(helper.tensor_dtype_to_np_dtype(given))
    if dtype == dtype_of(data):
        return call.proceed()
    switches.note(PARAMETERS)
    return op.astype(call.emit(op.eye_like(data, call.attributes.get("k", 0))), dtype)
