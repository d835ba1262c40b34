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
"""Program structure beyond operators: shapes, casts, branches, function calls."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.relax import op

from .relax_programs import Item, Maker, Reject

Families = Sequence[Callable[[Maker], None]]


def shape_of(g: Maker, x: Item) -> relax.Expr:
    """The shape of a value, computed at run time or static."""
    if g.chance(0.5):
        return relax.ShapeExpr(x.dims)
    expr = g.bb.normalize(op.shape_of(x.var))
    return g.bind(expr, list(x.shape))


def match_cast(g: Maker, x: Item) -> None:
    """Bind the extents of a value to new symbols."""
    symbols: list[Any] = [
        tirx.Var(f"c{len(g.inter.symbols) + i}", "int64")
        if isinstance(one, tirx.IntImm) and g.chance(0.3)
        else one
        for i, one in enumerate(x.dims)
    ]
    ty = relax.TensorType(symbols, x.dtype)
    make = relax.DataflowVar if g.is_dataflow and g.chance(0.8) else relax.Var
    var = make(f"v{len(g.inter.values)}", ty)
    g.bindings.append(relax.MatchCast(var, x.var, ty))
    g.inter.values[var] = x.value
    for symbol, size in zip(symbols, x.shape, strict=True):
        if not any(symbol is dim for dim in x.dims):
            g.inter.symbols[symbol] = size
    g.items.append(Item(var, x.value))


def branch(g: Maker, x: Item, families: Families) -> None:
    """An If whose branches return a value of the extents and dtype of `x`."""
    condition = g.given([], "bool")
    if isinstance(condition.var, relax.DataflowVar):
        raise Reject("an If in a dataflow block")
    bodies = [_branch_body(g, x, families) for _ in range(2)]
    g.emit(relax.If(condition.var, *bodies))


def _inner(g: Maker, items: list[Item], **kwargs: Any) -> Maker:
    made = Maker(g.rng, g.special, g.bb, g.symbols, outer=g, **kwargs)
    made.items = items
    made.is_dataflow = False
    return made


def _steps(made: Maker, families: Families, limit: int) -> None:
    for _ in range(made.between(1, limit)):
        try:
            made.choice(families)(made)
        except Reject:
            continue


def _branch_body(g: Maker, x: Item, families: Families) -> relax.SeqExpr:
    made = _inner(g, [x], inter=g.inter)
    _steps(made, families, 3)
    fits = [
        item
        for item in made.items
        if item.dtype == x.dtype
        and item.rank == x.rank
        and all(_is_same(a, b) for a, b in zip(item.dims, x.dims, strict=True))
    ]
    result = fits[-1].var
    made.bindings.append(relax.VarBinding(relax.Var("taken", result.ty), result))
    made.inter.values[made.bindings[-1].var] = fits[-1].value
    result = made.bindings[-1].var
    made.end_block()
    return g.bb.normalize(relax.SeqExpr(made.blocks, result))


def _is_same(a: Any, b: Any) -> bool:
    return a.same_as(b) or (
        isinstance(a, tirx.IntImm) and isinstance(b, tirx.IntImm) and a.value == b.value
    )


def call(g: Maker, x: Item, families: Families) -> None:
    """A call of a new function of one or two parameters, maybe with its own symbols."""
    symbols: dict[tirx.Var, int] = {}
    dims: list[Any] = []
    for extent, size in zip(x.dims, x.shape, strict=True):
        if g.chance(0.3) or not isinstance(extent, tirx.IntImm):
            symbol = tirx.Var(f"k{len(symbols)}", "int64")
            symbols[symbol] = size
            dims.append(symbol)
        else:
            dims.append(extent)
    made = Maker(g.rng, g.special, g.bb, symbols, outer=g)
    arguments = [x]
    for name in ("a", "b")[: g.between(1, 2)]:
        made.params.append(relax.Var(name, relax.TensorType(dims, x.dtype)))
        made.inter.values[made.params[-1]] = x.value
        made.items.append(Item(made.params[-1], x.value))
    arguments += [x] * (len(made.params) - 1)
    _steps(made, families, 4)
    live = [item for item in made.items if isinstance(item.var, relax.Var)]
    if not live:
        raise Reject("nothing to return")
    function = made.finish(live[-made.between(1, 2) :], "f", private=True)
    variable = g.bb.add_func(function, f"f{len(g.bb.get().get_global_vars())}")
    g.inter.mod = g.bb.get()
    g.emit(relax.Call(variable, [argument.var for argument in arguments]))
