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
"""The conditions on sizes under which ``torch.export`` recorded a program.

The docstring of ``sizes`` describes the faults of TVM's converters.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from tvm import tirx

from ..values.symbols import Size, Symbols
from .signature import arguments_of

__all__ = ["Guard", "guards_of"]

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Guard:
    """A condition on the sizes of the inputs.

    Attributes
    ----------
    text : str
        The condition as PyTorch prints it.
    inputs : tuple of str
        The names of the inputs that it reads.
    condition : tirx.Expr
    """

    text: str
    inputs: tuple[str, ...]
    condition: tirx.Expr


def guards_of(program: ExportedProgram, symbols: Symbols) -> Iterator[Guard]:
    """Yield the guards that the results depend on, as conditions on mapped symbols.

    PyTorch also records that sizes are not 1 and differ from each other, so that nothing is
    broadcast; the importer keeps symbolic extents, so these are left out.

    Parameters
    ----------
    program : ExportedProgram
        A program, which need not be decomposed.
    symbols : Symbols
        The variables of the program's symbols.
    """
    values = {
        node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")
    }
    arguments = arguments_of(program)
    found: dict[Path, Any] = {argument.path: values.get(argument.node) for argument in arguments}
    found |= {("flat_args", i): values.get(a.node) for i, a in enumerate(arguments)}
    for text in getattr(program, "_guards_code", ()):  # older versions of PyTorch have none
        reader = _Reader(found, symbols)
        try:
            expression = ast.parse(text, mode="eval").body
            if _is_specialization(expression):
                continue
            condition = reader.read(expression)
        except (SyntaxError, _UnknownError):
            continue
        if isinstance(condition, tirx.Expr):
            shown = re.sub(r"L\['(\w+)'\]", r"\1", ast.unparse(expression))
            yield Guard(shown, tuple(reader.inputs), condition)


class _UnknownError(Exception):
    """A guard reads something other than sizes."""


def _is_specialization(expression: ast.expr) -> bool:
    """Whether a guard says that a size is not 0 or 1, or that two computed sizes differ."""
    match expression:
        case ast.Compare(ops=[ast.NotEq()], comparators=[ast.Constant(value=int() as number)]):
            return number in (0, 1)
        case ast.Compare(ops=[ast.NotEq()]):
            return True
        case ast.Compare(ops=[ast.GtE()], comparators=[ast.Constant(value=2)]):
            return True
    return False


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_COMPARED: dict[type[ast.cmpop], type[tirx.Expr]] = {
    ast.Eq: tirx.EQ,
    ast.NotEq: tirx.NE,
    ast.Lt: tirx.LT,
    ast.LtE: tirx.LE,
    ast.Gt: tirx.GT,
    ast.GtE: tirx.GE,
}
_EXTREMA = {"max": tirx.max, "min": tirx.min}


class _Reader:
    """Converts the code of a guard to a TVM expression."""

    def __init__(self, values: Mapping[Path, Any], symbols: Symbols) -> None:
        self._values, self._symbols = values, symbols
        self.inputs: dict[str, None] = {}

    def read(self, node: ast.expr) -> Size:
        """Return a number or a condition.

        Raises
        ------
        _UnknownError
            If it is not computed from sizes by integer arithmetic.
        """
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.read(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return tirx.Not(self.read(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self.read(left), self.read(right))
            case ast.BoolOp(op=op, values=values):
                joined = tirx.And if isinstance(op, ast.And) else tirx.Or
                first, *others = [self.read(value) for value in values]
                for other in others:
                    first = joined(first, other)
                return first
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
                return _COMPARED[type(op)](_integer(self.read(left)), _integer(self.read(right)))
            case ast.Call(func=ast.Name(id="max" | "min" as name), args=[first, second]):
                return _EXTREMA[name](_integer(self.read(first)), _integer(self.read(second)))
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=source, attr="size"), args=[]),
                slice=ast.Constant(value=int() as axis),
            ):
                value = self._value(source)
                if isinstance(value, torch.Tensor) and self._symbols.knows(value.shape[axis]):
                    return self._symbols.convert(value.shape[axis])
            case ast.Subscript():
                value = self._value(node)
                if isinstance(value, torch.SymInt) and self._symbols.knows(value):
                    return self._symbols.convert(value)
        raise _UnknownError

    def _value(self, source: ast.expr) -> Any:
        """The value of the placeholder that stands for an input such as ``L['x'][0]``."""
        path: list[str | int] = []
        while isinstance(source, ast.Subscript):
            match source.slice:
                case ast.Constant(value=str() | int() as key):
                    path.insert(0, key)
                case _:
                    raise _UnknownError
            source = source.value
        if not (isinstance(source, ast.Name) and source.id == "L" and path):
            raise _UnknownError
        # The arguments of ``*args`` have names of their own.
        joined = (f"{path[0]}_{path[1]}", *path[2:]) if len(path) > 1 else ()
        for each in (tuple(path), joined):
            if each in self._values:
                self.inputs[".".join(map(str, each))] = None
                return self._values[each]
        raise _UnknownError


def _integer(value: Size) -> tirx.Expr:
    return tirx.const(value, "int64") if isinstance(value, int) else value
