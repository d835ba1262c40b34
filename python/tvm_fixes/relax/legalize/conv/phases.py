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
"""Lowering of a 1-D transposed convolution to a convolution that computes all phases as channels.

Adjacent outputs read different elements of the kernel, so a register tile of columns multiplies
each element of the kernel by few elements of the data; with a stride of 8, it takes as long as
reading the kernel.  Outputs of the same phase read the same elements::

    phases[n, p * O + o, x] = sum over i and t of kernel[i, o, t * stride + p] * data[n, i, x - t]
    out[n, o, y - padding] = phases[n, y % stride * O + o, y // stride]
"""

import numpy as np
import tvm
from tvm import relax, te, tirx

from ....fixes.conv import CONV_LEGALIZE
from ....support import switches
from ...constants.make import rearranged
from ...layouts import Layout, to_layout
from ...phases import PhasedAxis, interleaved
from .compute import Convolution, bounded

# Interleaving the phases takes as long as this many multiplications per output.
_MIN_PRODUCTS = 128


def has_phases(convolution: Convolution, kernel: relax.Expr, layout: Layout) -> bool:
    """Whether `convolution` with a `kernel` in this layout is faster as a convolution of phases.

    In 2-D and 3-D, it is not: there are fewer phases along a row, and more outputs to interleave.
    """
    if not isinstance(kernel, tvm.ir.GenericConst) or not switches.enabled(CONV_LEGALIZE):
        return False
    if len(convolution.spatial) > 1 or convolution.groups > 1:
        return False
    if "float" not in convolution.multiply_accumulate.accumulator:
        return False
    [(name, axis)] = convolution.spatial.items()
    kernel_extent = layout.extents(list(kernel.ty.shape.values))
    if axis.phases == 1 or axis.dilation > 1:
        return False
    taps, rest = divmod(kernel_extent[name].value, axis.stride)
    block = convolution.out_layout.blocks.get("C", 1)
    is_whole = rest == 0 and kernel_extent["O"].value % block == 0
    return is_whole and taps * kernel_extent["I"].value >= _MIN_PRODUCTS


def lower_phases(
    bb: relax.BlockBuilder,
    call: relax.Call,
    convolution: Convolution,
    data: relax.Expr,
    kernel: tvm.ir.GenericConst,
) -> relax.Expr:
    """Lower a transposed convolution that :func:`has_phases`.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the other calls.
    call : relax.Call
        The transposed convolution.
    convolution : Convolution
    data, kernel : relax.Expr
        Its operands.
    """
    [(name, axis)] = convolution.spatial.items()
    plain = to_layout(bb, kernel, Layout(call.attrs.kernel_layout), Layout(f"IO{name}"))
    weight = rearranged(plain, lambda array: _of_phases(array, axis.stride), "phases")
    out_extent = convolution.out_layout.extents(list(call.ty.shape.values))[name]
    phased = PhasedAxis.of(call.attrs, 0, int(plain.ty.shape.values[-1]))
    phases = relax.op.nn.conv1d(
        data,
        weight,
        padding=[phased.pad_before, phased.pad_after],
        data_layout=convolution.data_layout.name,
        kernel_layout=f"OI{name}",
        out_layout=convolution.out_layout.name,
        out_dtype=convolution.out_dtype,
    )
    phases, layout = bb.emit(phases), convolution.out_layout
    if not isinstance(out_extent, tirx.IntImm):
        return _interleaved(bb, phases, call, layout, phased.begin)
    whole = interleaved(bb, phases, layout, {name: axis.stride})
    begin, place = phased.begin, layout.letters.index(name)
    return relax.op.strided_slice(whole, [place], [begin], [begin + out_extent])


def _interleaved(
    bb: relax.BlockBuilder, phases: relax.Var, call: relax.Call, layout: Layout, begin: int
) -> relax.Call:
    """The outputs from position `begin` on, of an unknown number.

    TVM cannot prove that a reshape of them needs no copy.
    """
    (stride,), (name,) = call.attrs.strides, set(layout.plain) - set("NC")
    shape = list(call.ty.shape.values)
    channels = layout.extents(shape)["C"]

    def element(data: te.Tensor, *position: tirx.Var) -> tirx.Expr:
        analyzer = bounded(position, shape)
        at = layout.element(position)
        place = at[name] + begin
        at["C"] = tirx.floormod(place, int(stride)) * channels + at["C"]
        at[name] = tirx.floordiv(place, int(stride))
        return data(*layout.position(at, analyzer))

    def compute(data: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *position: element(data, *position), name="interleaved")

    return bb.call_te(compute, phases, primfunc_name_hint="interleaved")


def _of_phases(kernel: np.ndarray, stride: int) -> np.ndarray:
    """The kernel of the phases, of shape (phases * O, I, taps), from one of (I, O, extent)."""
    channels_in, channels_out, extent = kernel.shape
    apart = kernel.reshape(channels_in, channels_out, extent // stride, stride)
    reversed_taps = apart.transpose(3, 1, 0, 2)[..., ::-1]
    return reversed_taps.reshape(stride * channels_out, channels_in, extent // stride)
