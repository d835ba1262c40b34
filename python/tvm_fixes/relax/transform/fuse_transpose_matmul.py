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
"""A guard around TVM's ``FuseTransposeMatmul``.

Trigger
    ``matmul(x, x^T)``, where both operands come from one tensor; a second operand that is the
    result of ``permute_dims`` without axes and not of rank 2; a transposed operand that something
    else reads too, such as the weight of a recurrent layer.
Mechanism
    The pass outlines permute and matmul into a function with one parameter for each value that they
    read, and expects two parameters. It iterates over the axes of the permute, which are null if
    all axes are reversed. A permute with other readers is a second result of the outlined function,
    but the pass expects one.
How to remove
    When TVM's pass handles all three, use it in :mod:`tvm_fixes.pipeline`; delete this file, its
    tests and the fix id ``fuse-transpose-matmul``.
"""

from collections.abc import Iterator

import tvm
from tvm import relax

from ...fixes.layout import FUSE_TRANSPOSE_MATMUL
from ..analysis import bindings
from ..guard import guarded
from ..ir import relax_functions


def FuseTransposeMatmul() -> tvm.transform.Pass:
    """Let a matmul read the original of a transposed second operand.

    TVM's pass of this name, skipped for the modules on which it fails: it raises an IndexError for
    ``matmul(x, x^T)`` and a TypeError for ``permute_dims`` without axes, and if something else
    reads the transposed operand, it may use that operand before its definition. Such a module comes
    back unchanged.

    Returns
    -------
    tvm.transform.Pass
        A module pass.
    """
    return guarded(relax.transform.FuseTransposeMatmul(), FUSE_TRANSPOSE_MATMUL, _fails)


def _fails(mod: tvm.IRModule) -> bool:
    """Whether TVM's pass fails on a module."""
    read_once = _read_once(mod)
    for matmul, permute in _transposed_matmuls(mod):
        if matmul.args[1] not in read_once or matmul.args[0].same_as(matmul.args[1]):
            return True
        source = permute.args[0]
        if source.same_as(matmul.args[0]) or (permute.attrs.axes is None and source.ty.ndim != 2):
            return True
    return False


def _read_once(mod: tvm.IRModule) -> set[relax.Var]:
    """The variables of dataflow blocks that exactly one binding reads."""
    return {
        var
        for function in relax_functions(mod).values()
        for block in function.body.blocks
        if isinstance(block, relax.DataflowBlock)
        for var, readers in relax.analysis.udchain(block).items()
        if isinstance(var, relax.DataflowVar) and len(readers) == 1
    }


def _transposed_matmuls(mod: tvm.IRModule) -> Iterator[tuple[relax.Call, relax.Call]]:
    """Yield each matmul whose second operand is bound to a permute_dims, and that permute_dims."""
    matmul, permute_dims = map(tvm.ir.Op.get, ("relax.matmul", "relax.permute_dims"))
    for function in relax_functions(mod).values():
        bound: dict[relax.Expr, relax.Call] = {
            binding.var: binding.value
            for binding in bindings(function)
            if isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.Call)
        }
        for call in bound.values():
            if call.op.same_as(matmul):
                operand = bound.get(call.args[1])
                if operand is not None and operand.op.same_as(permute_dims):
                    yield call, operand
