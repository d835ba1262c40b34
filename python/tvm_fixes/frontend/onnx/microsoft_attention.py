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
"""Attention and MultiHeadAttention of the domain com.microsoft.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    An Attention or MultiHeadAttention that ONNX Runtime's optimizer or model builder has written.
Symptom
    ``OpNotImplemented``; an Attention with a mask of rank 1 or with earlier positions is rejected.
Mechanism
    TVM's converter of Attention supports only some of its forms; MultiHeadAttention has none.
How to remove
    Together with the fix ``onnx-microsoft``.
"""

from typing import Any

from tvm import relax

from ..dtypes import dtype_of
from .attention import (
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
from .microsoft_operands import (
    as_onnx,
    check_rank,
    check_vector,
    named_shape,
    reject,
    round_to,
    widen,
)
from .node import Converter, Node
from .quantization import named_operands

__all__ = ["convert_attention", "convert_multi_head_attention"]


def convert_attention(node: Node, convert: Converter) -> relax.Expr:
    """Convert an Attention: projections to query, key and value, then attention.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute is not supported, or the shapes of operands do not agree.
    """
    names = "input weights bias mask_index past attention_bias past_sequence_length"
    given = named_operands(node, names, ("input", "weights"))
    reject(node, given, "do_rotary", "past_present_share_buffer", "past_sequence_length")
    dtype, heads = dtype_of(given["input"]), node.attributes.get("num_heads", 0)
    check_rank(node, "input", given["input"], 3)
    parts = _projections(node, convert, given)
    query, key, value = (split_heads(node, "weights", part, heads) for part in parts)
    count = node.attributes["tvm_custom"]["num_outputs"]
    if given["past"] is not None:
        key, value = after_pair(node, given["past"], (key, value))
    scores = _scores(node, query, key, given["mask_index"], given["attention_bias"], "mask_index")
    fields = [round_to(node, join_heads(node, weighted_sum(node, scores, value)), dtype)]
    if count > 1:
        fields.append(as_pair(node, (key, value), dtype))
    return fields[0] if len(fields) == 1 else relax.Tuple(fields)


def _projections(node: Node, convert: Converter, given: dict[str, Any]) -> list[relax.Expr]:
    """Query, key and value, of shape (batch, length, width)."""
    _, total = check_rank(node, "weights", given["weights"], 2)
    sizes = list(node.attributes.get("qkv_hidden_sizes", ()))
    if not sizes and isinstance(total, int) and total % 3 == 0:
        sizes = [total // 3] * 3
    if len(sizes) != 3 or sum(sizes) != total or sizes[0] != sizes[1]:
        reason = f"expected three numbers with the sum {total}, the first two equal"
        raise node.invalid("attribute qkv_hidden_sizes", sizes, reason)
    check_vector(node, "bias", given["bias"], total)
    operands = (widen(node, given[name]) for name in ("input", "weights"))
    joined = as_onnx(node, convert, "MatMul", *operands)
    if given["bias"] is not None:
        joined = node.emit(relax.op.add(joined, widen(node, given["bias"])))
    parts = node.emit(relax.op.split(joined, [sizes[0], sizes[0] + sizes[1]], -1))
    return [node.emit(relax.TupleGetItem(parts, index)) for index in range(3)]


def convert_multi_head_attention(node: Node, convert: Converter) -> relax.Expr:
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
    given = named_operands(node, names, ("query",))
    reject(node, given, "past_sequence_length", "cache_indirection")
    if (given["past_key"] is None) != (given["past_value"] is None):
        raise node.invalid("operands", "incomplete", "expected past_key and past_value, or neither")
    dtype = dtype_of(given["query"])
    query, key, value = _heads(node, given)
    if given["past_key"] is not None:
        names_of_past = ("past_key", "past_value")
        old = [widen(node, given[name]) for name in names_of_past]
        key, value = after_past(node, names_of_past, old, (key, value))
    mask, bias = given["key_padding_mask"], given["attention_bias"]
    scores = _scores(node, query, key, mask, bias, "key_padding_mask")
    out = join_heads(node, weighted_sum(node, scores, value))
    fields = [
        round_to(node, field, dtype)
        for field in (out, key, value, scores)[: node.attributes["tvm_custom"]["num_outputs"]]
    ]
    return fields[0] if len(fields) == 1 else relax.Tuple(fields)


def _heads(node: Node, given: dict[str, Any]) -> list[relax.Expr]:
    """Query, key and value, of shape (batch, heads, length, size)."""
    heads = node.attributes.get("num_heads", 0)
    parts = [given["query"], given["key"], given["value"]]
    rank = 5 if parts[1] is None else len(check_rank(node, "key", parts[1], 3, 4, 5))
    if parts[1] is None:
        _check_absent(node, given, "query has all three", "value")
        parts = _unpacked(node, "query", parts[0], 3, heads)
    elif rank == 5:
        _check_absent(node, given, "key is packed", "value", "bias")
        parts = [parts[0], *_unpacked(node, "key", parts[1], 2, heads)]
    elif parts[2] is None:
        raise node.invalid("operand value", "missing", "expected one, or key of rank 5")
    check_rank(node, "query", parts[0], 3)
    check_rank(node, "value", parts[2], 4 if rank == 4 else 3)
    parts = [widen(node, part) for part in parts]
    if rank == 4:  # key and value are already heads
        _check_absent(node, given, "key has rank 4", "bias", "past_key")
        return [split_heads(node, "query", parts[0], heads), *parts[1:]]
    if given["bias"] is not None:
        parts = _biased_parts(node, given["bias"], parts)
    named = zip(("query", "key", "value"), parts, strict=True)
    return [split_heads(node, name, part, heads) for name, part in named]


def _check_absent(node: Node, given: dict[str, Any], reason: str, *names: str) -> None:
    for name in names:
        if given[name] is not None:
            raise node.invalid(f"operand {name}", "given", f"expected none, because {reason}")


def _unpacked(
    node: Node, name: str, packed: relax.Expr, count: int, heads: int
) -> list[relax.Expr]:
    """Tensors of shape (batch, length, width) from one of (batch, length, heads, count, size)."""
    batch, length, found, parts, size = check_rank(node, name, packed, 5)
    if found != heads or parts != count:
        expected = f"expected [{batch}, {length}, {heads}, {count}, {size}]"
        raise node.invalid(f"shape of {name}", [batch, length, found, parts, size], expected)
    shape = relax.ShapeExpr([batch, length, heads * size])
    return [
        node.emit(relax.op.reshape(relax.op.take(packed, relax.const(i, "int64"), axis=3), shape))
        for i in range(count)
    ]


def _biased_parts(node: Node, bias: relax.Expr, parts: list[relax.Expr]) -> list[relax.Expr]:
    """Query, key and value plus their parts of the bias."""
    widths = [named_shape(node, "value", part)[-1] for part in parts]
    if not all(isinstance(width, int) for width in widths):
        raise node.invalid("widths of query, key and value", widths, "expected static extents")
    check_vector(node, "bias", bias, sum(widths))
    split = node.emit(relax.op.split(widen(node, bias), [widths[0], widths[0] + widths[1]], 0))
    return [
        node.emit(relax.op.add(part, node.emit(relax.TupleGetItem(split, index))))
        for index, part in enumerate(parts)
    ]


def _scores(
    node: Node,
    query: relax.Expr,
    key: relax.Expr,
    mask: relax.Expr | None,
    bias: relax.Expr | None,
    mask_name: str,
) -> relax.Expr:
    """The scaled products of query and key, with bias and masks."""
    scores = scaled_product(node, query, key, node.attributes.get("scale", 0.0))
    if bias is not None:
        scores = with_bias(node, scores, bias)
    if mask is not None:
        filler = node.attributes.get("mask_filter_value", -10000.0)
        scores = masked(node, mask_name, mask, scores, filler)
    return hide_later(node, scores) if node.attributes.get("unidirectional", 0) else scores
