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
"""MatMul, Gemm and Einsum, whose operands share extents.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    An axis that is summed over, or that two operands of an Einsum share, is symbolic in one operand
    and has another extent in the other one when the model runs.
Symptom
    Sums over a part of the elements, or over memory behind an operand, silently.
Mechanism
    Type inference takes extents for equal that it can't compare, and nothing checks them later.
How to remove
    When TVM checks these extents, delete this file and its test.
"""

from collections.abc import Sequence

from tvm import relax

from .broadcast import broadcast_extent, broadcast_to, require_broadcast
from .extents import equal
from .node import Converter, Extent, Node
from .parameters import require

__all__ = ["check_einsum", "check_gemm", "check_matmul"]


def check_matmul(node: Node, convert: Converter) -> relax.Expr:
    """Convert a MatMul whose inner extents are equal.

    That symbolic ones are is checked at run time, here and in what follows.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If they never are.
    """
    shapes = [node.known.extents(operand) for operand in node.operands[:2]]
    if all(shapes):
        lhs, rhs = ([*shape] for shape in shapes if shape)
        _require_equal(node, lhs[-1], rhs[max(len(rhs) - 2, 0)], "the inner extents")
    return convert(node)


def check_gemm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Gemm whose inner extents are equal."""
    shapes = [node.known.extents(operand) for operand in node.operands[:2]]
    lhs, rhs = shapes
    if lhs and rhs and len(lhs) == len(rhs) == 2:
        inner = lhs[0 if node.attributes.get("transA", 0) else 1]
        other = rhs[1 if node.attributes.get("transB", 0) else 0]
        _require_equal(node, inner, other, "the inner extents")
    return convert(node)


def check_einsum(node: Node, convert: Converter) -> relax.Expr:
    """Convert an Einsum, in which the extents of a label are broadcast, as in ONNX Runtime.

    If neither of two extents is known to be 1, the model checks at run time that they broadcast.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If they never do.
    """
    terms = node.text("equation", "").replace(" ", "").partition("->")[0].split(",")
    shapes = [node.known.extents(operand) for operand in node.operands]
    if len(terms) != len(shapes):
        return convert(node)
    whole: dict[str, Extent] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in _labelled(term, shape):
            first = whole.setdefault(label, extent)
            reason = "expected extents that are equal or 1"
            subject = f"the extents of {label!r}"
            require_broadcast(node, first, extent, subject, [first, extent], reason)
            whole[label] = broadcast_extent(node, first, extent)
    node = node.with_operands(*(node.known.refined(node.builder, x) for x in node.operands))
    operands = []
    for term, operand in zip(terms, node.operands, strict=True):
        shape = node.known.extents(operand)
        pairs = _labelled(term, shape)
        if shape is not None and not all(node.known.equal(e, whole[label]) for label, e in pairs):
            result = [whole[label] for label, _ in pairs]
            operand = node.emit(broadcast_to(node, operand, shape, result))
        operands.append(operand)
    return convert(node.with_operands(*operands))


def _labelled(term: str, shape: Sequence[Extent] | None) -> list[tuple[str, Extent]]:
    """The extent of each label of a term; none where an ellipsis stands for several axes."""
    if shape is None or len(term) != len(shape):
        return []
    return list(zip(term, shape, strict=True))


def _require_equal(node: Node, a: Extent, b: Extent, subject: str) -> None:
    require(node, equal(node.known, a, b), subject, [a, b], "expected equal extents")
