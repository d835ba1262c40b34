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
"""PRelu.

Mechanism
    ``relax.nn.prelu`` needs a static extent on the axis of its slopes, and the converter uses the
    last axis for a single slope. In a model for any image size, that axis is symbolic.
"""

from tvm import relax
from tvm.sym import Analyzer

from ....fixes.onnx_importer import PRELU
from ....support import switches
from ...dtypes import dtype_of
from ..call import Call, converts, extents_of
from .shape_operands import matched


@converts("PRelu", fix=PRELU)
def convert_prelu(call: Call) -> relax.Expr:
    """Convert a PRelu, to ``relax.nn.prelu`` if it has one slope, or slopes along one axis.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the slope cannot be broadcast to the shape of X.
    """
    data, slope = call.operands
    extents, slopes = extents_of(data), extents_of(slope)
    if extents is None or slopes is None:
        return call.proceed()
    slopes = [1] * (len(extents) - len(slopes)) + slopes
    static = [isinstance(extent, int) for extent in extents]
    # The isinstance check comes first: comparing a symbolic extent does not yield a bool.
    varying = [
        axis for axis, count in enumerate(slopes) if not (isinstance(count, int) and count == 1)
    ]
    analyzer = Analyzer()
    known_axes = [axis for axis in varying if isinstance(slopes[axis], int)]
    fits = len(slopes) == len(extents) and all(
        not static[axis] or extents[axis] == slopes[axis]
        if axis in known_axes
        else analyzer.can_prove_equal(slopes[axis], extents[axis])
        for axis in varying
    )
    if not fits:
        reason = f"expected a shape that broadcasts to that of X, {data.ty.shape}"
        raise call.invalid("shape of slope", slope.ty.shape, reason)

    if not all(static[axis] for axis in known_axes):
        switches.note(PRELU)
        shape = [
            slopes[axis] if axis in known_axes else extent for axis, extent in enumerate(extents)
        ]
        data = matched(call, data, extents, shape)
        static = [old or axis in known_axes for axis, old in enumerate(static)]
    # nn.prelu does not support bfloat16.
    floating = dtype_of(data).startswith("float")
    # nn.prelu broadcasts a single slope along any axis with a static extent.
    static_axes = [axis for axis in varying or range(len(extents)) if static[axis]]
    if not floating or (len(varying) < 2 and not static_axes):
        switches.note(PRELU)
        negative = relax.op.less(data, relax.const(0, dtype_of(data)))
        return relax.op.where(negative, relax.op.multiply(data, slope), data)
    if varying or static[-1]:
        return call.with_operands(data, slope).proceed()
    switches.note(PRELU)
    return relax.op.nn.prelu(data, relax.op.reshape(slope, (1,)), static_axes[-1])
