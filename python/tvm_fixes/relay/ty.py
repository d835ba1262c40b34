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
"""The types of Relay."""

from collections.abc import Sequence
from typing import Any as PyAny

import tvm_ffi

from .. import _ffi
from .node import required

_ffi.load_relay()


@tvm_ffi.register_object("tvm_fixes.relay.Type")
class Type(tvm_ffi.Object):
    """Base class of all types."""

    def __str__(self) -> str:
        return str(_ffi.get("tvm_fixes.relay.TypeText")(self))


@tvm_ffi.register_object("tvm_fixes.relay.Any")
class Any(tvm_ffi.Object):
    """A dimension whose extent is known only at run time."""

    def __init__(self) -> None:
        self.__ffi_init__()

    def __str__(self) -> str:
        return "?"


@tvm_ffi.register_object("tvm_fixes.relay.ShapeVar")
class ShapeVar(tvm_ffi.Object):
    """A named dimension."""

    name: str

    def __init__(self, name: str):
        self.__ffi_init__(name)

    def __str__(self) -> str:
        return self.name


@tvm_ffi.register_object("tvm_fixes.relay.TensorType")
class TensorType(Type):
    """The type of a tensor.

    Parameters
    ----------
    shape : sequence of int, Any or ShapeVar
        The dimensions.
    dtype : str
        The dtype of the elements.
    """

    shape: Sequence[PyAny]
    dtype: PyAny

    def __init__(self, shape: Sequence[PyAny], dtype: str = "float32"):
        self.__ffi_init__(list(shape), tvm_ffi.dtype(dtype))

    @property
    def is_static(self) -> bool:
        """Whether all dimensions are known."""
        return all(isinstance(dim, int) for dim in self.shape)


@tvm_ffi.register_object("tvm_fixes.relay.TupleType")
class TupleType(Type):
    """The type of a tuple."""

    fields: Sequence[Type]

    def __init__(self, fields: Sequence[Type]):
        self.__ffi_init__(*required(list(fields)))


@tvm_ffi.register_object("tvm_fixes.relay.TypeVar")
class TypeVar(Type):
    """A parameter of a polymorphic function or of an algebraic data type."""

    name: str

    def __init__(self, name: str):
        self.__ffi_init__(name)


@tvm_ffi.register_object("tvm_fixes.relay.GlobalTypeVar")
class GlobalTypeVar(Type):
    """The name of an algebraic data type."""

    name: str

    def __init__(self, name: str):
        self.__ffi_init__(name)


@tvm_ffi.register_object("tvm_fixes.relay.FuncType")
class FuncType(Type):
    """The type of a function."""

    type_params: Sequence[TypeVar | ShapeVar]
    arg_types: Sequence[Type]
    ret_type: Type

    def __init__(
        self,
        arg_types: Sequence[Type],
        ret_type: Type,
        type_params: Sequence[TypeVar | ShapeVar] = (),
    ):
        self.__ffi_init__(*required(list(type_params), list(arg_types), ret_type))


@tvm_ffi.register_object("tvm_fixes.relay.TypeCall")
class TypeCall(Type):
    """An algebraic data type with arguments, such as ``List[int32]``."""

    func: Type
    args: Sequence[Type]

    def __init__(self, func: Type, args: Sequence[Type]):
        self.__ffi_init__(*required(func, list(args)))


@tvm_ffi.register_object("tvm_fixes.relay.RefType")
class RefType(Type):
    """The type of a reference."""

    value: Type

    def __init__(self, value: Type):
        self.__ffi_init__(*required(value))


@tvm_ffi.register_object("tvm_fixes.relay.IncompleteType")
class IncompleteType(Type):
    """A type that the program does not state."""

    def __init__(self) -> None:
        self.__ffi_init__()
