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
"""Attention and MultiHeadAttention of the domain com.microsoft."""

from typing import Any

from tvm import relax

from .....fixes.onnx_importer import MICROSOFT
from ....dtypes import dtype_of
from ...call import Call, converts
from ..attention import (
    after_pair,
    after_past,
    as_pair,
    hide_later,
    join_heads,
    masked,
    scaled_product,
    split_heads,
    weighted_sum,
    with_bias,
)
from ..quantized.steps import named_operands
from .operands import (
    as_onnx,
    check_rank,
    check_vector,
    named_shape,
    reject,
    round_to,
    widen,
)


@converts("com.microsoft.Attention", fix=MICROSOFT, noted=True)
def convert_attention(call: Call) -> relax.Expr:
    """Convert an Attention: projections to query, key and value, then attention.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute is not supported, or the shapes of operands do not agree.
    """
    names = "input weights bias mask_index past attention_bias past_sequence_length"
    inputs = named_operands(call, names, ("input", "weights"))
    reject(call, inputs, "do_rotary", "past_present_share_buffer", "past_sequence_length")
    dtype, heads = dtype_of(inputs["input"]), call.attributes.get("num_heads", 0)
    check_rank(call, "input", inputs["input"], 3)
    parts = _projections(call, inputs)
    query, key, value = (split_heads(call, "weights", part, heads) for part in parts)
    count = call.outputs
    if inputs["past"] is not None:
        key, value = after_pair(call, inputs["past"], (key, value))
    scores = _scores(call, query, key, inputs["mask_index"], inputs["attention_bias"], "mask_index")
    fields = [round_to(call, join_heads(call, weighted_sum(call, scores, value)), dtype)]
    if count > 1:
        fields.append(as_pair(call, (key, value), dtype))
    return fields[0] if len(fields) == 1 else relax.Tuple(fields)


def _projections(call: Call, inputs: dict[str, Any]) -> list[relax.Expr]:
    """Query, key and value, of shape (batch, length, width)."""
    _, total = check_rank(call, "weights", inputs["weights"], 2)
    sizes = list(call.attributes.get("qkv_hidden_sizes", ()))
    if not sizes and isinstance(total, int) and total % 3 == 0:
        sizes = [total // 3] * 3
    if len(sizes) != 3 or sum(sizes) != total or sizes[0] != sizes[1]:
        reason = f"expected three numbers with the sum {total}, the first two equal"
        raise call.invalid("attribute qkv_hidden_sizes", sizes, reason)
    check_vector(call, "bias", inputs["bias"], total)
    operands = (widen(call, inputs[name]) for name in ("input", "weights"))
    joined = as_onnx(call, "MatMul", *operands)
    if inputs["bias"] is not None:
        joined = call.emit(relax.op.add(joined, widen(call, inputs["bias"])))
    parts = call.emit(relax.op.split(joined, [sizes[0], sizes[0] + sizes[1]], -1))
    return [call.emit(relax.TupleGetItem(parts, index)) for index in range(3)]


@converts("com.microsoft.MultiHeadAttention", fix=MICROSOFT, noted=True)
def convert_multi_head_attention(call: Call) -> relax.Expr:
    """Convert a MultiHeadAttention of separate or packed query, key and value.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand is not supported, or the shapes of operands do not agree.
    """
    names = (
        "query key value bias key_padding_mask attention_bias past_key past_value "
        "past_sequence_length cache_indirection"
    )
    inputs = named_operands(call, names, ("query",))
    reject(call, inputs, "past_sequence_length", "cache_indirection")
    if (inputs["past_key"] is None) != (inputs["past_value"] is None):
        raise call.invalid("operands", "incomplete", "expected past_key and past_value, or neither")
    dtype = dtype_of(inputs["query"])
    query, key, value = _heads(call, inputs)
    if inputs["past_key"] is not None:
        names_of_past = ("past_key", "past_value")
        old = [widen(call, inputs[name]) for name in names_of_past]
        key, value = after_past(call, names_of_past, old, (key, value))
    mask, bias = inputs["key_padding_mask"], inputs["attention_bias"]
    scores = _scores(call, query, key, mask, bias, "key_padding_mask")
    out = join_heads(call, weighted_sum(call, scores, value))
    fields = [round_to(call, field, dtype) for field in (out, key, value, scores)[: call.outputs]]
    return fields[0] if len(fields) == 1 else relax.Tuple(fields)


def _heads(call: Call, inputs: dict[str, Any]) -> list[relax.Expr]:
    """Query, key and value, of shape (batch, heads, length, size)."""
    heads = call.attributes.get("num_heads", 0)
    parts = [inputs["query"], inputs["key"], inputs["value"]]
    rank = 5 if parts[1] is None else len(check_rank(call, "key", parts[1], 3, 4, 5))
    if parts[1] is None:
        _check_absent(call, inputs, "query has all three", "value")
        parts = _unpacked(call, "query", parts[0], 3, heads)
    elif rank == 5:
        _check_absent(call, inputs, "key is packed", "value", "bias")
        parts = [parts[0], *_unpacked(call, "key", parts[1], 2, heads)]
    elif parts[2] is None:
        raise call.invalid("operand value", "missing", "expected one, or key of rank 5")
    check_rank(call, "query", parts[0], 3)
    check_rank(call, "value", parts[2], 4 if rank == 4 else 3)
    parts = [widen(call, part) for part in parts]
    if rank == 4:  # key and value are already heads
        _check_absent(call, inputs, "key has rank 4", "bias", "past_key")
        return [split_heads(call, "query", parts[0], heads), *parts[1:]]
    if inputs["bias"] is not None:
        parts = _biased_parts(call, inputs["bias"], parts)
    named = zip(("query", "key", "value"), parts, strict=True)
    return [split_heads(call, name, part, heads) for name, part in named]


def _check_absent(call: Call, inputs: dict[str, Any], reason: str, *names: str) -> None:
    for name in names:
        if inputs[name] is not None:
            raise call.invalid(f"operand {name}", "given", f"expected none, because {reason}")


def _unpacked(
    call: Call, name: str, packed: relax.Expr, count: int, heads: int
) -> list[relax.Expr]:
    """Tensors of shape (batch, length, width) from one of (batch, length, heads, count, size)."""
    batch, length, found, parts, size = check_rank(call, name, packed, 5)
    if found != heads or parts != count:
        expected = f"expected [{batch}, {length}, {heads}, {count}, {size}]"
        raise call.invalid(f"shape of {name}", [batch, length, found, parts, size], expected)
    shape = relax.ShapeExpr([batch, length, heads * size])
    return [
        call.emit(relax.op.reshape(relax.op.take(packed, relax.const(i, "int64"), axis=3), shape))
        for i in range(count)
    ]


def _biased_parts(call: Call, bias: relax.Expr, parts: list[relax.Expr]) -> list[relax.Expr]:
    """Query, key and value plus their parts of the bias."""
    widths = [named_shape(call, "value", part)[-1] for part in parts]
    if not all(isinstance(width, int) for width in widths):
        raise call.invalid("widths of query, key and value", widths, "expected static extents")
    check_vector(call, "bias", bias, sum(widths))
    split = call.emit(relax.op.split(widen(call, bias), [widths[0], widths[0] + widths[1]], 0))
    return [
        call.emit(relax.op.add(part, call.emit(relax.TupleGetItem(split, index))))
        for index, part in enumerate(parts)
    ]


def _scores(
    call: Call,
    query: relax.Expr,
    key: relax.Expr,
    mask: relax.Expr | None,
    bias: relax.Expr | None,
    mask_name: str,
) -> relax.Expr:
    """The scaled products of query and key, with bias and masks."""
    scores = scaled_product(call, query, key, call.attributes.get("scale", 0.0))
    if bias is not None:
        scores = with_bias(call, scores, bias)
    if mask is not None:
        filler = call.attributes.get("mask_filter_value", -10000.0)
        scores = masked(call, mask_name, mask, scores, filler)
    return hide_later(call, scores) if call.attributes.get("unidirectional", 0) else scores
