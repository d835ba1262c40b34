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
"""FoldPadIntoConv: fold explicit zero pads into the padding attribute of convolutions.

Mechanism
    TVM lowers the pad to a separate kernel.
"""

import tvm
from tvm import relax

from ...fixes.conv import FOLD_PAD_INTO_CONV as FIX_ID
from ..analysis import bindings
from ..guard import fix_pass
from ..ir import nn_call, relax_functions
from ..layouts import SPATIAL_AXES, Layout
from .fold_constant import rebind

_PAD = "relax.nn.pad"
_CONVOLUTIONS = {f"relax.nn.conv{rank}d": axes for rank, axes in SPATIAL_AXES.items()}


def FoldPadIntoConv() -> tvm.transform.Pass:
    """Fold an explicit zero pad of the data into the convolution's padding attribute.

    Before::

        padded = R.nn.pad(x, [0, 0, 0, 0, 0, 1, 0, 1])
        y = R.nn.conv2d(padded, w, strides=[2, 2])

    and after::

        y = R.nn.conv2d(x, w, strides=[2, 2], padding=[0, 0, 1, 1])

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.  If the pad has other consumers, it is kept for
        them.  The pass skips pads on the batch or channel axis, pads with a nonzero value, and
        negative widths.

    Notes
    -----
    An infinite weight times a padded zero is NaN.  A convolution may skip its own padding, so
    the result may no longer be NaN after this pass.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        builder = relax.BlockBuilder(mod)
        values = {
            global_var: _folded(builder, function)
            for global_var, function in relax_functions(mod).items()
        }
        if not any(values.values()):
            return None
        return rebind(mod, values)

    return fix_pass("FoldPadIntoConv", FIX_ID, rewrite)


def _folded(builder: relax.BlockBuilder, function: relax.Function) -> dict[relax.Var, relax.Expr]:
    """The function's convolutions of padded data, with the pads folded into them."""
    calls: dict[relax.Var, relax.Call] = {}
    folded: dict[relax.Var, relax.Expr] = {}
    for binding in bindings(function):
        call = getattr(binding, "value", None)
        if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
            continue
        if str(call.op.name) == _PAD:
            calls[binding.var] = call
        pad = calls.get(call.args[0]) if str(call.op.name) in _CONVOLUTIONS else None
        padding = None if pad is None else _total_padding(pad, call)
        if pad is not None and padding is not None:
            folded[binding.var] = builder.normalize(
                nn_call(call, pad.args[0], call.args[1], padding=padding)
            )
    return folded


def _total_padding(pad: relax.Call, convolution: relax.Call) -> list[int] | None:
    """Return the pad's widths plus the convolution's own padding.

    The result is None if the pad cannot be folded.
    """
    attrs = convolution.attrs
    widths = [int(width) for width in pad.attrs.pad_width]
    if str(pad.attrs.pad_mode) != "constant" or float(pad.attrs.pad_value) != 0 or min(widths) < 0:
        return None
    layout = Layout(str(attrs.data_layout))
    axes = _CONVOLUTIONS[str(convolution.op.name)]
    pad_of = dict(zip(layout.letters, zip(widths[::2], widths[1::2], strict=True), strict=True))
    if any(any(width) for letter, width in pad_of.items() if letter not in axes):
        return None
    own = [int(width) for width in attrs.padding]
    before = [width + pad_of[axis][0] for width, axis in zip(own[: len(axes)], axes, strict=True)]
    after = [width + pad_of[axis][1] for width, axis in zip(own[len(axes) :], axes, strict=True)]
    return [*before, *after]
