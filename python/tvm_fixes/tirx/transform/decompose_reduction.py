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
"""DecomposeReduction: set the initial value of a reduction that may be empty before its loop.

Mechanism
    The initial value is set in the first iteration of the innermost loop, which has no iterations.
"""

from collections.abc import Sequence

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm_ffi import structural_equal, structural_map, structural_walk

from ...fixes.elements import DECOMPOSE_REDUCTION as FIX_ID
from ...support import switches
from ...target.gpu import is_gpu
from ..loop_nest import substitute, uses
from ..util import is_positive


def DecomposeReduction() -> tvm.transform.Pass:
    """Set the initial value of each reduction that may be empty in a separate loop.

    A reduction is not empty if the extents of its loops are provably positive; such reductions stay
    unchanged.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.  Run it after fusion, since it changes the operator
        patterns that fusion uses.  For a GPU, whose schedules need whole reductions, it is a no-op:
        :func:`~tvm_fixes.tirx.transform.ApplyGpuSchedule` decomposes them.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        if not switches.enabled(FIX_ID) or is_gpu(target):
            return mod
        decomposed = {}
        for variable, function in mod.functions_items():
            if isinstance(function, tirx.PrimFunc) and may_be_empty(function):
                decomposed[variable] = decompose(function)
        if not decomposed:
            return mod
        switches.note(FIX_ID)
        mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in decomposed.items():
            mod.update_func(variable, function)
        return mod

    return tvm.transform.module_pass(run, opt_level=0, name="DecomposeReduction")


def may_be_empty(function: tirx.PrimFunc) -> bool:
    """Whether a PrimFunc has a reduction loop that is not provably non-empty.

    This does not use a Schedule, since TVM cannot make one for every extent, for example for an
    ``if_then_else``.
    """
    extents: dict[tirx.Var, tirx.Expr] = {}
    variables: list[tirx.Var] = []
    callbacks = [
        (tirx.For, lambda loop: extents.update({loop.loop_var: loop.extent})),
        (SBlockRealize, lambda node: variables.extend(_reduced(node.block, node.iter_values))),
    ]
    structural_walk(function.body, callbacks)
    return not all(is_positive(extents[each]) for each in variables if each in extents)


def decompose(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Decompose the reductions of a PrimFunc that may have no elements."""
    hidden = _rounded(function)
    schedule = Schedule(_with_parameters(function, hidden))
    # Collect all blocks first: decomposing one replaces the blocks around it.
    for block, outermost in _possibly_empty(schedule):
        schedule.decompose_reduction(block, outermost)
    result = schedule.mod["main"]
    params = list(result.params)[: len(function.params)]
    return substitute(_with_params(result, params), hidden)


def _rounded(function: tirx.PrimFunc) -> dict[tirx.Var, tirx.Expr]:
    """The rounded floats in the extents of loops, such as ``int64(float32(m) * 0.3)``, by name.

    TVM finds no bounds of an index that is computed from one.
    """
    rounded: list[tirx.Cast] = []
    defined: list[tirx.Var] = []

    def look(loop: tirx.For) -> None:
        defined.append(loop.loop_var)
        structural_walk(loop.extent, (tirx.Cast, rounded.append))

    iterators = (SBlock, lambda block: defined.extend(each.var for each in block.iter_vars))
    structural_walk(function.body, [(tirx.For, look), iterators])
    rounded_values: dict[tirx.Var, tirx.Expr] = {}
    for value in rounded:
        is_new = not any(structural_equal(value, other) for other in rounded_values.values())
        if is_new and "float" in str(value.value.ty) and not uses(value, defined):
            rounded_values[tirx.Var("rounded", value.ty)] = value
    return rounded_values


def _with_parameters(function: tirx.PrimFunc, values: dict[tirx.Var, tirx.Expr]) -> tirx.PrimFunc:
    """A PrimFunc whose further parameters are `values`."""

    def replace(value: tirx.Cast) -> tirx.Expr:
        return next((var for var, one in values.items() if structural_equal(one, value)), value)

    function = structural_map(function, (tirx.Cast, replace))
    return _with_params(function, [*function.params, *values])


def _with_params(function: tirx.PrimFunc, params: Sequence[tirx.Var]) -> tirx.PrimFunc:
    return tirx.PrimFunc(params, function.body, function.ret_type, function.attrs, function.span)


def _possibly_empty(schedule: Schedule) -> list[tuple[SBlockRV, LoopRV]]:
    """The blocks with a reduction that may be empty, and the outermost loop of that reduction."""
    bound = {}

    def remember(realize: SBlockRealize) -> None:
        bound[realize.block] = realize.iter_values

    structural_walk(schedule.mod["main"].body, (SBlockRealize, remember))
    reductions = []
    pending = [schedule.get_sblock("root")]
    while pending:
        block = pending.pop()
        pending += schedule.get_child_blocks(block)
        variables = _reduced(schedule.get(block), bound[schedule.get(block)])
        loops = [
            loop
            for loop in schedule.get_loops(block)
            if any(schedule.get(loop).loop_var.same_as(variable) for variable in variables)
        ]
        if not all(is_positive(schedule.get(loop).extent) for loop in loops):
            reductions.append((block, loops[0]))
    return reductions


def _reduced(block: SBlock, values: Sequence[tirx.Expr]) -> list[tirx.Var]:
    """The variables of the loops over which a block, bound to `values`, reduces."""
    variables: list[tirx.Var] = []
    if block.init is not None:
        for value, iterator in zip(values, block.iter_vars, strict=True):
            if iterator.iter_type == tirx.IterVar.CommReduce:
                structural_walk(value, (tirx.Var, variables.append))
    return variables
