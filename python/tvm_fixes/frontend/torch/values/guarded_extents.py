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
"""Extents that PyTorch knows to be equal from a guard of the program.

The docstring of ``shapes`` describes the faults of TVM's converters.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from tvm import relax, tirx

from ....fixes.torch_importer import DYNAMIC_SHAPES
from ....relax.source_nodes import SourceNode, mark_check
from ....support import switches
from ...dtypes import dtype_of
from ..call import Call, Context
from ..graph.guards import guards_of
from .operands import value_of
from .symbols import Size, Symbols

__all__ = ["check_guards", "require", "with_broadcast"]

_REMEDY = "export the program with sizes like those at run time"


def require(call: Call, condition: tirx.Expr, reason: str) -> None:
    """Check at run time that `condition` holds, unless that is provable."""
    if not call.context.is_in_branch:
        _check(call.context, condition, call.source, reason)


def check_guards(context: Context, program: ExportedProgram) -> None:
    """Check at run time that `program` is valid for the sizes of the inputs."""
    for guard in guards_of(program, context.symbols):
        origin = SourceNode(guard.inputs[0], "input")
        _check(context, guard.condition, origin, f"expected {guard.text}, as at export")


def _check(context: Context, condition: tirx.Expr, origin: SourceNode, reason: str) -> None:
    if context.symbols.analyzer.can_prove(condition):
        return
    switches.note(DYNAMIC_SHAPES)
    holds = tirx.Select(condition, tirx.const(1, "int64"), tirx.const(0, "int64"))
    # The ShapeExpr is bound first: TVM does not lower a match_cast of a ShapeExpr itself.
    shape = context.builder.emit(relax.ShapeExpr([holds]))
    var = context.builder.match_cast(shape, relax.ShapeType([1]))
    mark_check(var, origin, f"{reason}; {_REMEDY}")


@contextmanager
def with_broadcast(call: Call) -> Iterator[Call]:
    """Cast operands to extents that only PyTorch knows to be equal; gives the call with them.

    For example, the guard ``n <= 64`` makes ``64 - max(64 - n, 0)`` equal to ``n``.
    """
    cast: dict[fx.Node, relax.Expr] = {}
    for argument, sizes in _operand_sizes(call.node):
        expected = _guarded_extents(call, argument, sizes)
        if expected is not None:
            switches.note(DYNAMIC_SHAPES)
            operand = cast.get(argument, call.context.env[argument])
            ty = relax.TensorType(expected, dtype_of(operand))
            cast[argument] = call.builder.match_cast(operand, ty)
    with call.context.reading(cast):
        yield call.renewed() if cast else call


def _guarded_extents(call: Call, argument: fx.Node, sizes: Sequence[Any]) -> list[Size] | None:
    """The extents to which to cast an operand, or None if it broadcasts to `sizes` as it is."""
    ty, own = getattr(call.context.env.get(argument), "ty", None), value_of(argument)
    if not isinstance(ty, relax.TensorType) or not isinstance(own, torch.Tensor):
        return None
    symbols = call.symbols
    pairs = list(zip(own.shape, sizes[len(sizes) - own.ndim :], strict=True))
    differs = [isinstance(a, torch.SymInt) and not _broadcasts(symbols, a, b) for a, b in pairs]
    wanted = [b if is_other else a for (a, b), is_other in zip(pairs, differs, strict=True)]
    if not any(differs) or not all(
        symbols.knows(size) and symbols.is_integral(size) for size in wanted
    ):
        return None
    return symbols.shape(wanted)


def _broadcasts(symbols: Symbols, own: torch.SymInt, size: Size) -> bool:
    """Whether an extent is computed as `size` is, or is provably 1."""
    if symbols.same(own, size):
        return True
    return symbols.knows(own) and symbols.equal(symbols.convert(own), 1)


def _operand_sizes(node: fx.Node) -> Iterator[tuple[fx.Node, Sequence[Any]]]:
    """The operands of a node that must broadcast to certain sizes, and these."""
    value = node.meta.get("val")
    results = value if isinstance(value, tuple | list) else [value]
    if torch.Tag.pointwise in getattr(node.target, "tags", ()):
        for argument in node.all_input_nodes:
            yield argument, results[0].shape
    elif node.target is torch.ops.aten.cat.default:
        axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        for argument in node.args[0]:
            own = value_of(argument)
            # PyTorch accepts empty vectors among tensors of any rank.
            if isinstance(own, torch.Tensor) and own.ndim == results[0].ndim:
                sizes = list(results[0].shape)
                sizes[axis] = own.shape[axis]
                yield argument, sizes
    elif node.target is torch.ops.aten.scaled_dot_product_attention.default:
        mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if isinstance(mask, fx.Node):
            query, key = (value_of(operand) for operand in node.args[:2])
            yield mask, [*query.shape[:-1], key.shape[-2]]
