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
"""A Relay program."""

from collections.abc import Mapping
from typing import Any

import tvm_ffi

from .. import _ffi
from .adt import TypeData
from .expr import Expr, Function
from .node import required


@tvm_ffi.register_object("tvm_fixes.relay.IRModule")
class IRModule(tvm_ffi.Object):
    """Functions and type definitions by name.

    Parameters
    ----------
    functions : mapping of str to Function
        The functions; "main" is the entry.
    type_definitions : mapping of str to TypeData, optional
        The algebraic data types.
    attrs : mapping of str to value, optional
        The attributes of the module.
    """

    functions: Mapping[str, Function]
    type_definitions: Mapping[str, TypeData]
    attrs: Mapping[str, Any]

    def __init__(
        self,
        functions: Mapping[str, Function],
        type_definitions: Mapping[str, TypeData] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ):
        self.__ffi_init__(
            *required(dict(functions), dict(type_definitions or {})), dict(attrs or {})
        )

    @staticmethod
    def from_expr(expr: Expr) -> "IRModule":
        """Return a module whose "main" is the function, or a function that returns `expr`."""
        return IRModule({"main": expr if isinstance(expr, Function) else Function([], expr)})

    def __getitem__(self, name: str) -> Function:
        return self.functions[name]

    def astext(self, show_meta_data: bool = True, *, show_types: bool = True) -> str:
        """Return the module as text of version 0.0.5, which :func:`tvm_fixes.relay.parse` reads.

        Parameters
        ----------
        show_meta_data : bool
            Whether to write the metadata section, which holds the constants.
        show_types : bool
            Whether inferred types follow the expressions, as comments.

        Raises
        ------
        RelayError
            If the module has something that the format cannot express.
        """
        print_module = _ffi.get("tvm_fixes.relay.PrintModule")
        return str(print_module(self, show_meta_data, show_types))

    def __str__(self) -> str:
        return self.astext(False)
