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
"""Lowering of comparisons, maximum and minimum, for booleans and NaN.

Mechanism
    The code generator treats any dtype that is neither a signed nor an unsigned integer as a float.
    TVM's maximum is the second operand if the first one is not greater, which is always the case if
    one of them is NaN.
"""

import math
from collections.abc import Callable

import tvm
from tvm import relax, te, tirx, topi
from tvm.sym import Analyzer

from ...fixes.elements import COMPARISON_LEGALIZE as FIX_ID
from ...support import switches
from ...tirx.util import broadcast_position, is_one
from .override import Legalize, legalizes

_OPERATORS = (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "maximum",
    "minimum",
)


@legalizes(*(f"relax.{operator}" for operator in _OPERATORS))
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    dtypes = {str(getattr(operand.ty, "dtype", None)) for operand in call.args}
    name = call.op.name.rpartition(".")[2]
    if not switches.enabled(FIX_ID):
        return stock(bb, call)
    if name in ("maximum", "minimum") and all("float" in dtype for dtype in dtypes):
        return _extremum(bb, call, stock, name)
    if name in _WITH_ITSELF and "float" in str(call.args[0].ty.dtype):
        if call.args[0].same_as(call.args[1]):
            switches.note(FIX_ID)
            return bb.call_te(_WITH_ITSELF[name], call.args[0], primfunc_name_hint=name)
    if name == "not_equal" and all("float" in dtype for dtype in dtypes):
        switches.note(FIX_ID)
        return bb.call_te(_not_equal, *call.args, primfunc_name_hint=name)
    if dtypes != {"bool"}:
        return stock(bb, call)
    switches.note(FIX_ID)

    def compare(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        compared = getattr(topi, name)(topi.cast(a, "uint8"), topi.cast(b, "uint8"))
        return topi.cast(compared, "bool")

    return bb.call_te(compare, *call.args, primfunc_name_hint=name)


def _is_nan(x: te.Tensor) -> te.Tensor:
    return topi.isnan(x if x.dtype in _WITH_NAN_TEST else topi.cast(x, "float32"))


def _is_number(x: te.Tensor) -> te.Tensor:
    return topi.logical_not(_is_nan(x))


_WITH_NAN_TEST = ("float16", "float32", "float64")
# TVM folds a comparison of a value with itself as if there were no NaN.
_WITH_ITSELF = {
    "equal": _is_number,
    "greater_equal": _is_number,
    "less_equal": _is_number,
    "not_equal": _is_nan,
}


def _not_equal(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    # The negation of a comparison that is correct for NaN: LLVM's not-equal is false for NaN.
    same = topi.cast(topi.equal(a, b), "int8")
    return topi.cast(topi.subtract(tirx.const(1, "int8"), same), "bool")


def _extremum(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize, name: str) -> relax.Expr:
    shapes = [
        relax.ShapeExpr([]) if tvm.ir.is_prim_expr(expr) else getattr(expr.ty, "shape", None)
        for expr in (call, *call.args)
    ]
    known = [list(shape.values) for shape in shapes if isinstance(shape, relax.ShapeExpr)]
    if len(known) < len(shapes) or not all(_is_repeated(own, known[0]) for own in known[1:]):
        return stock(bb, call)
    switches.note(FIX_ID)

    def extremum(
        a: te.Tensor | tirx.Expr, b: te.Tensor | tirx.Expr, shape: list[tirx.Expr]
    ) -> te.Tensor:
        def element(*position: tirx.Var) -> tirx.Expr:
            x, y = (
                operand(*broadcast_position(position, operand.shape))
                if isinstance(operand, te.Tensor)
                else operand
                for operand in (a, b)
            )
            x_first, y_first = (x > y, y >= x) if name == "maximum" else (x < y, y <= x)
            # With a NaN neither comparison is true, and the sum is NaN.
            return tirx.Select(x_first, x, tirx.Select(y_first, y, x + y))

        return te.compute(shape, element, name=name)

    # Pass the shape as an argument, so that call_te replaces its symbols by the kernel's.
    return bb.call_te(extremum, *call.args, known[0], primfunc_name_hint=name)


def _is_repeated(operand: list[tirx.Expr], shape: list[tirx.Expr]) -> bool:
    """Whether TVM proves for each axis that an operand is equal or broadcast to `shape`."""
    own = shape[len(shape) - len(operand) :]
    return all(
        is_one(extent) or Analyzer().can_prove_equal(extent, whole)
        for extent, whole in zip(operand, own, strict=True)
    )


def _relu(x: te.Tensor) -> te.Tensor:
    zero = tirx.const(0, x.dtype)

    def element(*at: tirx.Var) -> tirx.Expr:
        return tirx.Select(x(*at) < zero, zero, x(*at))

    return te.compute(x.shape, element, name="relu")


def _clip(x: te.Tensor, lower: tirx.Expr, upper: tirx.Expr) -> te.Tensor:
    lower, upper = lower.astype(x.dtype), upper.astype(x.dtype)

    def element(*at: tirx.Var) -> tirx.Expr:
        clipped = x(*at)
        # An infinite bound does nothing, and TVM cannot write it as a bfloat16 in CUDA.
        if not _is_constant(upper, math.inf):
            clipped = tirx.Select(clipped > upper, upper, clipped)
        if not _is_constant(lower, -math.inf):
            clipped = tirx.Select(clipped < lower, lower, clipped)
        return clipped

    return te.compute(x.shape, element, name="clip")


def _is_constant(value: tirx.Expr, number: float) -> bool:
    return isinstance(value, tirx.FloatImm) and value.value == number


@legalizes("relax.nn.relu", compute=_relu)
@legalizes("relax.clip", compute=_clip)
def _legalize_bounded(
    bb: relax.BlockBuilder,
    call: relax.Call,
    stock: Legalize,
    compute: Callable[..., te.Tensor],
) -> relax.Expr:
    """Lower an operator that bounds the elements of its first operand with `compute`."""
    data = call.args[0].ty
    is_known = isinstance(data.shape, relax.ShapeExpr) and "float" in str(data.dtype)
    if not (switches.enabled(FIX_ID) and is_known):
        return stock(bb, call)
    switches.note(FIX_ID)
    name = call.op.name.rpartition(".")[2]
    return bb.call_te(compute, *call.args, primfunc_name_hint=name)


@legalizes(*(f"relax.{operator}" for operator in ("isnan", "isinf", "isfinite")))
def _legalize_class(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """Lower ``isnan``, ``isinf`` and ``isfinite``; an integer is finite."""
    name, dtype = call.op.name.rpartition(".")[2], str(call.args[0].ty.dtype)
    if not switches.enabled(FIX_ID) or dtype in ("float16", "float32", "float64"):
        return stock(bb, call)
    switches.note(FIX_ID)

    def classify(x: te.Tensor) -> te.Tensor:
        if "float" in dtype:
            return getattr(topi, name)(topi.cast(x, "float32"))
        answer = tirx.const(name == "isfinite", "bool")
        return te.compute(x.shape, lambda *_: answer, name=name)

    return bb.call_te(classify, call.args[0], primfunc_name_hint=name)
