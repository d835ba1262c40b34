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
"""GroupQueryAttention of the domain com.microsoft."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from .....fixes.onnx_importer import MICROSOFT
from ....dtypes import dtype_of
from ....extents import equal, expression, maximum
from ...call import Call, Extent, converts
from ..attention import join_heads, scaled_product, split_heads, with_bias
from ..quantized.steps import named_operands
from ..shape_operands import extents_or_symbols, named, require
from .operands import check_rank, check_vector, named_shape, reject, round_to, widen
from .rotary import rotate

_NAMES = (
    "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache "
    "position_ids attention_bias head_sink k_scale v_scale q_norm_weight k_norm_weight"
)


@dataclass(frozen=True)
class _Lengths:
    """The lengths of one call.

    Attributes
    ----------
    new : int or PrimExpr
        The number of new positions.
    total : int or PrimExpr
        The maximum number of positions of an element of the batch.
    present : int or PrimExpr
        The number of positions of the cache after the call.
    past, end : Expr
        For each element of the batch, the numbers of earlier and of all positions, in int64.
    """

    new: Extent
    total: Extent
    present: Extent
    past: relax.Expr
    end: relax.Expr


@converts("com.microsoft.GroupQueryAttention", fix=MICROSOFT, noted=True)
def convert_group_query_attention(call: Call) -> relax.Expr:
    """Convert a GroupQueryAttention: causal attention with a cache of keys and values.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand or an attribute is not supported, or the shapes of operands do not agree.
    """
    inputs = named_operands(call, _NAMES, ("query", "seqlens_k", "total_sequence_length"))
    _check(call, inputs)
    dtype, window = dtype_of(inputs["query"]), call.attributes.get("local_window_size", -1)
    query, key, value = _heads(call, inputs)
    lengths = _lengths(call, inputs, query)
    if call.attributes.get("do_rotary", 0):
        query, key = _rotated(call, inputs, lengths, (query, key))
    key = _cached(call, inputs["past_key"], key, lengths)
    value = _cached(call, inputs["past_value"], value, lengths)
    groups = call.attributes["num_heads"] // call.attributes["kv_num_heads"]
    repeated = [_repeated(call, part, groups) for part in (key, value)]
    scores = scaled_product(call, query, repeated[0], call.attributes.get("scale", 0.0))
    cap = call.attributes.get("softcap", 0.0)
    if cap:
        factor = relax.const(cap, dtype_of(scores))
        scores = relax.op.multiply(relax.op.tanh(relax.op.divide(scores, factor)), factor)
        scores = call.emit(scores)
    if inputs["attention_bias"] is not None:
        scores = with_bias(call, scores, inputs["attention_bias"])
    weights = _softmax(call, _hidden(call, scores, lengths, window), inputs["head_sink"])
    out = call.emit(relax.op.matmul(weights, repeated[1]))
    fields = [round_to(call, x, dtype) for x in (join_heads(call, out), key, value)]
    count = call.outputs
    return fields[0] if count == 1 else relax.Tuple(fields[:count])


def _check(call: Call, inputs: dict[str, Any]) -> None:
    """Reject unsupported forms."""
    reject(call, inputs, "k_scale", "v_scale", "q_norm_weight", "k_norm_weight")
    reject(call, inputs, "sliding_window_cache", "kv_cache_bit_width", "qk_output")
    for name in ("k_quant_type", "v_quant_type"):
        if call.text(name, "NONE") != "NONE":
            raise call.invalid(f"attribute {name}", call.text(name, "NONE"), "expected NONE")
    if (inputs["past_key"] is None) != (inputs["past_value"] is None):
        raise call.invalid("operands", "incomplete", "expected past_key and past_value, or neither")
    heads, pairs = (call.attributes.get(name, 0) for name in ("num_heads", "kv_num_heads"))
    if heads < 1 or pairs < 1 or heads % pairs:
        reason = f"expected a divisor of num_heads, {heads}"
        raise call.invalid("attribute kv_num_heads", pairs, reason)
    if call.attributes.get("do_rotary", 0):
        for name in ("cos_cache", "sin_cache"):
            if inputs[name] is None:
                raise call.invalid(f"operand {name}", "missing", "expected one for do_rotary")
    if inputs["head_sink"] is not None:
        check_vector(call, "head_sink", inputs["head_sink"], heads)


def _heads(call: Call, inputs: dict[str, Any]) -> list[relax.Expr]:
    """Query, key and value, of shape (batch, heads, length, size)."""
    heads, pairs = call.attributes["num_heads"], call.attributes["kv_num_heads"]
    query = widen(call, inputs["query"])
    width = check_rank(call, "query", query, 3)[2]
    if inputs["key"] is not None and inputs["value"] is not None:
        parts = [query, widen(call, inputs["key"]), widen(call, inputs["value"])]
    elif inputs["key"] is not None or inputs["value"] is not None:
        raise call.invalid("operands", "incomplete", "expected key and value, or neither")
    else:
        total = heads + 2 * pairs
        if not isinstance(width, int) or width % total:
            raise call.invalid("width of query", width, f"expected a multiple of {total}")
        size = width // total
        split = call.emit(relax.op.split(query, [heads * size, (heads + pairs) * size], -1))
        parts = [call.emit(relax.TupleGetItem(split, index)) for index in range(3)]
    named = zip(("query", "key", "value"), parts, (heads, pairs, pairs), strict=True)
    found = [split_heads(call, name, part, count) for name, part, count in named]
    sizes = [named_shape(call, "query", part)[-1] for part in found]
    if len(set(sizes)) != 1:
        raise call.invalid("sizes of a head of query, key and value", sizes, "expected one size")
    return found


def _lengths(call: Call, inputs: dict[str, Any], query: relax.Expr) -> _Lengths:
    """The lengths that the operands declare."""
    batch, _, new, _ = named_shape(call, "query", query)
    index = _NAMES.split().index("total_sequence_length")
    (total,) = extents_or_symbols(call, index, "total_sequence_length")
    check_vector(call, "seqlens_k", inputs["seqlens_k"], batch)
    end = relax.op.add(relax.op.astype(inputs["seqlens_k"], "int64"), relax.const(1, "int64"))
    end = call.emit(end)
    past = call.builder.emit_te(_earlier, end, expression(total), expression(new))
    present = total
    if inputs["past_key"] is not None:
        shape = check_rank(call, "past_key", inputs["past_key"], 4)
        present = named(call, maximum(call.known, total, shape[2]), "present")
    return _Lengths(new, total, present, past, end)


def _earlier(end: te.Tensor, total: tirx.Expr, new: tirx.Expr) -> te.Tensor:
    """The numbers of earlier positions; 0 in the first call, whose prompts may be padded."""
    zero = tirx.const(0, "int64")
    return te.compute(
        end.shape,
        lambda b: tirx.Select(total == new, zero, tirx.max(end[b] - new, zero)),
        name="earlier",
    )


def _rotated(
    call: Call,
    inputs: dict[str, Any],
    lengths: _Lengths,
    parts: tuple[relax.Expr, relax.Expr],
) -> list[relax.Expr]:
    """Query and key, rotated at their positions."""
    positions = inputs["position_ids"]
    if positions is None:
        steps = call.emit(relax.op.arange(0, lengths.new, 1, "int64"))
        positions = relax.op.add(call.emit(relax.op.expand_dims(lengths.past, 1)), steps)
        positions = call.emit(positions)
    else:
        batch, _, new, _ = named_shape(call, "query", parts[0])
        shape = check_rank(call, "position_ids", positions, 2)
        for pair in zip(shape, (batch, new), strict=True):
            reason = f"expected [{batch}, {new}]"
            require(call, equal(call.known, *pair), "shape of position_ids", shape, reason)
        extents = map(expression, (lengths.total, new))
        positions = call.builder.emit_te(_given_positions, positions, *extents)
    interleaved = bool(call.attributes.get("rotary_interleaved", 0))
    caches, dtype = (inputs["cos_cache"], inputs["sin_cache"]), dtype_of(inputs["query"])
    turned = [rotate(call, part, positions, caches, interleaved) for part in parts]
    # The cache keeps rotated keys in the dtype of the operands.
    return [widen(call, round_to(call, part, dtype)) for part in turned]


def _given_positions(ids: te.Tensor, total: tirx.Expr, new: tirx.Expr) -> te.Tensor:
    """The positions; in the first call, ONNX Runtime counts from the first element of `ids`."""
    return te.compute(
        ids.shape,
        lambda b, s: tirx.Select(total == new, ids[0, 0] + s.astype(ids.dtype), ids[b, s]),
        name="positions",
    )


def _cached(call: Call, past: relax.Expr | None, new: relax.Expr, lengths: _Lengths) -> relax.Expr:
    """The cache of keys or values: the earlier positions, the new ones, and zeros."""
    batch, heads, _, size = named_shape(call, "key", new)
    if past is None:
        past = call.emit(relax.op.zeros(relax.ShapeExpr([batch, heads, 0, size]), dtype_of(new)))
    shape, expected = check_rank(call, "past_key", past, 4), [batch, heads, "positions", size]
    for axis in (0, 1, 3):
        holds = equal(call.known, shape[axis], expected[axis])
        require(call, holds, "shape of past_key or past_value", shape, f"expected {expected}")
    operands = (widen(call, past), new, lengths.past, expression(lengths.present))
    return call.builder.emit_te(_joined, *operands)


def _joined(past: te.Tensor, new: te.Tensor, counts: te.Tensor, present: tirx.Expr) -> te.Tensor:
    batch, heads, length, size = new.shape
    zero = tirx.const(0, new.dtype)

    def element(b: tirx.Var, h: tirx.Var, t: tirx.Var, d: tirx.Var) -> tirx.Expr:
        at, count = t.astype("int64"), counts[b]
        is_past = tirx.all(at < count, at < past.shape[2])
        is_new = tirx.all(at >= count, at < count + length)
        recent = tirx.if_then_else(is_new, new[b, h, at - count, d], zero)
        return tirx.if_then_else(is_past, past[b, h, at, d], recent)

    return te.compute((batch, heads, present, size), element, name="cache")


def _repeated(call: Call, value: relax.Expr, groups: int) -> relax.Expr:
    """Each head of keys or values, repeated for the query heads that share it."""
    return value if groups == 1 else call.emit(relax.op.repeat(value, groups, 1))


def _hidden(call: Call, scores: relax.Expr, lengths: _Lengths, window: int) -> relax.Expr:
    """The scores, with those of keys that a query does not see replaced by the lowest number."""
    dtype, causal = dtype_of(scores), call.attributes.get("causal", 1)
    least = tirx.const(np.finfo(dtype).min, dtype)

    def hidden(scores: te.Tensor, past: te.Tensor, end: te.Tensor) -> te.Tensor:
        def element(b: tirx.Var, h: tirx.Var, s: tirx.Var, t: tirx.Var) -> tirx.Expr:
            at, own = t.astype("int64"), past[b] + s.astype("int64")
            seen = [at < end[b]]
            if causal:
                seen.append(at <= own)
            if window > 0:
                seen.append(at > own - window)
            return tirx.Select(tirx.all(*seen), scores[b, h, s, t], least)

        return te.compute(scores.shape, element, name="hidden")

    return call.builder.emit_te(hidden, scores, lengths.past, lengths.end)


def _softmax(call: Call, scores: relax.Expr, sink: relax.Expr | None) -> relax.Expr:
    """The softmax of the scores; a sink is an additional score, of a key without a value."""
    smooth = call.attributes.get("smooth_softmax", -1) == 1
    if sink is None and not smooth:
        return call.emit(relax.op.nn.softmax(scores, -1))
    batch, heads, length, total = named_shape(call, "scores", scores)
    shape = relax.ShapeExpr([batch, heads, length, 1])
    if sink is None:
        column = relax.op.zeros(shape, dtype_of(scores))
    else:
        column = relax.op.broadcast_to(relax.op.expand_dims(widen(call, sink), [0, 2, 3]), shape)
    extended = call.emit(relax.op.concat([scores, call.emit(column)], axis=-1))
    weights = call.emit(relax.op.nn.softmax(extended, -1))
    return call.emit(relax.op.strided_slice(weights, [3], [0], [total]))
