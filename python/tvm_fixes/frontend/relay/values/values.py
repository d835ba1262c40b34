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
"""The values of Relay expressions: relax.Expr, or values that exist only during translation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from .... import relay

Value = Any
"""A relax.Expr, a tuple of Values, a Closure, an Adt or a Reference."""


@dataclass
class Scope:
    """The values of the expressions translated so far, visible in a body or branch.

    Parameters
    ----------
    parent : Scope, optional
        The scope around it, whose values are visible too.
    is_block : bool
        Whether it is a branch, whose bindings are not visible outside; otherwise it is the body of
        a closure, whose bindings become part of the block around it.
    """

    parent: "Scope | None" = None
    is_block: bool = False
    values: dict[relay.Expr, Value] = field(default_factory=dict)
    depth: int = 0

    def __post_init__(self) -> None:
        self.depth = self.parent.depth + 1 if self.parent else 0

    def owner(self, expr: relay.Expr) -> "Scope | None":
        """Return the scope that has the value of an expression or variable, or None."""
        scope: Scope | None = self
        while scope is not None and expr not in scope.values:
            scope = scope.parent
        return scope

    def find(self, expr: relay.Expr) -> Value:
        """Return the value of an expression or variable."""
        owner = self.owner(expr)
        assert owner is not None
        return owner.values[expr]

    def outermost(self, operands: Sequence[relay.Expr]) -> "Scope":
        """Return the outermost scope of the block that sees the values of all operands."""
        owners = [self.owner(operand) for operand in operands]
        depth = max((owner.depth for owner in owners if owner is not None), default=0)
        scope = self
        while scope.parent is not None and not scope.is_block and scope.depth > depth:
            scope = scope.parent
        return scope


@dataclass(frozen=True)
class Closure:
    """A function and the scope in which it was made."""

    function: relay.Function
    scope: Scope


@dataclass(frozen=True)
class Adt:
    """The result of a constructor."""

    constructor: relay.Constructor
    fields: tuple[Value, ...]


@dataclass
class Reference:
    """A reference; its value is known during translation."""

    value: Value
    type: relay.Type


def constant_value(expr: Value) -> np.ndarray[Any, Any] | None:
    """Return the elements of a Relax constant, or None for any other value."""
    if not isinstance(expr, tvm.ir.GenericConst):
        return None
    return np.asarray(expr.value.numpy())


def to_relax(value: Value) -> relax.Expr | None:
    """Return a value as one Relax expression, or None if it has none."""
    if isinstance(value, tuple):
        fields: Sequence[relax.Expr | None] = [to_relax(part) for part in value]
        return None if any(part is None for part in fields) else relax.Tuple(fields)
    return None if isinstance(value, Closure | Adt | Reference) else value


def from_relax(builder: relax.BlockBuilder, expr: relax.Expr, ty: relay.Type) -> Value:
    """Split a Relax tuple into its fields, as Values whose extents are known."""
    if not isinstance(ty, relay.TupleType):
        return refine(builder, expr, ty)
    return tuple(
        from_relax(builder, builder.emit(relax.TupleGetItem(expr, i)), part)
        for i, part in enumerate(ty.fields)
    )


def refine(builder: relax.BlockBuilder, value: Value, ty: relay.Type) -> Value:
    """Give a value the dtype and the extents that Relay has inferred and Relax has not.

    Relax has other integers for some results. A tensor of unknown shape gets a new symbol for each
    ``?``: Relax has no kernels for it.
    """
    if isinstance(value, tuple) and isinstance(ty, relay.TupleType):
        return tuple(refine(builder, *pair) for pair in zip(value, ty.fields, strict=True))
    is_tensor = isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)
    if not is_tensor or not isinstance(ty, relay.TensorType) or value.ty.ndim != len(ty.shape):
        return value
    if str(value.ty.dtype) != str(ty.dtype):
        value = builder.emit(relax.op.astype(value, str(ty.dtype)))
    known = list(value.ty.shape) if value.ty.shape is not None else [None] * value.ty.ndim
    shape = [
        wanted
        if isinstance(wanted, int)
        else tirx.Var("d", "int64")
        if present is None
        else present
        for present, wanted in zip(known, ty.shape, strict=True)
    ]
    if all(a is b or _is_extent(a, b) for a, b in zip(known, shape, strict=True)):
        return value
    return builder.match_cast(value, relax.TensorType(shape, value.ty.dtype))


def contradicts(value: Value, ty: relay.Type) -> bool:
    """Whether a value has another rank or another known extent than Relay has inferred."""
    if isinstance(value, tuple) and isinstance(ty, relay.TupleType):
        pairs = zip(value, ty.fields, strict=False)
        return len(value) != len(ty.fields) or any(contradicts(*pair) for pair in pairs)
    is_tensor = isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)
    if not is_tensor or not isinstance(ty, relay.TensorType) or value.ty.ndim < 0:
        return False
    if value.ty.ndim != len(ty.shape):
        return True
    return value.ty.shape is not None and any(
        isinstance(present, tirx.IntImm) and isinstance(wanted, int) and int(present) != wanted
        for present, wanted in zip(value.ty.shape, ty.shape, strict=True)
    )


def _is_extent(present: tirx.Expr | None, wanted: int | tirx.Expr) -> bool:
    return isinstance(present, tirx.IntImm) and int(present) == wanted
