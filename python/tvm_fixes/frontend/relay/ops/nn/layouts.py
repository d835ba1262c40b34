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
"""Conversion between layouts such as NCHW and NCHW4c, by transposes and reshapes."""

import math
import re
from typing import Any

from tvm import relax

from ....extents import NO_FACTS
from ...call import Call

_AXIS = re.compile(r"(\d*)([A-Za-z])")


def is_packed(layout: str) -> bool:
    """Return whether a layout splits an axis, as NCHW4c does."""
    return any(letter.isdigit() for letter in layout)


def spatial_axes(count: int) -> str:
    """Return the letters of the last `count` spatial axes."""
    return "DHW"[3 - count :]


def extents(call: Call, expr: relax.Expr) -> list[Any]:
    """Return the extents of a tensor, ints or expressions."""
    shape = expr.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        raise call.fail("the shape of an input is not known")
    return [NO_FACTS.simplify(dim) for dim in shape.values]


def convert_layout(call: Call, expr: relax.Expr, source: str, target: str) -> relax.Expr:
    """Change the layout of a tensor.

    Parameters
    ----------
    call : Call
        Where bindings are emitted.
    expr : relax.Expr
        A tensor in layout `source`.
    source, target : str
        The layouts. They have the same axes.
    """
    if source == target:
        return expr
    order = "".join(letter for letter in target if letter.isupper())
    return _split(call, _join(call, expr, source, order), target, order)


def _axes(layout: str) -> list[tuple[str, int]]:
    """The letters of a layout, each with its factor, which is 0 for a whole axis."""
    return [(letter, int(factor or 0)) for factor, letter in _AXIS.findall(layout)]


def _transpose(call: Call, expr: relax.Expr, order: list[int]) -> relax.Expr:
    if order == sorted(order):
        return expr
    return call.emit(relax.op.permute_dims(expr, order))


def _join(call: Call, expr: relax.Expr, layout: str, order: str) -> relax.Expr:
    """Merge packed axes, and permute the axes to an order."""
    axes = _axes(layout)
    groups = []
    for letter in order:
        parts = [i for i, (name, _) in enumerate(axes) if name == letter.lower()]
        groups.append([axes.index((letter, 0)), *parts])
    expr = _transpose(call, expr, [i for group in groups for i in group])
    if not is_packed(layout):
        return expr
    dims = iter(extents(call, expr))
    shape = [math.prod(next(dims) for _ in group) for group in groups]
    return call.emit(relax.op.reshape(expr, shape))


def _split(call: Call, expr: relax.Expr, layout: str, order: str) -> relax.Expr:
    """Convert a tensor whose axes have this order to a layout."""
    axes = _axes(layout)
    shape: list[Any] = []
    parts: list[tuple[str, int]] = []
    for letter, extent in zip(order, extents(call, expr), strict=True):
        packed = [(name, factor) for name, factor in axes if name == letter.lower()]
        shape += [extent // math.prod(factor for _, factor in packed)]
        shape += [factor for _, factor in packed]
        parts += [(letter, 0), *packed]
    if is_packed(layout):
        expr = call.emit(relax.op.reshape(expr, shape))
    places = []
    for axis in axes:
        places.append(parts.index(axis))
        parts[places[-1]] = ("", 0)
    return _transpose(call, expr, places)
