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
"""The passes, as ``tvm.transform.Pass`` objects."""

from collections.abc import Iterator

import tvm
from tvm import relax

from .. import _ffi, switches


def PrepareLayout() -> tvm.transform.Pass:
    """Clear the way for ``ConvertLayout``, or clear away the identities that it leaves.

    A field taken of a tuple becomes the field; ``reshape``, ``expand_dims`` and ``squeeze`` of a
    constant become a constant that shares its memory; a constant operand of a broadcast gets the
    rank of the result; a permute that moves only axes of extent 1 becomes a reshape; an operator
    that changes nothing is dropped, and so is what a dataflow block then no longer needs. A
    function in which nothing changes comes back as the same object.

    Returns
    -------
    tvm.transform.Pass
        A function pass.
    """
    return _ffi.get("tvm_fixes.transform.PrepareLayout")()


def FuseTransposeMatmul() -> tvm.transform.Pass:
    """Let a matmul read a transposed second operand as it lies, in place of transposing it.

    TVM's pass of this name, kept from the modules on which it raises: ``matmul(x, x^T)`` makes it
    an IndexError, and the transposition of all axes by ``permute_dims`` without axes a TypeError.
    Such a module comes back unchanged.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """
    stock = relax.transform.FuseTransposeMatmul()

    def fuse(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if switches.enabled("fuse-transpose-matmul") and any(
            _is_refused(matmul, permute) for matmul, permute in _transposed_matmuls(mod)
        ):
            switches.note("fuse-transpose-matmul")
            return mod
        return stock(mod)

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseTransposeMatmul")


def StaticPlanBlockMemory() -> tvm.transform.Pass:
    """Plan which tensors share storage.

    TVM's pass of this name, kept from modules with an If: it lets one branch use storage that is
    allocated in the other, and the process crashes when it does. Such a module comes back
    unchanged, and allocates each tensor by itself.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """
    stock = relax.transform.StaticPlanBlockMemory()

    def plan(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if switches.enabled("plan-memory-if") and _has_if(mod):
            switches.note("plan-memory-if")
            return mod
        return stock(mod)

    return tvm.transform.module_pass(plan, opt_level=0, name="StaticPlanBlockMemory")


def _has_if(mod: tvm.IRModule) -> bool:
    found = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.If):
            found.append(expr)

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return bool(found)


def _transposed_matmuls(mod: tvm.IRModule) -> Iterator[tuple[relax.Call, relax.Call]]:
    """Each matmul of which the second operand is bound to a permute_dims, with that."""
    matmul, permute_dims = map(tvm.ir.Op.get, ("relax.matmul", "relax.permute_dims"))
    for _, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        bound = relax.analysis.get_var2val(function)
        for value in bound.values():
            if isinstance(value, relax.Call) and value.op.same_as(matmul):
                operand = bound.get(value.args[1])
                if isinstance(operand, relax.Call) and operand.op.same_as(permute_dims):
                    yield value, operand


def _is_refused(matmul: relax.Call, permute: relax.Call) -> bool:
    source = permute.args[0]
    return source.same_as(matmul.args[0]) or (permute.attrs.axes is None and source.ty.ndim != 2)
