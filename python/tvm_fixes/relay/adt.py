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
"""Algebraic data types: definitions, constructors, patterns and Match."""

from collections.abc import Sequence

import tvm_ffi

from .expr import Expr, Var
from .node import required
from .ty import GlobalTypeVar, Type, TypeVar


@tvm_ffi.register_object("tvm_fixes.relay.Constructor")
class Constructor(Expr):
    """A constructor of an algebraic data type."""

    name: str
    inputs: Sequence[Type]
    belong_to: GlobalTypeVar

    def __init__(self, name: str, inputs: Sequence[Type], belong_to: GlobalTypeVar):
        self.__ffi_init__(*required(name, list(inputs), belong_to))


@tvm_ffi.register_object("tvm_fixes.relay.TypeData")
class TypeData(Type):
    """The definition of an algebraic data type."""

    header: GlobalTypeVar
    type_vars: Sequence[TypeVar]
    constructors: Sequence[Constructor]
    is_extern: bool

    def __init__(
        self,
        header: GlobalTypeVar,
        type_vars: Sequence[TypeVar],
        constructors: Sequence[Constructor],
        is_extern: bool = False,
    ):
        self.__ffi_init__(*required(header, list(type_vars), list(constructors), is_extern))


@tvm_ffi.register_object("tvm_fixes.relay.Pattern")
class Pattern(tvm_ffi.Object):
    """Base class of patterns."""


@tvm_ffi.register_object("tvm_fixes.relay.PatternWildcard")
class PatternWildcard(Pattern):
    """Matches everything."""

    def __init__(self) -> None:
        self.__ffi_init__()


@tvm_ffi.register_object("tvm_fixes.relay.PatternVar")
class PatternVar(Pattern):
    """Matches everything and binds it to a variable."""

    var: Var

    def __init__(self, var: Var):
        self.__ffi_init__(*required(var))


@tvm_ffi.register_object("tvm_fixes.relay.PatternConstructor")
class PatternConstructor(Pattern):
    """Matches the result of a constructor."""

    constructor: Constructor
    patterns: Sequence[Pattern]

    def __init__(self, constructor: Constructor, patterns: Sequence[Pattern] = ()):
        self.__ffi_init__(*required(constructor, list(patterns)))


@tvm_ffi.register_object("tvm_fixes.relay.PatternTuple")
class PatternTuple(Pattern):
    """Matches a tuple."""

    patterns: Sequence[Pattern]

    def __init__(self, patterns: Sequence[Pattern] = ()):
        self.__ffi_init__(*required(list(patterns)))


@tvm_ffi.register_object("tvm_fixes.relay.Clause")
class Clause(tvm_ffi.Object):
    """A case of Match."""

    lhs: Pattern
    rhs: Expr

    def __init__(self, lhs: Pattern, rhs: Expr):
        self.__ffi_init__(*required(lhs, rhs))


@tvm_ffi.register_object("tvm_fixes.relay.Match")
class Match(Expr):
    """The first clause whose pattern matches."""

    data: Expr
    clauses: Sequence[Clause]
    complete: bool

    def __init__(self, data: Expr, clauses: Sequence[Clause], complete: bool = True):
        self.__ffi_init__(*required(data, list(clauses), complete))
