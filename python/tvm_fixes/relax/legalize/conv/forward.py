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
"""Lowering of ``relax.nn.conv1d``, ``conv2d`` and ``conv3d`` where TVM's is missing, wrong or slow.

Trigger
    A call with a blocked layout (NCHW4c, OIHW4i4o), with different layouts of data and output, or
    with spatial axes out of the order D, H, W (NCWH, OIWH); 16-bit floats; for a CPU, any call with
    eight or more output channels per group, with one group and many products per sum, or with
    several groups and unstrided innermost columns.
Mechanism
    TVM does not lower the first two. It applies strides, paddings and dilations in the order of the
    axes in the layout, and pairs data and kernel axes in the same way. It rounds data and kernel to
    the dtype of the output, multiplies, and sums in that dtype. It computes one output element
    after the other, without a loop that LLVM could vectorize.

TVM's function gets all other calls: 16-bit ones that are not known to be for a CPU, since TVM has
schedules for its own form; those with a blocked layout for Adreno, which TVM lowers; and all calls
while the fix is off.
"""

import math
from dataclasses import dataclass

from tvm import relax, tirx
from tvm.sym import Analyzer

from ....fixes.conv import CONV_LEGALIZE as FIX_ID
from ...layouts import SPATIAL_AXES, Layout
from ..targets import schedules_for_cpu, target_of
from .compute import SpatialAxis
from .cpu_columns import MAX_STRIDE
from .lower import Family, lower_family

# With this many products per sum, padding few output channels with zeros to a vector pays off.
_MIN_PRODUCTS = 32


@dataclass(frozen=True)
class ConvAxis(SpatialAxis):
    """A forward convolution along one spatial axis."""

    def out_extent(self, data: tirx.Expr, kernel: tirx.Expr) -> tirx.Expr:
        """The extent of the output for the extents of data and kernel."""
        room = data + self.pad_before + self.pad_after - self.dilation * (kernel - 1) - 1
        return tirx.floordiv(room, self.stride) + 1

    def tap_count(self, kernel: tirx.Expr) -> tirx.Expr:
        """The number of kernel elements that contribute to an output element."""
        return kernel

    def reach(self, out: tirx.Expr, kernel: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        """The range of data that the first `out` outputs read, over all their taps."""
        return self.pad_before, (out - 1) * self.stride + (kernel - 1) * self.dilation + 1

    def gather(
        self,
        out: tirx.Var,
        tap: tirx.Var,
        data_extent: tirx.Expr | None,
        _kernel_extent: tirx.Expr,
        analyzer: Analyzer,
    ) -> tuple[tirx.Expr, tirx.Expr, list[tirx.Expr]]:
        """The data and kernel elements that the `tap`-th tap of output `out` multiplies."""
        position = out * self.stride + tap * self.dilation - self.pad_before
        data_index = analyzer.simplify(position)
        if data_extent is None:
            return data_index, tap, []
        conditions = [data_index >= 0, data_index < data_extent]
        guards = [condition for condition in conditions if not analyzer.can_prove(condition)]
        return data_index, tap, guards


def _applies(call: relax.Call) -> bool:
    """Whether TVM does not lower `call`, or computes it wrongly or much more slowly."""
    attrs = call.attrs
    layouts = [Layout(attrs.data_layout), Layout(attrs.kernel_layout), Layout(attrs.out_layout)]
    if any(layout.blocks for layout in layouts):
        # TVM's pipeline for Adreno lowers these itself, after all other operators.
        target = target_of(call)
        return target is None or "adreno" not in target.keys
    if attrs.data_layout != attrs.out_layout:
        return True
    for layout in layouts:
        spatial = [letter for letter in layout.plain if letter in "DHW"]
        if spatial != sorted(spatial):
            return True
    if not schedules_for_cpu(call):
        return False
    if str(call.ty.dtype) in ("float16", "bfloat16"):
        return True
    return _suits_vectors_of_columns(call) or _suits_vectors_of_channels(call)


def _suits_vectors_of_columns(call: relax.Call) -> bool:
    """Whether to vectorize the columns of small groups; with large strides LLVM does better."""
    attrs = call.attrs
    return int(attrs.groups) > 1 and int(attrs.strides[-1]) <= MAX_STRIDE


def _suits_vectors_of_channels(call: relax.Call) -> bool:
    """Whether vectors of channels pay off; otherwise LLVM vectorizes along W."""
    groups = int(call.attrs.groups)
    kernel = Layout(call.attrs.kernel_layout).extents(list(call.args[1].ty.shape.values))
    channels = Analyzer().simplify(tirx.floordiv(kernel.pop("O"), groups))
    if not isinstance(channels, tirx.IntImm):
        return False
    if groups > 1 and channels.value == 1 and call.attrs.data_layout[-1] == "C":
        return True
    products = math.prod(e.value for e in kernel.values() if isinstance(e, tirx.IntImm))
    return channels.value >= 8 or (groups == 1 and products >= _MIN_PRODUCTS)


_FAMILY = Family(
    fix_id=FIX_ID,
    operators={f"relax.nn.conv{rank}d": axes for rank, axes in SPATIAL_AXES.items()},
    grouped_axis="O",
    minimum={"strides": 1, "dilation": 1, "padding": 0},
    spatial_axis=ConvAxis,
    applies=_applies,
)


lower_family(_FAMILY)
