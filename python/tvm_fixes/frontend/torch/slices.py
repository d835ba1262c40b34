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
"""Converters of slices and parts of tensors by symbolic sizes.

PyTorch records the extents of results for the sizes at export, and guards the conditions under
which they hold.  Sizes at run time may violate such a guard, so the program checks what it needs.

The docstring of ``sizes`` describes the faults of TVM's converters.
"""

from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from tvm import relax, tirx

from ...errors import OpAttributeInvalid
from ...fixes.torch_importer import DYNAMIC_SHAPES as FIX_ID
from ...support import switches
from ..dtypes import dtype_of
from .corrections import Converters, static_extent
from .guarded_extents import GuardedExtents
from .symbols import MAX_EXTENT, Size

__all__ = ["Slices"]

Convert = Callable[[fx.Node], relax.Expr]


class Slices(GuardedExtents):
    """Converters of operators that take parts of tensors."""

    def slicing_converters(self, stock: Converters) -> Converters:
        """Return converters that replace those of `stock`, or wrap them."""
        return {
            "slice.Tensor": self._slice_converter(stock["slice.Tensor"]),
            "select.int": self._select_converter(stock["select.int"]),
            "narrow.default": self._narrow_by_sizes,
            "constant_pad_nd.default": self._pad_converter(stock["constant_pad_nd.default"]),
            "split.Tensor": self._split_converter(stock["split.Tensor"]),
            "split_with_sizes.default": self._split_converter(stock["split_with_sizes.default"]),
        }

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

    def _count(self, start: Any, end: Any, step: Size, extent: Size) -> Size:
        """The number of indices from `start` to `end`, each counted as Python does."""
        is_open = end is None or (isinstance(end, int) and end >= MAX_EXTENT)
        is_all = start is None or (isinstance(start, int) and start <= -MAX_EXTENT)
        first = 0 if is_all else tirx.min(self._from_front(start, extent), extent)
        last = extent if is_open else tirx.min(self._from_front(end, extent), extent)
        if static_extent(step) == 1 and is_all:
            return self._symbols.analyzer.simplify(last)
        count = (last - first + step - 1) // step
        return self._symbols.analyzer.simplify(tirx.max(count, 0))

    def _slice_converter(self, stock: Convert) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, axis, start, end, step = self._arguments(
                node, input=None, dim=0, start=0, end=None, step=1
            )
            axis %= x.ty.ndim
            extent = x.ty.shape[axis]
            sizes = [extent, step, *(bound for bound in (start, end) if bound is not None)]
            recorded = length = node.meta["val"].shape[axis]
            is_static = all(static_extent(size) is not None for size in sizes)
            if statically_known_true(length == 0):
                # TVM computes the extent as end - start, which may be negative.
                switches.note(FIX_ID)
                return self._emit_slice(x, axis, 0, 0)
            if self._is_in_branch or is_static or not self._symbols.knows(length):
                return stock(node)
            length = self._symbols.convert(length)
            count = self._count(start, end, step, extent)
            if not self._symbols.equal(length, count):
                self._require(
                    node, length == count, f"expected a slice of {recorded} elements on axis {axis}"
                )
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
            is_within = tirx.And(-extent <= index, index < extent)
            self._require(node, is_within, f"expected an index of axis {axis} within its extent")
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
        extent = x.ty.shape[axis]
        begin = self._from_front(start, extent)
        is_within = tirx.And(-extent <= start, begin + length <= extent)
        self._require(node, is_within, f"expected {length} elements from {start} on axis {axis}")
        return self._emit_slice(x, axis, begin, length)

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
            self._require(node, length >= 0, f"expected at least {-width} elements on axis {axis}")
            return self._emit_slice(x, axis, 0 if is_end else -width, length)
        if not self._symbols.at_least(width, 0):
            raise OpAttributeInvalid(
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
                self._require(node, length >= 0, "expected no part of fewer than 0 elements")
                parts.append(self._emit_slice(x, axis, begin, length))
                begin = begin + length
            is_whole = begin == x.ty.shape[axis]
            self._require(node, is_whole, f"expected parts of {begin} elements on axis {axis}")
            return self.block_builder.emit(relax.Tuple(parts))

        return convert
