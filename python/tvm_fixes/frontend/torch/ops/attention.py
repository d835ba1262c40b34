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
"""PyTorch's attention (``torch.nn.functional.scaled_dot_product_attention``).

Trigger
    Attention whose transposed result is viewed; in a program that is not decomposed, with a boolean
    mask, with ``scale``, or in 3-D.
Mechanism
    PyTorch's decomposition gives the result strides that differ from the operator's at export; the
    converter does not pass ``scale`` on.
"""

import math
from typing import Any

import tvm
from tvm import relax, tirx

from ....errors import OpAttributeInvalid
from ....fixes.torch_importer import ATTENTION
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import static_extent
from ..call import Call, converts


@converts("scaled_dot_product_attention.default", fix=ATTENTION, noted=True)
def convert_attention(call: Call) -> relax.Expr:
    """Convert attention to two matrix products and a softmax."""
    query, key, value, mask, dropout, is_causal, scale, enable_gqa = call.arguments(
        query=None,
        key=None,
        value=None,
        attn_mask=None,
        dropout_p=0.0,
        is_causal=False,
        scale=None,
        enable_gqa=False,
    )
    if dropout:
        raise OpAttributeInvalid(f"{call.where}: attribute dropout_p is {dropout}; expected 0")
    emit = call.emit
    dtype = dtype_of(query)
    sum_dtype = accumulation_dtype(dtype)
    if enable_gqa:
        key, value = (_repeat_heads(call, x, query.ty.shape[-3]) for x in (key, value))
    axes = list(range(key.ty.ndim))
    keys = emit(relax.op.permute_dims(key, [*axes[:-2], axes[-1], axes[-2]]))
    scores = emit(relax.op.matmul(query, keys, sum_dtype))
    if scale is None:
        scale = _default_scale(call, query)
    scores = emit(relax.op.multiply(scores, relax.const(scale, sum_dtype)))

    lowest = relax.const(-math.inf, sum_dtype)
    if is_causal:
        mask = _causal_mask(call, query.ty.shape[-2], key.ty.shape[-2])
    if mask is not None and dtype_of(mask) == "bool":
        scores = emit(relax.op.where(mask, scores, lowest))
    elif mask is not None:
        scores = emit(relax.op.add(scores, call.astype(mask, sum_dtype)))
    weights = emit(relax.op.nn.softmax(scores, -1))
    if mask is not None and not is_causal:
        # If all keys of a query are masked, PyTorch's weights are 0, but the softmax is 0 / 0.
        is_masked = call.astype(emit(relax.op.equal(scores, lowest)), "int8")
        is_masked = call.astype(emit(relax.op.min(is_masked, -1, keepdims=True)), "bool")
        weights = emit(relax.op.where(is_masked, relax.const(0, sum_dtype), weights))
    out = emit(relax.op.matmul(call.astype(weights, dtype), value, sum_dtype))
    return call.astype(out, dtype)


def _default_scale(call: Call, query: relax.Expr) -> float:
    channels = static_extent(query.ty.shape[-1])
    if channels is None:
        raise OpAttributeInvalid(
            f"{call.where}: the last axis of query has {query.ty.shape[-1]} "
            "elements; expected a static extent, or the attribute scale"
        )
    return 1 / math.sqrt(channels)


def _repeat_heads(call: Call, x: relax.Expr, heads: Any) -> relax.Expr:
    """Repeat each head along axis -3 to get `heads` in total."""
    *batch, given, length, channels = x.ty.shape
    times = tvm.sym.Analyzer().simplify(tirx.floordiv(heads, given))
    emit = call.emit
    x = emit(relax.op.expand_dims(x, -3))
    x = emit(relax.op.broadcast_to(x, [*batch, given, times, length, channels]))
    return emit(relax.op.reshape(x, [*batch, heads, length, channels]))


def _causal_mask(call: Call, queries: Any, keys: Any) -> relax.Expr:
    """Return the mask of the keys that each query sees: keys up to its own position."""
    emit = call.emit
    rows, columns = (emit(relax.op.arange(0, extent, 1, "int64")) for extent in (queries, keys))
    rows = emit(relax.op.expand_dims(rows, 1))
    return emit(relax.op.greater_equal(rows, columns))
