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
"""The extents of tensors, as all importers see them."""

from typing import TypeAlias

from tvm import relax, tirx

__all__ = ["Extent", "extents_of", "slice_at"]

Extent: TypeAlias = int | tirx.Expr
"""The extent of a dim: an int if it is static, else an expression."""


def extents_of(tensor: relax.Expr) -> list[Extent] | None:
    """The extents of a tensor, static ones as int, or None if they are unknown."""
    shape = getattr(tensor.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in shape.values]


def slice_at(
    builder: relax.BlockBuilder, tensor: relax.Expr, axis: int, position: Extent
) -> relax.Expr:
    """Emit the slice of `tensor` at a position on an axis, without that axis."""
    part = relax.op.strided_slice(tensor, [axis], [position], [position + 1], assume_inbound=True)
    return builder.emit(relax.op.squeeze(builder.emit(part), [axis]))
