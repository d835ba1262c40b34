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
"""Input dims without a name, or with an expression as their name.

Trigger
    An ONNX input with two dims that have neither a value nor a name, ``(?, 3, ?, ?)``; a name such
    as ``a + 2*b`` or ``2*(a + 1)``.
Mechanism
    The importer looks symbols up by name, and treats the empty name as one; it evaluates an
    expression from left to right, without precedence.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it, with the names in `shape_dict`
    resolved; delete this file, its test and the fix id ``onnx-unnamed-dims``.
"""

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, count
from typing import Any, TypeAlias

import onnx
from tvm import tirx

from ....fixes.onnx_importer import UNNAMED_DIMS
from ....support import switches

__all__ = ["Dim", "evaluate_dim", "input_dims", "input_shapes", "symbol_names"]

Dim: TypeAlias = int | str | tirx.Expr
"""An extent, the name of a symbol, an expression of such names, or a TIR expression."""

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    # Exporters write / for the floored quotient of two extents.
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}


_PLACEHOLDERS = frozenset({"", "?", "*", "-1", "None"})
"""Names that exporters write for every dim without a name."""


def input_dims(graph: onnx.GraphProto, given: Mapping[str, Sequence[Dim]]) -> dict[str, list[Dim]]:
    """The shapes of the inputs of `graph`, with a name for each dim that has no size.

    Each unnamed dim gets its own name.  Exporters also write 0 and -1 for an unknown dim, and
    Paddle the name ``?`` for every dim.

    Parameters
    ----------
    graph : onnx.GraphProto
        Is not modified.
    given : mapping of str to sequence
        Shapes by the name of the input; they override those in the graph.  A dim of None, a
        negative one, or a name such as ``?``, is unnamed.

    Returns
    -------
    dict of str to list
        The shapes by the name of the input, without inputs of unknown rank.
    """
    declared = {
        value.name: [_declared_dim(dim) for dim in value.type.tensor_type.shape.dim]
        for value in graph.input
        if value.type.tensor_type.HasField("shape")
    }
    taken = {dim for dims in chain(given.values(), declared.values()) for dim in dims}
    unused = (name for name in map("dim{}".format, count()) if name not in taken)

    def named(shapes: Mapping[str, Sequence[Dim]]) -> dict[str, list[Dim]]:
        return {
            name: [next(unused) if _is_unnamed(dim) else dim for dim in dims]
            for name, dims in shapes.items()
        }

    # Inputs in `given` take part, so that the names do not depend on it.
    shapes = named(declared)
    return named(given) | {name: dims for name, dims in shapes.items() if name not in given}


def input_shapes(
    graph: onnx.GraphProto, given: Mapping[str, Sequence[Dim]]
) -> dict[str, list[int | tirx.Expr]]:
    """The shapes that :func:`input_dims` returns, with names replaced by TIR expressions."""
    shapes = input_dims(graph, given)
    names = {dim for dims in shapes.values() for dim in dims if isinstance(dim, str)}
    symbols = {name: tirx.Var(name, "int64") for name in symbol_names(names)}
    declared = {dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim}
    if not names <= declared or len(symbols) < len(names):
        switches.note(UNNAMED_DIMS)
    return {
        name: [evaluate_dim(dim, symbols) if isinstance(dim, str) else dim for dim in dims]
        for name, dims in shapes.items()
    }


def symbol_names(names: Collection[str]) -> set[str]:
    """The elements of `names` that are not expressions of the others."""
    symbols = set(names)
    for name in names:
        try:
            evaluate_dim(name, {other: 1 for other in names if other != name})
        except (KeyError, ZeroDivisionError):
            continue
        symbols.remove(name)
    return symbols


def evaluate_dim(text: str, symbols: Mapping[str, Any]) -> Any:
    """Evaluate `text`, which is a name or an expression.

    Parameters
    ----------
    text : str
        A key of `symbols`, or an expression of integers and of keys that are identifiers, with the
        operators ``+``, ``-``, ``*``, ``/`` and ``//``; both quotients are rounded down.
    symbols : mapping of str to object
        The values of names: ints or TIR expressions.

    Raises
    ------
    KeyError
        If a name is not in `symbols`, or `text` is not such an expression.
    """

    def value(node: ast.expr) -> Any:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Constant(value=int() as number):
                return number
            case ast.Name(id=name):
                return symbols[name]
        raise KeyError(text)

    if text in symbols:
        return symbols[text]
    try:
        parsed = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        raise KeyError(text) from None
    return value(parsed.body)


def _declared_dim(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    return dim.dim_value if dim.dim_value > 0 else dim.dim_param


def _is_unnamed(dim: Dim | None) -> bool:
    if isinstance(dim, int):
        return dim < 0
    return dim is None or (isinstance(dim, str) and dim.strip() in _PLACEHOLDERS)
