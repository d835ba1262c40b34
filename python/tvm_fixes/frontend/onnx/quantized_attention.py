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
"""QAttention, the quantized self-attention of the domain com.microsoft.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A QAttention, which ONNX Runtime's quantizer writes for transformers that its optimizer has
    fused.
Symptom
    ``OpNotImplemented``.
Mechanism
    TVM has no converter for it.
How to remove
    Together with the fix ``onnx-quantized``.
"""

from typing import Any

import numpy as np
from tvm import relax

from ...fixes.onnx_importer import QUANTIZED
from ...support import switches
from ..dtypes import dtype_of
from .node import Converter, Extent, Node
from .quantization import (
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

__all__ = ["convert_qattention"]

_NAMES = (
    "input weight bias input_scale weight_scale mask_index input_zero_point weight_zero_point past"
)


def convert_qattention(node: Node, convert: Converter) -> relax.Expr:
    """Convert a QAttention: the projections in int32, then attention in float32.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute or the shape of the mask is not supported, or operands do not agree.
    """
    switches.note(QUANTIZED)
    given = named_operands(node, _NAMES, _NAMES.split()[:5])
    check_scalars(node, given, "input_scale", "input_zero_point")
    for name in ("input", "weight"):
        check_dtype(node, name, given[name], "int8", "uint8")
        check_dtype(node, f"{name}_zero_point", given[f"{name}_zero_point"], dtype_of(given[name]))
    for name in ("do_rotary", "past_present_share_buffer"):
        if node.attributes.get(name, 0):
            raise node.invalid(f"attribute {name}", node.attributes[name], "expected 0")
    dtype = dtype_of(given["bias"])
    query, key, value = _projections(node, given)
    present = None
    if given["past"] is not None:
        key, value = _with_past(node, as_float32(node, given["past"]), key, value)
    if given["past"] is not None or node.attributes["tvm_custom"]["num_outputs"] > 1:
        pair = [node.emit(relax.op.expand_dims(part, 0)) for part in (key, value)]
        present = node.emit(relax.op.astype(node.emit(relax.op.concat(pair)), dtype))
    scores = _scores(node, given["mask_index"], query, key)
    heads = node.emit(relax.op.matmul(node.emit(relax.op.nn.softmax(scores, -1)), value))
    batch, count, length, size = _extents(node, query, "input")
    joined = node.emit(relax.op.permute_dims(heads, [0, 2, 1, 3]))
    out = node.emit(relax.op.reshape(joined, [batch, length, count * size]))
    out = node.emit(relax.op.astype(out, dtype)) if dtype != "float32" else out
    return out if present is None else relax.Tuple([out, present])


def _extents(node: Node, value: relax.Expr, name: str) -> list[Extent]:
    extents = node.known.extents(value)
    if extents is None:
        raise node.invalid(f"shape of {name}", value.ty, "expected a known shape")
    return extents


def _projections(node: Node, given: dict[str, Any]) -> list[relax.Expr]:
    """Query, key and value, of shape (batch, heads, length, size of a head)."""
    shape = _extents(node, given["input"], "input")
    width = _extents(node, given["weight"], "weight")[-1]
    heads = node.attributes.get("num_heads", 0)
    if len(shape) != 3:
        raise node.invalid("shape of input", shape, "expected rank 3")
    if heads < 1 or not isinstance(width, int) or width % (3 * heads):
        reason = f"expected a third of the width of weight, {width}, to be a multiple of it"
        raise node.invalid("attribute num_heads", heads, reason)
    names = ("weight_scale", "weight_zero_point", "bias")
    check_per_channel(node, given, given["weight"], -1, *names)
    total = integer_product(
        node,
        subtract_zero_point(node, given["input"], given["input_zero_point"]),
        subtract_zero_point(node, given["weight"], given["weight_zero_point"]),
    )
    scaled = scale_product(node, total, (given["input_scale"], given["weight_scale"]))
    joined = add_bias(node, scaled, as_float32(node, given["bias"]))
    split = node.emit(relax.op.reshape(joined, [*shape[:2], 3, heads, width // (3 * heads)]))
    # First the axis of query, key and value, then batch, heads, length and size.
    moved = node.emit(relax.op.permute_dims(split, [2, 0, 3, 1, 4]))
    return [
        node.emit(relax.op.take(moved, relax.const(index, "int64"), axis=0)) for index in range(3)
    ]


def _with_past(
    node: Node, past: relax.Expr, key: relax.Expr, value: relax.Expr
) -> list[relax.Expr]:
    """Key and value after those of earlier positions."""
    if past.ty.ndim != 5:
        raise node.invalid("rank of past", past.ty.ndim, "expected 5")
    joined = []
    for index, new in enumerate((key, value)):
        old = node.emit(relax.op.take(past, relax.const(index, "int64"), axis=0))
        joined.append(node.emit(relax.op.concat([old, new], axis=2)))
    return joined


def _scores(node: Node, mask: relax.Expr | None, query: relax.Expr, key: relax.Expr) -> relax.Expr:
    """The scaled products of query and key, with the mask added."""
    size = _extents(node, query, "input")[-1]
    scale = node.attributes.get("scale", 0.0) or 1 / np.sqrt(float(size))
    turned = node.emit(relax.op.permute_dims(key, [0, 1, 3, 2]))
    scores = node.emit(relax.op.matmul(query, turned))
    scores = node.emit(relax.op.multiply(scores, relax.const(scale, "float32")))
    length, total = _extents(node, query, "input")[2], _extents(node, key, "past")[2]
    if mask is not None:
        filler = relax.const(node.attributes.get("mask_filter_value", -10000.0), "float32")
        allowed = as_float32(node, _allowed(node, mask, total))
        hidden = node.emit(relax.op.subtract(relax.const(1, "float32"), allowed))
        scores = node.emit(relax.op.add(scores, relax.op.multiply(hidden, filler)))
    if node.attributes.get("unidirectional", 0):
        rows = node.emit(relax.op.arange(total - length, total, 1, "int64"))
        columns = node.emit(relax.op.arange(0, total, 1, "int64"))
        earlier = relax.op.less_equal(columns, node.emit(relax.op.expand_dims(rows, -1)))
        least = relax.const(np.finfo("float32").min, "float32")
        scores = node.emit(relax.op.where(node.emit(earlier), scores, least))
    return scores


def _allowed(node: Node, mask: relax.Expr, total: Extent) -> relax.Expr:
    """Which keys each query sees, as a tensor that broadcasts to the scores."""
    rank = mask.ty.ndim
    if rank in (2, 3):
        axes = [1, 2] if rank == 2 else [1]
        return node.emit(relax.op.expand_dims(mask, axes))
    shape = _extents(node, mask, "mask_index")
    if rank != 1:
        raise node.invalid("rank of mask_index", rank, "expected 1 to 3")
    # The number of keys of each element of the batch.
    batch = _extents(node, node.operands[0], "input")[0]
    if node.known.equal(shape[0], batch) is not True:
        raise node.invalid("shape of mask_index", shape, f"expected [{batch}], the batch")
    positions = node.emit(relax.op.arange(0, total, 1, "int32"))
    end = node.emit(relax.op.expand_dims(mask, [1, 2, 3]))
    return node.emit(relax.op.less(positions, end))
