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
"""MergeReshapes: merge a chain of reshapes into one reshape, which copies nothing.

FuseOps fuses an expand_dims and a reshape into one kernel. After ScheduleElementwise,
RewriteDataflowReshape does not recognize that kernel as a reshape, so it copies the data: the whole
cache, in a decoding step of a model whose heads share keys. The switch of ScheduleElementwise also
turns this pass off.
"""

import tvm
from tvm import relax

from ...fixes.elements import ELEMENTWISE_SCHEDULE as FIX_ID
from ...tirx.util import is_zero
from ..analysis import bindings
from ..guard import fix_pass
from ..ir import relax_functions
from .fold_constant import rebind_variables

_RESHAPES = {f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten")}


def MergeReshapes() -> tvm.transform.Pass:
    """Merge the reshape of reshaped data into one reshape of the data.

    Before::

        wide = R.expand_dims(keys, axis=[2])
        rows = R.reshape(wide, R.shape([40, 16]))

    and after::

        rows = R.reshape(keys, R.shape([40, 16]))

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        builder = relax.BlockBuilder(mod)
        values: dict[relax.Var, relax.Expr] = {}
        for function in relax_functions(mod).values():
            for var, value in _merged(function).items():
                values[var] = builder.normalize(value)
        if not values:
            return None
        return rebind_variables(mod, values)

    return fix_pass("MergeReshapes", FIX_ID, rewrite)


def _merged(function: relax.Function) -> dict[relax.Var, relax.Expr]:
    """The reshapes of reshaped data, as reshapes of the data before the first one."""
    data: dict[relax.Var, relax.Expr] = {}
    merged: dict[relax.Var, relax.Expr] = {}
    for binding in bindings(function):
        value = binding.value
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            continue
        shape = getattr(value.ty, "shape", None)
        # An extent of 0 in the new shape of a reshape means the old extent.
        if value.op.name not in _RESHAPES or not isinstance(shape, relax.ShapeExpr):
            continue
        if any(map(is_zero, shape.values)):
            continue
        data[binding.var] = data.get(value.args[0], value.args[0])
        if value.op.name == "relax.reshape" and value.args[0] in data:
            merged[binding.var] = relax.op.reshape(data[binding.var], shape)
    return merged
