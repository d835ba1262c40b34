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
"""Deformable convolutions: each element of the kernel has an offset at each place."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from tvm import te, tirx

from ..tirx.util import count_of, unravel

__all__ = ["deformed_convolution"]


def deformed_convolution(
    kernel: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    offset_groups: int,
    has_bias: bool,
) -> Callable[..., te.Tensor]:
    """Return a function for ``emit_te``.

    Its operands are data, weight, offsets, a bias with `has_bias`, and perhaps a mask, all in one
    floating-point dtype.  Elements outside of the data are 0.

    Parameters
    ----------
    kernel, strides, dilations : sequence of int
        Of each spatial axis.
    pads : sequence of int
        Before each spatial axis.
    groups, offset_groups : int
        The numbers of groups of channels, and of groups with the same offsets.
    has_bias : bool
        Whether there is a bias.
    """
    rank, extents = len(kernel), [tirx.const(extent, "int64") for extent in kernel]
    size = int(count_of(extents))

    def convolved(*tensors: te.Tensor) -> te.Tensor:
        x, w, offset, *rest = tensors
        bias = rest.pop(0) if has_bias else None
        mask = rest[0] if rest else None
        per_offset = int(x.shape[1]) // offset_groups
        shape = offset.shape[2:]

        def sampled(n: tirx.Var, c: tirx.Var, k: tirx.Var, *at: tirx.Var) -> tirx.Expr:
            group = tirx.floordiv(c, per_offset) * size + k
            steps = unravel(k, extents)
            places = [
                (at[a] * strides[a] - pads[a] + steps[a] * dilations[a]).astype(str(x.dtype))
                + offset(n, group * rank + a, *at)
                for a in range(rank)
            ]
            value = _interpolated(x, (n, c), places)
            return value if mask is None else value * mask(n, group, *at)

        columns = te.compute((x.shape[0], x.shape[1], size, *shape), sampled, name="columns")
        c, k = te.reduce_axis((0, w.shape[1])), te.reduce_axis((0, size))
        out_per_group = int(w.shape[0]) // groups

        def element(n: tirx.Var, o: tirx.Var, *at: tirx.Var) -> tirx.Expr:
            channel = tirx.floordiv(o, out_per_group) * w.shape[1] + c.var
            steps = unravel(k.var, extents)
            return te.sum(columns(n, channel, k, *at) * w(o, c, *steps), axis=[c, k])

        sums = te.compute((x.shape[0], w.shape[0], *shape), element, name="deform_conv")
        if bias is None:
            return sums
        return te.compute(sums.shape, lambda n, o, *at: sums(n, o, *at) + bias(o), name="biased")

    return convolved


def _interpolated(
    x: te.Tensor, leading: tuple[tirx.Expr, tirx.Expr], places: Sequence[tirx.Expr]
) -> Any:
    """The linear interpolation of the elements around `places`; those outside of `x` are 0."""
    dtype = str(x.dtype)
    floors = [te.floor(place) for place in places]
    total = tirx.const(0, dtype)
    for corner in product((0, 1), repeat=len(places)):
        weight, at, inside = tirx.const(1, dtype), [], []
        for axis, high in enumerate(corner):
            rest = places[axis] - floors[axis]
            weight = weight * (rest if high else tirx.const(1, dtype) - rest)
            index = floors[axis] + tirx.const(high, dtype)
            extent = x.shape[2 + axis]
            # Compared as floats: an index that is far outside does not fit an integer.
            inside.append(index >= tirx.const(0, dtype))
            inside.append(index < extent.astype(dtype))
            at.append(index.astype("int64"))
        value = tirx.if_then_else(tirx.all(*inside), x(*leading, *at), tirx.const(0, dtype))
        total = total + value * weight
    return total
