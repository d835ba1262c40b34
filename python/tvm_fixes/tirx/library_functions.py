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
"""Elementary functions for which only the C library has accurate code, or any.

TVM's code generator for LLVM does not support ``acos``, ``sinh`` and others of float16, nor
``sinh`` and ``cosh`` of vectors. Its ``atanh``, and its ``tanh`` of float64, lose digits to
cancellation.

CUDA has no 16-bit versions of ``asinh``, ``sinh``, ``nearbyint`` and others.
"""

import tvm
from tvm import tirx
from tvm_ffi import structural_map

__all__ = ["with_library_functions", "with_wide_functions"]

_NARROW = ("float16", "bfloat16")

# LLVM has no intrinsics for these, and the C library has no 16-bit versions.
_CALLED = frozenset(
    f"tirx.{name}"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "hypot", "log1p"),
        *("nextafter", "sinh"),
    )
)

# The C library's functions by operator and dtype. TVM's formulas for these are less accurate, or do
# not work on vectors.
_LIBRARY = {
    ("tirx.cosh", "float32"): "coshf",
    ("tirx.cosh", "float64"): "cosh",
    ("tirx.sinh", "float32"): "sinhf",
    ("tirx.sinh", "float64"): "sinh",
    ("tirx.atanh", "float32"): "atanhf",
    ("tirx.atanh", "float64"): "atanh",
    ("tirx.tanh", "float64"): "tanh",
}


# CUDA's 16-bit functions do not include these.
_WIDENED_ON_GPU = _CALLED - {"tirx.atan", "tirx.nextafter"} | {"tirx.fmod", "tirx.nearbyint"}


def with_wide_functions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Compute the functions and remainders that CUDA lacks for 16 bits in float32.

    Returns
    -------
    tirx.PrimFunc
        `function` itself if there is nothing to change.
    """
    return structural_map(function, [(tvm.ir.Call, _widen_call), (tirx.Mod, _widen_remainder)])


def _widen_call(call: tvm.ir.Call) -> tirx.Expr:
    is_operator = isinstance(call.op, tvm.ir.Op)
    return _wide(call) if is_operator and call.op.name in _WIDENED_ON_GPU else call


def _widen_remainder(remainder: tirx.Mod) -> tirx.Expr:
    if str(remainder.ty) not in _NARROW:
        return remainder
    in_float32 = tirx.truncmod(remainder.a.astype("float32"), remainder.b.astype("float32"))
    return in_float32.astype(str(remainder.ty))


def _wide(call: tvm.ir.Call) -> tirx.Expr:
    """The call, computed in float32."""
    if str(call.ty) not in _NARROW:
        return call
    operands = [operand.astype("float32") for operand in call.args]
    return tvm.ir.Call(call.op, operands, ret_ty="float32").astype(str(call.ty))


def with_library_functions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Call the C library where TVM's code generator lacks a function or computes it inaccurately.

    float16 and bfloat16 are computed in float32.

    Returns
    -------
    tirx.PrimFunc
        `function` itself if there is nothing to change.
    """
    return structural_map(function, (tvm.ir.Call, _lower_call))


def _lower_call(call: tvm.ir.Call) -> tirx.Expr:
    if not isinstance(call.op, tvm.ir.Op):
        return call
    name, dtype = call.op.name, str(call.ty)
    if dtype in _NARROW and name in _CALLED:
        operands = [operand.astype("float32") for operand in call.args]
        in_float32 = tvm.ir.Call(call.op, operands, ret_ty="float32")
        return _lower_call(in_float32).astype(dtype)
    library = _LIBRARY.get((name, dtype))
    return call if library is None else tirx.call_pure_extern(dtype, library, *call.args)
