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
"""HoistSelectLoads: compute both operands of a Select, so that its loop is vectorized.

Mechanism
    ``RewriteUnsafeSelect`` turns a Select with loads into a branch, since a load may be out of
    bounds where the condition is false.  LLVM does not move loads out of a branch.
"""

import tvm
from tvm import ir, tirx
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm_ffi import WalkResult, structural_equal, structural_map, structural_walk

from ...fixes.memory import SELECT_LOADS as FIX_ID
from ..util import contains, prim_func_pass


def HoistSelectLoads() -> tvm.transform.Pass:
    """Load the operands of a Select before it, where all loads are within their buffers.

    Before::

        y[i] = T.Select(x[i] > 0, x[i], x[i] * w[c])

    and after::

        loaded = x[i]
        loaded_1 = w[c]
        y[i] = T.Select(opaque(loaded > 0), loaded, loaded * loaded_1)

    TVM knows in a branch whether a comparison of variables is true, and derives others from it as
    if there were no NaN.  So the condition is the argument of an intrinsic that returns it.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs of a CPU target.  Run it after all schedules, before
        blocks are lowered: the loads must be within their buffers for all values of the loop
        variables and of the blocks' axes.  Stores in vectorized loops stay unchanged, since TVM
        keeps a Select of vectors.  So do those in unrolled loops, which LLVM need not vectorize.
    """
    return prim_func_pass("HoistSelectLoads", FIX_ID, _hoist)


def _hoist(function: tirx.PrimFunc, _target: tvm.target.Target) -> tirx.PrimFunc:
    if not contains(function.body, tirx.Select):
        return function
    ranges = _ranges_of(function)
    repeated = _repeated_stores(function)

    def hoist(store: tirx.BufferStore) -> tirx.Stmt:
        if any(store.same_as(other) for other in repeated):
            return store
        return _with_loads_first(store, ranges)

    return structural_map(function, (tirx.BufferStore, hoist))


def _ranges_of(function: tirx.PrimFunc) -> Analyzer:
    """The ranges of the variables of loops and blocks; those with several ranges are unknown."""
    ranges: dict[tirx.Var, ir.Range | None] = {}

    def add(variable: tirx.Var, found: ir.Range) -> None:
        known = ranges.setdefault(variable, found)
        ranges[variable] = found if structural_equal(known, found) else None

    def add_axes(block: SBlock) -> None:
        for axis in block.iter_vars:
            add(axis.var, axis.dom)

    def add_loop(loop: tirx.For) -> None:
        add(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))

    structural_walk(function.body, (tirx.For, add_loop))
    structural_walk(function.body, (SBlock, add_axes))
    analyzer = Analyzer()
    for variable, found in ranges.items():
        if found is not None:
            analyzer.bind(variable, found)
    return analyzer


def _repeated_stores(function: tirx.PrimFunc) -> list[tirx.BufferStore]:
    """The stores in loops that TVM vectorizes or unrolls."""
    found: list[tirx.BufferStore] = []

    def look(loop: tirx.For) -> None:
        if loop.kind in (tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED):
            structural_walk(loop.body, (tirx.BufferStore, found.append))

    structural_walk(function.body, (tirx.For, look))
    return found


def _with_loads_first(store: tirx.BufferStore, ranges: Analyzer) -> tirx.Stmt:
    """The store, after the loads in the branches of its Selects."""
    if not _is_simple(store.value):
        return store
    loads = _loads_in_branches(store.value)
    if not loads or not all(_is_within(load, ranges) for load in loads):
        return store
    binds = [tirx.Bind(tirx.Var("loaded", load.ty), load) for load in loads]

    def loaded(load: ir.TensorLoad) -> tirx.Expr:
        found = (bind.var for bind in binds if structural_equal(bind.value, load))
        return next(found, load)

    value = structural_map(store.value, (ir.TensorLoad, loaded))
    value = structural_map(value, (tirx.Select, _with_opaque_condition))
    return tirx.SeqStmt([*binds, tirx.BufferStore(store.buffer, value, store.indices)])


def _with_opaque_condition(select: tirx.Select) -> tirx.Select:
    # The number of ones in a bit is the bit; LLVM removes the call.
    condition = tirx.call_llvm_pure_intrin("bool", "llvm.ctpop", select.condition)
    return tirx.Select(condition, select.true_value, select.false_value)


def _loads_in_branches(value: tirx.Expr) -> list[ir.TensorLoad]:
    """The distinct loads in the branches of Selects."""
    loads: list[ir.TensorLoad] = []

    def collect(node: tirx.Expr) -> WalkResult | None:
        if not any(structural_equal(node, other) for other in loads):
            loads.append(node)
        return WalkResult.SKIP

    def look(node: tirx.Expr) -> WalkResult | None:
        if isinstance(node, tirx.Select):
            for branch in (node.true_value, node.false_value):
                structural_walk(branch, (ir.TensorLoad, collect), order="pre")
        return None

    structural_walk(value, (tirx.Select, look))
    return loads


# TVM analyzes expressions of variables as if they were integers.  It rejects some of floats, such
# as remainders, and casts of conditions to 16 bits.  A load in a call may be guarded.
_COMPLEX = (
    *(ir.Call, tirx.Let, tirx.Min, tirx.Max),
    *(tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod),
)
_DTYPES = ("bool", "float32", "float64", "int8", "int32", "int64", "uint8")


def _is_simple(value: tirx.Expr) -> bool:
    """Whether a value consists of choices, comparisons, sums and products."""
    others: list[tirx.Expr] = []

    def look(node: tirx.Expr) -> WalkResult | None:
        if isinstance(node, ir.TensorLoad):
            if str(node.ty) not in _DTYPES:
                others.append(node)
            return WalkResult.SKIP
        is_number = isinstance(node, tirx.Cast) and str(node.value.ty) == "bool"
        if not is_number or not str(node.ty).startswith("int"):
            others.append(node)
        return None

    structural_walk(value, ((*_COMPLEX, tirx.Cast, ir.TensorLoad), look), order="pre")
    return not others


def _is_within(load: ir.TensorLoad, ranges: Analyzer) -> bool:
    """Whether an element is in its buffer for all values of the variables."""
    pairs = zip(load.indices, load.source.shape, strict=True)
    return all(
        ranges.can_prove(index >= 0) and ranges.can_prove(index < extent) for index, extent in pairs
    )
