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
"""AllocateEmptyConstants: allocate tensors without elements instead of storing or computing them.

Trigger
    A constant with an extent of 0, such as the register tokens of a vision transformer that has
    none; a permute of data with an extent of 0.
Mechanism
    The reader of constants mistakes a read of no bytes for the end of the file.
    RewriteDataflowReshape turns a kernel that keeps the order of the elements into a
    ``relax.reshape``, which reads an extent of 0 in the new shape as "copy this extent".
"""

import tvm
from tvm import relax
from tvm_ffi import structural_map, structural_walk

from ...fixes.memory import EMPTY_CONSTANTS as FIX_ID
from ...tirx.util import is_zero
from ..guard import fix_pass
from ..ir import is_kernel_call, relax_functions, tensor_of, with_body, with_functions


def AllocateEmptyConstants() -> tvm.transform.Pass:
    """Allocate constants and kernel results without elements at run time.

    Before::

        y = R.call_tir(cls.concat, (x, constant), …)         # of shape (1, 0, 48)

    and after::

        empty = R.builtin.alloc_tensor(R.shape([1, 0, 48]), R.dtype("float32"), 0)
        y = R.call_tir(cls.concat, (x, empty), …)

    Returns
    -------
    tvm.transform.Pass
        A module pass.  Run it after all constant folding.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        replaced = {
            variable: _allocate(function) for variable, function in relax_functions(mod).items()
        }
        changed = {variable: new for variable, new in replaced.items() if new is not None}
        if not changed:
            return None
        return relax.transform.Normalize()(with_functions(mod, changed))

    return fix_pass("AllocateEmptyConstants", FIX_ID, rewrite)


def _allocate(function: relax.Function) -> relax.Function | None:
    """`function` without empty constants and kernel calls; None if it has none."""
    computed = structural_map(function.body, (relax.Call, _replace_empty_kernel))
    empty: dict[tvm.runtime.Tensor, relax.Var] = {}
    bindings: list[relax.VarBinding] = []

    def find(constant: tvm.ir.GenericConst) -> None:
        tensor = tensor_of(constant)
        if tensor is None or 0 not in tensor.shape or tensor in empty:
            return
        empty[tensor] = relax.Var(f"empty{len(empty)}", constant.ty)
        bindings.append(relax.VarBinding(empty[tensor], _allocation(constant.ty)))

    structural_walk(computed, (tvm.ir.GenericConst, find))
    if not bindings:
        is_same = computed.same_as(function.body)
        return None if is_same else with_body(function, computed)

    def replace(constant: tvm.ir.GenericConst) -> relax.Expr:
        tensor = tensor_of(constant)
        return constant if tensor is None else empty.get(tensor, constant)

    body = structural_map(computed, (tvm.ir.GenericConst, replace))
    blocks = [relax.BindingBlock(bindings), *body.blocks]
    return with_body(function, relax.SeqExpr(blocks, body.body))


def _replace_empty_kernel(call: relax.Call) -> relax.Expr:
    shape = getattr(call.ty, "shape", None)
    if not is_kernel_call(call) or not isinstance(shape, relax.ShapeExpr):
        return call
    is_empty = any(map(is_zero, shape))
    return _allocation(call.ty) if is_empty else call


def _allocation(ty: relax.TensorType) -> relax.Expr:
    call = relax.op.builtin.alloc_tensor(ty.shape, str(ty.dtype), 0)
    return relax.BlockBuilder().normalize(call)
