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
"""Convolutions and transposed convolutions.

Mechanism
    The converters pass ``out_dtype="float32"`` for operands of any dtype; none emits
    ``conv3d_transpose`` or expands an unbatched operand.
"""

from typing import Any

from tvm import relax

from ....fixes.torch_importer import CONV_TRANSPOSE, DECOMPOSITIONS, DTYPE
from ....support import switches
from ..call import Call, converts
from ..values.operands import dtypes, integers

_CONV = tuple(f"conv{rank}d.default" for rank in (1, 2, 3))
_PADDED = tuple(f"conv{rank}d.padding" for rank in (1, 2, 3))
_TRANSPOSED = ("conv_transpose1d.default", "conv_transpose2d.input")


@converts(
    *_CONV, *_PADDED, *_TRANSPOSED, "conv_transpose3d.input", place="rank 0", fix=CONV_TRANSPOSE
)
def convert_unbatched(call: Call) -> relax.Expr:
    """Convert a convolution of one image as a batch of one."""
    x, weight, *others = call.operands
    if x.ty.ndim != weight.ty.ndim - 1:
        return call.proceed()
    switches.note(CONV_TRANSPOSE)
    x = call.emit(relax.op.expand_dims(x, 0))
    out = call.with_operands(x, weight, *others).proceed()
    return call.emit(relax.op.squeeze(out, [0]))


@converts(*_CONV, *_TRANSPOSED, fix=DTYPE)
@converts(*_PADDED, "conv_transpose3d.input", fix=CONV_TRANSPOSE)
def convert_conv(call: Call) -> relax.Expr:
    """Convert a convolution, perhaps transposed, or with the padding ``"same"`` or ``"valid"``."""
    is_transposed = call.operator.startswith("conv_transpose")
    options = {"stride": 1, "padding": 0}
    if is_transposed:
        options |= {"output_padding": 0, "groups": 1, "dilation": 1}
    else:
        options |= {"dilation": 1, "groups": 1}
    x, weight, bias, *values = call.arguments(input=None, weight=None, bias=None, **options)
    attributes = dict(zip(options, values, strict=True))
    if isinstance(attributes["padding"], str):
        switches.note(CONV_TRANSPOSE)
        attributes["padding"] = _widths(weight, attributes["padding"], attributes["dilation"])
    return _emit_conv(call, x, weight, bias, is_transposed=is_transposed, **attributes)


@converts("convolution.default")
def convert_convolution(call: Call) -> relax.Expr:
    """Convert the operator into which PyTorch decomposes all convolutions."""
    x, weight, bias, stride, padding, dilation, is_transposed, output_padding, groups = (
        call.operands
    )
    fix = CONV_TRANSPOSE if is_transposed and x.ty.ndim == 5 else DTYPE
    if not switches.enabled(fix):
        return call.proceed()
    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if is_transposed:
        attributes["output_padding"] = output_padding
    return _emit_conv(call, x, weight, bias, is_transposed=is_transposed, **attributes)


@converts("conv_tbc.default", fix=DECOMPOSITIONS, noted=True)
def convert_conv_tbc(call: Call) -> relax.Expr:
    """Convert a convolution over time, of data with the axes (time, batch, channels)."""
    x, weight, bias, padding = call.arguments(input=None, weight=None, bias=None, pad=0)
    x = call.emit(relax.op.permute_dims(x, [1, 2, 0]))
    weight = call.emit(relax.op.permute_dims(weight, [2, 1, 0]))
    attributes = {"stride": 1, "padding": padding, "dilation": 1, "groups": 1}
    out = _emit_conv(call, x, weight, bias, is_transposed=False, **attributes)
    return call.emit(relax.op.permute_dims(out, [2, 0, 1]))


def _widths(weight: relax.Expr, padding: str, dilation: Any) -> list[int]:
    """The widths of a padding at the front of each axis, then those at the back."""
    kernel = [int(extent) for extent in weight.ty.shape.values[2:]]
    steps = integers("conv", "dilation", dilation, len(kernel))
    totals = [d * (k - 1) if padding == "same" else 0 for d, k in zip(steps, kernel, strict=True)]
    return [total // 2 for total in totals] + [total - total // 2 for total in totals]


def _emit_conv(
    call: Call,
    x: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    *,
    is_transposed: bool,
    stride: Any,
    padding: Any,
    groups: int,
    **attributes: Any,
) -> relax.Expr:
    """Emit a convolution of the weight's rank and of any dtype."""
    rank = weight.ty.ndim - 2
    if is_transposed and rank == 3:
        switches.note(CONV_TRANSPOSE)
    elif not switches.enabled(DTYPE):
        name = f"_conv_transpose{rank}d_impl" if is_transposed else f"_conv{rank}d_impl"
        convert = getattr(call.context.importer, name)
        attributes |= {"strides": stride, "padding": padding, "groups": groups}
        result: relax.Expr = convert(x, weight, bias, **attributes)
        return result
    op = getattr(relax.op.nn, f"conv{rank}d_transpose" if is_transposed else f"conv{rank}d")
    spatial_axes = "DHW"[-rank:]
    # Padding has one element per axis, or one per end of each axis.
    ends = 2 * rank if isinstance(padding, list) and len(padding) == 2 * rank else rank
    dtype, sum_dtype = dtypes(x)
    attributes["strides"] = stride
    out = call.emit(
        op(
            x,
            weight,
            **{k: integers(op.__name__, k, v, rank) for k, v in attributes.items()},
            padding=integers(op.__name__, "padding", padding, ends),
            groups=groups,
            data_layout="NC" + spatial_axes,
            kernel_layout=("IO" if is_transposed else "OI") + spatial_axes,
            out_dtype=sum_dtype,
        )
    )
    if bias is not None:
        bias = relax.op.reshape(call.astype(bias, sum_dtype), (1, -1) + (1,) * rank)
        out = call.emit(relax.op.add(out, bias))
    return call.astype(out, dtype)
