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
"""Transposed convolutions as convolutions whose channels are all phases of the output.

Along an axis, the outputs at ``stride * x + p`` are phase ``p``.  They read every ``stride``-th
element of the kernel: see :mod:`.legalize.conv.phases`.
"""

import math
from dataclasses import dataclass
from typing import Self

import tvm
from tvm import relax, tirx

from .layouts import Layout


@dataclass(frozen=True)
class PhasedAxis:
    """The convolution of all phases along one spatial axis.

    Attributes
    ----------
    stride : int
        The number of phases.
    taps : int
        The extent of its kernel.
    pad_before, pad_after : int
        The padding of its data.
    begin : int
        The position of the first output among the interleaved phases.
    """

    stride: int
    taps: int
    pad_before: int
    pad_after: int
    begin: int

    @classmethod
    def of(cls, attrs: tvm.ir.Attrs, axis: int, kernel: int, stride: int | None = None) -> Self:
        """Spatial axis `axis` of a transposed convolution without dilation.

        Parameters
        ----------
        attrs : Attrs
            The attributes of the convolution.
        axis : int
        kernel : int
            The extent of its kernel.
        stride : int, optional
            By default, that of the attributes.
        """
        stride, rank = stride or int(attrs.strides[axis]), len(attrs.strides)
        before, after = (int(attrs.padding[place]) for place in (axis, axis + rank))
        taps = -(-kernel // stride)
        # Results before the first output and after the last one are not computed.
        skipped = min(before // stride, taps - 1)
        read = -(-(kernel - after + int(attrs.output_padding[axis])) // stride) - 1
        return cls(stride, taps, taps - 1 - skipped, max(read, 0), before - skipped * stride)

    def windows(self, data: tirx.Expr) -> tirx.Expr:
        """The extent of the phases for the extent of the data."""
        return data + self.pad_before + self.pad_after - (self.taps - 1)


def interleaved(
    bb: relax.BlockBuilder, phases: relax.Expr, layout: Layout, strides: dict[str, int]
) -> relax.Expr:
    """Emit the outputs of all phases in the order of their positions.

    Parameters
    ----------
    bb : relax.BlockBuilder
    phases : relax.Expr
        A tensor whose channel axis combines, outermost first, the phases of each axis of `strides`
        and the channels of the output.
    layout : Layout
        The layout of `phases`.
    strides : dict of str to int
        The number of phases by the letter of the axis.
    """
    letters, shape = layout.letters, list(phases.ty.shape.values)
    channel = letters.index("C")
    channels = tirx.floordiv(shape[channel], math.prod(strides.values()))
    extents = [*shape[:channel], *strides.values(), channels, *shape[channel + 1 :]]
    apart = bb.emit(relax.op.reshape(phases, extents))
    phase_of = {letter: f"phase of {letter}" for letter in strides}
    present = [*letters[:channel], *phase_of.values(), *letters[channel:]]
    wanted = [name for letter in letters for name in (letter, phase_of.get(letter)) if name]
    moved = bb.emit(relax.op.permute_dims(apart, [present.index(name) for name in wanted]))
    shape[channel] = channels
    scales = [strides.get(letter, 1) for letter in letters]
    return bb.emit(
        relax.op.reshape(
            moved, [extent * scale for extent, scale in zip(shape, scales, strict=True)]
        )
    )
