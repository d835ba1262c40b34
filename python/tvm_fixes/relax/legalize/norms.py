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
"""Lowering of ``relax.nn.layer_norm``, ``group_norm`` and ``instance_norm``.

Trigger
    Data whose mean is large compared with its deviation; an instance norm in float16 over more than
    65504 elements; ``center=False``, ``scale=False``; axes of a layer norm that do not ascend; a
    negative channel axis of an instance norm; bfloat16 and float64.
Mechanism
    The variance is the difference of two sums, which cancel, and the mean a plain sum, whose
    rounding errors grow with the mean. The number of elements has the dtype of the data. Gamma
    and beta are always applied, both at the indices of the axes in ascending order. TVM's computes
    accept only float16 and float32.
"""

import math
from collections.abc import Callable, Sequence

from tvm import relax, te, tirx
from tvm.sym import Analyzer

from ...fixes.norms import NORM_VARIANCE as FIX_ID
from ...support import switches
from ...tirx.util import divides, is_zero, widened_bfloat16
from .override import Legalize, legalizes

_OPERATORS = ("relax.nn.layer_norm", "relax.nn.group_norm", "relax.nn.instance_norm")

Position = Sequence[tirx.Expr]

_sum_pairs = te.comm_reducer(
    lambda lhs, rhs: (lhs[0] + rhs[0], lhs[1] + rhs[1]),
    lambda first, second: (tirx.const(0, first), tirx.const(0, second)),
    name="sum_pairs",
)


def normalize(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    axes: list[int],
    parameter_axes: list[int],
    groups: int | None,
    epsilon: float,
    center: bool,
    scale: bool,
) -> te.Tensor:
    """Compute ``(x - mean) / sqrt(variance + epsilon) * gamma + beta``.

    Parameters
    ----------
    data : te.Tensor
        Floating-point data. Sums are in float32 or wider, and the result is rounded once.
    gamma, beta : te.Tensor
        Scale and offset; their axis ``k`` is the axis ``parameter_axes[k]`` of `data`.
    axes, parameter_axes : list of int
        Non-negative axes of `data`. Mean and variance are taken over `axes`.
    groups : int, optional
        The number of channel groups. Mean and variance are then also taken over the channels of a
        group; the number divides the extent of the only parameter axis.
    epsilon : float
        Added to the variance.
    center, scale : bool
        Whether to add `beta`, and whether to multiply by `gamma`.

    Returns
    -------
    te.Tensor
        The result, with the shape and the dtype of `data`.
    """
    group_axes = {} if groups is None else dict.fromkeys(parameter_axes, groups)
    standardized = _standardize(data, _Slices(list(data.shape), axes, group_axes), epsilon)

    def element(*position: tirx.Var) -> tirx.Expr:
        centered, factor = standardized(position)
        index = [position[axis] for axis in parameter_axes]
        if scale:
            factor *= _widened(gamma, index)
        result = centered * factor
        if center:
            result += _widened(beta, index)
        return result.astype(data.dtype)

    return te.compute(data.shape, element, name="normalized")


class _Slices:
    """The slices of a tensor whose elements share a mean and a variance.

    A slice spans `axes` in full; along each axis in `groups` it spans one of that number of groups.
    """

    def __init__(self, shape: list[tirx.Expr], axes: list[int], groups: dict[int, int]) -> None:
        simplify = Analyzer().simplify
        self._sizes = {a: simplify(tirx.floordiv(shape[a], count)) for a, count in groups.items()}
        averaged = {axis: shape[axis] for axis in axes} | self._sizes
        self._averaged = dict(sorted(averaged.items()))
        self._kept = [axis for axis in range(len(shape)) if axis not in axes]
        self.shape = [groups.get(axis, shape[axis]) for axis in self._kept]
        # An empty slice has no mean: do not divide by a count of 0.
        is_empty = any(map(is_zero, averaged.values()))
        extents = [] if is_empty else averaged.values()
        self.count = math.prod(extents, start=tirx.const(1, "int64"))

    def members(self, at: Position) -> tuple[Position, list[tirx.IterVar]]:
        """The position of the elements of the slice `at`, and the reduction axes in it."""
        index, along = dict(zip(self._kept, at, strict=True)), []
        for axis, extent in self._averaged.items():
            along.append(te.reduce_axis((0, extent), f"k{axis}"))
            start = index[axis] * self._sizes[axis] if axis in self._sizes else 0
            index[axis] = start + along[-1].var
        # A reduction needs an axis, even over a single element.
        return [index[axis] for axis in sorted(index)], along or [te.reduce_axis((0, 1), "k")]

    def index_of(self, position: Position) -> list[tirx.Expr]:
        """The index of the slice that contains the element at `position`."""
        return [
            tirx.floordiv(position[axis], self._sizes[axis])
            if axis in self._sizes
            else position[axis]
            for axis in self._kept
        ]


def _standardize(
    data: te.Tensor, slices: _Slices, epsilon: float
) -> Callable[[Position], tuple[tirx.Expr, tirx.Expr]]:
    """Return a function from a position to the centered element and the reciprocal deviation.

    Two passes over the data, as in the corrected two-pass algorithm (Chan, Golub and LeVeque,
    Algorithms for Computing the Sample Variance, The American Statistician 37, 1983): one sums the
    elements, the other their differences from the mean, and the squares of these. The differences
    would sum to 0 if the mean were exact; their sum corrects its rounding. So the error does not
    grow with the mean, unless the rounding of the mean is as large as the deviation.
    """

    def mean_of(total: te.Tensor, name: str) -> te.Tensor:
        count = slices.count.astype(total.dtype)
        return te.compute(slices.shape, lambda *at: total(*at) / count, name=name)

    def sum_elements(*at: tirx.Var) -> tirx.Expr:
        position, along = slices.members(at)
        return te.sum(_widened(data, position), along)

    def sum_differences(*at: tirx.Var) -> tuple[tirx.Expr, tirx.Expr]:
        position, along = slices.members(at)
        difference = _widened(data, position) - mean(*at)
        return _sum_pairs((difference, difference * difference), along)

    def reciprocal_of_deviation(*at: tirx.Var) -> tirx.Expr:
        variance = mean_square(*at) - correction(*at) * correction(*at)
        zero = tirx.const(0, mean.dtype)
        # For equal elements, rounding may make it negative. A Select keeps NaN, unlike a maximum.
        variance = tirx.Select(variance < zero, zero, variance)
        return tirx.rsqrt(variance + tirx.const(epsilon, mean.dtype))

    mean = mean_of(te.compute(slices.shape, sum_elements, name="total"), "mean")
    differences, squares = te.compute(slices.shape, sum_differences, name="differences")
    correction, mean_square = mean_of(differences, "correction"), mean_of(squares, "mean_square")
    reciprocal = te.compute(slices.shape, reciprocal_of_deviation, name="reciprocal_of_deviation")

    def standardized(position: Position) -> tuple[tirx.Expr, tirx.Expr]:
        at = slices.index_of(position)
        return _widened(data, position) - mean(*at) - correction(*at), reciprocal(*at)

    return standardized


def _widened(tensor: te.Tensor, position: Position) -> tirx.Expr:
    """The element of `tensor` at `position`, in the dtype of the sums."""
    value = tensor(*position)
    if tensor.dtype == "bfloat16":
        # In a reduction to a pair, TVM does not lower a cast of bfloat16, but reads its bits as
        # integers.
        return widened_bfloat16(value)
    return value if tensor.dtype == "float64" else value.astype("float32")


@legalizes(*_OPERATORS)
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    if not switches.enabled(FIX_ID):
        return stock(bb, call)
    switches.note(FIX_ID)
    name, attrs = call.op.name.rpartition(".")[2], call.attrs
    data, gamma, beta = call.args
    axes = [int(axis) % data.ty.ndim for axis in attrs.axes]
    parameter_axes = axes if name == "layer_norm" else [int(attrs.channel_axis) % data.ty.ndim]
    groups = int(attrs.num_groups) if name == "group_norm" else None
    return bb.call_te(
        normalize,
        data,
        gamma if groups is None else _check_groups(bb, gamma, groups),
        beta,
        axes,
        parameter_axes,
        groups,
        float(attrs.epsilon),
        bool(attrs.center),
        bool(attrs.scale),
        primfunc_name_hint=name,
    )


def _check_groups(bb: relax.BlockBuilder, vector: relax.Expr, groups: int) -> relax.Expr:
    """Check at run time that `groups` divides the extent of `vector`, unless that is proven.

    The type rule does not check symbolic channels; the kernel would read out of bounds.
    """
    (channels,) = vector.ty.shape.values
    if divides(groups, channels):
        return vector
    whole = tirx.floordiv(channels, groups) * groups
    return bb.match_cast(vector, relax.TensorType([whole], vector.ty.dtype, vector.ty.vdevice))
