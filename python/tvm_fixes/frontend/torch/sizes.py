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

Upstream
    https://github.com/apache/tvm/issues/17818 (dynamic shapes in exported programs, open) and
    https://github.com/apache/tvm/pull/18918 (slices).
Versions
    Seen in 0.27.0.post1.
Trigger
    A program with dynamic dims that computes with sizes (``x.shape[1] // 2``, ``max``), slices,
    splits, pads or reshapes by them; an element from the end of a dynamic axis; negative padding;
    ``cat`` with an empty tensor or of several dtypes; squeezes and ``topk`` of symbolic sizes;
    ``topk`` in any order; ``nonzero``.  An input whose size is a multiple of a symbol that is not
    the size of any input.  A converter that returns a type other than PyTorch's.
Symptom
    Silently, ``x[-1]`` reads out of bounds, and the shape or dtype of an output differs from
    PyTorch's.  Errors at import or build: ``Unsupported function types ['sym_max']``, ``Concat
    expects all input tensors to have same ndim``.
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
from torch.fx.experimental.symbolic_shapes import statically_known_true
from tvm import relax, te, tirx
from tvm.ir import PrimType

from ...fixes.torch_importer import DTYPE, PROMOTION
from ...fixes.torch_importer import DYNAMIC_SHAPES as FIX_ID
from ...support import switches
from ..dtypes import dtype_of
from .corrections import Converters, static_extent
from .found_elements import FoundElements
from .guarded_extents import GuardedExtents
from .plain_values import PlainValues
from .promotion import value_of
from .symbols import Size, Symbols

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


class Sizes(FoundElements, GuardedExtents, PlainValues):
    """Converters of sizes; the importer uses those of ``torch.export`` and recomputes none."""

    def __init__(self) -> None:
        self._symbols = Symbols()
        # For input sizes that are multiples such as 2*s: the variable of each size, and the inputs
        # that still need a cast to the type that such sizes require.
        self._multiples: dict[sympy.Expr, tirx.Var] = {}
        self._unchecked: list[tuple[relax.Var, relax.TensorType]] = []
        super().__init__()

    def sizing_converters(self, stock: Converters) -> Converters:
        """Return converters that replace those of `stock`, or wrap them."""
        return {
            "slice.Tensor": self._slice_converter(stock["slice.Tensor"]),
            "select.int": self._select_converter(stock["select.int"]),
            "narrow.default": self._narrow_by_sizes,
            "constant_pad_nd.default": self._pad_converter(stock["constant_pad_nd.default"]),
            "split.Tensor": self._split_converter(stock["split.Tensor"]),
            "split_with_sizes.default": self._split_converter(stock["split_with_sizes.default"]),
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

    def _check_inputs(self) -> None:
        """Cast the inputs whose sizes are multiples, so that their readers see these sizes."""
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
            raise tvm.error.OpNotImplemented(
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
        created = super().create_input_vars(exported_program)
        variables = created[0] | created[1]
        for node in exported_program.graph.find_nodes(op="placeholder"):
            if node.name in variables and isinstance(node.meta.get("val"), torch.Tensor):
                shape = variables[node.name].ty.shape
                for size, extent in zip(node.meta["val"].shape, shape, strict=True):
                    self._symbols.bind(size, extent)
                self._check_multiples(variables[node.name], node.meta["val"].shape)
        for symbol, limits in exported_program.range_constraints.items():
            self._symbols.restrict(symbol, limits.lower, limits.upper)
        return created

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
                    raise tvm.error.OpNotImplemented(
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
        raise tvm.error.OpNotImplemented(
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

    def _emit_slice(self, x: relax.Expr, axis: int, begin: Size, length: Size) -> relax.Expr:
        """Emit ``x[begin : begin + length]`` along `axis`; both bounds are within the axis."""
        return self.block_builder.emit(
            relax.op.strided_slice(x, [axis], [begin], [begin + length], assume_inbound=True)
        )

    def _from_front(self, position: Any, extent: Size) -> Size:
        """Count a position from the start of an axis; a negative one counts from its end."""
        if self._symbols.at_least(position, 0):
            return position
        from_end = self._symbols.analyzer.simplify(extent + position)
        if not self._symbols.at_least(from_end, 0):
            from_end = tirx.max(from_end, 0)
        if self._symbols.at_least(-1, position):
            return from_end
        return tirx.Select(position < 0, from_end, position)

    def _slice_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, axis, start, end, step = self._arguments(
                node, input=None, dim=0, start=0, end=None, step=1
            )
            axis %= x.ty.ndim
            extent = x.ty.shape[axis]
            sizes = [extent, step, *(bound for bound in (start, end) if bound is not None)]
            length = node.meta["val"].shape[axis]
            is_static = all(static_extent(size) is not None for size in sizes)
            if statically_known_true(length == 0):
                # TVM computes the extent as end - start, which may be negative.
                switches.note(FIX_ID)
                return self._emit_slice(x, axis, 0, 0)
            if self._is_in_branch or is_static or not self._symbols.knows(length):
                return stock(node)
            length = self._symbols.convert(length)
            if self._symbols.equal(length, extent):
                return x
            switches.note(FIX_ID)
            begin = self._from_front(0 if start is None else start, extent)
            if static_extent(step) == 1:
                return self._emit_slice(x, axis, begin, length)
            end = begin + (length - 1) * step + 1
            return self.block_builder.emit(
                relax.op.strided_slice(x, [axis], [begin], [end], [step], assume_inbound=True)
            )

        return convert

    def _select_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, axis, index = self.retrieve_args(node)
            axis %= x.ty.ndim
            extent = x.ty.shape[axis]
            # `take` does not count from the end of an axis of symbolic extent.
            if isinstance(index, int) and index >= 0:
                return stock(node)
            switches.note(FIX_ID)
            element = self._emit_slice(x, axis, self._from_front(index, extent), 1)
            return self.block_builder.emit(relax.op.squeeze(element, [axis]))

        return convert

    def _narrow_by_sizes(self, node: fx.Node) -> relax.Expr:
        x, axis, start, length = self.retrieve_args(node)
        axis %= x.ty.ndim
        switches.note(FIX_ID)
        return self._emit_slice(x, axis, self._from_front(start, x.ty.shape[axis]), length)

    def _pad_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, widths, value = self._arguments(node, input=None, pad=None, value=0)
            numbers = [static_extent(width) for width in widths]
            if all(number is not None and number >= 0 for number in numbers):
                return stock(node)
            switches.note(FIX_ID)
            fill = relax.const(0 if value is None else value, dtype_of(x))
            for index, axis in enumerate(reversed(range(x.ty.ndim))):
                for end, width in enumerate(widths[2 * index : 2 * index + 2]):
                    x = self._pad_end(node, x, axis, width, end == 1, fill)
            return x

        return convert

    def _pad_end(
        self, node: fx.Node, x: relax.Expr, axis: int, width: Size, is_end: bool, fill: relax.Expr
    ) -> relax.Expr:
        """Add `width` elements at one end of an axis of `x`, or remove them if it is negative."""
        if self._symbols.equal(width, 0):
            return x
        if self._symbols.at_least(0, width):
            length = self._symbols.analyzer.simplify(x.ty.shape[axis] + width)
            return self._emit_slice(x, axis, 0 if is_end else -width, length)
        if not self._symbols.at_least(width, 0):
            raise tvm.error.OpAttributeInvalid(
                f"{node.target} {node.name!r}: attribute pad contains {width}; "
                "expected elements whose sign is known at import"
            )
        shape = list(x.ty.shape)
        shape[axis] = width
        padding = self.block_builder.emit(relax.op.full(relax.ShapeExpr(shape), fill, dtype_of(x)))
        parts = [x, padding] if is_end else [padding, x]
        return self.block_builder.emit(relax.op.concat(parts, axis))

    def _split_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, _, axis = self._arguments(node, input=None, sizes=None, dim=0)
            axis %= x.ty.ndim
            lengths = [part.shape[axis] for part in node.meta["val"]]
            if self._is_in_branch or all(isinstance(length, int) for length in lengths):
                if static_extent(x.ty.shape[axis]) is not None:
                    return stock(node)
            switches.note(FIX_ID)
            parts, begin = [], 0
            for length in self._symbols.shape(lengths):
                parts.append(self._emit_slice(x, axis, begin, length))
                begin = begin + length
            return self.block_builder.emit(relax.Tuple(parts))

        return convert

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
