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
"""Sum, Mean, Max, Min and Concat of any number of operands.

Trigger
    Hundreds of operands, one operand, or operands of extent 0 or of a 16-bit floating-point dtype;
    operands of a Concat with extents that have different expressions.
Mechanism
    TVM stacks the operands and reduces the stack.  The kernel of a concatenation selects the
    operand of each element with nested selects, one per operand.
"""

from collections.abc import Callable, Sequence

import tvm
from tvm import relax

from ....fixes.onnx_importer import ELEMENTWISE
from ....support import switches
from ...dtypes import accumulation_dtype, dtype_of
from ..call import Call, Extent, converts
from .shape_operands import axes_of, require_equal, retyped

__all__ = ["convert_concat"]

_PAIRWISE: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "Max": relax.op.maximum,
    "Mean": relax.op.add,
    "Min": relax.op.minimum,
    "Sum": relax.op.add,
}

CONCATENATED_AT_ONCE = 16
"""The maximum number of operands of one concatenation; more are concatenated in groups first."""


@converts("Max", "Mean", "Min", "Sum", fix=ELEMENTWISE)
def convert_variadic(call: Call) -> relax.Expr:
    """Convert a Sum, Mean, Max or Min to a balanced tree of binary operators."""
    if all(isinstance(operand, tvm.ir.GenericConst) for operand in call.operands):
        return call.proceed()
    switches.note(ELEMENTWISE)
    dtype = dtype_of(call.operands[0])
    is_sum = call.operator in ("Mean", "Sum")
    sum_dtype = accumulation_dtype(dtype) if is_sum and len(call.operands) > 1 else dtype
    operands = list(call.operands)
    if sum_dtype != dtype:
        operands = [call.emit(relax.op.astype(operand, sum_dtype)) for operand in operands]
    pairwise = _PAIRWISE[call.operator]
    result = _tree(operands, 2, lambda pair: call.emit(pairwise(*pair)))
    if call.operator == "Mean" and len(operands) > 1:
        result = call.emit(relax.op.divide(result, relax.const(len(operands), sum_dtype)))
    return result if sum_dtype == dtype else relax.op.astype(result, dtype)


@converts("Concat", fix=ELEMENTWISE)
def convert_concat(call: Call) -> relax.Expr:
    """Convert a Concat of many tensors to a tree of concatenations of a few tensors.

    If the extents of the other axes are not known to be equal, the model checks it at run time.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If they are known to differ.
    """
    call = _with_equal_extents(call)
    if len(call.operands) <= CONCATENATED_AT_ONCE or not _are_tensors(call.operands):
        return call.proceed()
    switches.note(ELEMENTWISE)

    def join(few: Sequence[relax.Expr]) -> relax.Expr:
        return call.emit(call.with_operands(*few).proceed())

    return _tree(call.operands, CONCATENATED_AT_ONCE, join)


def _with_equal_extents(call: Call) -> Call:
    """The node of a Concat whose operands have the same extents on all other axes."""
    shapes = [call.known.extents(operand) for operand in call.operands]
    ranks = {None if shape is None else len(shape) for shape in shapes}
    if len(ranks) > 1 or None in ranks or 0 in ranks:
        return call
    [axis] = axes_of(call, [call.attributes.get("axis", 1)], len(shapes[0] or ()))
    if all(_are_evident(call, extents) for extents in _other_extents(shapes, axis)):
        return call
    switches.note(ELEMENTWISE)
    for first, *others in _other_extents(shapes, axis):
        for other in others:
            reason = f"expected equal extents on all axes but {axis}"
            require_equal(call, first, other, "shapes of the operands", shapes, reason)
    # The checks may have replaced symbols.
    operands = [call.known.refined(call.builder, operand) for operand in call.operands]
    shapes = [call.known.extents(operand) for operand in operands]
    first = shapes[0] or []
    return call.with_operands(
        *(
            retyped(call, operand, [*first[:axis], shape[axis], *first[axis + 1 :]])
            for operand, shape in zip(operands, shapes, strict=True)
            if shape is not None
        )
    )


def _other_extents(
    shapes: Sequence[Sequence[Extent] | None], axis: int
) -> list[tuple[Extent, ...]]:
    """The extents of the operands on each axis but one."""
    columns = list(zip(*(shape for shape in shapes if shape is not None), strict=True))
    return [*columns[:axis], *columns[axis + 1 :]]


def _are_evident(call: Call, extents: Sequence[Extent]) -> bool:
    return all(call.known.is_evident(extents[0], other) for other in extents[1:])


def _are_tensors(operands: Sequence[relax.Expr]) -> bool:
    """Whether all operands are tensors, and not all are constants, which TVM folds itself."""
    return not all(isinstance(operand, tvm.ir.GenericConst) for operand in operands) and all(
        isinstance(operand.ty, relax.TensorType) for operand in operands
    )


def _tree(
    operands: Sequence[relax.Expr],
    group_size: int,
    join: Callable[[Sequence[relax.Expr]], relax.Expr],
) -> relax.Expr:
    """Repeatedly `join` up to `group_size` adjacent operands until one is left."""
    level = list(operands)
    while len(level) > 1:
        groups = [level[begin : begin + group_size] for begin in range(0, len(level), group_size)]
        level = [join(group) if len(group) > 1 else group[0] for group in groups]
    return level[0]
