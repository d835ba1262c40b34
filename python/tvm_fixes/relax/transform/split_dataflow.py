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
"""SplitDataflow: keep the uses of a symbolic dim after the ``match_cast`` that binds it.

Trigger
    An extent that is known only at run time (Range, NonZero, a Slice by an input), and an operator
    that uses it and can be fused with an operator before the ``match_cast``.  A field of a tuple
    that both a ``match_cast`` and a fusible operator read.  A tensor that operators read both
    directly and through a ``match_cast`` that checks it.  A ``match_cast`` from known extents to
    others: from ``2 * n`` to ``m``, or from ``64 - max(64 - n, 0)`` to ``n``.
Mechanism
    FuseOps orders its groups by their operands.  A symbolic dim is not an operand, so a group that
    uses it may move before the ``match_cast``.  A field is fused with its reader, into a function
    that returns the field unchanged.  A ``match_cast`` does not count as a reader: FuseOps moves
    the value that it checks into the group of a later operator.  FuseTIR replaces each symbol of a
    ``match_cast`` by the extent of the value, even where only variables are allowed, and again
    within the replacement.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_equal, structural_map, structural_walk

from ...fixes.elements import SPLIT_DATAFLOW as FIX_ID
from ..guard import fix_pass
from ..ir import relax_functions


def SplitDataflow() -> tvm.transform.Pass:
    """Split dataflow blocks at each ``match_cast`` that binds a symbol or reads a tuple field.

    A ``match_cast`` of a tuple's field, or of a variable with another reader, also gets a separate
    block.  FuseOps does not fuse across blocks.  Before a ``match_cast`` to other extents, another
    one casts the value to an unknown shape.

    Returns
    -------
    tvm.transform.Pass
        A module pass.  It splits the blocks of functions, not those of branches.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        split_functions = {
            variable: _split(function) for variable, function in relax_functions(mod).items()
        }
        split = {
            variable: function
            for variable, function in split_functions.items()
            if function is not None
        }
        if not split:
            return None
        functions = dict(mod.functions_items()) | split
        return relax.transform.Normalize()(tvm.IRModule(functions, attrs=mod.attrs))

    return fix_pass("SplitDataflow", FIX_ID, rewrite)


def _split(function: relax.Function) -> relax.Function | None:
    """`function` with split blocks; None if no block needs to be split."""
    bound = _symbols(parameter.ty for parameter in function.params)
    fields: set[relax.Var] = set()
    blocks: list[relax.BindingBlock] = []
    is_changed = False
    for block in function.body.blocks:
        is_dataflow = isinstance(block, relax.DataflowBlock)
        pending: list[relax.Binding] = []
        reads = _reads(block)
        bindings = _forgetting(block.bindings)
        is_changed |= len(bindings) > len(block.bindings)
        for binding in bindings:
            is_cast = isinstance(binding, relax.MatchCast)
            symbols = _symbols([binding.ty]) if is_cast else set()
            if isinstance(binding.value, relax.TupleGetItem):
                fields.add(binding.var)
            is_shared = is_cast and (binding.value in fields or reads[binding.value] > 1)
            if is_dataflow and is_cast and (is_shared or not symbols <= bound):
                if pending:
                    blocks.append(relax.DataflowBlock(pending))
                blocks.append(relax.BindingBlock([binding]))
                pending = []
            else:
                pending.append(binding)
            bound |= symbols
        if pending:
            kind = relax.DataflowBlock if is_dataflow else relax.BindingBlock
            blocks.append(kind(pending))
    if not is_changed and len(blocks) == len(function.body.blocks):
        return None
    body = relax.SeqExpr(blocks, function.body.body)
    return _with_outputs(
        relax.Function(
            function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
        )
    )


def _forgetting(bindings: Sequence[relax.Binding]) -> list[relax.Binding]:
    """Insert a cast to an unknown shape before each cast to other extents."""
    result: list[relax.Binding] = []
    for binding in bindings:
        if isinstance(binding, relax.MatchCast) and _has_other_extents(binding):
            ty = binding.value.ty
            unknown = relax.TensorType(dtype=ty.dtype, vdevice=ty.vdevice, ndim=ty.ndim)
            first = type(binding.var)(f"{binding.var.name}_unchecked", unknown)
            result.append(relax.MatchCast(first, binding.value, unknown))
            binding = relax.MatchCast(binding.var, first, binding.ty)
        result.append(binding)
    return result


def _has_other_extents(cast: relax.MatchCast) -> bool:
    """Whether a cast replaces known extents of a tensor by others that have symbols."""
    given, wanted = (getattr(ty, "shape", None) for ty in (cast.value.ty, cast.ty))
    return (
        isinstance(given, relax.ShapeExpr)
        and isinstance(wanted, relax.ShapeExpr)
        and bool(_symbols([cast.ty]))
        and not structural_equal(given, wanted)
    )


def _reads(block: relax.BindingBlock) -> Counter[tvm.Object]:
    """The number of times that the bindings of a block read each variable."""
    reads: Counter[tvm.Object] = Counter()
    for binding in block.bindings:
        structural_walk(binding.value, (relax.Var, lambda variable: reads.update([variable])))
    return reads


def _symbols(types: Iterable[tvm.ir.Type]) -> set[tirx.Var]:
    symbols: set[tirx.Var] = set()
    for ty in types:
        structural_walk(ty, (tirx.Var, symbols.add))
    return symbols


def _with_outputs(function: relax.Function) -> relax.Function:
    """Replace the dataflow variables that are used outside their block by plain variables."""
    home: dict[relax.Var, int] = {}
    shared: dict[relax.Var, relax.Var] = {}

    def share(variable: relax.Var) -> None:
        shared[variable] = relax.Var(variable.name, variable.ty, variable.span)

    for number, block in enumerate(function.body.blocks):
        home.update((binding.var, number) for binding in block.bindings)

        def use(variable: relax.DataflowVar, number: int = number) -> None:
            if home.get(variable, number) != number:
                share(variable)

        for binding in block.bindings:
            structural_walk(binding.value, (relax.DataflowVar, use))
            if not isinstance(block, relax.DataflowBlock):
                if isinstance(binding.var, relax.DataflowVar):
                    share(binding.var)
    return structural_map(function, (relax.DataflowVar, lambda old: shared.get(old, old)))
