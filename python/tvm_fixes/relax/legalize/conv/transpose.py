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
"""Lowering of ``relax.nn.conv1d_transpose``, ``conv2d_transpose`` and ``conv3d_transpose``.

Trigger
    A call whose layouts are not NCHW for data and output, and IOHW for the kernel (in 2-D).
    ConvertLayout makes such calls, with and without blocked layouts (NCHW4c).
Mechanism
    TVM's lowering has a single TOPI compute for one layout. It writes the data to a buffer with
    zeros between its elements, pads that to a second buffer, flips the kernel at run time, and
    multiplies all those zeros.

This lowering gathers instead; :meth:`ConvTransposeAxis.gather` derives the indices. It neither
stores nor multiplies inserted zeros, so an infinite kernel element does not turn one into NaN.

Calls with unknown shapes go to TVM's function, which leaves them to external code generators. While
the fix is off, all calls go to TVM's function.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import tvm
from tvm import tirx
from tvm.sym import Analyzer

from ....fixes.conv import CONV_TRANSPOSE_LEGALIZE as FIX_ID
from ....tirx.util import divides
from ...layouts import SPATIAL_AXES
from .compute import SpatialAxis, kernel_layout
from .lower import Family, lower_family

__all__ = ["ConvTransposeAxis", "kernel_layout"]

_BinaryOp = Callable[[tirx.Expr, int], tirx.Expr]


@dataclass(frozen=True)
class ConvTransposeAxis(SpatialAxis):
    """A transposed convolution along one spatial axis."""

    output_padding: int

    @classmethod
    def of(cls, attrs: tvm.ir.Attrs, axis: int, **more: int) -> Self:
        return super().of(attrs, axis, output_padding=int(attrs.output_padding[axis]), **more)

    @property
    def phases(self) -> int:
        """The distance between outputs that read the same kernel elements."""
        return self.stride

    @property
    def period(self) -> int:
        """The distance between two kernel taps that contribute to the same output element."""
        return self.stride // math.gcd(self.stride, self.dilation)

    def out_extent(self, data: tirx.Expr, kernel: tirx.Expr) -> tirx.Expr:
        """The extent of the output for the extents of data and kernel.

        The formula is the same as in the type rule and in ``torch.nn.ConvTranspose2d``.
        """
        grown = (data - 1) * self.stride + self.dilation * (kernel - 1) + 1
        return grown - self.pad_before - self.pad_after + self.output_padding

    def tap_count(self, kernel: tirx.Expr) -> tirx.Expr:
        """The largest number of kernel elements that contribute to one output element."""
        return tirx.ceildiv(kernel, self.period)

    def has_whole_taps(self, kernel: tirx.Expr) -> bool:
        """Whether each tap of each output has a kernel element; `kernel` is the extent."""
        return math.gcd(self.stride, self.dilation) == 1 and divides(self.period, kernel)

    def reach(self, out: tirx.Expr, kernel: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        """The range of data that the first `out` outputs read, over all their taps."""
        # The bounds of x in :meth:`gather`, where k0 is less than the period.
        largest = 0 if self.dilation == 1 else (self.period - 1) * self.dilation
        step = self.dilation // math.gcd(self.stride, self.dilation)
        first = (self.pad_before - largest) // self.stride - (self.tap_count(kernel) - 1) * step
        last = tirx.floordiv(out - 1 + self.pad_before, self.stride)
        return -first, last - first + 1

    def gather(
        self,
        out: tirx.Var,
        tap: tirx.Var,
        data_extent: tirx.Expr | None,
        kernel_extent: tirx.Expr,
        analyzer: Analyzer,
    ) -> tuple[tirx.Expr, tirx.Expr, list[tirx.Expr]]:
        """The data and kernel elements that the `tap`-th tap of output `out` multiplies.

        As a scatter, data ``x`` times kernel ``k`` is added to output ``s*x + d*k - pad_before``,
        where ``s`` is the stride and ``d`` the dilation. As a gather, output ``out`` sums over all
        ``k`` with ``d*k = q (mod s)``, where ``q = out + pad_before``. Let ``g = gcd(s, d)``. If
        ``g`` does not divide ``q``, no ``k`` contributes. Otherwise the solutions are one residue
        class modulo ``P = s/g``: ``k = (q/g) * (d/g)^-1 (mod P)``. The ``tap``-th one is
        ``k0 + tap*P``, and its data element ``x = (q - d*k)/s`` is ``d/g`` before that of the
        previous tap.
        """
        stride, dilation, period = self.stride, self.dilation, self.period
        gcd = math.gcd(stride, dilation)
        inverse = pow(dilation // gcd, -1, period)
        position = out + self.pad_before

        def indices(div: _BinaryOp, mod: _BinaryOp) -> tuple[tirx.Expr, tirx.Expr]:
            first = mod(div(position, gcd) * inverse, period)
            # For dilation 1, both forms are equal, but TVM does not simplify the general one.
            reach = div(position if dilation == 1 else position - first * dilation, stride)
            data_index = analyzer.simplify(reach - tap * (dilation // gcd))
            return data_index, analyzer.simplify(first + tap * period)

        data_index, kernel_index = indices(tirx.floordiv, tirx.floormod)
        conditions = [tirx.floormod(position, gcd).equal(0), kernel_index < kernel_extent]
        if data_extent is not None:
            conditions += [data_index >= 0, data_index < data_extent]
        guards = [condition for condition in conditions if not analyzer.can_prove(condition)]
        # Truncation gives the same result: the only dividend that can be negative, position -
        # first*dilation, is a multiple of the stride where the guards hold. Layout.position
        # explains why to truncate.
        return *indices(tirx.truncdiv, tirx.truncmod), guards


_FAMILY = Family(
    fix_id=FIX_ID,
    operators={f"relax.nn.conv{rank}d_transpose": axes for rank, axes in SPATIAL_AXES.items()},
    grouped_axis="I",
    minimum={"strides": 1, "dilation": 1, "padding": 0, "output_padding": 0},
    spatial_axis=ConvTransposeAxis,
    applies=lambda _call: True,
)


lower_family(_FAMILY)
