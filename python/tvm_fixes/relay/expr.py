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
"""The expressions of Relay."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from .. import _ffi
from .node import required
from .ty import IncompleteType, ShapeVar, Type, TypeVar


class Span(NamedTuple):
    """A place in a source text, counted from 1; zeros if there is none."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}" if self.line else "unknown place"


@tvm_ffi.register_object("tvm_fixes.relay.Expr")
class Expr(tvm_ffi.Object):
    """Base class of all expressions.

    Attributes
    ----------
    checked_type : Type or None
        The inferred type; None before :class:`tvm_fixes.relay.transform.InferType`.
    """

    checked_type: Type | None

    @property
    def span(self) -> Span:
        """The place in the source text."""
        line, column = _ffi.get("tvm_fixes.relay.ExprSpan")(self)
        return Span(int(line), int(column))

    def with_span(self, span: Span) -> "Expr":
        """Set the place in the source text, and return the expression itself."""
        _ffi.get("tvm_fixes.relay.ExprSetSpan")(self, span.line, span.column)
        return self

    def astext(self, show_meta_data: bool = True, *, show_types: bool = True) -> str:
        """Return the expression as text; see :meth:`tvm_fixes.relay.IRModule.astext`."""
        return str(_ffi.get("tvm_fixes.relay.PrintExpr")(self, show_meta_data, show_types))

    def __str__(self) -> str:
        return self.astext(False)


@tvm_ffi.register_object("tvm_fixes.relay.Var")
class Var(Expr):
    """A variable; two variables of one name differ."""

    name: str
    type_annotation: Type

    def __init__(self, name: str, type_annotation: Type | None = None):
        self.__ffi_init__(name, type_annotation or IncompleteType())


@tvm_ffi.register_object("tvm_fixes.relay.GlobalVar")
class GlobalVar(Expr):
    """The name of a function of the module."""

    name: str

    def __init__(self, name: str):
        self.__ffi_init__(name)


@tvm_ffi.register_object("tvm_fixes.relay.Op")
class Op(Expr):
    """An operator; :func:`tvm_fixes.relay.operators` has the declarations."""

    name: str

    @staticmethod
    def get(name: str) -> "Op":
        """Return the operator of this name, declared or not."""
        op: Op = _ffi.get("tvm_fixes.relay.Op")(name)
        return op


@tvm_ffi.register_object("tvm_fixes.relay.Constant")
class Constant(Expr):
    """A tensor.

    Parameters
    ----------
    data : numpy.ndarray, scalar or tvm_ffi.Tensor
        The elements. An array is copied.
    """

    data: tvm_ffi.Tensor

    def __init__(self, data: Any):
        if not isinstance(data, tvm_ffi.Tensor):
            data = tvm_ffi.from_dlpack(np.array(data, order="C", copy=True))
        self.__ffi_init__(*required(data))

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the elements; the array shares their memory."""
        return np.from_dlpack(self.data)


@tvm_ffi.register_object("tvm_fixes.relay.Tuple")
class Tuple(Expr):
    """A tuple of expressions."""

    fields: Sequence[Expr]

    def __init__(self, fields: Sequence[Expr]):
        self.__ffi_init__(*required(list(fields)))


@tvm_ffi.register_object("tvm_fixes.relay.TupleGetItem")
class TupleGetItem(Expr):
    """A field of a tuple."""

    tuple: Expr
    index: int

    def __init__(self, tuple: Expr, index: int):
        self.__ffi_init__(*required(tuple, index))


@tvm_ffi.register_object("tvm_fixes.relay.Call")
class Call(Expr):
    """A call of an operator, a constructor or a function.

    Parameters
    ----------
    op : Expr or str
        The callee; a string names an operator.
    args : sequence of Expr
        The arguments.
    attrs : mapping of str to value, optional
        The attributes that differ from their defaults.
    type_args : sequence of Type, optional
        The arguments for the type parameters.
    """

    op: Expr
    args: Sequence[Expr]
    attrs: Mapping[str, Any]
    type_args: Sequence[Type]

    def __init__(
        self,
        op: Expr | str,
        args: Sequence[Expr],
        attrs: Mapping[str, Any] | None = None,
        type_args: Sequence[Type] = (),
    ):
        if isinstance(op, str):
            op = Op.get(op)
        self.__ffi_init__(*required(op, list(args)), dict(attrs or {}), *required(list(type_args)))


@tvm_ffi.register_object("tvm_fixes.relay.Let")
class Let(Expr):
    """``let var = value; body``."""

    var: Var
    value: Expr
    body: Expr

    def __init__(self, var: Var, value: Expr, body: Expr):
        self.__ffi_init__(*required(var, value, body))


@tvm_ffi.register_object("tvm_fixes.relay.If")
class If(Expr):
    """One of two branches, selected by a scalar condition."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr

    def __init__(self, cond: Expr, true_branch: Expr, false_branch: Expr):
        self.__ffi_init__(*required(cond, true_branch, false_branch))


@tvm_ffi.register_object("tvm_fixes.relay.Function")
class Function(Expr):
    """A function, named in a module or a value like any other."""

    params: Sequence[Var]
    body: Expr
    ret_type: Type
    type_params: Sequence[TypeVar | ShapeVar]
    attrs: Mapping[str, Any]

    def __init__(
        self,
        params: Sequence[Var],
        body: Expr,
        ret_type: Type | None = None,
        type_params: Sequence[TypeVar | ShapeVar] = (),
        attrs: Mapping[str, Any] | None = None,
    ):
        self.__ffi_init__(
            *required(list(params), body, ret_type or IncompleteType(), list(type_params)),
            dict(attrs or {}),
        )


@tvm_ffi.register_object("tvm_fixes.relay.RefCreate")
class RefCreate(Expr):
    """A new reference."""

    value: Expr

    def __init__(self, value: Expr):
        self.__ffi_init__(*required(value))


@tvm_ffi.register_object("tvm_fixes.relay.RefRead")
class RefRead(Expr):
    """The value of a reference."""

    ref: Expr

    def __init__(self, ref: Expr):
        self.__ffi_init__(*required(ref))


@tvm_ffi.register_object("tvm_fixes.relay.RefWrite")
class RefWrite(Expr):
    """Give a reference a new value."""

    ref: Expr
    value: Expr

    def __init__(self, ref: Expr, value: Expr):
        self.__ffi_init__(*required(ref, value))
