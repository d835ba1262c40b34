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
"""DecomposeEinsum: write an einsum of two operands as a matrix product.

Trigger
    ``einsum("abcd,cde->abe", x, w)``: the output of an attention layer of Keras.
Mechanism
    TVM lowers an einsum to one loop over all labels, without tiles.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.sym import Analyzer

from ...fixes.matmul import MATMUL_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import count_of
from ..analysis import operator_calls
from ..constants.make import rearranged
from ..ir import operator_name, tensor_of
from ..legalize.matmul.lower import reshape_to
from ..rewrite import rewrite_functions

_EINSUM = "relax.einsum"

_Emit = Callable[[relax.Expr], relax.Var]


def DecomposeEinsum() -> tvm.transform.Pass:
    """Write an einsum of two operands as a matmul between permutes and reshapes.

    Before::

        y = R.einsum((x, w), subscripts="abcd,cde->abe")

    and after::

        x1 = R.reshape(x, R.shape([a * b, c * d]))
        w1 = R.reshape(w, R.shape([c * d, e]))
        y = R.reshape(R.matmul(x1, w1), R.shape([a, b, e]))

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.  It skips an einsum of which one label has extents
        that may differ, one operand reads a label twice, no label is summed over, or the output's
        last labels are not those of one operand after some of the other; and dtypes other than
        floats.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID):
            return mod
        if all(binding.value.op.name != _EINSUM for _, binding in operator_calls(mod)):
            return mod
        return rewrite_functions(_Decomposing(mod), mod)

    return tvm.transform.module_pass(run, opt_level=0, name="DecomposeEinsum")


@mutator
class _Decomposing(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        product = self._product_of(call) if operator_name(call) == _EINSUM else None
        if product is None:
            return super().visit_call_(call)
        switches.note(FIX_ID)
        return product.emit(self.builder_.emit)

    def _product_of(self, call: relax.Call) -> "_Product | None":
        operands = self.visit_expr(call.args[0])
        while isinstance(operands, relax.Var):
            operands = self.lookup_binding(operands)
        if not isinstance(operands, relax.Tuple) or not isinstance(call.ty.shape, relax.ShapeExpr):
            return None
        return _product(str(call.attrs.subscripts), list(operands.fields), call.ty)


@dataclass(frozen=True)
class _Product:
    """A matrix product that computes an einsum.

    Attributes
    ----------
    lhs, rhs : relax.Expr
    labels : tuple of str
        The labels of both operands.
    batch, rows, depth, columns : str
        The labels of the output's leading axes, of the rows of `lhs`, of the sum, and of the
        columns of `rhs`.
    extents : mapping of str to Expr
        The extent of each label.
    result : relax.TensorType
    """

    lhs: relax.Expr
    rhs: relax.Expr
    labels: tuple[str, str]
    batch: str
    rows: str
    depth: str
    columns: str
    extents: Mapping[str, tirx.Expr]
    result: relax.TensorType

    def emit(self, emit: _Emit) -> relax.Expr:
        """Emit the operands of the product, and return its result."""
        of_lhs, of_rhs = self.labels
        depth = self._order_of_depth()
        lhs = self._arranged(emit, self.lhs, of_lhs, (self.rows, depth))
        if of_rhs.endswith(depth) and tensor_of(self.rhs) is None:
            # A permute of the last two axes is left to the product.
            rhs = self._arranged(emit, self.rhs, of_rhs, (self.columns, depth))
            rank = len(rhs.ty.shape.values)
            rhs = emit(relax.op.permute_dims(rhs, [*range(rank - 2), rank - 1, rank - 2]))
        else:
            rhs = self._arranged(emit, self.rhs, of_rhs, (depth, self.columns))
        product, shape = relax.op.matmul(lhs, rhs), self.result.shape
        is_matrix = len(self.rows) == len(self.columns) == 1
        return product if is_matrix else relax.op.reshape(emit(product), shape)

    def _order_of_depth(self) -> str:
        """The labels of the sum in the order that moves no activation, if there is one."""
        of_lhs, of_rhs = (_kept(labels, self.depth) for labels in self.labels)
        is_kept = self.labels[0].endswith(of_lhs) and tensor_of(self.lhs) is None
        return of_lhs if is_kept else of_rhs

    def _arranged(
        self, emit: _Emit, operand: relax.Expr, labels: str, matrix: tuple[str, str]
    ) -> relax.Expr:
        """The operand as a batch of matrices with these labels of rows and columns."""
        # Leading labels of the output that the operand lacks are broadcast.
        batch = _kept(self.batch, labels)
        wanted = batch + matrix[0] + matrix[1]
        extents = [self.extents[label] if label in batch else _one() for label in self.batch]
        while extents and self.batch[len(self.batch) - len(extents)] not in batch:
            extents.pop(0)
        shape = [*extents, *(count_of(map(self.extents.get, part)) for part in matrix)]
        axes = [labels.index(label) for label in wanted]
        if tensor_of(operand) is not None:
            sizes = [int(extent) for extent in shape]
            return rearranged(
                operand, lambda array: array.transpose(axes).reshape(sizes), "relax.einsum"
            )
        if axes != sorted(axes):
            operand = emit(relax.op.permute_dims(operand, axes))
        return reshape_to(emit, operand, shape)


def _product(
    subscripts: str, operands: list[relax.Expr], result: relax.TensorType
) -> _Product | None:
    """The product that computes an einsum; None if it remains an einsum."""
    terms = _terms(subscripts, operands)
    types = [operand.ty for operand in operands]
    if terms is None or not all(_is_float(ty, str(result.dtype)) for ty in types):
        return None
    *labels, out = terms
    extents = _extents(labels, types)
    if extents is None:
        return None
    if not out or out[-1] in labels[0]:
        operands, labels = operands[::-1], labels[::-1]
    of_lhs, of_rhs = (set(own) - set(other) for own, other in (labels, labels[::-1]))
    shared = set(labels[0]) & set(labels[1])
    depth = _kept(labels[1], shared - set(out))
    summed = (of_lhs | of_rhs) - set(out)
    leading = out.rstrip("".join(of_rhs))
    batch = leading.rstrip("".join(of_lhs))
    rows, columns = leading[len(batch) :], out[len(leading) :]
    if summed or not (depth and rows and columns):
        return None
    if not (set(batch) & set(labels[1])):
        # Without a batch of matrices, all other axes are rows.
        rows, batch = batch + rows, ""
    (lhs, rhs), (first, second) = operands, labels
    return _Product(lhs, rhs, (first, second), batch, rows, depth, columns, extents, result)


def _terms(subscripts: str, operands: Sequence[relax.Expr]) -> list[str] | None:
    """The labels of two operands and of the output; None if one has a label twice."""
    inputs, arrow, out = subscripts.replace(" ", "").partition("->")
    labels = inputs.split(",")
    if not arrow or len(labels) != 2 or len(operands) != 2 or "." in subscripts:
        return None
    terms = [*labels, out]
    are_distinct = all(len(set(term)) == len(term) for term in terms)
    return terms if are_distinct and set(out) <= set("".join(labels)) else None


def _is_float(ty: tvm.ir.Type, dtype: str) -> bool:
    """Whether a type is that of a tensor of known rank and shape, and of this float dtype."""
    return isinstance(ty.shape, relax.ShapeExpr) and str(ty.dtype) == dtype and "float" in dtype


def _extents(labels: Sequence[str], types: Sequence[tvm.ir.Type]) -> dict[str, tirx.Expr] | None:
    """The extent of each label; None if one of a label's extents may differ from the others."""
    extents: dict[str, tirx.Expr] = {}
    analyzer = Analyzer()
    for term, ty in zip(labels, types, strict=True):
        if len(term) != len(ty.shape.values):
            return None
        for label, extent in zip(term, ty.shape.values, strict=True):
            if not analyzer.can_prove_equal(extents.setdefault(label, extent), extent):
                return None
    return extents


def _kept(labels: str, kept: str | set[str]) -> str:
    """The labels that are among others, in order."""
    return "".join(label for label in labels if label in kept)


def _one() -> tirx.Expr:
    return tirx.const(1, "int64")
