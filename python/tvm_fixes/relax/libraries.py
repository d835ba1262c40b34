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
"""Calls of NVIDIA's libraries: see ``src/cuda_libraries``."""

from collections.abc import Sequence

import tvm
from tvm import relax, tirx

from ..tirx.util import is_zero

DTYPES = frozenset({"float32", "float16", "bfloat16"})
"""The dtypes of operands."""

_WORKSPACE_BYTES = 32 << 20


def uses(name: str) -> bool:
    """Whether the ``libs`` of the current target contain `name`, e.g. ``"cublas"``."""
    target = tvm.target.Target.current(allow_none=True)
    return target is not None and name in map(str, target.attrs.get("libs", ()))


def computes(call: relax.Call) -> bool:
    """Whether the types of a call allow a library to compute it.

    Its operands have the same dtype, its result has that dtype or float32, in which the libraries
    accumulate, and no extent is zero.
    """
    types = [*(operand.ty for operand in call.args), call.ty]
    if not all(isinstance(ty, relax.TensorType) for ty in types):
        return False
    dtype, *others = (str(ty.dtype) for ty in types[:-1])
    return (
        dtype in DTYPES
        and all(other == dtype for other in others)
        and str(call.ty.dtype) in (dtype, "float32")
        and all(isinstance(ty.shape, relax.ShapeExpr) for ty in types)
        and not any(is_zero(extent) for ty in types for extent in ty.shape)
    )


def call_library(
    builder: relax.BlockBuilder,
    function: str,
    operands: Sequence[relax.Expr],
    options: Sequence[int | tirx.Expr],
    ty: relax.TensorType,
) -> relax.Expr:
    """Emit a call of a function, and return its result.

    Parameters
    ----------
    builder : relax.BlockBuilder
    function : str
        The name of the function, without ``tvm_fixes_``.
    operands : sequence of relax.Expr
        Tensors.
    options : sequence of int
        The arguments of the function besides tensors.
    ty : relax.TensorType
        The type of the result.

    Notes
    -----
    The workspace is a second result, so TVM plans its memory, and calls on different streams never
    share it.
    """
    workspace = relax.TensorType((_WORKSPACE_BYTES,), "uint8", ty.vdevice)
    arguments = [*operands, relax.ShapeExpr(list(options))]
    result = relax.TensorType(ty.shape, ty.dtype, ty.vdevice)
    called = relax.call_dps_packed(f"tvm_fixes_{function}", arguments, [result, workspace])
    return relax.TupleGetItem(builder.emit(called), 0)
