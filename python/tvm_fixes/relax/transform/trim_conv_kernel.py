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
"""TrimConvKernel: leave out the parts of a convolution's kernel that only meet padding.

Mechanism
    TVM pads the data, and multiplies all of the kernel with it.
"""

import tvm
from tvm import relax, tirx

from ...fixes.conv import TRIM_CONV_KERNEL as FIX_ID
from ..constants.make import rearranged
from ..guard import fix_pass
from ..ir import nn_call
from ..layouts import SPATIAL_AXES, Layout
from .fold_constant import changed_calls, rebind

_CONVOLUTIONS = {f"relax.nn.conv{rank}d": axes for rank, axes in SPATIAL_AXES.items()}


def TrimConvKernel() -> tvm.transform.Pass:
    """Leave out the rows and columns of a kernel that only meet padding.

    Before, for data of 14 x 14::

        y = R.nn.conv2d(x, w, padding=[24, 24, 24, 24], dilation=[24, 24])        # w: 3 x 3

    and after::

        y = R.nn.conv2d(x, w_center, dilation=[24, 24])                           # 1 x 1

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.  It skips axes of unknown extents, and kernels that
        are in blocks or no constants.  Run it after FoldPadIntoConv.

    Notes
    -----
    An infinite weight times a padded zero is NaN; such products are left out, too.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        builder = relax.BlockBuilder(mod)
        trimmed = changed_calls(mod, lambda call: _trimmed(builder, call))
        if not trimmed:
            return None
        return rebind(mod, trimmed)

    return fix_pass("TrimConvKernel", FIX_ID, rewrite)


def _trimmed(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """The convolution with a smaller kernel; None if all of its kernel meets data."""
    if not isinstance(call.op, tvm.ir.Op):
        return None
    axes = _CONVOLUTIONS.get(str(call.op.name))
    if axes is None:
        return None
    data, weight = call.args
    extents = data.ty.shape
    if not isinstance(extents, relax.ShapeExpr) or not isinstance(weight, tvm.ir.GenericConst):
        return None
    layout = Layout(str(call.attrs.data_layout))
    kernel_layout = Layout(str(call.attrs.kernel_layout))
    if layout.blocks or kernel_layout.blocks:
        return None
    padding = [int(width) for width in call.attrs.padding]
    first, last = [0] * len(kernel_layout.letters), [0] * len(kernel_layout.letters)
    for index, axis in enumerate(axes):
        place = kernel_layout.letters.index(axis)
        extent = extents.values[layout.letters.index(axis)]
        size = int(weight.ty.shape.values[place])
        if not isinstance(extent, tirx.IntImm):
            continue
        stride, dilation = int(call.attrs.strides[index]), int(call.attrs.dilation[index])
        margins = padding[index], padding[index + len(axes)]
        cut = _ends(int(extent), size, stride, dilation, margins)
        first[place], last[place] = cut
        padding[index] -= cut[0] * dilation
        padding[index + len(axes)] -= cut[1] * dilation
    if not any(first + last):
        return None
    parts = tuple(slice(a, -b if b else None) for a, b in zip(first, last, strict=True))
    smaller = rearranged(weight, lambda array: array[parts], "a convolution")
    return builder.normalize(nn_call(call, data, smaller, padding=padding))


def _ends(
    extent: int, size: int, stride: int, dilation: int, margins: tuple[int, int]
) -> tuple[int, int]:
    """The numbers of elements at both ends of an axis of the kernel that only meet padding.

    At most as many as leave no negative padding.
    """
    before, after = margins
    count = (extent + before + after - dilation * (size - 1) - 1) // stride + 1
    met = [
        element
        for element in range(size)
        if any(0 <= at * stride + element * dilation - before < extent for at in range(count))
    ]
    if not met:
        return 0, 0
    return min(met[0], before // dilation), min(size - 1 - met[-1], after // dilation)
