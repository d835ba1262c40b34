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
    A contracted axis (the channels of a convolution among them), or an axis that two operands of an
    Einsum share, is symbolic in one operand, and has a different extent in the other operand at run
    time.
Symptom
    The sum silently covers only some of the elements, or reads an operand out of bounds.
Mechanism
    Type inference treats extents that it cannot compare as equal, and nothing checks them later.
How to remove
    When TVM checks these extents, delete this file and its test.
"""

from collections.abc import Sequence

from tvm import relax, tirx

from .broadcast import broadcast_extent, broadcast_to, require_broadcast
from .extents import equal
from .node import Converter, Extent, Node
from .shape_operands import require, require_equal

__all__ = ["check_convolution", "check_einsum", "check_gemm", "check_matmul"]


def check_matmul(node: Node, convert: Converter) -> relax.Expr:
    """Convert a MatMul after checking that its inner extents are equal.

    As in the functions below, the model checks symbolic extents at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the inner extents are known to differ.
    """
    shapes = [node.known.extents(operand) for operand in node.operands[:2]]
    if not all(shapes):
        return convert(node)
    lhs, rhs = ([*shape] for shape in shapes if shape)
    return convert(_with_equal_extents(node, lhs[-1], rhs[max(len(rhs) - 2, 0)]))


def check_gemm(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Gemm after checking that its inner extents are equal, and broadcast its bias."""
    transposed = [node.attributes.get(name, 0) for name in ("transA", "transB")]
    shapes = [node.known.extents(operand) for operand in node.operands]
    if any(shape is None or len(shape) != 2 for shape in shapes[:2]):
        return convert(node)
    (rows, inner), (other, columns) = (
        shape[::-1] if is_transposed else shape
        for shape, is_transposed in zip(shapes, transposed, strict=False)
        if shape is not None
    )
    node = _with_equal_extents(node, inner, other)
    if node.operand(2) is not None:
        bias = _broadcast_bias(node, [rows, columns])
        node = node.with_operands(*node.operands[:2], bias, *node.operands[3:])
    return convert(node)


def _broadcast_bias(node: Node, result: list[Extent]) -> relax.Expr:
    """The bias of a Gemm; broadcast if TVM's type inference would not."""
    bias = node.operands[2]
    extents = node.known.extents(bias)
    if extents is None or len(extents) > 2:
        return bias
    pairs = list(zip(extents, result[2 - len(extents) :], strict=True))
    if all(extent == 1 or node.known.is_evident(extent, size) for extent, size in pairs):
        return bias
    for extent, size in pairs:
        verdicts = [equal(node.known, extent, number) for number in (1, size)]
        condition = True in verdicts or tirx.any(*(v for v in verdicts if v is not False), False)
        reason = f"expected a shape that broadcasts to {result}"
        require(node, condition, "shape of C", extents, reason)
    return node.emit(broadcast_to(node, bias, extents, result))


def check_convolution(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Conv or ConvTranspose after checking the channels of its data, if symbolic."""
    data, weight = (node.known.extents(node.operand(index)) for index in (0, 1))
    if data is None or weight is None or len(data) < 2 or len(weight) < 2:
        return convert(node)
    groups = node.attributes.get("group", 1)
    channels = weight[0] if node.operator == "ConvTranspose" else weight[1] * groups
    if node.known.equal(data[1], channels) is None:
        require_equal(node, data[1], channels, "shape of X", data, f"expected {channels} channels")
        refined = node.known.refined(node.builder, node.operands[0])
        node = node.with_operands(refined, *node.operands[1:])
    return convert(node)


def check_einsum(node: Node, convert: Converter) -> relax.Expr:
    """Convert an Einsum; broadcast the extents of each label, as ONNX Runtime does.

    If neither of two extents is known to be 1, the model checks at run time that they broadcast.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If they are known not to broadcast, or if the equation does not fit the operands.
    """
    equation = node.text("equation", "").replace(" ", "")
    shapes = [node.known.extents(operand) for operand in node.operands]
    terms = _checked_terms(node, equation, shapes)
    extent_of_label: dict[str, Extent] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in _labeled_extents(term, shape):
            first = extent_of_label.setdefault(label, extent)
            reason = "expected extents that are equal or 1"
            subject = f"extents of {label!r}"
            require_broadcast(node, first, extent, subject, [first, extent], reason)
            extent_of_label[label] = broadcast_extent(node, first, extent)
    node = node.with_operands(*(node.known.refined(node.builder, x) for x in node.operands))
    operands = []
    for term, operand in zip(terms, node.operands, strict=True):
        shape = node.known.extents(operand)
        pairs = _labeled_extents(term, shape)
        if shape is not None and not all(
            node.known.equal(e, extent_of_label[label]) for label, e in pairs
        ):
            result = [extent_of_label[label] for label, _ in pairs]
            operand = node.emit(broadcast_to(node, operand, shape, result))
        operands.append(operand)
    if len(operands) == 2 and "->" in equation and "." not in equation:
        # TVM's converter makes a kernel, in which no pass finds the matrix product.
        return relax.op.einsum(operands, equation)
    return convert(node.with_operands(*operands))


def _checked_terms(
    node: Node, equation: str, shapes: Sequence[Sequence[Extent] | None]
) -> list[str]:
    """The terms of the operands; type inference reads beyond the labels of a wrong equation."""
    operands, arrow, result = equation.partition("->")
    terms = operands.split(",")

    def reject(reason: str) -> None:
        raise node.invalid("attribute equation", equation, reason)

    for term in (*terms, result):
        labels = term.replace("...", "", 1)
        if labels and not (labels.isascii() and labels.isalpha()):
            reject(f"expected letters and one ellipsis in the term {term!r}")
    if len(terms) != len(shapes):
        reject(f"expected {len(shapes)} terms, one per operand")
    for index, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        labels = term.replace("...", "")
        if shape is not None and (
            len(labels) > len(shape) or (labels == term and len(labels) < len(shape))
        ):
            reject(f"expected {len(shape)} labels in the term {term!r} of operand {index}")
    labels = result.replace("...", "")
    for label in labels if arrow else "":
        if label not in operands or labels.count(label) > 1:
            reject(f"expected label {label!r} of the result once, and in an operand")
    return terms


def _labeled_extents(term: str, shape: Sequence[Extent] | None) -> list[tuple[str, Extent]]:
    """The labels of a term with their extents; [] if an ellipsis stands for several axes."""
    if shape is None or len(term) != len(shape):
        return []
    return list(zip(term, shape, strict=True))


def _with_equal_extents(node: Node, a: Extent, b: Extent) -> Node:
    """The node after a check that two inner extents are equal."""
    subject = "extents of the inner axes"
    require_equal(node, a, b, subject, [a, b], "expected equal extents")
    return node.with_operands(
        *(x if x is None else node.known.refined(node.builder, x) for x in node.operands)
    )
