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
"""Layouts by name, such as ``NHWC`` and ``NCHW4c``: the position of each element.

A capital letter names an axis. A number and the lower-case letter of an axis name its block: in
``NCHW4c`` the element at channel ``c`` is at ``c // 4`` along ``C`` and at ``c % 4`` along ``c``,
wherever the two letters are in the name. If the block does not divide an extent, the last block is
padded.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from ..support.tensors import array_of
from ..tirx.util import divides
from .constants.make import rearranged

SPATIAL_AXES = {1: "W", 2: "HW", 3: "DHW"}
"""The letters of the spatial axes, outermost first, by the number of spatial axes."""


@dataclass(frozen=True)
class Layout:
    """A layout with a name that TVM's ``SLayout`` accepts.

    Attributes
    ----------
    name : str
        The name, such as ``NCHW4c``.
    """

    name: str

    @property
    def axes(self) -> list[tuple[str, int | None]]:
        """The axes in order: the letter, and the size of the block (None for a plain axis)."""
        letters = re.findall(r"(\d*)([A-Za-z])", self.name)
        return [(letter, int(size) if letter.islower() else None) for size, letter in letters]

    @property
    def letters(self) -> list[str]:
        """The letters of the axes in order."""
        return [letter for letter, _ in self.axes]

    @property
    def plain(self) -> str:
        """The axes in order, without blocks: ``NCHW`` for ``NCHW4c``."""
        return "".join(letter for letter, block in self.axes if block is None)

    @property
    def blocks(self) -> dict[str, int]:
        """The block sizes by the capital letter of the axis."""
        return {letter.upper(): block for letter, block in self.axes if block is not None}

    def extents(self, shape: list[tirx.Expr]) -> dict[str, tirx.Expr]:
        """The extent of each axis, including padding, of a tensor of `shape`."""
        blocks, simplify = self.blocks, Analyzer().simplify
        return {
            letter: simplify(extent * blocks[letter]) if letter in blocks else extent
            for (letter, block), extent in zip(self.axes, shape, strict=True)
            if block is None
        }

    def shape(self, extents: dict[str, tirx.Expr]) -> list[tirx.Expr]:
        """The shape of a tensor in this layout that holds axes of these `extents`."""
        blocks, simplify = self.blocks, Analyzer().simplify
        return [
            tirx.const(block, "int64")
            if block is not None
            else simplify(tirx.ceildiv(extents[letter], blocks[letter]))
            if letter in blocks
            else extents[letter]
            for letter, block in self.axes
        ]

    def has_padding(self, extents: dict[str, tirx.Expr]) -> bool:
        """Whether a tensor with axes of these `extents` may need padding."""
        return any(not divides(block, extents[letter]) for letter, block in self.blocks.items())

    def position(
        self, at: dict[str, tirx.Expr], analyzer: Analyzer, *, hides_blocks: bool = True
    ) -> list[tirx.Expr]:
        """The position in this layout of the element at the non-negative indices `at`.

        With `hides_blocks`, the divisions truncate, which gives the same values for such indices
        and hides the divisions from IterMapSimplify: FlattenBuffer applies it to indices with
        floordiv and floormod, and it can return a wrong index. With i < 30, j < 7 and k < 4 it
        turns (i//15)*80 + (i%15 + 1)//3*16 + (j + 1)//2*4 + k into
        (i + 1)//3*16 + (j + 1)//2*4 + k - 80 (https://github.com/apache/tvm/issues/19524).
        Otherwise the divisions round down, so that `tensorize` sees which elements share a block.
        """
        blocks = self.blocks
        div, mod = (
            (tirx.truncdiv, tirx.truncmod) if hides_blocks else (tirx.floordiv, tirx.floormod)
        )
        return [
            analyzer.simplify(
                mod(at[letter.upper()], block)
                if block is not None
                else div(at[letter], blocks[letter])
                if letter in blocks
                else at[letter]
            )
            for letter, block in self.axes
        ]

    def element(self, position: Sequence[tirx.Expr]) -> dict[str, tirx.Expr]:
        """The indices of the element at `position`: the inverse of :meth:`position`."""
        blocks = self.blocks
        by_letter = dict(zip(self.letters, position, strict=True))
        return {
            letter: by_letter[letter] * blocks[letter] + by_letter[letter.lower()]
            if letter in blocks
            else by_letter[letter]
            for letter in self.plain
        }


def to_layout(
    bb: relax.BlockBuilder, tensor: relax.Expr, present: Layout, wanted: Layout
) -> relax.Expr:
    """Emit the conversion of `tensor` from the layout `present` to `wanted`; a no-op if equal.

    It emits ``permute_dims``, ``pad`` and ``reshape``; a constant becomes another constant. If a
    block of `wanted` does not divide an extent, the last block is padded with zeros. Blocks must
    divide symbolic extents.
    """
    if present == wanted:
        return tensor
    is_constant = isinstance(tensor, tvm.ir.GenericConst)
    extents = present.extents(list(tensor.ty.shape.values))
    value = array_of(tensor.value) if is_constant else tensor

    def permute(value: Any, letters: list[str], order: list[str]) -> Any:
        axes = [letters.index(letter) for letter in order]
        if axes == sorted(axes):
            return value
        return value.transpose(axes) if is_constant else bb.emit(relax.op.permute_dims(value, axes))

    def reshape(value: Any, shape: list[tirx.Expr]) -> Any:
        if is_constant:
            return value.reshape([int(extent) for extent in shape])
        return bb.emit(relax.op.reshape(value, shape))

    def pad(value: Any) -> Any:
        widths = [_padding(extents[axis], wanted.blocks.get(axis, 1)) for axis in wanted.plain]
        if not any(widths):
            return value
        if is_constant:
            return np.pad(value, [(0, width) for width in widths])
        return bb.emit(relax.op.nn.pad(value, [w for width in widths for w in (0, width)]))

    # Move each block next to its axis, so that a reshape can merge them; then do the reverse.
    letters = present.letters
    grouped_letters = [a for axis in wanted.plain for a in (axis, axis.lower()) if a in letters]
    value = permute(value, letters, grouped_letters)
    if present.blocks:
        value = reshape(value, [extents[axis] for axis in wanted.plain])
    if wanted.blocks:
        value = pad(value)
        letters = [a for axis in wanted.plain for a in (axis, axis.lower()) if a in wanted.letters]
        sizes = dict(zip(wanted.letters, wanted.shape(extents), strict=True))
        value = reshape(value, [sizes[letter] for letter in letters])
        value = permute(value, letters, wanted.letters)
    if not is_constant:
        return value
    return rearranged(tensor, lambda _: value, f"{present.name} to {wanted.name}")


def _padding(extent: tirx.Expr, block: int) -> int:
    """The padding that makes an extent a multiple of `block`; 0 for a symbolic extent."""
    return -int(extent) % block if isinstance(extent, tirx.IntImm) else 0


def is_depthwise(call: relax.Call) -> bool:
    """Whether a call is a depthwise convolution, whose sums are over a single channel."""
    if "conv" not in str(call.op.name) or int(call.attrs.groups) == 1:
        return False
    layout = Layout(str(call.attrs.kernel_layout))
    extents = layout.extents(list(call.args[1].ty.shape.values))
    if layout.blocks or not isinstance(extents["I"], tirx.IntImm):
        return False
    is_transposed = str(call.op.name).endswith("_transpose")
    return int(extents["I"]) // (int(call.attrs.groups) if is_transposed else 1) == 1
