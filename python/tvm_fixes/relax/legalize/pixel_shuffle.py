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
"""Lowering of ``relax.nn.pixel_shuffle``.

Mechanism
    TVM's lowering calls a function that topi defines but does not export.
"""

from tvm import relax, te, tirx

from ...fixes.elements import PIXEL_SHUFFLE_LEGALIZE as FIX_ID
from ...support import switches
from .override import Legalize, legalizes

_OPERATOR = "relax.nn.pixel_shuffle"


def pixel_shuffle(data: te.Tensor, factor: int) -> te.Tensor:
    """Compute a pixel shuffle: rearrange channels into height and width.

    Parameters
    ----------
    data : te.Tensor
        A tensor of shape ``(..., C * factor**2, H, W)``, any dtype.
    factor : int
        The factor by which height and width grow.

    Returns
    -------
    te.Tensor
        The result of shape ``(..., C, H * factor, W * factor)``, as defined by
        ``torch.nn.PixelShuffle``.
    """
    *batch, channels, height, width = data.shape

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, c, h, w = index
        row, column = tirx.floormod(h, factor), tirx.floormod(w, factor)
        channel = (c * factor + row) * factor + column
        return data(*outer, channel, tirx.floordiv(h, factor), tirx.floordiv(w, factor))

    shape = [*batch, tirx.floordiv(channels, factor**2), height * factor, width * factor]
    return te.compute(shape, element, name="pixel_shuffle", tag="injective")


@legalizes(_OPERATOR)
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    if not switches.enabled(FIX_ID):
        return stock(bb, call)
    switches.note(FIX_ID)
    return bb.call_te(pixel_shuffle, call.args[0], factor=int(call.attrs.upscale_factor))
