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
"""Padding of Conv and ConvTranspose.

Trigger
    A ConvTranspose with ``output_shape``, or with a ``kernel_shape`` other than its weight's. A
    Conv with ``auto_pad`` SAME_UPPER or SAME_LOWER.
Mechanism
    The converter of ConvTranspose reads ``pads`` or ``auto_pad``, and never ``output_shape``. The
    converter of Conv computes pads with NumPy, which evaluates a symbolic comparison as a bool, and
    emits the padding as a TIR call although the operator has an attribute for it.
"""

from dataclasses import dataclass
from typing import Self

from tvm import relax, topi

from ....fixes.onnx_importer import CONV_AUTO_PAD, CONV_TRANSPOSE_OUTPUT_SHAPE
from ....support import switches
from ..call import Call, Extent, converts, extents_of
from .auto_pad import AUTO_PADS, halves, same_count, same_pads
from .shape_operands import require

__all__ = ["pad_conv"]


@dataclass(frozen=True)
class _Window:
    """How the kernel moves over X; each list has one element per spatial axis.

    `channels` is the extent of axis 1 of X, `weight_channels` the extent of axis 0 of W.
    An extent is None if the shape of its operand is unknown.
    """

    channels: Extent | None
    weight_channels: Extent | None
    extents: list[Extent | None]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    auto_pad: str

    @property
    def spans(self) -> list[int]:
        """The extents of the dilated kernel."""
        return [d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True)]

    @classmethod
    def of(cls, call: Call) -> Self:
        """Read the window from the attributes and operands of `node`.

        Raises
        ------
        tvm.error.OpAttributeInvalid
            If the operands do not have the same rank from 3 to 5, the length of an attribute is not
            the number of spatial axes, a value is out of range, ``kernel_shape`` differs from the
            weight's, or both ``pads`` and ``auto_pad`` are set.
        """
        ranks = [value.ty.ndim for value in call.operands[:2]]
        if ranks[0] not in (3, 4, 5) or ranks[0] != ranks[1]:
            reason = "expected both from 3 to 5 and equal (-1 is unknown)"
            raise call.invalid("ranks of X and W", ranks, reason)
        rank = ranks[0] - 2
        data, weight = (extents_of(value) or [None] * (rank + 2) for value in call.operands[:2])
        auto_pad = call.text("auto_pad", "NOTSET")
        if auto_pad not in AUTO_PADS:
            raise call.invalid("attribute auto_pad", auto_pad, f"expected one of {AUTO_PADS}")
        pads = _integers(call, "pads", 2 * rank, 0, at_least=0)
        if auto_pad != "NOTSET" and any(pads):
            raise call.invalid(
                "attribute pads", pads, f"expected no padding with auto_pad {auto_pad} (ONNX)"
            )
        return cls(
            channels=data[1],
            weight_channels=weight[0],
            extents=data[2:],
            kernel=_kernel(call, weight[2:]),
            strides=_integers(call, "strides", rank, 1, at_least=1),
            dilations=_integers(call, "dilations", rank, 1, at_least=1),
            auto_pad=auto_pad,
        )


def _integers(call: Call, attribute: str, count: int, default: int, at_least: int) -> list[int]:
    values = list(call.attributes.get(attribute, [default] * count))
    if len(values) != count:
        reason = f"expected {count} elements for {call.operands[0].ty.ndim - 2} spatial axes"
        raise call.invalid(f"attribute {attribute}", values, reason)
    if min(values) < at_least:
        raise call.invalid(f"attribute {attribute}", values, f"expected at least {at_least}")
    return values


def _kernel(call: Call, weight: list[Extent | None]) -> list[int]:
    """The extents of the kernel, from ``kernel_shape`` or else from the weight, if it is static."""
    given = call.attributes.get("kernel_shape")
    if given is None:
        if not all(isinstance(extent, int) for extent in weight):
            reason = "expected the attribute kernel_shape or static extents"
            raise call.invalid("shape of W", call.operands[1].ty.shape, reason)
        return [extent for extent in weight if isinstance(extent, int)]
    matches = len(given) == len(weight) and all(
        not isinstance(extent, int) or extent == expected
        for extent, expected in zip(weight, given, strict=True)
    )
    if not matches:
        reason = f"expected the extents of W, {weight}"
        raise call.invalid("attribute kernel_shape", list(given), reason)
    return list(given)


@converts("ConvTranspose", place="operands", fix=CONV_TRANSPOSE_OUTPUT_SHAPE)
def pad_conv_transpose(call: Call) -> relax.Expr:
    """Convert a ConvTranspose with its ``output_shape`` resolved to ``pads``.

    The total padding of an axis is the number of elements by which the transposed convolution
    exceeds ``output_shape``; :func:`.auto_pad.halves` splits it. If the convolution has fewer
    elements, output padding adds the missing ones, as in ONNX Runtime.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        As :meth:`_Window.of`. Also if the number of channels of X differs from that of W or is not
        a multiple of ``group``; if ``output_shape`` is not positive or does not have one element
        per spatial axis; if it is set and a spatial dim of X is symbolic; or if the output padding,
        given or needed, is not less than max(stride, dilation).
    """
    window = _Window.of(call)
    _check_channels(call, window.channels, window.weight_channels)
    rank = len(window.extents)
    output_padding = _integers(call, "output_padding", rank, 0, at_least=0)
    limits = [max(s, d) for s, d in zip(window.strides, window.dilations, strict=True)]
    if any(p >= limit for p, limit in zip(output_padding, limits, strict=True)):
        reason = f"expected less than max(stride, dilation), {limits}"
        raise call.invalid("attribute output_padding", output_padding, reason)
    if "output_shape" not in call.attributes:
        return call.proceed()

    switches.note(CONV_TRANSPOSE_OUTPUT_SHAPE)
    target = _integers(call, "output_shape", rank, 0, at_least=1)
    totals = []
    for axis, extent in enumerate(window.extents):
        if not isinstance(extent, int):
            reason = f"expected X with static spatial dimensions, got {call.operands[0].ty.shape}"
            raise call.invalid("attribute output_shape", target, reason)
        unpadded = window.strides[axis] * (extent - 1) + window.spans[axis] + output_padding[axis]
        totals.append(max(unpadded - target[axis], 0))
        output_padding[axis] += max(target[axis] - unpadded, 0)
        if output_padding[axis] >= limits[axis]:
            raise call.invalid(
                "attribute output_shape",
                target,
                f"on spatial axis {axis} it needs an output padding of {output_padding[axis]}, "
                f"expected less than max(stride, dilation) = {limits[axis]}",
            )
    sides = zip(*(halves(total, window.auto_pad) for total in totals), strict=True)
    return call.with_attributes(
        removed=("output_shape", "auto_pad"),
        pads=[pad for side in sides for pad in side],
        output_padding=output_padding,
    ).proceed()


def _check_channels(call: Call, channels: Extent | None, expected: Extent | None) -> None:
    group = call.attributes.get("group", 1)
    if not isinstance(channels, int) or not isinstance(expected, int):
        return
    if channels != expected:
        raise call.invalid(
            "number of channels of X", channels, f"expected the channels of W, {expected}"
        )
    if group < 1 or channels % group != 0:
        reason = f"expected a divisor of the number of channels of X, {channels}"
        raise call.invalid("attribute group", group, reason)


@converts("Conv", place="operands", fix=CONV_AUTO_PAD)
def pad_conv(call: Call) -> relax.Expr:
    """Convert a Conv with ``auto_pad`` SAME resolved to ``pads``, or with padded data.

    An axis of the output has ``ceil(extent / stride)`` elements (ONNX operator specification).

    Raises
    ------
    tvm.error.OpAttributeInvalid
        As :meth:`_Window.of`; or if the kernel is longer than the padded data.  If the last check
        depends on symbols, the model does it at run time.
    """
    window = _Window.of(call)
    if window.auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        _require_data(call, window)
        return call.proceed()

    switches.note(CONV_AUTO_PAD)
    sides = []
    for extent, stride, span in zip(window.extents, window.strides, window.spans, strict=True):
        pads = same_pads(extent, stride, span, window.auto_pad)
        if pads is None:
            reason = "expected X of known shape, or strides of 1"
            raise call.invalid("attribute auto_pad", window.auto_pad, reason)
        sides.append(pads)
    before, after = ([side[place] for side in sides] for place in (0, 1))
    if all(isinstance(pad, int) for pad in (*before, *after)):
        return call.with_attributes(removed=("auto_pad",), pads=[*before, *after]).proceed()

    data, *others = call.operands
    data = call.builder.emit_te(topi.nn.pad, data, [0, 0, *before], [0, 0, *after])
    call = call.with_attributes(removed=("auto_pad",)).with_operands(data, *others)
    out = call.builder.normalize(call.proceed())
    # The inferred extents equal these, but are too complex for later operators to compare.
    counts = [
        declared if isinstance(pad, int) else same_count(extent, stride)
        for declared, pad, extent, stride in zip(
            out.ty.shape.values[2:], before, window.extents, window.strides, strict=True
        )
    ]
    shape = [*out.ty.shape.values[:2], *counts]
    return call.builder.match_cast(out, relax.TensorType(shape, out.ty.dtype))


def _require_data(call: Call, window: _Window) -> None:
    """Reject data shorter than the kernel: it has no windows."""
    rank = len(window.extents)
    pads = _integers(call, "pads", 2 * rank, 0, at_least=0)
    for axis, (extent, span) in enumerate(zip(window.extents, window.spans, strict=True)):
        min_extent = span - pads[axis] - pads[axis + rank]
        if extent is not None and min_extent > 1:
            reason = f"expected at least {min_extent} elements on spatial axis {axis}"
            require(call, extent >= min_extent, "shape of X", window.extents, reason)
