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
"""GuardFloatArithmetic: keep TVM's simplifier from changing floating-point results.

Mechanism
    The simplifier applies integer identities to floats.
"""

import math

import ml_dtypes
import numpy as np
import tvm
from tvm import tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_map

from ...fixes.elements import FLOAT_ARITHMETIC as FIX_ID
from ..loop_partition import branches_of, with_branches
from ..util import prim_func_pass

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_ZERO = tirx.const(0, "int8")
_REWRITTEN = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.EQ, tirx.NE, tirx.Not)


_FROM_BITS = {
    "float16": "__short_as_half",
    "bfloat16": "__short_as_bfloat16",
    "float32": "__int_as_float",
    "float64": "__longlong_as_double",
}


def GuardFloatArithmetic() -> tvm.transform.Pass:
    """Rewrite floating-point arithmetic to forms that TVM's simplifier does not change.

    Before::

        y[i] = x[i] + T.float32(1) - x[i]
        z[i] = not x[i] < y[i]

    and after::

        y[i] = x[i] + T.float32(1) + x[i] * T.float32(-1)
        z[i] = T.Cast("int8", x[i] < y[i]) == T.int8(0)

    The values are the same, and so is LLVM's code: it turns the product and the sum into a
    difference.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.  Run it after all schedules.
    """
    return prim_func_pass("GuardFloatArithmetic", FIX_ID, _guard, any_target=True)


def _guard(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    guarded = structural_map(function, (_REWRITTEN, _rewritten))
    return structural_map(guarded, (tvm.ir.Call, _for_cuda)) if _is_cuda(target) else guarded


def _is_cuda(target: tvm.target.Target) -> bool:
    return str(target.kind.name) == "cuda"


def _for_cuda(call: tvm.ir.Call) -> tirx.Expr:
    """Reinterpret a constant with CUDA's function: TVM would take the address of the literal."""
    is_reinterpret = isinstance(call.op, tvm.ir.Op) and call.op.name == "tirx.reinterpret"
    if not is_reinterpret or not isinstance(call.args[0], tirx.IntImm):
        return call
    function = _FROM_BITS.get(str(call.ty))
    return call if function is None else tirx.call_pure_extern(str(call.ty), function, *call.args)


def _rewritten(node: tirx.Expr) -> tirx.Expr:
    if isinstance(node, tirx.Not):
        is_of_floats = isinstance(node.a, _COMPARISONS) and _is_float(node.a.a)
        return tirx.Cast("int8", node.a) == _ZERO if is_of_floats else node
    if not _is_float(node.a):
        return node
    if isinstance(node, tirx.Add):
        return _sum(node)
    if isinstance(node, tirx.Sub):
        return _difference(node)
    if isinstance(node, tirx.Mul | tirx.Div):
        factors = [_opaque_zero(each) for each in (node.a, node.b)]
        is_same = factors[0].same_as(node.a) and factors[1].same_as(node.b)
        return node if is_same else type(node)(*factors)
    if not isinstance(_simplified(node), tirx.IntImm):
        return node
    # a <= b and b <= a hold for equal numbers, and not for NaN.
    equal = tirx.And(tirx.LE(node.a, node.b), tirx.LE(node.b, node.a))
    return equal if isinstance(node, tirx.EQ) else tirx.Cast("int8", equal) == _ZERO


def _is_float(expr: tirx.Expr) -> bool:
    return "float" in str(expr.ty)


def _sum(node: tirx.Add) -> tirx.Expr:
    """A sum with 0, which the simplifier drops, although it turns -0 into 0."""
    operands = [_opaque_zero(each) if _is_zero(each) else each for each in (node.a, node.b)]
    return tirx.Add(*operands) if any(map(_is_zero, (node.a, node.b))) else node


def _is_zero(expr: tirx.Expr) -> bool:
    """Whether an expression is 0, but not -0."""
    if isinstance(expr, tirx.Broadcast):
        return _is_zero(expr.value)
    is_zero = isinstance(expr, tirx.FloatImm) and expr.value == 0
    return is_zero and math.copysign(1, expr.value) > 0


def _difference(node: tirx.Sub) -> tirx.Expr:
    if not _cancels(node):
        return node
    dtype = str(node.ty)
    if not dtype.startswith("bfloat16"):
        return tirx.Add(node.a, _negated(node.b))
    # Compute in float32: rounding a step to bfloat16 takes several instructions.
    inner_dtype = dtype.replace("bfloat16", "float32")
    return tirx.Cast(
        dtype, tirx.Add(tirx.Cast(inner_dtype, node.a), _negated(tirx.Cast(inner_dtype, node.b)))
    )


def _cancels(node: tirx.Sub) -> bool:
    """Whether the simplifier cancels terms of the two operands."""
    simplified = _simplified(node)
    if not isinstance(simplified, tirx.Sub):
        return True
    return isinstance(simplified.a, tirx.FloatImm) and not isinstance(node.a, tirx.FloatImm)


def _simplified(node: tirx.Expr) -> tirx.Expr:
    """Simplify `node` with the same indices in all loads, because they may be equal at run time."""

    def at_origin(load: tvm.ir.TensorLoad) -> tirx.Expr:
        return tirx.BufferLoad(load.source, [tirx.const(0, "int64")] * len(load.indices))

    return Analyzer().simplify(structural_map(node, (tvm.ir.TensorLoad, at_origin)))


def _negated(expr: tirx.Expr) -> tirx.Expr:
    if isinstance(expr, tirx.FloatImm):
        return tirx.FloatImm(expr.ty, -expr.value)
    return tirx.Mul(expr, tirx.const(-1.0, str(expr.ty)))


def _opaque_zero(expr: tirx.Expr) -> tirx.Expr:
    """Write a constant 0, even in a branch of a Select, as a reinterpretation of its bits."""
    if isinstance(expr, tirx.Broadcast):
        inner = _opaque_zero(expr.value)
        return expr if inner.same_as(expr.value) else tirx.Broadcast(inner, expr.lanes)
    if isinstance(expr, tirx.Cast) and _is_float(expr.value):
        inner = _opaque_zero(expr.value)
        return expr if inner.same_as(expr.value) else tirx.Cast(expr.ty, inner)
    parts = branches_of(expr)
    if parts is not None:
        branches = [_opaque_zero(branch) for branch in parts[1:]]
        is_same = all(a.same_as(b) for a, b in zip(branches, parts[1:], strict=True))
        return expr if is_same else with_branches(expr, [parts[0], *branches])
    constant = Analyzer().simplify(expr) if _is_constant(expr) else expr
    if not isinstance(constant, tirx.FloatImm) or constant.value != 0:
        return expr
    dtype = str(expr.ty)
    minus_zero = np.array(-0.0, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    bits = f"int{8 * minus_zero.itemsize}"
    # Reinterpret -0.0, since TVM takes all-zero bits for a null pointer.
    opaque = tirx.reinterpret(dtype, tirx.const(int(minus_zero.view(bits)), bits))
    return opaque if math.copysign(1, constant.value) < 0 else _negated(opaque)


def _is_constant(expr: tirx.Expr) -> bool:
    """Whether an expression consists of constants, their sums and products, and casts.

    A cast of any integer expression counts too.
    """
    if isinstance(expr, tirx.Cast):
        return not _is_float(expr.value) or _is_constant(expr.value)
    if isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
        return _is_constant(expr.a) and _is_constant(expr.b)
    return isinstance(expr, tirx.FloatImm | tirx.IntImm)
