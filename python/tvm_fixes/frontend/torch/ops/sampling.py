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
"""Average pooling and grid sampling of PyTorch.

Mechanism
    The converter of poolings does not read ``divisor_override``; TVM's ``grid_sample`` expects
    the axis of the coordinates before the spatial axes, but PyTorch has it last.
"""

import math

from tvm import relax

from ....errors import OpAttributeInvalid
from ....fixes.torch_importer import GRID_SAMPLE, POOLING
from ....relax.legalize.pool_ceil_mode import ends_rounded_up
from ....support import switches
from ...dtypes import accumulation_dtype, dtype_of
from ..call import Call, converts

_METHODS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


@converts("avg_pool2d.default", "avg_pool3d.default", fix=POOLING)
def convert_avg_pool(call: Call) -> relax.Expr:
    """Convert an average pooling, also by a divisor."""
    x, kernel, stride, padding, ceil_mode, count_include_pad, divisor = call.arguments(
        input=None,
        kernel_size=None,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    )
    rank = 2 if call.operator.startswith("avg_pool2d") else 3
    stock = getattr(call.context.importer, f"_avg_pool{rank}d_impl")
    if divisor is None:
        return call.builder.normalize(
            stock(x, kernel, stride, padding, ceil_mode, count_include_pad)
        )
    switches.note(POOLING)
    dtype = dtype_of(x)
    if "float" not in dtype:
        raise OpAttributeInvalid(
            f"{call.where}: attribute divisor_override is {divisor} for "
            f"{dtype}; expected a floating-point dtype"
        )
    kernel, padding = (
        [value] * rank if isinstance(value, int) else list(value) * (rank // len(value))
        for value in (kernel, padding)
    )
    stride = list(stride if isinstance(stride, list | tuple) else [stride] * rank) or kernel
    stride = kernel if stride[0] is None else stride * (rank // len(stride))
    inner = accumulation_dtype(dtype)
    padded = call.astype(x, inner)
    ends = ends_rounded_up(padding, stride, kernel) if ceil_mode else list(padding)
    # With explicit zero padding, all windows average the same number of elements.
    widths = [0, 0] * (x.ty.ndim - rank)
    widths += [width for pair in zip(padding, ends, strict=True) for width in pair]
    padded = call.emit(relax.op.nn.pad(padded, widths)) if any(widths) else padded
    mean = call.emit(stock(padded, kernel, stride, 0, False, True))
    scale = relax.const(math.prod(kernel) / divisor, inner)
    return call.astype(call.emit(relax.op.multiply(mean, scale)), dtype)


@converts("grid_sampler_2d.default", "grid_sampler_3d.default", fix=GRID_SAMPLE, noted=True)
def convert_grid_sampler(call: Call) -> relax.Expr:
    """Convert ATen's ``grid_sampler_2d`` and ``grid_sampler_3d``."""
    x, grid, method, padding, align_corners = call.operands
    rank = x.ty.ndim - 2
    dtype = dtype_of(x)
    # Like PyTorch, compute the coordinates in the accumulation dtype.
    inner = accumulation_dtype(dtype)
    emit = call.emit
    axes = [0, rank + 1, *range(1, rank + 1)]
    grid = emit(relax.op.permute_dims(call.astype(grid, inner), axes))
    out = emit(
        relax.op.image.grid_sample(
            call.astype(x, inner),
            grid,
            method=_METHODS[method],
            layout={2: "NCHW", 3: "NCDHW"}[rank],
            padding_mode=_PADDINGS[padding],
            align_corners=align_corners,
        )
    )
    return call.astype(out, dtype)
