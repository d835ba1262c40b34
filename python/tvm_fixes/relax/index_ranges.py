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
"""Value ranges of integer tensors, inferred from the operators that compute them."""

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from .ir import tensor_of

Range = tuple[tirx.Expr, tirx.Expr]
"""Lower and upper bounds on the values, both inclusive and int64."""

# Operators that move the elements of their first operand.
_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "reshape",
        "permute_dims",
        "broadcast_to",
        "expand_dims",
        "squeeze",
        "flatten",
        "repeat",
        "tile",
        "flip",
        "strided_slice",
        "dynamic_strided_slice",
        "sort",
    )
)
_REDUCTIONS = frozenset({"relax.min", "relax.max"})
_EXTREMA = frozenset({"relax.argmax", "relax.argmin"})
_MAX_DEPTH = 64
"""The maximum number of nested operators to look through."""
_MAX_TERM = 1 << 62
"""The sum of two integers below this magnitude does not wrap around."""


_LIMITS = {
    f"{kind}{bits}": (0, (1 << min(bits, 63)) - 1)
    if kind == "uint"
    else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    for kind in ("int", "uint")
    for bits in (8, 16, 32, 64)
}
"""The minimum and maximum of each dtype, within the limits of int64."""


class Ranges:
    """The value ranges of the variables of a function.

    Parameters
    ----------
    bound_to : callable
        Returns the value that a variable is bound to; None for a parameter.
    """

    def __init__(self, bound_to: Callable[[relax.Var], relax.Expr | None]) -> None:
        self._bound_to = bound_to
        self._analyzer = Analyzer()
        self._known: dict[relax.Var, Range | None] = {}
        self._depth = 0

    def are_within(self, indices: relax.Expr, extents: list[tirx.Expr]) -> bool:
        """Whether indices, counted from either end, are provably within all `extents`."""
        shape = getattr(indices.ty, "shape", None)
        if isinstance(shape, relax.ShapeExpr) and any(_is(e, 0) for e in shape.values):
            return True
        bounds = self.range_of(indices)
        if bounds is None:
            return False
        least, greatest = bounds
        proves = self._analyzer.can_prove
        is_positive = proves(least >= 0)
        return all(
            (is_positive or proves(least >= -extent)) and proves(greatest < extent)
            for extent in extents
        )

    def range_of(self, expr: relax.Expr) -> Range | None:
        """The value range of a tensor; None if it is not known."""
        if isinstance(expr, relax.Var) and expr in self._known:
            return self._known[expr]
        if self._depth >= _MAX_DEPTH:
            return None
        self._depth += 1
        try:
            bounds = self._infer(expr)
        finally:
            self._depth -= 1
        if isinstance(expr, relax.Var):
            self._known[expr] = bounds
        return bounds

    def _infer(self, expr: relax.Expr) -> Range | None:
        constant = tensor_of(expr)
        if constant is not None:
            return _range_of_values(constant.numpy())
        value: relax.Expr | None = expr
        if isinstance(expr, relax.Var):
            value = self._bound_to(expr)
        if isinstance(value, relax.Var):
            return self.range_of(value)
        if isinstance(value, relax.TupleGetItem):
            return self._range_of_field(value)
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            return None
        return self._range_of_call(value)

    def _range_of_field(self, item: relax.TupleGetItem) -> Range | None:
        whole = item.tuple_value
        value = self._bound_to(whole) if isinstance(whole, relax.Var) else whole
        if isinstance(value, relax.Tuple):
            return self.range_of(value.fields[item.index])
        if not isinstance(value, relax.Call) or item.index != 1:
            return None
        is_top = getattr(value.op, "name", "") == "relax.topk"
        return self._positions(value.args[0], value.attrs.axis) if is_top else None

    def _range_of_call(self, call: relax.Call) -> Range | None:
        name, args = str(call.op.name), call.args
        if name in _REDUCTIONS and not self._has_elements(args[0]):
            return None  # a reduction of no elements gives the limit of the dtype
        if name in _MOVES or name in _REDUCTIONS:
            return self.range_of(args[0])
        if name in _EXTREMA and call.attrs.axis is not None:
            return self._positions(args[0], call.attrs.axis)
        if name == "relax.argsort":
            return self._positions(args[0], call.attrs.axis)
        if name == "relax.topk" and str(call.attrs.ret_type) == "indices":
            return self._positions(args[0], call.attrs.axis)
        if name == "relax.arange":
            return self._range_of_arange(call)
        if name == "relax.astype":
            return self._range_of_cast(call)
        if name in ("relax.add", "relax.subtract"):
            return self._range_of_sum(call, name == "relax.add")
        if name == "relax.where":
            return self._union([args[1], args[2]])
        if name == "relax.concat" and isinstance(args[0], relax.Tuple):
            return self._union(list(args[0].fields))
        if name == "relax.clip":
            least, greatest = (_integer(arg) for arg in args[1:3])
            if least is None or greatest is None:
                return None
            return (least, greatest) if self._analyzer.can_prove(least <= greatest) else None
        if name == "relax.floor_mod":
            divisor = self.range_of(args[1])
            if divisor and self._analyzer.can_prove(divisor[0] > 0):
                return _const(0), divisor[1] - 1
        return None

    def _positions(self, data: relax.Expr, axis: object) -> Range | None:
        """The range of the positions along an axis of `data`."""
        shape = getattr(data.ty, "shape", None)
        if not isinstance(shape, relax.ShapeExpr) or not shape.values:
            return None
        return _const(0), shape.values[int(axis)] - 1  # type: ignore[call-overload]

    def _range_of_arange(self, call: relax.Call) -> Range | None:
        start, end, step = (_integer(arg) for arg in call.args[:3])
        if start is None or end is None or not isinstance(step, tirx.IntImm):
            return None
        return (start, end - 1) if step.value > 0 else (end + 1, start)

    def _range_of_cast(self, call: relax.Call) -> Range | None:
        source = str(call.args[0].ty.dtype)
        if source == "bool":
            return _const(0), _const(1)
        bounds = self.range_of(call.args[0]) if "int" in source else None
        if str(call.ty.dtype) == "int64":
            return bounds
        limits = _LIMITS.get(str(call.ty.dtype))
        # A value that does not fit into the dtype wraps around.
        return bounds if bounds and limits and self._lies_in(bounds, *limits) else None

    def _lies_in(self, bounds: Range, least: int, greatest: int) -> bool:
        proves = self._analyzer.can_prove
        return bool(proves(bounds[0] >= _const(least)) and proves(bounds[1] <= _const(greatest)))

    def _has_elements(self, data: relax.Expr) -> bool:
        shape = getattr(data.ty, "shape", None)
        if not isinstance(shape, relax.ShapeExpr):
            return False
        return all(self._analyzer.can_prove(extent > 0) for extent in shape.values)

    def _range_of_sum(self, call: relax.Call, is_added: bool) -> Range | None:
        if str(call.ty.dtype) != "int64":
            return None
        left, right = (self.range_of(arg) for arg in call.args)
        if left is None or right is None:
            return None
        if not all(self._lies_in(own, -_MAX_TERM, _MAX_TERM - 1) for own in (left, right)):
            return None
        if is_added:
            return left[0] + right[0], left[1] + right[1]
        return left[0] - right[1], left[1] - right[0]

    def _union(self, parts: list[relax.Expr]) -> Range | None:
        ranges = [self.range_of(part) for part in parts]
        known = [own for own in ranges if own is not None]
        if len(known) < len(ranges):
            return None
        least, greatest = known[0]
        for own in known[1:]:
            least, greatest = tirx.min(least, own[0]), tirx.max(greatest, own[1])
        return least, greatest


def _range_of_values(values: np.ndarray) -> Range | None:
    if values.dtype.kind not in "iu" or values.size == 0:
        return None
    least, greatest = int(values.min()), int(values.max())
    return (_const(least), _const(greatest)) if greatest < 1 << 63 else None


def _const(value: int) -> tirx.Expr:
    return tirx.const(value, "int64")


def _is(extent: tirx.Expr, value: int) -> bool:
    return isinstance(extent, tirx.IntImm) and extent.value == value


def _integer(expr: relax.Expr) -> tirx.Expr | None:
    """A scalar as an int64 expression; None if it is not an integer."""
    value = getattr(expr, "value", expr)
    if isinstance(value, int):
        return _const(value)
    is_integer = tvm.ir.is_prim_expr(expr) and "int" in str(expr.ty.dtype)
    return expr.astype("int64") if is_integer else None
