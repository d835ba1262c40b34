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
"""Why kernels are not fused."""

from collections.abc import Iterator
from enum import IntEnum

import tvm
from tvm import relax, tirx

from .analysis import bindings, reads
from .ir import is_kernel_call, is_primitive, relax_functions, variables
from .source_nodes import names_of


class _Pattern(IntEnum):
    """TVM's OpPatternKind, with its numbers."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    HEAVY = 4
    OPAQUE = 8


def unfused(mod: tvm.IRModule) -> Iterator[tuple[str, str]]:
    """Find elementwise and injective kernels that are not fused with the kernel before them.

    Parameters
    ----------
    mod : tvm.IRModule
        A module after ``FuseOps``.

    Yields
    ------
    str, str
        The nodes of the kernel, and the reason.
    """
    for function in relax_functions(mod).values():
        if not is_primitive(function):
            yield from _unfused_in(function, mod)


def _unfused_in(function: relax.Function, mod: tvm.IRModule) -> Iterator[tuple[str, str]]:
    counts = reads(function)
    patterns: dict[relax.Var, _Pattern] = {}
    places: dict[relax.Var, int] = {}
    for place, binding in enumerate(bindings(function)):
        pattern = _pattern_of(binding.value, mod)
        if pattern is None:
            continue
        patterns[binding.var], places[binding.var] = pattern, place
        before = [var for var in variables(binding.value) if var in patterns]
        if before and pattern <= _Pattern.INJECTIVE:
            # A kernel could be fused with the last of its producers.
            last = max(before, key=places.__getitem__)
            reason = _reason(patterns[last], pattern, counts[last])
            own, other = names_of(binding.var), names_of(last)
            # A lowered layout transform belongs to its reader.
            with_what = "the kernel before it" if other == own else other
            yield own, f"not fused with {with_what}: {reason}"


def _reason(before: _Pattern, pattern: _Pattern, number_of_readers: int) -> str:
    if before is _Pattern.OPAQUE:
        return "TVM cannot fuse such a kernel"
    if before is _Pattern.REDUCTION:
        return "TVM fuses nothing after a reduction"
    if number_of_readers > 1:
        return f"its result is used {number_of_readers} times"
    if before is _Pattern.HEAVY and pattern is _Pattern.INJECTIVE:
        return "TVM fuses only elementwise operators after it"
    return "the group would be too large, or needs a value from outside"


def _pattern_of(value: relax.Expr, mod: tvm.IRModule) -> _Pattern | None:
    """The pattern of the kernel that a value calls; of a fused one, the highest of its parts."""
    if is_kernel_call(value):
        kernel = mod.functions.get(value.args[0])
    elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
        kernel = mod.functions.get(value.op)
    else:
        return None
    if isinstance(kernel, tirx.PrimFunc):
        number = kernel.attrs.get("op_pattern") if kernel.attrs else None
        known = [pattern for pattern in _Pattern if number is not None and pattern == int(number)]
        return known[0] if known else _Pattern.OPAQUE
    if kernel is not None and is_primitive(kernel):
        parts = [_pattern_of(binding.value, mod) for binding in bindings(kernel)]
        return max((part for part in parts if part is not None), default=None)
    return None
