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
"""Data flow between some bindings, through tuples, branches and functions."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import tvm
from tvm import relax

from .analysis import bindings
from .ir import relax_functions, variables


def data_flow(mod: tvm.IRModule, results: Sequence[relax.Var]) -> list[tuple[int, ...]]:
    """For each of the given variables, find those that its value reads.

    Parameters
    ----------
    mod : tvm.IRModule
        A module of normalized functions.
    results : sequence of relax.Var
        Bound variables.

    Returns
    -------
    reads : list of tuple of int
        For each variable, indices in `results`: its operands, or what they are computed from by
        bindings of other variables.  The value of an If may be that of either branch, and a
        parameter may be the argument of any call of its function.
    """
    places = {var: place for place, var in enumerate(results)}
    steps = [step for function in relax_functions(mod).values() for step in _steps(mod, function)]
    origins: dict[relax.Var, set[int]] = defaultdict(set)
    size = -1
    # Repeat: a call may come before the callee's bindings.
    while size < (size := sum(map(len, origins.values()))):
        for var, operands in steps:
            if var in places:
                origins[var].add(places[var])
            else:
                origins[var].update(*(origins[operand] for operand in operands))
    reads: list[set[int]] = [set() for _ in results]
    for var, operands in steps:
        if var in places:
            reads[places[var]].update(*(origins[operand] for operand in operands))
    return [tuple(sorted(found)) for found in reads]


def _steps(
    mod: tvm.IRModule, function: relax.Function
) -> Iterator[tuple[relax.Var, list[relax.Var]]]:
    """Each variable with those from which its value comes."""
    local: dict[relax.Var, relax.Function] = {}
    for binding in bindings(function):
        var, value = binding.var, binding.value
        if isinstance(value, relax.Function):
            local[var] = value
            continue
        if isinstance(value, relax.If):
            yield var, [*_returned(value.true_branch), *_returned(value.false_branch)]
            continue
        callee = value.op if isinstance(value, relax.Call) else None
        called = local.get(callee) if isinstance(callee, relax.Var) else None
        if isinstance(callee, tvm.ir.GlobalVar) and isinstance(mod[callee], relax.Function):
            called = mod[callee]
        if called is None:
            yield var, _returned(value)
            continue
        for param, argument in zip(called.params, value.args, strict=True):
            yield param, variables(argument)
        yield var, _returned(called.body)


def _returned(expr: relax.Expr) -> list[relax.Var]:
    """The variables in the result of an expression."""
    return variables(expr.body if isinstance(expr, relax.SeqExpr) else expr)
