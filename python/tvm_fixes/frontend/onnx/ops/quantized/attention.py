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
"""QAttention, the quantized self-attention of the domain com.microsoft."""

from typing import Any

from tvm import relax

from .....fixes.onnx_importer import QUANTIZED
from .....support import switches
from ....dtypes import dtype_of
from ...call import Call, converts
from ..attention import (
    after_pair,
    as_pair,
    hide_later,
    join_heads,
    masked,
    scaled_product,
    weighted_sum,
)
from ..microsoft.operands import named_shape, reject, round_to
from .steps import (
    add_bias,
    as_float32,
    check_dtype,
    check_per_channel,
    check_scalars,
    integer_product,
    named_operands,
    scale_product,
    subtract_zero_point,
)

_NAMES = (
    "input weight bias input_scale weight_scale mask_index input_zero_point weight_zero_point past"
)


@converts("com.microsoft.QAttention", fix=QUANTIZED)
def convert_qattention(call: Call) -> relax.Expr:
    """Convert a QAttention: the projections in int32, then attention in float32.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute or the shape of the mask is not supported, or operands do not agree.
    """
    switches.note(QUANTIZED)
    inputs = named_operands(call, _NAMES, _NAMES.split()[:5])
    check_scalars(call, inputs, "input_scale", "input_zero_point")
    for name in ("input", "weight"):
        check_dtype(call, name, inputs[name], "int8", "uint8")
        check_dtype(
            call, f"{name}_zero_point", inputs[f"{name}_zero_point"], dtype_of(inputs[name])
        )
    reject(call, inputs, "do_rotary", "past_present_share_buffer")
    dtype = dtype_of(inputs["bias"])
    query, key, value = _projections(call, inputs)
    present = None
    if inputs["past"] is not None:
        key, value = after_pair(call, inputs["past"], (key, value))
    if inputs["past"] is not None or call.outputs > 1:
        present = as_pair(call, (key, value), dtype)
    scores = scaled_product(call, query, key, call.attributes.get("scale", 0.0))
    if inputs["mask_index"] is not None:
        filler = call.attributes.get("mask_filter_value", -10000.0)
        scores = masked(call, "mask_index", inputs["mask_index"], scores, filler)
    if call.attributes.get("unidirectional", 0):
        scores = hide_later(call, scores)
    out = round_to(call, join_heads(call, weighted_sum(call, scores, value)), dtype)
    return out if present is None else relax.Tuple([out, present])


def _projections(call: Call, inputs: dict[str, Any]) -> list[relax.Expr]:
    """Query, key and value, of shape (batch, heads, length, size of a head)."""
    shape = named_shape(call, "input", inputs["input"])
    width = named_shape(call, "weight", inputs["weight"])[-1]
    heads = call.attributes.get("num_heads", 0)
    if len(shape) != 3:
        raise call.invalid("shape of input", shape, "expected rank 3")
    if heads < 1 or not isinstance(width, int) or width % (3 * heads):
        reason = f"expected a third of the width of weight, {width}, to be a multiple of it"
        raise call.invalid("attribute num_heads", heads, reason)
    names = ("weight_scale", "weight_zero_point", "bias")
    check_per_channel(call, inputs, inputs["weight"], -1, *names)
    total = integer_product(
        call,
        subtract_zero_point(call, inputs["input"], inputs["input_zero_point"]),
        subtract_zero_point(call, inputs["weight"], inputs["weight_zero_point"]),
    )
    scaled = scale_product(call, total, (inputs["input_scale"], inputs["weight_scale"]))
    joined = add_bias(call, scaled, as_float32(call, inputs["bias"]))
    split = call.emit(relax.op.reshape(joined, [*shape[:2], 3, heads, width // (3 * heads)]))
    # First the axis of query, key and value, then batch, heads, length and size.
    moved = call.emit(relax.op.permute_dims(split, [2, 0, 3, 1, 4]))
    return [
        call.emit(relax.op.take(moved, relax.const(index, "int64"), axis=0)) for index in range(3)
    ]
