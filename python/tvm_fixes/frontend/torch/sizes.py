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
"""Sizes of an exported program, and the types that PyTorch recorded for its values.

Trigger
    A program with dynamic dims that computes with sizes (``x.shape[1] // 2``, ``max``), slices,
    splits, pads or reshapes by them; an element from the end of a dynamic axis; negative padding;
    ``cat`` with an empty tensor or of several dtypes; squeezes and ``topk`` of symbolic sizes;
    ``topk`` in any order; ``nonzero``.  An input whose size is a multiple of a symbol that is not
    the size of any input.  A converter that returns a type other than PyTorch's.
Mechanism
    The importer recomputes sizes with converters for only four operators; a static size becomes an
    int32 tensor.  An input size other than a sum or product becomes a new symbol.  Nothing compares
    the type of a value with the one that ``torch.export`` recorded.
How to remove
    See ``corrections``.
"""

from collections.abc import Callable
from typing import Any

import sympy
import torch
import tvm
from torch import fx
from tvm import relax, te, tirx
from tvm.ir import PrimType

from ...errors import OpNotImplemented
from ...fixes.torch_importer import DTYPE, PROMOTION
from ...fixes.torch_importer import DYNAMIC_SHAPES as FIX_ID
from ...support import switches
from ..dtypes import dtype_of
from .corrections import Converters, static_extent
from .found_elements import FoundElements
from .plain_values import PlainValues
from .promotion import value_of
from .symbols import MAX_EXTENT, Symbols

__all__ = ["Sizes", "forget_derived_ranges"]

_NUMBERS = (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)

Convert = Callable[[fx.Node], relax.Expr]


def forget_derived_ranges(program: torch.export.ExportedProgram) -> None:
    """Remove the ranges of derived dims, so that PyTorch 2.13 can decompose a loaded program.

    ``torch.export.load`` stores the ranges of dims such as ``length + 1`` among those of symbols,
    and ``run_decompositions`` accepts only those of symbols ("expected sympy.Symbol").
    """
    for node in program.graph.find_nodes(op="placeholder"):
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is None or mode.shape_env is None:
            continue
        ranges = mode.shape_env.var_to_range
        for expression in [e for e in ranges if not isinstance(e, sympy.Symbol)]:
            del ranges[expression]


def _is_empty_list(value: torch.Tensor) -> bool:
    """Whether a tensor has rank 1 and the static extent 0."""
    return value.ndim == 1 and isinstance(value.shape[0], int) and value.shape[0] == 0


class Sizes(FoundElements, PlainValues):
    """Converters of sizes; the importer uses those of ``torch.export`` and recomputes none."""

    def __init__(self) -> None:
        self._symbols = Symbols()
        # For input sizes that are multiples such as 2*s: the variable of each size, and the inputs
        # that still need a cast to the type that such sizes require.
        self._multiples: dict[sympy.Expr, tirx.Var] = {}
        self._unchecked: list[tuple[relax.Var, relax.TensorType]] = []
        self._guarded: torch.export.ExportedProgram | None = None
        super().__init__()

    def sizing_converters(self, stock: Converters) -> Converters:
        """Return converters that replace those of `stock`, or wrap them."""
        return {
            **self.slicing_converters(stock),
            "var.correction": self._variance_converter(stock["var.correction"]),
            "cat.default": self._cat_converter(stock["cat.default"]),
            **self.searching_converters(stock),
            **{
                name: self._reshape_converter(stock[name])
                for name in ("reshape.default", "view.default")
            },
            **{
                name: self._squeeze_converter(stock[name])
                for name in ("squeeze.default", "squeeze.dim", "squeeze.dims")
            },
        }

    def typed_converter(self, convert: Convert) -> Convert:
        """Wrap `convert` to give results the type that PyTorch recorded, or to reject them."""

        def typed(node: fx.Node) -> Any:
            value = node.meta.get("val")
            if self._is_in_branch:
                return convert(node)
            self._check_inputs()
            if isinstance(value, _NUMBERS):
                return self._number(node, convert)
            with self._broadcast(node):
                result = convert(node)
            if isinstance(result, relax.Call):
                # Some of TVM's converters return a call without binding it.
                result = self.block_builder.emit(result)
            is_tensor = isinstance(value, torch.Tensor) and isinstance(result, relax.Expr)
            return self._typed(node, result) if is_tensor and node.users else result

        return typed

    def check_guards_of(self, program: torch.export.ExportedProgram) -> None:
        """Let the function check the conditions under which PyTorch recorded `program`."""
        self._guarded = program if switches.enabled(FIX_ID) else None

    def _check_inputs(self) -> None:
        """Check the sizes of inputs, before the first operator.

        Inputs whose sizes are multiples are cast, so that their readers see these sizes.
        """
        guarded, self._guarded = self._guarded, None
        if guarded is not None:
            self._check_guards(guarded)
        while self._unchecked:
            given, ty = self._unchecked.pop()
            checked = self.block_builder.match_cast(given, ty)
            reads = [n for n, value in self.env.items() if given.same_as(value)]
            self.env.update(dict.fromkeys(reads, checked))

    def _number(self, node: fx.Node, convert: Convert) -> Any:
        """Convert a size, or a number computed from sizes."""
        value = node.meta["val"]
        if not self._symbols.knows(value):
            # The number comes from the elements of a tensor.
            result = convert(node)
            if isinstance(getattr(result, "ty", None), PrimType):
                self._symbols.bind(value, result)
            return result
        number = self._symbols.convert(value)
        if isinstance(value, torch.SymBool) and isinstance(number, relax.Expr):
            return self.block_builder.emit(relax.prim_value(number))
        return number

    def _typed(self, node: fx.Node, result: relax.Expr) -> relax.Expr:
        """Give `result` the type that PyTorch recorded for `node`.

        Sizes that TVM cannot prove are checked at run time.

        Raises
        ------
        tvm.error.OpNotImplemented
            If the dtype, rank or extents of `result` differ.
        """
        value = node.meta["val"]
        if value.dtype.is_complex or not isinstance(result.ty, relax.TensorType):
            return result
        dtype = self._convert_data_type(value.dtype)
        given = result.ty.shape if isinstance(result.ty.shape, relax.ShapeExpr) else None
        if given is not None and len(given) == len(value.shape):
            for size, extent in zip(value.shape, given, strict=True):
                if not self._symbols.knows(size):
                    self._symbols.bind(size, extent)
        expected = self._symbols.shape(value.shape)
        ranks = {result.ty.ndim, len(expected)} - {-1}
        # If another switch selects TVM's converter, the result keeps the dtype that TVM computes.
        if not (switches.enabled(DTYPE) and switches.enabled(PROMOTION)):
            dtype = dtype_of(result)
        differs = dtype_of(result) != dtype or len(ranks) > 1
        if not differs and given is not None:
            pairs = [
                (static_extent(a), static_extent(b)) for a, b in zip(given, expected, strict=True)
            ]
            differs = any(None not in pair and pair[0] != pair[1] for pair in pairs)
        if differs:
            raise OpNotImplemented(
                f"{node.target} {node.name!r}: imported as {dtype_of(result)} "
                f"{'of unknown shape' if given is None else list(given)}; "
                f"PyTorch gives {dtype} {expected}"
            )
        if given is not None:
            is_proved = all(map(self._symbols.equal, given, expected))
            if is_proved or not all(map(self._symbols.is_integral, value.shape)):
                return result
        switches.note(FIX_ID)
        return self.block_builder.match_cast(result, relax.TensorType(expected, dtype))

    def _process_derived_symbol(
        self, symbol: sympy.Expr, torch_symbol_to_relax_var: dict[str, tirx.Var]
    ) -> tuple[str, tirx.Expr | None]:
        """Return the name and the expression of an input's size."""
        if symbol in self._multiples:
            return str(symbol), self._multiples[symbol]
        if isinstance(symbol, sympy.Symbol) or not switches.enabled(FIX_ID):
            return super()._process_derived_symbol(symbol, torch_symbol_to_relax_var)
        for free in symbol.free_symbols:
            variable = tirx.Var(str(free), "int64")
            self._symbols.bind(free, torch_symbol_to_relax_var.setdefault(str(free), variable))
        return str(symbol), self._symbols.convert(symbol)

    def create_input_vars(self, exported_program: torch.export.ExportedProgram) -> Any:
        """Create the inputs like TVM, and bind the program's symbols to their variables."""
        if switches.enabled(FIX_ID):
            self._bind_multiples(exported_program)
        weights, inputs, ranges = super().create_input_vars(exported_program)
        variables = weights | inputs
        for name, (lower, upper) in ranges.items():
            # PyTorch may derive a bound that no int64 can hold.
            ranges[name] = (lower, None if upper is None or upper > MAX_EXTENT else upper)
        for node in exported_program.graph.find_nodes(op="placeholder"):
            if node.name in variables and isinstance(node.meta.get("val"), torch.Tensor):
                shape = variables[node.name].ty.shape
                for size, extent in zip(node.meta["val"].shape, shape, strict=True):
                    self._symbols.bind(size, extent)
                self._check_multiples(variables[node.name], node.meta["val"].shape)
        for symbol, limits in exported_program.range_constraints.items():
            self._symbols.restrict(symbol, limits.lower, limits.upper)
        return weights, inputs, ranges

    def _check_multiples(self, variable: relax.Var, sizes: torch.Size) -> None:
        """Request a cast of an input, which checks that the symbols of its `sizes` are integers."""
        extents = self._symbols.shape(sizes)
        if not all(map(self._symbols.equal, extents, variable.ty.shape)):
            type_ = relax.TensorType(extents, variable.ty.dtype)
            self._unchecked.append((variable, type_))

    def _bind_multiples(self, program: torch.export.ExportedProgram) -> None:
        """Give an input's size such as ``2*s`` a variable, if no input's size is ``s`` itself.

        The program checks at run time that the size is a multiple.

        Raises
        ------
        tvm.error.OpNotImplemented
            If the sizes of the inputs do not determine a symbol.
        """
        placeholders = program.graph.find_nodes(op="placeholder")
        shapes = {
            node.name: [size.node.expr for size in value.shape if isinstance(size, torch.SymInt)]
            for node in placeholders
            if isinstance(value := node.meta.get("val"), torch.Tensor)
        }
        bound = {size for sizes in shapes.values() for size in sizes if size.is_Symbol}
        for node in placeholders:
            if isinstance(number := node.meta.get("val"), torch.SymInt):
                bound.update(number.node.expr.free_symbols)
        for name, sizes in shapes.items():
            for size in sizes:
                if size.free_symbols <= bound:
                    continue
                [symbol, *others] = size.free_symbols - bound
                factor = size.coeff(symbol)
                rest = sympy.expand(size - factor * symbol)
                if others or not (factor.is_Integer and factor > 0 and rest.is_Integer):
                    raise OpNotImplemented(
                        f"input {name!r}: a size is {size}, and no size of the inputs determines "
                        f"{symbol}; expected a size {symbol}, or a multiple of it plus a constant"
                    )
                variable = tirx.Var(f"{name}_{size}", "int64")
                self._symbols.bind_multiple(symbol, variable, int(factor), int(rest))
                self._multiples[size] = variable
                bound.add(symbol)

    def _check_unsupported_func_type(self, nodes: list[fx.Node]) -> None:
        if switches.enabled(FIX_ID):
            for node in nodes:
                if node.op == "call_function" and isinstance(node.meta.get("val"), _NUMBERS):
                    convert = self.typed_converter(self._size_of_unknown_operator)
                    self.convert_map.setdefault(node.target.__name__, convert)
        super()._check_unsupported_func_type(nodes)

    def _size_of_unknown_operator(self, node: fx.Node) -> relax.Expr:
        raise OpNotImplemented(
            f"{node.target} {node.name!r}: computes a number from tensor elements; "
            "expected only sizes of the program"
        )

    def _import_branch_subgraph(self, *args: Any, **kwargs: Any) -> tvm.ir.GlobalVar:
        was_in_branch, self._is_in_branch = self._is_in_branch, True
        try:
            return super()._import_branch_subgraph(*args, **kwargs)
        finally:
            self._is_in_branch = was_in_branch

    def _prim_value_to_scalar_tensor(self, value: relax.Expr, dtype: str) -> relax.Expr:
        """Convert a number to a tensor of rank 0; TVM's method does not convert floats."""
        if not str(value.ty).startswith("float"):
            return super()._prim_value_to_scalar_tensor(value, dtype)
        switches.note(FIX_ID)
        return self.block_builder.emit_te(
            lambda number: te.compute((), lambda: number.astype(dtype), name="number"), value
        )

    def _variance_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, axes, correction, keepdims = self._arguments(
                node, input=None, dim=None, correction=None, keepdim=False
            )
            axes = list(range(x.ty.ndim)) if not axes else [axis % x.ty.ndim for axis in axes]
            extents = [x.ty.shape[axis] for axis in axes]
            if correction == 0 or None not in map(static_extent, extents):
                return stock(node)
            switches.note(FIX_ID)
            count = tirx.const(1, "int64")
            for extent in extents:
                count = count * extent
            emit, dtype = self.block_builder.emit, dtype_of(x)
            number = self._prim_value_to_scalar_tensor(count, dtype)
            # PyTorch limits the divisor, count - correction, to 0 and above.
            lost = relax.const(1 if correction is None else correction, dtype)
            divisor = emit(
                relax.op.maximum(emit(relax.op.subtract(number, lost)), relax.const(0, dtype))
            )
            variance = emit(relax.op.variance(x, axes, keepdims=keepdims))
            return emit(relax.op.multiply(variance, emit(relax.op.divide(number, divisor))))

        return convert

    def _cat_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            arguments = node.args[0]
            axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
            rank = node.meta["val"].ndim
            # PyTorch ignores empty tensors of rank 1, whatever the rank of the others is.
            kept = [a for a in arguments if rank == 1 or not _is_empty_list(value_of(a))]
            dtype = self._convert_data_type(node.meta["val"].dtype)
            tensors = [self.env[argument] for argument in kept]
            if len(kept) == len(arguments) and all(dtype_of(x) == dtype for x in tensors):
                return stock(node)
            switches.note(FIX_ID)
            tensors = [self._astype(x, dtype) for x in tensors]
            if len(tensors) == 1:
                return tensors[0]
            return self.block_builder.emit(relax.op.concat(tensors, axis))

        return convert

    def _reshape_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, sizes = self._arguments(node, input=None, size=None)
            extents = list(x.ty.shape) if isinstance(x.ty.shape, relax.ShapeExpr) else []
            if all(static_extent(size) is not None for size in [*extents, *sizes]):
                return stock(node)
            # TVM uses ==, which returns an expression instead of a bool for a sum or a product.
            switches.note(FIX_ID)
            if len(extents) == len(sizes) and all(map(self._symbols.equal, extents, sizes)):
                return x
            return self._emit_torch_reshape(x, sizes)

        return convert

    def _squeeze_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, axes = self._arguments(node, input=None, dim=None)
            extents = [static_extent(extent) for extent in x.ty.shape]
            if None not in extents:
                return stock(node)
            switches.note(FIX_ID)
            axes = range(len(extents)) if axes is None else axes
            axes = [axes] if isinstance(axes, int) else axes
            # An extent that PyTorch exports as symbolic is not 1.
            ones = [axis for axis in axes if extents[axis] == 1]
            return self.block_builder.emit(relax.op.squeeze(x, ones)) if ones else x

        return convert
