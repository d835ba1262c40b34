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
"""JoinSplitIndices: keep the constants of an index that is split again.

Upstream
    None known.
Versions
    Seen in 0.27.0.post1.
Trigger
    A quotient or remainder of a sum of a constant and a quotient or remainder, such as
    ``(i % 15 + 38) // 15`` or ``((i + 12) // 7 * 7 + (i + 5) % 7) % 15``.  The last vector of a
    reshaped tensor has such an index.
Symptom
    The kernel silently reads other elements.
Mechanism
    IterMapSimplify, which FlattenBuffer uses to simplify indices, moves the constant into the inner
    remainder, or drops it: the examples become ``(i + 8) % 15 // 15 + 2`` and ``(i + 7) % 15``.
How to remove
    When TVM passes the tests of this file, delete it, its tests, its line in
    :mod:`tvm_fixes.tirx.semantics` and the fix id ``split-indices``.
"""

from collections.abc import Iterator
from functools import partial

import tvm
from tvm import tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from ...fixes.elements import SPLIT_INDICES as FIX_ID
from ..util import contains, divides, prim_func_pass

_SPLITS = (tirx.FloorDiv, tirx.FloorMod)
_SUMS = (tirx.Add, tirx.Sub)
_TRUNCATED = {tirx.FloorDiv: tirx.truncdiv, tirx.FloorMod: tirx.truncmod}


def JoinSplitIndices() -> tvm.transform.Pass:
    """Join the parts of a split index, and hide the remaining quotients from IterMapSimplify.

    Before::

        y[i] = x[((i + 12) // 7 * 7 + (i + 5) % 7) % 15]
        z[i] = x[(i % 15 + 38) // 15]

    and after::

        y[i] = x[(i + 12) % 15]
        z[i] = x[truncdiv(i % 15 + 38, 15)]

    For a non-negative number, ``truncdiv`` equals ``//``.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.  Run it after all schedules.
    """
    return prim_func_pass("JoinSplitIndices", FIX_ID, _join, any_target=True)


def _join(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    if not contains(function.body, _SPLITS, lambda node: _may_be_misread(node.a)):
        return function
    analyzer = _with_ranges(function)
    return structural_map(function, (_SPLITS, partial(_joined, analyzer)))


def _with_ranges(function: tirx.PrimFunc) -> Analyzer:
    """An analyzer that knows the ranges of the loops and the blocks."""
    ranges: dict[tirx.Var, list[tvm.ir.Range]] = {}

    def add_loop(loop: tirx.For) -> None:
        bounds = tvm.ir.Range.from_min_extent(loop.min, loop.extent)
        ranges.setdefault(loop.loop_var, []).append(bounds)

    def add_iterator(iterator: tirx.IterVar) -> None:
        ranges.setdefault(iterator.var, []).append(iterator.dom)

    structural_walk(function.body, [(tirx.For, add_loop), (tirx.IterVar, add_iterator)])
    analyzer = Analyzer()
    for variable, found in ranges.items():
        # Loops may share a variable.
        if len(found) == 1:
            analyzer.bind(variable, found[0])
    return analyzer


def _joined(analyzer: Analyzer, node: tirx.Expr) -> tirx.Expr:
    """Rewrite a quotient or remainder so that IterMapSimplify does not misread it."""
    if not _may_be_misread(node.a):
        return node
    terms = list(_terms(node.a))
    count = len(terms)
    while (pair := _find_split(terms)) is not None:
        quotient, remainder, whole = pair
        terms = [term for index, term in enumerate(terms) if index not in (quotient, remainder)]
        terms.append(whole)
    index = node.a if len(terms) == count else analyzer.simplify(sum(terms[1:], terms[0]))
    if not _may_be_misread(index):
        return type(node)(index, node.b)
    if not (analyzer.can_prove(index >= 0) and analyzer.can_prove(node.b > 0)):
        return node
    return _TRUNCATED[type(node)](index, node.b)


def _may_be_misread(index: tirx.Expr) -> bool:
    """Whether an index is a sum that contains a quotient or remainder and a constant."""
    return (
        isinstance(index, _SUMS) and contains(index, _SPLITS) and contains(index, _SUMS, _is_shift)
    )


def _is_shift(node: tirx.Expr) -> bool:
    """Whether a constant, other than 0, is added or subtracted."""
    return any(isinstance(term, tirx.IntImm) and term.value != 0 for term in (node.a, node.b))


def _terms(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """The terms of a sum."""
    if isinstance(expr, tirx.Add):
        yield from _terms(expr.a)
        yield from _terms(expr.b)
    elif isinstance(expr, tirx.Sub) and isinstance(expr.b, tirx.IntImm):
        yield from _terms(expr.a)
        yield tirx.IntImm(expr.b.ty, -expr.b.value)
    else:
        yield expr


def _find_split(terms: list[tirx.Expr]) -> tuple[int, int, tirx.Expr] | None:
    """The positions of a quotient and a remainder of the same index, and their sum."""
    for low, remainder in enumerate(terms):
        if not _is_split(remainder, tirx.FloorMod):
            continue
        for high, term in enumerate(terms):
            whole = _whole(term, remainder)
            if whole is not None:
                return high, low, whole
    return None


def _is_split(expr: tirx.Expr, kind: type[tirx.Expr]) -> bool:
    """Whether an expression is a quotient or remainder by a positive constant."""
    return isinstance(expr, kind) and isinstance(expr.b, tirx.IntImm) and expr.b.value > 0


def _whole(term: tirx.Expr, remainder: tirx.FloorMod) -> tirx.Expr | None:
    """The sum of `term`, ``x // k * k`` or ``x // k % m * k``, and ``x % k``; None otherwise."""
    if not isinstance(term, tirx.Mul):
        return None
    part, scale = (term.a, term.b) if isinstance(term.b, tirx.IntImm) else (term.b, term.a)
    size = remainder.b.value
    if not isinstance(scale, tirx.IntImm) or scale.value != size:
        return None
    quotient, count = (part.a, part.b.value) if _is_split(part, tirx.FloorMod) else (part, None)
    if not _is_split(quotient, tirx.FloorDiv) or quotient.b.value != size:
        return None
    index = quotient.a
    # TVM simplifies the index of each part separately: they may differ by a multiple.
    if not divides(size, index - remainder.a):
        return None
    return index if count is None else tirx.floormod(index, count * size)
