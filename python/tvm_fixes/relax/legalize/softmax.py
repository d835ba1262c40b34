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
"""Lowering of softmax: sums of 16-bit floats in float32, and one division per row."""

from collections.abc import Sequence

from tvm import relax, te, tirx

from ...fixes.elements import SOFTMAX_LEGALIZE as FIX_ID
from ...support import switches
from ...support.dtypes import accumulation_dtype
from ...tirx.util import is_zero
from .override import Legalize, legalizes
from .targets import target_of


def softmax(data: te.Tensor, axis: int) -> te.Tensor:
    """Compute the softmax of `data` along `axis`.

    Parameters
    ----------
    data : te.Tensor
        Floating-point data.
    axis : int
        A non-negative axis.

    Returns
    -------
    te.Tensor
        The softmax, in the dtype of `data`: all NaN for a row with a NaN, an infinity, or only
        negative infinities.
    """
    sum_dtype = accumulation_dtype(str(data.dtype))
    others = [extent for i, extent in enumerate(data.shape) if i != axis]

    def reduced_axis() -> tirx.IterVar:
        return te.reduce_axis((0, data.shape[axis]), "k")

    def within(at: Sequence[tirx.Expr], position: tirx.Expr) -> list[tirx.Expr]:
        return [*at[:axis], position, *at[axis:]]

    def without(at: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        return [*at[:axis], *at[axis + 1 :]]

    k = reduced_axis()
    largest = te.compute(
        others,
        lambda *at: te.max(data(*within(at, k.var)).astype(sum_dtype), axis=k),
        name="largest",
    )
    exponential = te.compute(
        data.shape,
        # The exponential of the largest element is 1, so none overflows.
        lambda *at: te.exp(data(*at).astype(sum_dtype) - largest(*without(at))),
        name="exponential",
    )
    j = reduced_axis()
    total = te.compute(
        others, lambda *at: te.sum(exponential(*within(at, j.var)), axis=j), name="total"
    )
    one = tirx.const(1, sum_dtype)
    # The sum is between 1 and the number of elements, so the reciprocal costs only one rounding.
    reciprocal = te.compute(others, lambda *at: one / total(*at), name="reciprocal")
    return te.compute(
        data.shape,
        lambda *at: (exponential(*at) * reciprocal(*without(at))).astype(data.dtype),
        name="softmax",
    )


@legalizes("relax.nn.softmax")
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    (data,) = call.args
    is_supported = (
        switches.enabled(FIX_ID)
        and isinstance(data.ty.shape, relax.ShapeExpr)
        and "float8" not in str(data.ty.dtype)
        and not any(map(is_zero, data.ty.shape))
        and target_of(call) is not None
    )
    if not is_supported:
        return stock(bb, call)
    switches.note(FIX_ID)
    axis = int(call.attrs.axis) % len(data.ty.shape.values)
    return bb.call_te(softmax, data, axis, primfunc_name_hint="softmax")
