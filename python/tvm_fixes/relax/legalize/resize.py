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
"""Operator fix: lower resizing to the nearest element, where it repeats each, to its repetition.

Versions
    Seen in 0.27.0.post1.
Trigger
    ``relax.image.resize2d`` or ``resize3d`` to the nearest element, of extents that grow by
    integers, as in the decoders of U-Nets.
Symptom
    Large integers and the last digits of float64 are lost silently.  On a CPU it takes three
    times as long as ONNX Runtime's.
Mechanism
    TVM's lowering reads the data as float32, at coordinates that are computed for each element.
How to remove
    When TVM passes the tests of this file, and ``make bench`` shows no difference, delete it, its
    test, its call in :mod:`tvm_fixes` and the fix id ``resize-legalize``.
"""

import functools
from collections.abc import Sequence

from tvm import relax, te, tirx

from ... import switches
from ..tir import factor_of
from .layouts import SPATIAL_AXES, Layout
from .override import Legalize, override

FIX_ID = "resize-legalize"

# Where each element is taken ``factor`` times: the coordinate of ``i`` is ``i / factor`` or half an
# element more, of which the floor is ``i // factor``, or less than half an element from that.
_REPEATS = {
    "asymmetric": ("floor",),
    "tf_half_pixel_for_nn": ("floor",),
    "half_pixel": ("round", "round_prefer_floor", "round_prefer_ceil"),
    "pytorch_half_pixel": ("round", "round_prefer_floor", "round_prefer_ceil"),
}


def repeats(coordinates: str, rounding: str) -> bool:
    """Whether an axis that grows by an integer repeats each of its elements.

    Parameters
    ----------
    coordinates, rounding : str
        As ``coordinate_transformation_mode`` and ``rounding_method`` of ``relax.image.resize2d``.
    """
    return rounding in _REPEATS.get(coordinates, ())


def repeat(data: te.Tensor, factors: Sequence[int]) -> te.Tensor:
    """Repeat each element along each axis.

    Parameters
    ----------
    data : te.Tensor
        Of any dtype.
    factors : sequence of int
        How often, for each axis.

    Returns
    -------
    te.Tensor
        Each extent is as many times as large.
    """

    def element(*index: tirx.Var) -> tirx.Expr:
        pairs = zip(index, factors, strict=True)
        return data(*(i if factor == 1 else tirx.floordiv(i, factor) for i, factor in pairs))

    shape = [extent * factor for extent, factor in zip(data.shape, factors, strict=True)]
    return te.compute(shape, element, name="resize")


def _factors(call: relax.Call) -> list[int] | None:
    """How often each element is repeated along each axis; None for another resizing."""
    data, attrs = call.args[0], call.attrs
    shapes = (data.ty.shape, call.ty.shape)
    is_repetition = (
        str(attrs.method) == "nearest_neighbor"
        and repeats(str(attrs.coordinate_transformation_mode), str(attrs.rounding_method))
        and str(call.ty.dtype) == str(data.ty.dtype)
        and all(isinstance(shape, relax.ShapeExpr) for shape in shapes)
    )
    if not is_repetition:
        return None
    factors: list[int] = []
    for letter, extent, out in zip(Layout(str(attrs.layout)).letters, *shapes, strict=True):
        factor = factor_of(out, extent) if letter in SPATIAL_AXES[3] else 1
        if factor is None:
            return None
        factors.append(factor)
    return factors


def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    factors = _factors(call) if switches.enabled(FIX_ID) else None
    if factors is None:
        return stock(bb, call)
    switches.note(FIX_ID)
    return bb.call_te(repeat, call.args[0], factors, primfunc_name_hint="resize")


@functools.cache
def register() -> None:
    """Put the lowering in force. A second call does nothing."""
    for rank in (2, 3):
        override(f"relax.image.resize{rank}d", _legalize)
