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
"""The rules for an untrusted program of ``torch.export.save``."""

import ast
import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Any

from .pt2_operators import is_safe

__all__ = ["CodeError", "check_program", "check_tensor_meta"]


class CodeError(ValueError):
    """A part of a program may run code when PyTorch reads or runs it."""


MAX_BITS = 4096
"""The maximum size of a number in an expression, in bits."""

_MAX_TEXT, _MAX_DEPTH, _MAX_EXPONENT, _MAX_UNBACKED = 20_000, 64, 64, 1_000_000
_SYMBOL_BITS = 64

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SYMBOL = re.compile(r"(?:s|u|zf|zuf)\d{1,6}")
_DEVICE = re.compile(r"[a-z]{1,16}")
# A name that PyTorch writes into code, in quotes or as a chain of attributes.
_PLAIN = re.compile(r"[^\x00-\x1f\x7f\"'\\{}]{0,1000}")

_ARITHMETIC = (
    "abs add and_ eq floordiv ge getitem gt invert le lshift lt mod mul ne neg not_ or_ pos pow "
    "rshift sub truediv xor"
).split()
_MATH = "acos asin atan ceil cos cosh exp floor log log2 pow sin sinh sqrt tan tanh trunc".split()
_HIGHER_ORDER = (
    "associative_scan cond flex_attention invoke_subgraph map_impl out_dtype scan strict_mode "
    "while_loop wrap wrap_with_autocast wrap_with_set_grad_enabled"
).split()

_TARGETS = re.compile(
    rf"_operator\.(?:{'|'.join(_ARITHMETIC)})"
    rf"|math\.(?:{'|'.join(_MATH)})"
    r"|torch\._?sym_[a-z0-9_]+"
    r"|torch\.ops\.aten\.(?P<aten>\w+)\.(?P<overload>\w+)"
    r"|torch\.ops\.prims\.(?:convert_element_type|device_put|iota|view_of)(?:\.default)?"
    r"|torch\.ops\.quantized_decomposed\.(?:(?:de)?quantize_per_\w+|choose_qparams\w*)"
    r"(?:\.(?:default|tensor2?))?"
    # Not roi_align and the like, which do not check the batch index of a box.
    r"|torch\.ops\.torchvision\.nms(?:\.default)?"
    rf"|torch\.ops\.higher_order\.(?:{'|'.join(_HIGHER_ORDER)})"
)

# SymPy's functions in the expressions of a program.
_FUNCTIONS = frozenset(
    "Abs Add And CeilDiv CeilToInt CleanDiv Equality Eq FloatPow FloatTrueDiv FloorDiv FloorToInt "
    "Ge GreaterThan Gt Identity IntTrueDiv IsNonOverlappingAndDenseIndicator Le LessThan Lt LShift "
    "Max Min Mod ModularIndexing Mul Ne Not Or Pow PowByNatural PythonMod RShift RoundDecimal "
    "RoundToInt StrictGreaterThan StrictLessThan ToFloat TruncToFloat TruncToInt Unequality Where "
    "ceiling floor".split()
)
_POWERS = frozenset({"FloatPow", "LShift", "Pow", "PowByNatural"})
_ASSUMPTIONS = frozenset({"integer", "nonnegative", "positive", "real", "finite", "zero"})
_CONSTANTS = frozenset({"true", "false", "oo", "int_oo"})

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.In: "in",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.NotIn: "not in",
}

_CONTAINERS = frozenset(
    {
        "builtins.dict",
        "builtins.list",
        "builtins.tuple",
        "collections.OrderedDict",
        "collections.deque",
        "collections.namedtuple",
    }
)


def check_program(program: Any) -> None:
    """Check that reading and running a program runs only its operators.

    PyTorch passes expressions to SymPy's parser, which evaluates them as Python.  It writes guards
    and the names of nodes and arguments into Python code, looks up the targets of nodes by name,
    and imports the modules that structures name.

    Parameters
    ----------
    program : torch._export.serde.schema.ExportedProgram
        The program, as read from JSON.  Metadata that is not needed is removed.

    Raises
    ------
    CodeError
        If a value does not have the type that the schema declares, or breaks a rule.
    """
    _Checker().check(program, type(program), "the program")


def check_tensor_meta(meta: Any) -> None:
    """Check the description of a weight as :func:`check_program` does."""
    _Checker().check(meta, type(meta), "a weight")


class _Checker:
    """Walks over the dataclasses of the schema, and checks every string by a rule."""

    def check(self, value: Any, declared: Any, place: str, depth: int = 0) -> None:
        """Check that `value` has the type `declared`, and check all strings in it."""
        if depth > _MAX_DEPTH:
            raise CodeError(f"{place} is nested more than {_MAX_DEPTH} deep")
        declared = _strip(declared)
        origin, arguments = typing.get_origin(declared), typing.get_args(declared)
        if origin in (typing.Union, types.UnionType):
            if value is not None:
                inner = next(a for a in arguments if a is not type(None))
                self.check(value, inner, place, depth)
        elif origin is list:
            _expect(value, list, place)
            for item in value:
                self.check(item, arguments[0], place, depth + 1)
        elif origin is dict:
            _expect(value, dict, place)
            for key, item in value.items():
                self._check_key(key, place)
                self.check(item, arguments[1], place, depth + 1)
        elif dataclasses.is_dataclass(declared):
            _expect(value, declared, place)
            self._check_fields(value, depth)
        elif declared is str:
            _expect(value, str, place)
            _rule(place)(value, place)
        elif declared is float:
            if type(value) not in (int, float):
                raise CodeError(f"{place}: expected a number, got {_show(value)}")
        elif isinstance(declared, type) and issubclass(declared, IntEnum):
            if type(value) not in (int, declared):
                raise CodeError(f"{place}: expected a number, got {_show(value)}")
        else:
            _expect(value, declared, place)

    def _check_key(self, key: Any, place: str) -> None:
        _expect(key, str, place)
        if place == "ExportedProgram.range_constraints":
            _check_symbol(key, place)
        elif place != "Node.metadata":
            _check_plain(key, place)

    def _check_fields(self, value: Any, depth: int) -> None:
        kind = type(value).__name__
        hints = _hints(type(value))  # type: ignore[arg-type]
        if kind in ("CustomObjArgument", "InputToCustomObjSpec"):
            raise CodeError("it has a custom object, which the code of its class creates")
        if kind == "Node":
            _keep_harmless(value.metadata)
        is_union = hasattr(value, "_type")
        names = [str(value.type)] if is_union else [f.name for f in dataclasses.fields(value)]
        for name in names:
            self.check(getattr(value, name), hints[name], f"{kind}.{name}", depth + 1)
        if kind == "Graph":
            for given in value.inputs:
                if given.type == "as_string":  # PyTorch makes it a guard
                    _check_plain(given.value, "Graph.inputs")


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    from torch._export.serde import schema

    return typing.get_type_hints(kind, globalns=vars(schema))


def _strip(declared: Any) -> Any:
    return declared.__origin__ if typing.get_origin(declared) is Annotated else declared


def _expect(value: Any, kind: Any, place: str) -> None:
    if type(value) is not kind:
        raise CodeError(f"{place}: expected {kind.__name__}, got {_show(value)}")


def _show(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:79]}…"


def _keep_harmless(metadata: Any) -> None:
    """Keep only the metadata that messages show: PyTorch resolves names in the rest."""
    if isinstance(metadata, dict):
        for key in set(metadata) - {"stack_trace", "nn_module_stack", "torch_fn"}:
            del metadata[key]


def _rule(place: str) -> Callable[[str, str], None]:
    """The rule for a string field of the schema; by default, a plain name."""
    return _RULES.get(place, _check_plain)


def _check_plain(text: str, place: str) -> None:
    if not isinstance(text, str) or not _PLAIN.fullmatch(text):
        raise CodeError(f"{place} is {_show(text)}, which is not a plain name")


def _check_identifier(text: str, place: str) -> None:
    if not _IDENTIFIER.fullmatch(text):
        raise CodeError(f"{place} is {_show(text)}, which is not an identifier")


def _check_optional_identifier(text: str, place: str) -> None:
    if text:
        _check_identifier(text, place)


def _check_symbol(text: str, place: str) -> None:
    if not _SYMBOL.fullmatch(text):
        raise CodeError(f"{place} is {_show(text)}, which is not the name of a symbol")


def _check_device(text: str, place: str) -> None:
    if not _DEVICE.fullmatch(text):
        raise CodeError(f"{place} is {_show(text)}, which is not a kind of device")


def _check_target(text: str, place: str) -> None:
    target = _TARGETS.fullmatch(text)
    if target is None:
        raise CodeError(f"{place} is {_show(text)}, which is not a known operator of PyTorch")
    if target["aten"] is not None and not is_safe(target["aten"], target["overload"]):
        raise CodeError(f"{place} is {_show(text)}, which is not an operator known to be safe")


def _anything(text: str, place: str) -> None:
    """Accept any string: PyTorch only quotes it."""


def _check_structure(text: str, place: str) -> None:
    """Check a structure of inputs or outputs: only Python's own containers."""
    try:
        version, node = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise CodeError(f"{place} is {_show(text)}, which is not a structure") from error
    _expect(version, int, place)
    keywords = place.endswith("in_spec") and isinstance(node, dict) and node.get("children_spec")
    _check_container(node, place, 0)
    if isinstance(keywords, list) and len(keywords) == 2:  # the names of keyword arguments
        for name in _context(keywords[1], place) or []:
            _check_optional_identifier(str(name), place)


def _check_container(node: Any, place: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise CodeError(f"{place} is nested more than {_MAX_DEPTH} deep")
    if not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
        raise CodeError(f"{place}: expected a structure, got {_show(node)}")
    if node.get("type") is not None:
        if node["type"] not in _CONTAINERS:
            raise CodeError(f"{place} has a {_show(node['type'])}, not one of Python's containers")
        context = _context(node, place)
        for key in context if isinstance(context, list) else [context]:
            if isinstance(key, str):
                _check_plain(key, place)
            elif key is not None and not isinstance(key, int | float):
                raise CodeError(f"{place}: expected a key, got {_show(key)}")
    for child in node["children_spec"]:
        _check_container(child, place, depth + 1)


def _context(node: Any, place: str) -> Any:
    context = node.get("context") if isinstance(node, dict) else None
    if context is None:
        return None
    _expect(context, str, place)
    try:
        return json.loads(context)
    except (ValueError, RecursionError) as error:
        raise CodeError(f"{place} has a context {_show(context)}") from error


def _parse(text: str, place: str) -> ast.expr:
    if len(text) > _MAX_TEXT or not text.isascii():
        raise CodeError(f"{place} is {_show(text)}, which is too long or not ASCII")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise CodeError(f"{place} is {_show(text)}, which is not an expression") from error


def _check_expression(text: str, place: str) -> None:
    """Check an expression, written by SymPy's ``srepr`` or as arithmetic of symbols."""
    try:
        bits = _bits(_parse(text, place), 0)
    except CodeError as error:
        raise CodeError(f"{place} is {_show(text)}: {error}") from error
    if bits > MAX_BITS:
        raise CodeError(f"{place} is {_show(text)}, which may become too large")


def _bits(node: ast.expr, depth: int) -> int:
    """An upper bound on the size, in bits, of a number that SymPy computes."""
    if depth > _MAX_DEPTH * 4:
        raise CodeError("it is nested too deep")
    deeper = depth + 1
    match node:
        case ast.Constant(value=bool()):
            return 1
        case ast.Constant(value=int() as number):
            return number.bit_length() + 1
        case ast.Constant(value=float()):
            return _SYMBOL_BITS
        case ast.Name(id=name) if _SYMBOL.fullmatch(name) or name in _CONSTANTS:
            return _SYMBOL_BITS
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
            return _bits(operand, deeper)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATORS):
            return _bits(left, deeper) + _bits(right, deeper)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARED):
            return max(_bits(left, deeper), _bits(right, deeper))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            return _bits_of_call(name, arguments, keywords, deeper)
    raise CodeError(f"{ast.unparse(node)[:40]!r} is not arithmetic")


def _bits_of_call(
    name: str, arguments: list[ast.expr], keywords: list[ast.keyword], depth: int
) -> int:
    options = {keyword.arg: keyword.value for keyword in keywords}
    match name, arguments:
        case "Symbol", [ast.Constant(value=str() as symbol)]:
            _check_symbol(symbol, "a symbol")
            if not all(
                key in _ASSUMPTIONS and isinstance(value, ast.Constant) and value.value is True
                for key, value in options.items()
            ):
                raise CodeError(f"symbol {symbol} has assumptions that are not allowed")
            return _SYMBOL_BITS
        case "Float", [ast.Constant(value=str() as number)] if set(options) <= {"precision"}:
            if not re.fullmatch(r"[+-]?\d{1,40}(\.\d{0,80})?(e[+-]?\d{1,3})?", number):
                raise CodeError(f"invalid number {number!r}")
            if not all(isinstance(v, ast.Constant) and v.value == 53 for v in options.values()):
                raise CodeError(f"invalid precision of {number}")
            return _SYMBOL_BITS
    if options:
        raise CodeError(f"unexpected keyword argument of {name}")
    if name in ("Integer", "Rational"):
        return sum(_integer(argument) for argument in arguments)
    if name not in _FUNCTIONS:
        raise CodeError(f"unknown function {name}")
    sizes = [_bits(argument, depth) for argument in arguments]
    if name in _POWERS and arguments:
        return sizes[0] * _exponent(arguments[-1]) + _MAX_EXPONENT
    return sum(sizes)


def _integer(node: ast.expr) -> int:
    operand = node.operand if isinstance(node, ast.UnaryOp) else node
    if not isinstance(operand, ast.Constant) or type(operand.value) is not int:
        raise CodeError(f"{ast.unparse(node)[:40]!r} is not an integer")
    return operand.value.bit_length() + 1


def _exponent(node: ast.expr) -> int:
    """The exponent, which must be a small number or a symbol: the value of others is unbounded."""
    match node:
        case ast.Call(func=ast.Name(id="Symbol")) | ast.Name():
            return 1
        case ast.Call(func=ast.Name(id="Integer"), args=[number]):
            return _small(number)
        case ast.Call(func=ast.Name(id="Rational" | "Float")):
            return 1
    return _small(node)


def _small(node: ast.expr) -> int:
    try:
        value = ast.literal_eval(node)
    except ValueError as error:
        raise CodeError(f"invalid exponent {ast.unparse(node)[:40]!r}") from error
    if type(value) is not int or abs(value) > _MAX_EXPONENT:
        raise CodeError(f"exponent {value!r:.40} is too large")
    return abs(value)


def _check_guard(text: str, place: str) -> None:
    """Check a guard: a comparison of arithmetic on the inputs' sizes, which runs as Python."""
    try:
        bits = _guard_bits(_parse(text, place), 0)
    except CodeError as error:
        raise CodeError(f"{place} has {_show(text)}: {error}") from error
    if bits > MAX_BITS:
        raise CodeError(f"{place} has {_show(text)}, which may become too large")


def _guard_bits(node: ast.expr, depth: int) -> int:
    """An upper bound on the size, in bits, of a number that a guard computes."""
    if depth > _MAX_DEPTH * 4:
        raise CodeError("it is nested too deep")
    deeper = depth + 1
    match node:
        case ast.Constant(value=int() as number):
            return number.bit_length() + 1
        case ast.Constant(value=float()) | ast.Name(id="L" | "inf"):
            return _SYMBOL_BITS
        case ast.Attribute(value=ast.Name(id="math"), attr=attribute) if attribute in [
            *_MATH,
            "inf",
            "isnan",
        ]:
            return _SYMBOL_BITS
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            return _guard_bits(operand, deeper)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATORS):
            return _guard_bits(left, deeper) + _guard_bits(right, deeper)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _guard_bits(left, deeper) * _small(right) + _MAX_EXPONENT
        case ast.BoolOp(values=values):
            return max(_guard_bits(value, deeper) for value in values)
        case ast.Compare(left=left, ops=ops, comparators=others):
            for compared in ops:
                if not isinstance(compared, _COMPARED):
                    name = _COMPARISONS[type(compared)]
                    raise CodeError(f"comparison operator {name!r} is not allowed")
            return max(_guard_bits(value, deeper) for value in (left, *others))
        case ast.Subscript(value=value, slice=ast.Constant(value=str() as key)):
            _check_plain(key, "a key")
            return _guard_bits(value, deeper)
        case ast.Subscript(value=value, slice=ast.Constant(value=int())):
            return _guard_bits(value, deeper)
        case ast.Call(func=func, args=arguments, keywords=[]):
            _check_call(func, deeper)
            sizes = [_guard_bits(argument, deeper) for argument in arguments]
            return max(_SYMBOL_BITS, sum(sizes))
    raise CodeError(f"{ast.unparse(node)[:40]!r} is not a condition on sizes")


def _check_call(func: ast.expr, depth: int) -> None:
    match func:
        case ast.Name(id="max" | "min" | "abs" | "int" | "float" | "round"):
            return
        case ast.Attribute(value=value, attr="size" | "stride" | "storage_offset"):
            _guard_bits(value, depth)
        case ast.Attribute(value=ast.Name(id="math")):
            _guard_bits(func, depth)
        # Powers and shifts of symbols could compute numbers of any size.
        case ast.Attribute(value=ast.Name(id="torch"), attr=attribute) if re.fullmatch(
            r"_?sym_(?!pow|lshift)\w+", attribute
        ):
            return
        case _:
            raise CodeError(f"call of {ast.unparse(func)[:40]!r} is not allowed")


_RULES: dict[str, Callable[[str, str], None]] = {
    "Argument.as_operator": _check_target,
    "Argument.as_string": _anything,
    "Argument.as_strings": _anything,
    "Device.type": _check_device,
    "ExportedProgram.guards_code": _check_guard,
    "GraphArgument.name": _check_identifier,
    "GraphModule.metadata": _anything,
    "InputToConstantInputSpec.name": _check_identifier,
    "ModuleCallSignature.forward_arg_names": _check_identifier,
    "ModuleCallSignature.in_spec": _check_structure,
    "ModuleCallSignature.out_spec": _check_structure,
    "NamedArgument.name": _check_optional_identifier,
    "NamedTupleDef.field_names": _check_identifier,
    "Node.metadata": _anything,
    "Node.name": _check_optional_identifier,
    "Node.target": _check_target,
    "SymBoolArgument.as_name": _check_identifier,
    "SymExpr.expr_str": _check_expression,
    "SymFloatArgument.as_name": _check_identifier,
    "SymIntArgument.as_name": _check_identifier,
    "TensorArgument.name": _check_identifier,
    "TokenArgument.name": _check_identifier,
}
"""The rules for strings, by class and field of the schema."""
