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
"""Tensor expression of a convolution of any rank, kind and layouts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import tvm
from tvm import te, tirx
from tvm.sym import Analyzer

from ....tirx.accumulation import MultiplyAccumulate, copied
from ....tirx.util import divides, is_one
from ...layouts import Layout

COPIED_COLUMNS = 64
"""The number of columns of 1-D data that a thread copies at a time."""

# With fewer parts, the padding of the last one is too large a share.
_MIN_WHOLE_PARTS = 8


@dataclass(frozen=True)
class SpatialAxis(ABC):
    """The attributes and the index arithmetic of a convolution along one spatial axis."""

    stride: int
    dilation: int
    pad_before: int
    pad_after: int

    @property
    def phases(self) -> int:
        """The distance between outputs that read the same kernel elements."""
        return 1

    @classmethod
    def of(cls, attrs: tvm.ir.Attrs, axis: int, **more: int) -> Self:
        """Spatial axis `axis` of a call with `attrs`; `more` has the fields of a subclass."""
        return cls(
            stride=int(attrs.strides[axis]),
            dilation=int(attrs.dilation[axis]),
            pad_before=int(attrs.padding[axis]),
            pad_after=int(attrs.padding[axis + len(attrs.strides)]),
            **more,
        )

    @abstractmethod
    def out_extent(self, data: tirx.Expr, kernel: tirx.Expr) -> tirx.Expr:
        """The extent of the output, as in the type rule, for the extents of data and kernel."""

    @abstractmethod
    def tap_count(self, kernel: tirx.Expr) -> tirx.Expr:
        """The largest number of kernel elements that contribute to one output element."""

    def has_whole_taps(self, kernel: tirx.Expr) -> bool:
        """Whether each tap of each output has a kernel element; `kernel` is the extent."""
        return True

    @abstractmethod
    def reach(self, out: tirx.Expr, kernel: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        """The range of data that the first `out` outputs read, over all their taps.

        Returns
        -------
        tuple
            The distance of its start before the first data element, and its extent.
        """

    @abstractmethod
    def gather(
        self,
        out: tirx.Var,
        tap: tirx.Var,
        data_extent: tirx.Expr | None,
        kernel_extent: tirx.Expr,
        analyzer: Analyzer,
    ) -> tuple[tirx.Expr, tirx.Expr, list[tirx.Expr]]:
        """The data and kernel elements that the `tap`-th tap of output `out` multiplies.

        Parameters
        ----------
        data_extent : tirx.Expr, optional
            None for data without bounds: a padded copy, in which every access is in bounds.

        Returns
        -------
        tuple
            The index into the data, the index into the kernel, and the conditions under which both
            are in bounds and contribute, without conditions that always hold.
        """


@dataclass(frozen=True)
class Tile:
    """A register tile: sums that are computed together and stay in registers.

    Attributes
    ----------
    columns : int
        The sums along the innermost spatial axis. If columns are vectorized, they include the sums
        that a stride skips: see :attr:`Convolution.column_stride`. With vectors, all tiles are
        whole.
    channels : int
        The output channels of a vector; 1 if no vector length suits the channels of a group. Then
        channels are computed one by one, and LLVM may vectorize.
    kernel_axis : str
        The kernel axis of these channels: ``O``, or, in a depthwise convolution, the axis with the
        channels of all groups.
    padding : int
        The channels of zeros to append to ``O`` of the kernel for whole vectors; 0 with several
        groups.
    vectors : int
        The vectors of channels that are computed together. They share each element of the data.
    rows : int
        The elements along the axis before the innermost spatial one.
    vectorizes_columns : bool
        Whether the columns of a channel are vectorized instead of channels.
    """

    columns: int
    channels: int
    kernel_axis: str = "O"
    padding: int = 0
    vectors: int = 1
    rows: int = 1
    vectorizes_columns: bool = False

    @property
    def is_vectorized(self) -> bool:
        """Whether the schedule vectorizes; otherwise LLVM may."""
        return self.vectorizes_columns or self.channels > 1


@dataclass(frozen=True)
class Convolution:
    """One convolution of any rank and kind.

    Attributes
    ----------
    spatial : dict of str to SpatialAxis
        The spatial axes, outermost first.
    groups : int
        Number of groups.
    grouped_axis : str
        As in :class:`Family`.
    data_layout, out_layout : Layout
        Any layouts of ``N``, ``C`` and the spatial axes.
    out_dtype : str
        The dtype of the result, to which the sums are rounded once.
    multiply_accumulate : MultiplyAccumulate
        Multiplies elements and accumulates the products.
    tile : Tile, optional
        With a tile, the sums are in a buffer of whole tiles, with the vectorized axis innermost;
        without one, the buffer has the layout of the output. It is the output itself if layout,
        extents and dtype agree.
    """

    spatial: dict[str, SpatialAxis]
    groups: int
    grouped_axis: str
    data_layout: Layout
    out_layout: Layout
    out_dtype: str
    multiply_accumulate: MultiplyAccumulate
    tile: Tile | None = None

    def __hash__(self) -> int:
        axes = tuple(self.spatial.items())
        layouts = self.data_layout, self.out_layout
        computation = self.out_dtype, self.multiply_accumulate, self.tile
        return hash((axes, self.groups, self.grouped_axis, *layouts, *computation))

    def compute(self, data: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        """The output in `out_layout`, with zeros in the padding of that layout.

        Parameters
        ----------
        data : te.Tensor
            The input in `data_layout`.
        kernel : te.Tensor
            The kernel in :attr:`kernel_layout`.
        """
        data_extent, kernel_extent = self.extents(list(data.shape), list(kernel.shape))
        out_extent = self.out_extent(data_extent, kernel_extent)
        acc_layout, acc_extent = self._accumulator(out_extent)
        acc_dtype = self.multiply_accumulate.accumulator
        data_layout = self.data_layout
        copies_data = self.copies_data(data_extent, kernel_extent)
        repeats_last = self._repeats_last(data_extent, kernel_extent)
        if copies_data:
            data_layout = self.copy_layout(data_extent, kernel_extent)
            data = self._padded(data, data_layout, kernel_extent, acc_extent)
        group_in, group_out = self.group_channels(kernel_extent)
        taps = self.taps(kernel_extent)
        *_, column = self.spatial
        if repeats_last:
            # Without columns, the last one would be before the data.
            taps[column] = te.reduce_axis((0, tirx.min(out_extent[column], 1)), f"t{column}")
        channels = self._channel_axes(group_in)
        acc_shape = acc_layout.shape(acc_extent)
        hides_blocks = self.multiply_accumulate.dot_product is None
        if self.column_stride > 1:
            acc_shape = [*acc_shape, tirx.const(self.column_stride, "int64")]

        def accumulate(*position: tirx.Var) -> tirx.Expr:
            analyzer = bounded(position, acc_shape)
            at, between = list(position), 0
            if self.column_stride > 1:
                *at, between = at
            for axis in (*taps.values(), *channels):
                analyzer.bind(axis.var, axis.dom)
            channel, *within = (axis.var for axis in channels)
            if within:
                channel = channel * self.multiply_accumulate.depth + within[0]
            out_at = acc_layout.element(at)
            divide = tirx.truncdiv if hides_blocks else tirx.floordiv
            group = divide(out_at["C"], group_out) if self.groups > 1 else 0
            # Along the kernel axis of all groups' channels, use the index of data or output.
            data_at = {"N": out_at["N"], "C": group * group_in + channel}
            if self.grouped_axis == "I":
                of_group = analyzer.simplify(out_at["C"] - group * group_out)
                kernel_at = {"I": data_at["C"], "O": of_group}
            else:
                kernel_at = {"I": channel, "O": out_at["C"]}
            guards = []
            if repeats_last:
                out_at[column] = tirx.min(out_at[column], out_extent[column] - 1)
            for axis, spatial in self.spatial.items():
                # Every access to the padded copy is in bounds.
                bound = None if copies_data or repeats_last else data_extent[axis]
                data_at[axis], kernel_at[axis], needed = spatial.gather(
                    out_at[axis], taps[axis].var, bound, kernel_extent[axis], analyzer
                )
                if copies_data:
                    before, _ = spatial.reach(acc_extent[axis], kernel_extent[axis])
                    data_at[axis] = analyzer.simplify(data_at[axis] + before)
                guards += needed
            data_at[column] = data_at[column] + between
            product = self.multiply_accumulate.product(
                data(*data_layout.position(data_at, analyzer, hides_blocks=hides_blocks)),
                kernel(
                    *self.kernel_layout.position(kernel_at, analyzer, hides_blocks=hides_blocks)
                ),
            )
            return te.sum(guarded(product, guards), axis=[*taps.values(), *channels])

        acc = te.compute(acc_shape, accumulate, name="convolution")
        is_out = (acc_layout, acc_extent, acc_dtype) == (
            self.out_layout,
            out_extent,
            self.out_dtype,
        )
        if is_out and self.column_stride == 1:
            return acc
        return self._lay_out(acc, acc_layout, out_extent)

    def extents(
        self, data: list[tirx.Expr], kernel: list[tirx.Expr]
    ) -> tuple[dict[str, tirx.Expr], dict[str, tirx.Expr]]:
        """The extents of the axes of data and kernel with these shapes."""
        of_kernel = self.kernel_layout.extents(kernel)
        if self.tile is not None:
            of_kernel["O"] -= self.tile.padding
        return self.data_layout.extents(data), of_kernel

    @property
    def _sums_layout(self) -> Layout:
        """The layout of the sums: the vectorized axis is innermost."""
        axes = "".join(self.spatial)
        return Layout(f"NC{axes}" if self._vectorizes_columns else f"N{axes}C")

    def copy_layout(self, data: dict[str, tirx.Expr], kernel: dict[str, tirx.Expr]) -> Layout:
        """The layout of the copied data: what a vector reads, or a dot product, is innermost.

        Parameters
        ----------
        data, kernel : dict of str to tirx.Expr
            The extent of each axis of data and kernel.
        """
        depth = self.multiply_accumulate.depth
        *outer, column = self.spatial
        *_, columns = self.out_extent(data, kernel).values()
        axis = self.spatial[column]
        is_innermost = depth > 1 and self.data_layout.axes[-1] == (column, None)
        is_whole = axis.stride == 1 and axis.pad_before == axis.pad_after == 0
        if is_innermost and is_whole and divides(cast(Tile, self.tile).columns, columns):
            # LLVM copies whole rows of `depth` channels, and interleaves them in registers.
            return Layout(f"N{''.join(outer)}C{column}{depth}c")
        return self._sums_layout

    @property
    def _vectorizes_columns(self) -> bool:
        return self.tile is not None and self.tile.vectorizes_columns

    def copies_data(self, data: dict[str, tirx.Expr], kernel: dict[str, tirx.Expr]) -> bool:
        """Whether the data is copied to a padded buffer with the vectorized axis innermost.

        An element is read once for each element of the kernel and for each tile of channels.  In a
        plain layout, each channel is in a different page, and all are in the same cache set if the
        extents are powers of two.  If the number of columns is unknown, the last tile would read
        beyond the data, except for pointwise convolutions: see :meth:`_repeats_last`.

        Parameters
        ----------
        data, kernel : dict of str to tirx.Expr
            The extent of each axis of data and kernel.
        """
        if self.tile is None or not self.tile.is_vectorized:
            return False
        if self.tile.vectorizes_columns:
            return True
        if self.multiply_accumulate.depth > 1 and not self._reads_data(data, kernel):
            return True
        group_in, _ = self.group_channels(kernel)
        is_depthwise = self.groups > 1 and Analyzer().can_prove_equal(group_in, 1)
        needs_columns = not self._has_known_columns(data) and not self._repeats_last(data, kernel)
        return (self._has_taps(kernel) or needs_columns) and not is_depthwise

    def _has_taps(self, kernel: dict[str, tirx.Expr]) -> bool:
        return any(not is_one(kernel[axis]) for axis in self.spatial)

    def _has_known_columns(self, data: dict[str, tirx.Expr]) -> bool:
        return isinstance(data[list(self.spatial)[-1]], tirx.IntImm)

    def _repeats_last(self, data: dict[str, tirx.Expr], kernel: dict[str, tirx.Expr]) -> bool:
        """Whether the columns beyond the last one read the data of the last one.

        That is for data of an unknown number of columns, if an output reads a single column: a copy
        would take as long as many of the products.
        """
        if self.tile is None or not self.tile.is_vectorized or self.tile.vectorizes_columns:
            return False
        has_padding = any(axis.pad_before or axis.pad_after for axis in self.spatial.values())
        has_depth = self.multiply_accumulate.depth > 1
        is_pointwise = not (self._has_taps(kernel) or has_padding or has_depth)
        return is_pointwise and not self._has_known_columns(data)

    def _reads_data(self, data: dict[str, tirx.Expr], kernel: dict[str, tirx.Expr]) -> bool:
        """Whether a dot product can read the data itself: adjacent channels, without guards."""
        letter, block = self.data_layout.axes[-1]
        group_in, _ = self.group_channels(kernel)
        *_, columns = self.out_extent(data, kernel).values()
        depth, tile = self.multiply_accumulate.depth, cast(Tile, self.tile)
        return (
            # A kernel reads copies of bfloat16 as bits.
            "int" in self.multiply_accumulate.accumulator
            and letter in "Cc"
            and divides(depth, group_in if block is None else tirx.const(block, "int64"))
            and all(axis.pad_before == axis.pad_after == 0 for axis in self.spatial.values())
            and divides(tile.columns, columns)
        )

    def _padded(
        self,
        data: te.Tensor,
        layout: Layout,
        kernel_extent: dict[str, tirx.Expr],
        out_extent: dict[str, tirx.Expr],
    ) -> te.Tensor:
        """The data in `layout`, padded to the range that outputs of `out_extent` read."""
        data_extent = self.data_layout.extents(list(data.shape))
        extent, before = dict(data_extent), {}
        for axis, spatial in self.spatial.items():
            before[axis], reached = spatial.reach(out_extent[axis], kernel_extent[axis])
            extent[axis] = Analyzer().simplify(reached)
        *_, column = self.spatial
        extent[column] = extent[column] + (self.column_stride - 1)
        dtype, depth = self.multiply_accumulate.data_dtype, self.multiply_accumulate.depth
        bounded_axes = list(self.spatial)
        if not divides(depth, data_extent["C"]):
            extent["C"] = Analyzer().simplify(tirx.ceildiv(data_extent["C"], depth) * depth)
            bounded_axes.append("C")
        if len(self.spatial) == 1:
            extent[column] = _in_whole_parts(extent[column])
        shape = layout.shape(extent)

        def element(*position: tirx.Var) -> tirx.Expr:
            at = layout.element(position)
            analyzer = bounded(position, shape)
            guards = []
            for axis in bounded_axes:
                at[axis] = analyzer.simplify(at[axis] - before.get(axis, 0))
                conditions = [at[axis] >= 0, at[axis] < data_extent[axis]]
                guards += [needed for needed in conditions if not analyzer.can_prove(needed)]
            value = data(*self.data_layout.position(at, analyzer))
            return guarded(copied(value, dtype), guards)

        return te.compute(shape, element, name="padded")

    @property
    def column_stride(self) -> int:
        """The number of sums for each column of the output; only the first of them is used.

        The lanes of a vector of columns read adjacent elements, so with a stride the skipped
        columns are summed too, and dropped.
        """
        *_, column = self.spatial.values()
        return column.stride if self._vectorizes_columns else 1

    @property
    def kernel_layout(self) -> Layout:
        """The kernel layout that :meth:`compute` expects: packed in the order of its use."""
        axes = "".join(self.spatial)
        if self.tile is None or not self.tile.is_vectorized:
            return Layout(kernel_layout(axes))
        if self.tile.vectorizes_columns:
            return Layout(f"OI{axes}")
        block = f"{self.tile.channels}{self.tile.kernel_axis.lower()}"
        if self.multiply_accumulate.depth > 1:
            return Layout(f"O{axes}I{block}{self.multiply_accumulate.depth}i")
        return Layout(f"O{axes}I{block}" if block.endswith("o") else f"I{axes}O{block}")

    def out_extent(
        self, data: dict[str, tirx.Expr], kernel: dict[str, tirx.Expr]
    ) -> dict[str, tirx.Expr]:
        """The extent of each axis of the output, without the padding of its layout.

        Parameters
        ----------
        data, kernel : dict of str to tirx.Expr
            The extent of each axis of data and kernel.
        """
        simplify = Analyzer().simplify
        _, group_out = self.group_channels(kernel)
        return {
            "N": data["N"],
            "C": simplify(group_out * self.groups) if self.grouped_axis == "I" else kernel["O"],
        } | {
            axis: simplify(spatial.out_extent(data[axis], kernel[axis]))
            for axis, spatial in self.spatial.items()
        }

    def taps(self, kernel: dict[str, tirx.Expr]) -> dict[str, tirx.IterVar]:
        """The reduction axis of each spatial axis; `kernel` has the extents."""
        counts = {axis: spatial.tap_count(kernel[axis]) for axis, spatial in self.spatial.items()}
        return {
            axis: te.reduce_axis((0, Analyzer().simplify(count)), f"t{axis}")
            for axis, count in counts.items()
        }

    def _channel_axes(self, count: tirx.Expr) -> list[tirx.IterVar]:
        """The reduction axes over the channels of a group, the last one over a dot product."""
        depth = self.multiply_accumulate.depth
        if depth == 1:
            return [te.reduce_axis((0, count), "i")]
        steps = Analyzer().simplify(tirx.ceildiv(count, depth))
        return [te.reduce_axis((0, steps), "i"), te.reduce_axis((0, depth), "within")]

    def group_channels(self, kernel: dict[str, tirx.Expr]) -> tuple[tirx.Expr, tirx.Expr]:
        """The numbers of data and output channels of a group."""
        channels = {"I": kernel["I"], "O": kernel["O"]}
        channels[self.grouped_axis] = Analyzer().simplify(
            tirx.floordiv(channels[self.grouped_axis], self.groups)
        )
        return channels["I"], channels["O"]

    def _accumulator(self, out_extent: dict[str, tirx.Expr]) -> tuple[Layout, dict[str, tirx.Expr]]:
        """The layout and the extents of the sums."""
        if self.tile is None:
            has_padding = self.out_layout.has_padding(out_extent)
            layout = Layout(self.out_layout.plain) if has_padding else self.out_layout
            return layout, out_extent
        if self.tile.is_vectorized:
            # Only whole tiles stay in registers, and only if TVM can prove that there is one.
            columns = self.tile.columns // self.column_stride
            parts = [columns, *([self.tile.rows] if self.tile.vectorizes_columns else [])]
            for axis, part in zip(reversed(self.spatial), parts, strict=False):
                before_last = tirx.max(out_extent[axis], 1) - 1
                whole = Analyzer().simplify(tirx.floordiv(before_last, part) * part + part)
                out_extent = out_extent | {axis: whole}
        if self.tile.padding:
            out_extent = out_extent | {"C": out_extent["C"] + self.tile.padding}
        if self.tile.vectors > 1:
            return Layout(f"{self._sums_layout.name}{self.tile.channels}c"), out_extent
        return self._sums_layout, out_extent

    def _lay_out(
        self, acc: te.Tensor, acc_layout: Layout, out_extent: dict[str, tirx.Expr]
    ) -> te.Tensor:
        """Convert the sums to the layout and dtype of the output, with zeros in its padding."""
        layout = self.out_layout
        shape = layout.shape(out_extent)
        has_padding = layout.has_padding(out_extent)

        def element(*position: tirx.Var) -> tirx.Expr:
            at = layout.element(position)
            analyzer = bounded(position, shape)
            wanted = [] if self.column_stride == 1 else [0]
            # The schedule computes the blocks of the sums in loops of their own.
            of_sums = acc_layout.position(at, analyzer, hides_blocks=not acc_layout.blocks)
            value = acc(*of_sums, *wanted).astype(self.out_dtype)
            if not has_padding:
                return value
            inside = [at[axis] < out_extent[axis] for axis in layout.blocks]
            return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, self.out_dtype))

        return te.compute(shape, element, name="out")


def _in_whole_parts(extent: tirx.Expr) -> tirx.Expr:
    """Round `extent` up to whole parts of the copy if there are many.

    TVM takes long to schedule a loop with a partial last part.
    """
    if not isinstance(extent, tirx.IntImm) or extent.value < _MIN_WHOLE_PARTS * COPIED_COLUMNS:
        return extent
    return tirx.const(-(-extent.value // COPIED_COLUMNS) * COPIED_COLUMNS, str(extent.ty))


def kernel_layout(axes: str) -> str:
    """The plain kernel layout for a convolution, for example ``HWIO``.

    With ``O`` innermost, the vectorized loop reads the kernel contiguously.
    """
    return axes + "IO"


def bounded(position: tuple[tirx.Var, ...], shape: list[tirx.Expr]) -> Analyzer:
    """An analyzer that knows that `position` is within `shape`."""
    analyzer = Analyzer()
    for var, extent in zip(position, shape, strict=True):
        analyzer.bind(var, tvm.ir.Range(0, extent))
    return analyzer


def guarded(value: tirx.Expr, guards: Sequence[tirx.Expr]) -> tirx.Expr:
    """`value` where all `guards` hold; elsewhere 0, without a load."""
    if not guards:
        return value
    # A Select would evaluate both sides.
    return tirx.if_then_else(tirx.all(*guards), value, tirx.const(0, str(value.ty)))
