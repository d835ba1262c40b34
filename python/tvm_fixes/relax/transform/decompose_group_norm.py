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
"""DecomposeGroupNorm: on a GPU, many blocks of threads compute the sums of a group norm."""

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..analysis import operator_calls
from ..ir import operator_name

_GROUP_NORM = "relax.nn.group_norm"

# With more groups, one block of threads per group uses all of a large GPU.
_MAX_GROUPS = 256

# In elements: what a block of threads adds at least.
_MIN_PART = 1024


def DecomposeGroupNorm() -> tvm.transform.Pass:
    """Write a group norm with large groups as sums of sums, and elementwise operators.

    Before, for a GPU::

        y = R.nn.group_norm(x, gamma, beta, num_groups=32, channel_axis=1, axes=[2, 3])

    and after, where the elements of a group are divided into 64 parts::

        x1 = R.reshape(x, R.shape([n, 32, 64, -1]))
        mean = R.sum(R.sum(x1, axis=[3]), axis=[2]) / count
        x2 = x1 - mean
        variance = R.sum(R.sum(x2 * x2, axis=[3]), axis=[2]) / count
        y = R.reshape(x2 * R.rsqrt(variance + epsilon), x.shape) * gamma + beta

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.  It computes in float32, and changes nothing if
        there are many groups, if they are small, if an extent is symbolic or if the channels are
        not the second axis.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if all(binding.value.op.name != _GROUP_NORM for _, binding in operator_calls(mod)):
            return mod
        decomposing = _Decomposing(mod)
        for global_var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                decomposing.builder_.update_func(global_var, decomposing.visit_expr(function))
        return decomposing.builder_.get()

    return tvm.transform.module_pass(run, opt_level=0, name="DecomposeGroupNorm")


@mutator
class _Decomposing(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        parts = _parts(call) if operator_name(call) == _GROUP_NORM else None
        if parts is None:
            return super().visit_call_(call)
        emit, attrs = self.builder_.emit, call.attrs
        data, gamma, beta = map(self.visit_expr, call.args)
        shape, dtype = [int(extent) for extent in data.ty.shape], data.ty.dtype
        parted = [shape[0], int(attrs.num_groups), parts, -1]

        def in_float32(tensor: relax.Expr) -> relax.Expr:
            is_wide = tensor.ty.dtype == "float32"
            return tensor if is_wide else emit(relax.op.astype(tensor, "float32"))

        def mean(tensor: relax.Expr) -> relax.Expr:
            partial = emit(relax.op.sum(tensor, axis=[3], keepdims=True))
            total = emit(relax.op.sum(partial, axis=[2], keepdims=True))
            count = int(tensor.ty.shape[2]) * int(tensor.ty.shape[3])
            return emit(relax.op.multiply(total, relax.const(1.0 / count, "float32")))

        grouped = emit(relax.op.reshape(in_float32(data), parted))
        centered = emit(relax.op.subtract(grouped, mean(grouped)))
        variance = mean(emit(relax.op.multiply(centered, centered)))
        epsilon = relax.const(float(attrs.epsilon), "float32")
        scale = emit(relax.op.rsqrt(emit(relax.op.add(variance, epsilon))))
        y = emit(relax.op.reshape(emit(relax.op.multiply(centered, scale)), shape))
        channels = [1, shape[1], *[1] * (len(shape) - 2)]
        for used, operator, parameter in (
            (attrs.scale, relax.op.multiply, gamma),
            (attrs.center, relax.op.add, beta),
        ):
            if used:
                row = emit(relax.op.reshape(in_float32(parameter), channels))
                y = emit(operator(y, row))
        return y if dtype == "float32" else relax.op.astype(y, dtype)


def _parts(call: relax.Call) -> int | None:
    """The number of parts to divide a group into; None to leave the norm as it is."""
    ty, attrs = call.args[0].ty, call.attrs
    extents = list(ty.shape) if isinstance(ty.shape, relax.ShapeExpr) else []
    if not extents or not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    batch, channels, *spatial = map(int, extents)
    axes = sorted(int(axis) % len(extents) for axis in attrs.axes)
    is_plain = int(attrs.channel_axis) % len(extents) == 1 and axes == list(range(2, len(extents)))
    if not is_plain or str(ty.dtype) == "float64":
        return None
    count = channels // int(attrs.num_groups)
    for extent in spatial:
        count *= extent
    if not 0 < batch * int(attrs.num_groups) < _MAX_GROUPS:
        return None
    fitting = (parts for parts in (64, 32, 16, 8, 4) if count % parts == 0)
    return next((parts for parts in fitting if count // parts >= _MIN_PART), None)
