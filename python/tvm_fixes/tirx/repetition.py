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
"""Loops that read each element several times in a row, as an upsampling does."""

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from .loop_nest import Nest, around_loops, substitute
from .util import divides


def split_repetition(loop: tirx.For) -> tirx.For:
    """Split the innermost loop of a nest if it reads each element several times in a row.

    Before::

        for i in range(64):
            y[i] = x[i // 2]

    and after, which LLVM vectorizes::

        for i in range(32):
            for repetition in range(2):
                y[i * 2 + repetition] = x[i]

    Parameters
    ----------
    loop : tirx.For
        The outermost loop of the nest.

    Returns
    -------
    tirx.For
        `loop` itself if nothing is repeated.
    """
    nest = Nest.of(loop)
    if nest is None or nest.block.init is not None or not nest.loops:
        return loop
    *outer, last = nest.loops
    factor = _factor(nest, last)
    if factor is None:
        return loop
    kind = last.loop_var.ty
    each, repetition = tirx.Var(last.loop_var.name, kind), tirx.Var("repetition", kind)
    position = each * factor + repetition
    extent = Analyzer().simplify(tirx.floordiv(last.extent, factor))
    values = [substitute(value, {last.loop_var: position}) for value in nest.values]
    loops = [
        *outer,
        tirx.For(each, last.min, extent, last.kind, last.body),
        tirx.For(repetition, last.min, tirx.const(factor, kind), last.kind, last.body),
    ]
    return around_loops(loops, SBlockRealize(values, True, nest.block))


def _factor(nest: Nest, loop: tirx.For) -> int | None:
    """The number of times in a row that each element is read; None if once or unknown."""
    factors: list[int] = []

    def look(quotient: tirx.FloorDiv) -> None:
        is_of_loop = tvm_ffi.structural_equal(quotient.a, loop.loop_var)
        if is_of_loop and isinstance(quotient.b, tirx.IntImm) and quotient.b.value > 1:
            factors.append(quotient.b.value)

    for store in nest.stores or []:
        structural_walk(store.value, (tirx.FloorDiv, look))
    return next((factor for factor in factors if divides(factor, loop.extent)), None)
