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
"""CopyHostResults: copies what functions on the host return to the GPU.

Mechanism
    TVM computes ``nonzero`` and ``unique`` in Python, and returns tensors in the memory of
    the host; the kernels after them read these.
"""

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...fixes.gpu import GPU_SCHEDULE as FIX_ID
from ..analysis import operator_calls
from ..guard import fix_pass
from ..rewrite import rewrite_functions

_OPERATORS = ("relax.nonzero", "relax.unique")

# CUDA's device type in DLPack, and the number of the device.
_DEVICE = (2, 0)


def CopyHostResults() -> tvm.transform.Pass:
    """Copy the results of ``nonzero`` and ``unique`` to the GPU.

    Before::

        y = nonzero(x)

    and after::

        host = call_pure_packed("relax.run.nonzero", x)
        y = call_pure_packed("vm.builtin.to_device", host, 2, 0)

    Returns
    -------
    tvm.transform.Pass
        A module pass, before LegalizeOps.  For a target other than CUDA, it changes nothing.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        names = {str(binding.value.op.name) for _, binding in operator_calls(mod)}
        target = tvm.target.Target.current(allow_none=True)
        is_other = target is not None and target.kind.name != "cuda"
        if is_other or names.isdisjoint(_OPERATORS):
            return None
        return rewrite_functions(_Copying(mod), mod)

    return fix_pass("CopyHostResults", FIX_ID, rewrite)


@mutator
class _Copying(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name not in _OPERATORS:
            return call
        function = str(call.op.get_attr("FCallPacked"))
        on_host = self._emit(relax.op.call_pure_packed(function, *call.args, ty_args=call.ty))
        if not isinstance(call.ty, relax.TupleType):
            return _copied(on_host)
        fields = [self._emit(relax.TupleGetItem(on_host, i)) for i in range(len(call.ty.fields))]
        return relax.Tuple([self._emit(_copied(field)) for field in fields])

    def _emit(self, value: relax.Expr) -> relax.Var:
        return self.builder_.emit(value)


def _copied(tensor: relax.Var) -> relax.Call:
    device = [tirx.const(number, "int64") for number in _DEVICE]
    return relax.op.call_pure_packed("vm.builtin.to_device", tensor, *device, ty_args=tensor.ty)
