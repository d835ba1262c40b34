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

Trigger
    A contracted axis (the channels of a convolution among them), or an axis that two operands of an
    Einsum share, is symbolic in one operand, and has a different extent in the other operand at run
    time.
Mechanism
    Type inference treats extents that it cannot compare as equal, and nothing checks them later.
"""

from collections.abc import Sequence

from tvm import relax, tirx

from ....fixes.onnx_importer import EXPAND
from ...extents import equal
from ..call import Call, Extent, converts
from .broadcast import broadcast_extent, broadcast_to, require_broadcast
from .shape_operands import require, require_equal

__all__ = ["check_matmul"]


@converts("MatMul", place="check", fix=EXPAND)
def check_matmul(call: Call) -> relax.Expr:
    """Convert a MatMul after checking that its inner extents are equal.

    As in the functions below, the model checks symbolic extents at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the inner extents are known to differ.
    """
    shapes = [call.known.extents(operand) for operand in call.operands[:2]]
    if not all(shapes):
        return call.proceed()
    lhs, rhs = ([*shape] for shape in shapes if shape)
    return _with_equal_extents(call, lhs[-1], rhs[max(len(rhs) - 2, 0)]).proceed()


@converts("Gemm", place="check", fix=EXPAND)
def check_gemm(call: Call) -> relax.Expr:
    """Convert a Gemm after checking that its inner extents are equal, and broadcast its bias."""
    transposed = [call.attributes.get(name, 0) for name in ("transA", "transB")]
    shapes = [call.known.extents(operand) for operand in call.operands]
    if any(shape is None or len(shape) != 2 for shape in shapes[:2]):
        return call.proceed()
    (rows, inner), (other, columns) = (
        shape[::-1] if is_transposed else shape
        for shape, is_transposed in zip(shapes, transposed, strict=False)
        if shape is not None
    )
    call = _with_equal_extents(call, inner, other)
    if call.operand(2) is not None:
        bias = _broadcast_bias(call, [rows, columns])
        call = call.with_operands(*call.operands[:2], bias, *call.operands[3:])
    return call.proceed()


def _broadcast_bias(call: Call, result: list[Extent]) -> relax.Expr:
    """The bias of a Gemm; broadcast if TVM's type inference would not."""
    bias = call.operands[2]
    extents = call.known.extents(bias)
    if extents is None or len(extents) > 2:
        return bias
    pairs = list(zip(extents, result[2 - len(extents) :], strict=True))
    if all(extent == 1 or call.known.is_evident(extent, size) for extent, size in pairs):
        return bias
    for extent, size in pairs:
        verdicts = [equal(call.known, extent, number) for number in (1, size)]
        condition = True in verdicts or tirx.any(*(v for v in verdicts if v is not False), False)
        reason = f"expected a shape that broadcasts to {result}"
        require(call, condition, "shape of C", extents, reason)
    return call.emit(broadcast_to(call, bias, extents, result))


@converts("Conv", "ConvTranspose", place="check", fix=EXPAND)
def check_convolution(call: Call) -> relax.Expr:
    """Convert a Conv or ConvTranspose after checking the channels of its data, if symbolic."""
    data, weight = (call.known.extents(call.operand(index)) for index in (0, 1))
    if data is None or weight is None or len(data) < 2 or len(weight) < 2:
        return call.proceed()
    groups = call.attributes.get("group", 1)
    channels = weight[0] if call.operator == "ConvTranspose" else weight[1] * groups
    if call.known.equal(data[1], channels) is None:
        require_equal(call, data[1], channels, "shape of X", data, f"expected {channels} channels")
        refined = call.known.refined(call.builder, call.operands[0])
        call = call.with_operands(refined, *call.operands[1:])
    return call.proceed()


@converts("Einsum", place="check", fix=EXPAND)
def check_einsum(call: Call) -> relax.Expr:
    """Convert an Einsum; broadcast the extents of each label, as ONNX Runtime does.

    If neither of two extents is known to be 1, the model checks at run time that they broadcast.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If they are known not to broadcast, or if the equation does not fit the operands.
    """
    equation = call.text("equation", "").replace(" ", "")
    shapes = [call.known.extents(operand) for operand in call.operands]
    terms = _checked_terms(call, equation, shapes)
    extent_of_label: dict[str, Extent] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in _labeled_extents(term, shape):
            first = extent_of_label.setdefault(label, extent)
            reason = "expected extents that are equal or 1"
            subject = f"extents of {label!r}"
            require_broadcast(call, first, extent, subject, [first, extent], reason)
            extent_of_label[label] = broadcast_extent(call, first, extent)
    call = call.with_operands(*(call.known.refined(call.builder, x) for x in call.operands))
    operands = []
    for term, operand in zip(terms, call.operands, strict=True):
        shape = call.known.extents(operand)
        pairs = _labeled_extents(term, shape)
        if shape is not None and not all(
            call.known.equal(e, extent_of_label[label]) for label, e in pairs
        ):
            result = [extent_of_label[label] for label, _ in pairs]
            operand = call.emit(broadcast_to(call, operand, shape, result))
        operands.append(operand)
    if len(operands) == 2 and "->" in equation and "." not in equation:
        # TVM's converter makes a kernel, in which no pass finds the matrix product.
        return relax.op.einsum(operands, equation)
    return call.with_operands(*operands).proceed()


def _checked_terms(
    call: Call, equation: str, shapes: Sequence[Sequence[Extent] | None]
) -> list[str]:
    """The terms of the operands; type inference reads beyond the labels of a wrong equation."""
    operands, arrow, result = equation.partition("->")
    terms = operands.split(",")

    def reject(reason: str) -> None:
        raise call.invalid("attribute equation", equation, reason)

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


def _with_equal_extents(call: Call, a: Extent, b: Extent) -> Call:
    """The node after a check that two inner extents are equal."""
    subject = "extents of the inner axes"
    require_equal(call, a, b, subject, [a, b], "expected equal extents")
    return call.with_operands(
        *(x if x is None else call.known.refined(call.builder, x) for x in call.operands)
    )
