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

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    Hundreds of operands, one operand, operands of extent 0 or of 16-bit floating-point numbers.
Symptom
    A Sum of 400 compiles for a minute, LLVM crashes on one of 2000 and on a Concat of as many;
    sums of 16-bit numbers are rounded at each step.
Mechanism
    TVM stacks the operands and reduces what it has stacked.  The kernel of a concatenation asks of
    each element which operand it is of, in a select within a select for each operand.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and its entries in :mod:`.corrections`.
"""

from collections.abc import Callable, Sequence

import tvm
from tvm import relax

from ...fixes.onnx_importer import ELEMENTWISE
from ...support import switches
from ..dtypes import accumulation_dtype, dtype_of
from .node import Converter, Node

__all__ = ["CONCATENATED_AT_ONCE", "convert_concat", "convert_variadic"]

_PAIRWISE: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "Max": relax.op.maximum,
    "Mean": relax.op.add,
    "Min": relax.op.minimum,
    "Sum": relax.op.add,
}

CONCATENATED_AT_ONCE = 16
"""The most operands of one concatenation; of more, neighbours are concatenated first."""


def convert_variadic(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Sum, Mean, Max or Min as operators of two operands, a balanced tree of them."""
    if all(isinstance(operand, tvm.ir.GenericConst) for operand in node.operands):
        return convert(node)
    switches.note(ELEMENTWISE)
    dtype = dtype_of(node.operands[0])
    is_sum = node.operator in ("Mean", "Sum")
    sum_dtype = accumulation_dtype(dtype) if is_sum and len(node.operands) > 1 else dtype
    operands = list(node.operands)
    if sum_dtype != dtype:
        operands = [node.emit(relax.op.astype(operand, sum_dtype)) for operand in operands]
    pairwise = _PAIRWISE[node.operator]
    result = _tree(operands, 2, lambda pair: node.emit(pairwise(*pair)))
    if node.operator == "Mean" and len(operands) > 1:
        result = node.emit(relax.op.divide(result, relax.const(len(operands), sum_dtype)))
    return result if sum_dtype == dtype else relax.op.astype(result, dtype)


def convert_concat(node: Node, convert: Converter) -> relax.Expr:
    """Convert a Concat of many tensors as concatenations of a few of them."""
    if len(node.operands) <= CONCATENATED_AT_ONCE or not _are_tensors(node.operands):
        return convert(node)
    switches.note(ELEMENTWISE)

    def join(few: Sequence[relax.Expr]) -> relax.Expr:
        return node.emit(convert(node.with_operands(*few)))

    return _tree(node.operands, CONCATENATED_AT_ONCE, join)


def _are_tensors(operands: Sequence[relax.Expr]) -> bool:
    """Whether there are operands other than constants, which TVM joins by itself."""
    return not all(isinstance(operand, tvm.ir.GenericConst) for operand in operands) and all(
        isinstance(operand.ty, relax.TensorType) for operand in operands
    )


def _tree(
    operands: Sequence[relax.Expr], most: int, join: Callable[[Sequence[relax.Expr]], relax.Expr]
) -> relax.Expr:
    """What is left when `join` has made one of at most `most` neighbours, until one is left."""
    level = list(operands)
    while len(level) > 1:
        groups = [level[begin : begin + most] for begin in range(0, len(level), most)]
        level = [join(group) if len(group) > 1 else group[0] for group in groups]
    return level[0]
