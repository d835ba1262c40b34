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
"""Equalities of extents that hold in every run that gets this far."""

from collections.abc import Mapping
from typing import TypeAlias

import tvm
from tvm import tirx
from tvm_ffi import structural_map, structural_walk

__all__ = ["Replacements", "has_symbol"]

_Extent: TypeAlias = int | tirx.Expr


class Replacements(Mapping[tirx.Var, _Extent]):
    """The extents that symbols are equal to; they contain none of these symbols."""

    def __init__(self, replaced: Mapping[tirx.Var, _Extent] | None = None) -> None:
        self._replaced = dict(replaced or {})

    def __getitem__(self, symbol: tirx.Var) -> _Extent:
        return self._replaced[symbol]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._replaced)

    def __len__(self) -> int:
        return len(self._replaced)

    def add(self, symbol: tirx.Var, extent: _Extent) -> None:
        """Replace `symbol` by `extent`, which does not contain it, from now on."""
        one = Replacements({symbol: self.applied(extent)})
        self._replaced = {
            known: one.applied(other) for known, other in self.items()
        } | one._replaced

    def applied(self, extent: _Extent) -> _Extent:
        """`extent` without the replaced symbols."""
        if not self._replaced or not isinstance(extent, tirx.Expr):
            return extent
        return structural_map(extent, (tirx.Var, self._of))

    def _of(self, symbol: tirx.Var) -> tirx.Expr:
        extent = self._replaced.get(symbol, symbol)
        return extent if isinstance(extent, tirx.Expr) else tirx.const(extent, "int64")


def has_symbol(extent: _Extent, symbol: tirx.Var) -> bool:
    """Whether `extent` contains `symbol`."""
    found: list[tirx.Var] = []
    if isinstance(extent, tvm.runtime.Object):
        structural_walk(extent, (tirx.Var, found.append))
    return any(symbol.same_as(other) for other in found)
