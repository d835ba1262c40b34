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
"""Normalizations.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    The mean and deviation that a LayerNormalization puts out; a BatchNormalization in training;
    LpNormalization.
Symptom
    Scalars of 0, and running statistics with the weights exchanged, silently; LpNormalization is
    refused.
Mechanism
    The converter puts out constants. ONNX's momentum is the weight of the old statistics, and
    TVM's that of the new ones. LpNormalization has no converter.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-norms``.
"""

from tvm import relax

from ... import switches
from ..dtypes import accumulation_dtype, dtype_of
from .node import Converter, Node

__all__ = ["NORMS", "convert_batch_norm", "convert_layer_norm", "convert_lp_norm"]

NORMS = "onnx-norms"


def convert_layer_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a LayerNormalization with the mean and 1 / deviation, if they are put out."""
    count = node.attributes["tvm_custom"]["num_outputs"]
    if count < 2:
        return convert(node)
    switches.note(NORMS)
    data = node.operands[0]
    rank = data.ty.ndim
    axis = node.attributes.get("axis", -1)
    if not -rank <= axis < rank:
        raise node.invalid("attribute axis", axis, f"expected an axis of X, of rank {rank}")
    axes = list(range(axis % rank, rank))
    # stash_type 1, the only one of the specification: float32.
    wide = node.emit(relax.op.astype(data, accumulation_dtype(dtype_of(data))))
    mean = node.emit(relax.op.mean(wide, axes, keepdims=True))
    variance = relax.op.mean(relax.op.square(relax.op.subtract(wide, mean)), axes, keepdims=True)
    epsilon = relax.const(node.attributes.get("epsilon", 1e-5), dtype_of(wide))
    deviation = node.emit(relax.op.rsqrt(relax.op.add(variance, epsilon)))
    out = node.builder.normalize(convert(node))
    out = out.fields[0] if isinstance(out, relax.Tuple) else relax.TupleGetItem(out, 0)
    return relax.Tuple([node.emit(out), mean, deviation][:count])


def convert_batch_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a BatchNormalization whose ``momentum`` is the weight of the old statistics."""
    if not node.attributes.get("training_mode", 0):
        return convert(node)
    switches.note(NORMS)
    return convert(node.with_attributes(momentum=1 - node.attributes.get("momentum", 0.9)))


def convert_lp_norm(node: Node, convert: Converter) -> relax.Expr:
    """Convert an LpNormalization, ``x / norm``, which is 0 where the norm is.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If ``p`` is neither 1 nor 2.
    """
    data = node.operands[0]
    p, axis = node.attributes.get("p", 2), node.attributes.get("axis", -1)
    if p not in (1, 2):
        raise node.invalid("attribute p", p, "expected 1 or 2")
    switches.note(NORMS)
    power = relax.op.abs(data) if p == 1 else relax.op.square(data)
    norm = node.emit(relax.op.sum(power, axis, keepdims=True))
    if p == 2:
        norm = node.emit(relax.op.sqrt(norm))
    zero = relax.const(0, dtype_of(data))
    return relax.op.where(relax.op.equal(norm, zero), zero, relax.op.divide(data, norm))
