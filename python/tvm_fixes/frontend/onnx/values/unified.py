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
"""Symbols of inputs that later nodes make equal to others, or constant."""

from collections.abc import Mapping

import tvm
from tvm import relax, tirx

from ....relax.analysis import bindings
from ....relax.transform.specialize_kernels import SpecializeKernels

__all__ = ["with_values"]


def with_values(mod: tvm.IRModule, values: Mapping[tirx.Var, tirx.Expr]) -> tvm.IRModule:
    """Replace symbols of ``main`` by `values`, and give kernels the extents of their calls.

    Symbols that a ``match_cast`` binds to an extent that becomes constant are replaced, too:
    FuseTIR replaces them in calls, but not in kernels.
    """
    known = dict(values)
    while known:
        mod = relax.transform.BindSymbolicVars(known, "main")(mod)
        known = _constants(mod["main"])
    return SpecializeKernels()(mod)


def _constants(function: relax.Function) -> dict[tirx.Var, tirx.Expr]:
    """The symbols that a ``match_cast`` of a known shape binds to constants."""
    shapes: dict[relax.Var, relax.ShapeExpr] = {}
    found: dict[tirx.Var, tirx.Expr] = {}
    for binding in bindings(function):
        value = binding.value
        if isinstance(binding, relax.VarBinding):
            if isinstance(value, relax.ShapeExpr):
                shapes[binding.var] = value
            continue
        shape = value if isinstance(value, relax.ShapeExpr) else shapes.get(value)
        if shape is None or not isinstance(binding.ty, relax.ShapeType):
            continue
        for symbol, extent in zip(binding.ty.values or (), shape.values, strict=False):
            if isinstance(symbol, tirx.Var) and isinstance(extent, tirx.IntImm):
                found.setdefault(symbol, extent)
    return found
