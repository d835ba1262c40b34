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
"""ViewReshapes: let kernels read a reshaped tensor as a view.

TVM's RewriteDataflowReshape does this after ScheduleElementwise, and recognizes no scheduled kernel
as a reshape: each one copies its data, and allocates a tensor.  The switch of ScheduleElementwise
also turns this pass off.
"""

from collections import defaultdict

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from ...fixes.elements import ELEMENTWISE_SCHEDULE as FIX_ID
from ...tirx.util import count_of, is_zero
from ..analysis import bindings, results
from ..guard import fix_pass
from ..ir import is_kernel_call, operator_name, relax_functions, variables
from .fold_constant import rebind_variables


def ViewReshapes() -> tvm.transform.Pass:
    """Replace kernels that keep the order of all elements by reshapes, which copy nothing.

    Before::

        lv = R.call_tir(cls.squeeze, (x,), out_ty=R.Tensor((2, 6), "float32"))
        y = R.call_tir(cls.softmax, (lv,), …)

    and after::

        lv = R.reshape(x, R.shape([2, 6]))
        y = R.call_tir(cls.softmax, (lv,), …)

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU, for kernels before ScheduleElementwise.  Only kernels may read the
        view: a result of the model must not share memory with an input.  It skips functions in
        which a kernel writes to a tensor that another kernel has written.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        builder = relax.BlockBuilder()
        values: dict[relax.Var, relax.Expr] = {}
        for function in relax_functions(mod).values():
            for var, value in _views(function, mod).items():
                values[var] = builder.normalize(value)
        if not values:
            return None
        return relax.transform.DeadCodeElimination()(rebind_variables(mod, values))

    return fix_pass("ViewReshapes", FIX_ID, rewrite)


def _views(function: relax.Function, mod: tvm.IRModule) -> dict[relax.Var, relax.Expr]:
    """The reshapes that replace kernels of a function, by their variables."""
    readers: dict[relax.Var, list[relax.Binding]] = defaultdict(list)
    for binding in bindings(function):
        if operator_name(binding.value) == "relax.call_tir_inplace":
            return {}
        for var in variables(binding.value):
            readers[var].append(binding)
    escaping = set(results(function))

    def is_local(var: relax.Var) -> bool:
        """Whether only kernels read a variable, or another one with the same value."""
        return var not in escaping and all(
            is_local(reader.var)
            if isinstance(reader.value, relax.Var)
            else is_kernel_call(reader.value)
            for reader in readers[var]
        )

    return {
        binding.var: relax.op.reshape(binding.value.args[1].fields[0], binding.var.ty.shape)
        for binding in bindings(function)
        if _is_reshape(binding, mod) and is_local(binding.var)
    }


def _is_reshape(binding: relax.Binding, mod: tvm.IRModule) -> bool:
    """Whether a binding calls a kernel that keeps the order of the elements of a variable."""
    call = binding.value
    if not isinstance(binding, relax.VarBinding) or not is_kernel_call(call):
        return False
    kernel, shape = mod.functions.get(call.args[0]), getattr(binding.var.ty, "shape", None)
    tensors = [arg for arg in call.args[1].fields if isinstance(arg.ty, relax.TensorType)]
    return (
        isinstance(kernel, tirx.PrimFunc)
        and isinstance(shape, relax.ShapeExpr)
        # An extent of 0 in the new shape of a reshape means the old extent.
        and not any(map(is_zero, shape.values))
        and len(tensors) == 1
        and isinstance(tensors[0], relax.Var)
        and tensors[0].same_as(call.args[1].fields[0])
        and isinstance(tensors[0].ty.shape, relax.ShapeExpr)
        # A slice of the first elements has the pattern, too.
        and Analyzer().can_prove_equal(count_of(tensors[0].ty.shape), count_of(shape))
        and _has_reshape_pattern(kernel)
    )


def _has_reshape_pattern(kernel: tirx.PrimFunc) -> bool:
    try:
        return bool(relax.analysis.has_reshape_pattern(kernel))
    except tvm.error.InternalError:
        return False  # TVM cannot divide some extents, such as m * 2 - 4
