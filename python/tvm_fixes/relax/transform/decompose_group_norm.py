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
"""DecomposeGroupNorm: on a GPU, divide the sums of a group norm among many thread blocks."""

import math
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..analysis import operator_calls
from ..ir import operator_name
from ..rewrite import rewrite_functions

_GROUP_NORM = "relax.nn.group_norm"

# With more groups, one thread block per group uses all of a large GPU.
_MAX_GROUPS = 256

# The numbers of parts into which a sum may be divided; a later step sums the parts.
_PARTS = (512, 256, 128, 64, 32, 16, 8, 4)

# The minimum number of elements that a thread block sums.
_MIN_PART = 1024

# The minimum number of pixels that a thread sums for each of its channels.
_MIN_ROWS = 16


def DecomposeGroupNorm() -> tvm.transform.Pass:
    """Write a group norm as sums of sums, and elementwise operators.

    Before, for a GPU::

        y = R.nn.group_norm(x, gamma, beta, num_groups=32, channel_axis=1, axes=[2, 3])

    and after, where the elements of a group are divided into 64 parts::

        x1 = R.reshape(x, R.shape([n, 32, 64, -1]))
        mean = R.sum(R.sum(x1, axis=[3]), axis=[2]) * (1 / count)
        x2 = x1 - mean
        variance = R.sum(R.sum(x2 * x2, axis=[3]), axis=[2]) * (1 / count)
        y = R.reshape((x1 - mean) * R.rsqrt(variance + epsilon), x.shape) * gamma + beta

    The kernel of the operator would use one thread block per element of the batch.  The mean is
    subtracted twice, so that no kernel writes the difference.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators. It computes in float32. It skips float64, and norms
        whose channels are neither the second nor the last axis.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if all(binding.value.op.name != _GROUP_NORM for _, binding in operator_calls(mod)):
            return mod
        decomposing = _Decomposing(mod)
        return rewrite_functions(decomposing, mod)

    return tvm.transform.module_pass(run, opt_level=0, name="DecomposeGroupNorm")


@dataclass(frozen=True)
class _Groups:
    """How the data of a norm is divided.

    Attributes
    ----------
    shape : list of int or tvm.ir.Expr
        The shape in which the groups are one axis.
    sums : list of list of int
        The axes of the sums, one sum after another.
    count : int or None
        The elements of a group, if they are known.
    parameters : list of int
        The shape in which gamma and beta fit the data.
    """

    shape: list[int | tvm.ir.Expr]
    sums: list[list[int]]
    count: int | None
    parameters: list[int]


@mutator
class _Decomposing(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        groups = _groups_of(call) if operator_name(call) == _GROUP_NORM else None
        if groups is None:
            return super().visit_call_(call)
        emit, attrs = self.builder_.emit, call.attrs
        data, gamma, beta = map(self.visit_expr, call.args)

        def in_float32(tensor: relax.Expr) -> relax.Expr:
            is_wide = tensor.ty.dtype == "float32"
            return tensor if is_wide else emit(relax.op.astype(tensor, "float32"))

        def mean_of(tensor: relax.Expr) -> relax.Expr:
            # Fusion would put the last mean into the kernel that reads it, but not the last sum.
            add = relax.op.mean if groups.count is None else relax.op.sum
            for axes in groups.sums:
                tensor = emit(add(tensor, axes, keepdims=True))
            if groups.count is None:
                return tensor
            return emit(relax.op.multiply(tensor, relax.const(1 / groups.count, "float32")))

        grouped = emit(relax.op.reshape(in_float32(data), groups.shape))
        mean = mean_of(grouped)
        centered = emit(relax.op.subtract(grouped, mean))
        variance = mean_of(emit(relax.op.multiply(centered, centered)))
        epsilon = relax.const(float(attrs.epsilon), "float32")
        scale = emit(relax.op.rsqrt(emit(relax.op.add(variance, epsilon))))
        normal = emit(relax.op.multiply(emit(relax.op.subtract(grouped, mean)), scale))
        y = emit(relax.op.reshape(normal, data.ty.shape))
        for used, operator, parameter in (
            (attrs.scale, relax.op.multiply, gamma),
            (attrs.center, relax.op.add, beta),
        ):
            if used:
                row = emit(relax.op.reshape(in_float32(parameter), groups.parameters))
                y = emit(operator(y, row))
        return y if data.ty.dtype == "float32" else relax.op.astype(y, data.ty.dtype)


def _groups_of(call: relax.Call) -> _Groups | None:
    """How to divide the data of a norm; None to leave the norm unchanged."""
    ty, attrs = call.args[0].ty, call.attrs
    if not isinstance(ty.shape, relax.ShapeExpr) or str(ty.dtype) == "float64":
        return None
    extents, rank = list(ty.shape), len(ty.shape)
    axis, groups = int(attrs.channel_axis) % rank, int(attrs.num_groups)
    axes = sorted(int(axis) % rank for axis in attrs.axes)
    is_last = axis == rank - 1
    spatial = list(range(1, axis)) if is_last else list(range(2, rank))
    if axis not in (1, rank - 1) or axes != spatial or not isinstance(extents[axis], tirx.IntImm):
        return None
    batch, channels = extents[0], int(extents[axis])
    if any(isinstance(extent, tirx.IntImm) and int(extent) == 0 for extent in extents):
        return None
    parameters = [1] * rank
    parameters[axis] = channels
    pixels = math.prod([extents[axis] for axis in spatial], start=tirx.const(1, "int64"))
    elements = pixels * (channels // groups)
    count = int(elements) if isinstance(elements, tirx.IntImm) else None
    if is_last:
        parts = _parts(pixels, batch, _MIN_ROWS)
        shape = [batch, parts, pixels // parts, groups, channels // groups]
        return _Groups(shape, [[2], [1, 4]], count, parameters)
    parts = _parts(elements, batch * groups, _MIN_PART)
    shape = [batch, groups, parts, elements // parts]
    return _Groups(shape, [[3], [2]] if parts > 1 else [[3]], count, parameters)


def _parts(extent: tvm.ir.Expr, others: tvm.ir.Expr, least: int) -> int:
    """The number of parts of each of the `others` sums over `extent` elements."""
    if not isinstance(extent, tirx.IntImm):
        return 1
    if isinstance(others, tirx.IntImm) and int(others) >= _MAX_GROUPS:
        return 1
    fitting = (parts for parts in _PARTS if int(extent) % parts == 0)
    return next((parts for parts in fitting if int(extent) // parts >= least), 1)
