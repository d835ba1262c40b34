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
"""Expand, Tile and ConstantOfShape.

Trigger
    Expand: from one symbolic dim to another; to a shape that is known only at run time and contains
    a 1; of symbolic data to a constant shape; to a shape with fewer dims than the data have. Tile:
    with repeats that depend on dims, or with an empty result. ConstantOfShape: of a computed shape,
    or of a shape without dims.
Mechanism
    The converter uses an extent that it cannot compare as the result's extent, and TVM's
    ``broadcast_to`` assumes that an extent it cannot compare is not 1.
"""

import numpy as np
from onnx import numpy_helper
from tvm import relax, te, tirx
from tvm.relax import op

from ....fixes.onnx_importer import EXPAND
from ....support import switches
from ...dtypes import dtype_of
from ...extents import expression, is_static
from ..call import Call, Extent, converts
from .broadcast import broadcast_extent, broadcast_to, require_broadcast
from .shape_operands import extents_or_symbols, require, shaped


@converts("Expand", fix=EXPAND)
def convert_expand(call: Call) -> relax.Expr:
    """Convert an Expand, which broadcasts both ways: a 1 in the target keeps the data's dim.

    A -1 in a constant target, which some exporters write, keeps it too.  If neither of two dims is
    known to be 1, the model checks at run time that they broadcast.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data or of the target is unknown, or dims do not broadcast.
    """
    data, extents = shaped(call, 0, "input")
    value = call.value(1)
    if value is None:
        target = extents_or_symbols(call, 1, "shape")
    else:
        target = [1 if isinstance(e, int) and e == -1 else e for e in value.extents()]
    rank = max(len(extents), len(target))
    sources = [1] * (rank - len(extents)) + extents
    target = [1] * (rank - len(target)) + target
    for axis, (source, asked) in enumerate(zip(sources, target, strict=True)):
        reason = f"expected a shape that {extents} broadcasts to (axis {axis} of {rank})"
        require(call, asked >= 0, "operand shape", target, reason)
        require_broadcast(call, source, asked, "operand shape", target, reason)
    result = [broadcast_extent(call, *pair) for pair in zip(sources, target, strict=True)]
    # The requirements may imply that extents are equal.
    data = call.known.refined(call.builder, data)
    if is_static(*extents, *result) and 0 not in result:
        return call.proceed()
    switches.note(EXPAND)
    return broadcast_to(call, data, call.known.extents(data) or extents, result)


@converts("Tile", fix=EXPAND)
def convert_tile(call: Call) -> relax.Expr:
    """Convert a Tile.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the rank of the data is unknown, the number of repeats differs from it, or a repeat is
        negative.
    """
    data, extents = shaped(call, 0, "input")
    if call.version < 6:
        repeats = _repeats_of_one_axis(call, len(extents))
    else:
        repeats = extents_or_symbols(call, 1, "repeats")
    if len(repeats) != len(extents):
        raise call.invalid("operand repeats", repeats, f"expected {len(extents)} elements")
    is_empty = any(isinstance(e, int) and e == 0 for e in (*extents, *repeats))
    if call.version >= 6 and is_static(*repeats) and not is_empty:
        return call.proceed()
    switches.note(EXPAND)
    result = [call.known.simplify(e * r) for e, r in zip(extents, repeats, strict=True)]
    if is_empty:
        return op.zeros(relax.ShapeExpr(result), dtype_of(data))
    if all(call.known.equal(*pair) for pair in zip(extents, result, strict=True)):
        return data

    def tile(tensor: te.Tensor, *shape: Extent) -> te.Tensor:
        def element(*indices: tirx.Var) -> tirx.Expr:
            places = zip(indices, tensor.shape, strict=True)
            return tensor(*(index % extent for index, extent in places))

        return te.compute([expression(extent) for extent in shape], element)

    return call.builder.emit_te(tile, data, *result)


def _repeats_of_one_axis(call: Call, rank: int) -> list[Extent]:
    """The repeats of a Tile of opset 1, whose operands are the scalars tiles and axis."""
    (tiles,), axis = extents_or_symbols(call, 1, "tiles"), extents_or_symbols(call, 2, "axis")
    return [tiles if index == axis[0] else 1 for index in range(rank)]


@converts("ConstantOfShape", fix=EXPAND)
def convert_constant_of_shape(call: Call) -> relax.Expr:
    """Convert a ConstantOfShape.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the number of dims is unknown, or one is negative.
    """
    shape = extents_or_symbols(call, 0, "input")
    given = call.attributes.get("value")
    value = np.zeros(1, "float32") if given is None else numpy_helper.to_array(given)
    if value.size != 1:
        raise call.invalid("attribute value", value, "expected one element")
    if shape and is_static(*shape) and 0 not in shape:
        return call.proceed()
    switches.note(EXPAND)
    scalar = relax.const(value.reshape(()), str(value.dtype))
    return op.full(relax.ShapeExpr(shape), scalar) if shape else scalar
