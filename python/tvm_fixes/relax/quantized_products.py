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
"""Products of quantized tensors, and the reasons why some cannot be computed in integers."""

import numpy as np
from tvm import relax

from .ir import nn_call
from .layouts import Layout
from .quantized import MAX_DEPTH, NARROW_DTYPES, Integers, constant, is_normal, is_static


def obstacle_to(call: relax.Call, lhs: Integers | None, rhs: Integers | None) -> str | None:
    """Why `call` is not the product of the integers times the scales; None if it is."""
    if lhs is None or rhs is None:
        return f"the {'data' if lhs is None else 'weight'} is not quantized"
    for name, operand in (("data", lhs), ("weight", rhs)):
        dtype = str(operand.data.ty.dtype)
        if dtype not in NARROW_DTYPES:
            return f"the {name} is {dtype}, not of 8 bits"
    dtype, scales = str(call.ty.dtype), [operand.scale is not None for operand in (lhs, rhs)]
    if any(scales) != all(scales) or all(scales) != (dtype == "float32"):
        return f"a product of {'' if all(scales) else 'un'}scaled integers is {dtype}"
    if not all(scales):
        return None
    if not lhs.is_per_tensor:
        return "the data has several scales"
    if not is_static(rhs.data):
        return "the shape of the weight is symbolic"
    if depth_of(call) > MAX_DEPTH:
        return f"sums of {depth_of(call)} products might exceed int32"
    if not rhs.is_per_tensor and not _scales_channels(call, rhs):
        return "the scales of the weight are not one per output channel"
    if not _has_normal_scale(lhs, rhs):
        return "the product of the scales is beyond float32"
    return None


def _has_normal_scale(lhs: Integers, rhs: Integers) -> bool:
    """Whether the product of the scales is not known to be beyond the range of float32."""
    scales = constant(lhs.scale), constant(rhs.scale)
    if scales[0] is None or scales[1] is None:
        return True
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return is_normal(np.asarray(scales[0] * scales[1], "float32"))


def keeps_weight(call: relax.Call, weight: Integers) -> bool:
    """Whether a matrix product of floats and a dequantized constant can be scaled afterwards."""
    dtypes = {str(expr.ty.dtype) for expr in (call.args[0], call)}
    return (
        str(call.op.name) == "relax.matmul"
        and dtypes == {"float32"}
        and weight.is_constant
        and weight.scale is not None
        # Other constants become 16-bit integers, at run time if their elements have been moved.
        and str(weight.data.ty.dtype) == "int8"
        and weight.data.ty.ndim == 2
        and (weight.is_per_tensor or _scales_channels(call, weight))
    )


def _scales_channels(call: relax.Call, weight: Integers) -> bool:
    """Whether the scales of the weight are one per output channel."""
    if str(call.op.name) == "relax.matmul":
        return weight.data.ty.ndim >= 2 and weight.axis == weight.data.ty.ndim - 1
    layout = Layout(str(call.attrs.kernel_layout))
    is_transposed = str(call.op.name).endswith("_transpose")
    out = Layout(str(call.attrs.out_layout or call.attrs.data_layout))
    if layout.blocks or out.blocks or (is_transposed and int(call.attrs.groups) > 1):
        return False
    return layout.letters.index("O") == weight.axis


def channel_axis(call: relax.Call) -> int:
    """The axis of the output channels."""
    if str(call.op.name) == "relax.matmul":
        return call.ty.ndim - 1
    attrs = call.attrs
    return Layout(str(attrs.out_layout or attrs.data_layout)).letters.index("C")


def depth_of(call: relax.Call) -> int:
    """An upper bound on the number of products in a sum."""
    shape = [int(extent) for extent in call.args[1].ty.shape.values]
    if str(call.op.name) == "relax.matmul":
        return shape[-2] if len(shape) > 1 else shape[0]
    letters = Layout(str(call.attrs.kernel_layout)).letters
    return int(np.prod([n for letter, n in zip(letters, shape, strict=True) if letter != "O"]))


def with_operands(call: relax.Call, data: relax.Expr, weight: relax.Expr) -> relax.Call:
    """The same product of other operands, in int32."""
    if str(call.op.name) == "relax.matmul":
        return relax.op.matmul(data, weight, out_dtype="int32")
    return nn_call(call, data, weight, out_dtype="int32")
