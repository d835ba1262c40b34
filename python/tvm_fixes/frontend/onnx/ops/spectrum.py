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
"""DFT, STFT and MelWeightMatrix, for which TVM has no converters.

A transform of a known length is a few matrix products: see :mod:`..fourier`.  A transform of a
symbolic length sums in float64, with a table of sines and cosines, and its time grows with the
square of the length.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tvm import relax, te, tirx
from tvm.relax import op

from ....fixes.onnx_importer import OPERATORS
from ....support import switches
from ....tirx.util import OPAQUE
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import expression, is_static, minimum, product
from ...fourier import Transform, full_spectrum
from ..call import Call, Extent, converts
from .computed_axes import axis_parts, is_axis
from .shape_operands import (
    axes_of,
    extents_or_symbols,
    length_of,
    named,
    require,
    require_all,
    shaped,
    symbols,
    to_shape_tensor,
    vector,
)

_WIDE = "float64"

_UNFUSED = {"op_pattern": OPAQUE}
"""The attribute of kernels whose result has symbols that no operand has: TVM cannot fuse them."""


@dataclass(frozen=True)
class _Transform:
    """A discrete Fourier transform of `length` numbers.

    Attributes
    ----------
    inverse : bool
        Whether the transform is inverse: divided by the length, with the opposite sign of the
        exponent.
    onesided : bool
        Whether only the nonnegative frequencies are stored: in the result, or, for an inverse, in
        the operand; the result of such an inverse is real.
    """

    length: Extent
    inverse: bool
    onesided: bool

    @property
    def half(self) -> Extent:
        """The number of nonnegative frequencies."""
        return self.length // 2 + 1

    @property
    def count(self) -> Extent:
        """The extent of the result."""
        return self.half if self.onesided and not self.inverse else self.length

    @property
    def parts(self) -> int:
        """2 if the result is complex, else 1."""
        return 1 if self.onesided and self.inverse else 2

    def turn(self) -> tuple[te.Tensor, te.Tensor]:
        """The cosines and sines of `length` equal steps around the circle."""
        length = expression(self.length)

        def angle(i: tirx.Var) -> tirx.Expr:
            return i.astype(_WIDE) * tirx.const(2 * math.pi, _WIDE) / length.astype(_WIDE)

        return (
            te.compute((length,), lambda i: tirx.cos(angle(i)), name="cosines"),
            te.compute((length,), lambda i: tirx.sin(angle(i)), name="sines"),
        )

    def of(self, x: te.Tensor, terms: tirx.Expr, count: tirx.Expr) -> te.Tensor:
        """The transform of axis 1 of a tensor whose axes are others, numbers, others, parts.

        It sums the first `terms` numbers, and has `count` results.
        """
        cosines, sines = self.turn()
        n = te.reduce_axis((0, terms), "n")
        length = expression(self.length)

        def element(a: tirx.Var, k: tirx.Var, b: tirx.Var, part: tirx.Var) -> tirx.Expr:
            step = tirx.floormod(n.var * k, length)
            zero = tirx.const(0, _WIDE)
            real = x(a, n, b, 0)
            imaginary = x(a, n, b, 1) if int(x.shape[3]) == 2 else zero
            cosine, sine = cosines(step), sines(step)
            if self.inverse:
                sine = zero - sine
            term = tirx.Select(
                part == 0, real * cosine + imaginary * sine, imaginary * cosine - real * sine
            )
            if self.parts == 1:
                # Each frequency also stands for a negative one, except 0 and, for an even length,
                # the last.
                is_single = tirx.any(n.var == 0, 2 * n.var == length)
                term = tirx.Select(is_single, term, term + term)
            return te.sum(term, axis=n)

        shape = (x.shape[0], count, x.shape[2], self.parts)
        sums = te.compute(shape, element, name="transform")
        if not self.inverse:
            return sums
        return te.compute(shape, lambda *at: sums(*at) / length.astype(_WIDE), name="inverse")


def _transformed(
    call: Call, transform: _Transform, x: relax.Expr, terms: Extent, count: Extent
) -> relax.Expr:
    """The transform of the first `terms` numbers on axis 1, with `count` results."""
    if isinstance(transform.length, int) and isinstance(terms, int):
        return _fast(call, transform, x, terms, int(count))
    dtype, x = dtype_of(x), _wide(call, x)

    def of(x: te.Tensor, length: tirx.Expr, *counts: tirx.Expr) -> te.Tensor:
        return replace(transform, length=length).of(x, *counts)

    sizes = (transform.length, terms, count)
    attributes = None if is_static(*sizes) else _UNFUSED
    result = call.builder.emit_te(of, x, *map(expression, sizes), primfunc_attrs=attributes)
    return call.emit(op.astype(result, dtype))


def _fast(call: Call, transform: _Transform, x: relax.Expr, terms: int, count: int) -> relax.Expr:
    """The transform for extents known at import, of a tensor (before, numbers, after, parts)."""
    emit, dtype = call.emit, dtype_of(x)
    before, extent, after, parts = x.ty.shape.values
    length = transform.length
    given = transform.half if transform.inverse and transform.onesided else length
    x = emit(op.astype(x, accumulation_dtype(dtype)))
    if terms < int(extent):
        x = emit(op.strided_slice(x, [1], [0], [terms]))
    x = emit(op.permute_dims(x, [0, 2, 3, 1]))
    if terms < given:
        x = emit(op.nn.pad(x, [0, 0, 0, 0, 0, 0, 0, given - terms]))
    x = emit(op.reshape(x, [before * after, parts, given]))
    if given != length:
        if int(parts) == 1:
            x = emit(op.concat([x, emit(op.zeros_like(x))], 1))
        x = full_spectrum(emit, x, length)
    result = Transform(emit, 1 if transform.inverse else -1)(x)
    if (transform.parts, count) != (2, length):
        ends = [transform.parts, count]
        result = emit(op.strided_slice(result, [1, 2], [0, 0], ends))
    if transform.inverse:
        result = emit(op.multiply(result, relax.const(1 / length, dtype_of(result))))
    result = emit(op.reshape(result, [before, after, transform.parts, count]))
    return emit(op.astype(emit(op.permute_dims(result, [0, 3, 1, 2])), dtype))


def _parts(call: Call, name: str, extents: Sequence[Extent]) -> int:
    """The extent of the last axis: 1 for real numbers, 2 for complex ones."""
    last = extents[-1] if extents else None
    if not isinstance(last, int) or last not in (1, 2) or len(extents) < 2:
        reason = "expected rank 2 or more, and 1 or 2 on the last axis"
        raise call.invalid(f"shape of {name}", list(extents), reason)
    return last


def _wide(call: Call, tensor: relax.Expr) -> relax.Expr:
    return tensor if dtype_of(tensor) == _WIDE else call.emit(op.astype(tensor, _WIDE))


def _single(call: Call, index: int, name: str) -> Extent:
    """The only element of an operand, which must not be negative."""
    found = extents_or_symbols(call, index, name)
    if len(found) != 1:
        raise call.invalid(f"operand {name}", found, "expected one element")
    return found[0]


def _extent(call: Call, extent: Extent, name: str) -> Extent:
    """An extent; an expression gets a symbol, because TVM's fusion would repeat its symbols."""
    return named(call, call.known.simplify(extent), name)


@converts("DFT", fix=OPERATORS)
def convert_dft(call: Call) -> relax.Expr:
    """Convert a DFT.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shape is unknown or its last extent is neither 1 nor 2, or the axis is out of range.
        The model checks an axis that is known only at run time.
    """
    switches.note(OPERATORS)
    data, extents = shaped(call, 0, "input")
    parts = _parts(call, "input", extents)
    inverse, onesided = (bool(call.attributes.get(name, 0)) for name in ("inverse", "onesided"))
    if onesided and not inverse and parts == 2:
        raise call.invalid("attribute onesided", 1, "expected 0 for complex numbers")
    before, extent, after, axis = _around(call, extents)
    if call.operand(1) is not None:
        length = _single(call, 1, "dft_length")
    else:
        length = 2 * (extent - 1) if inverse and onesided else extent
    require(call, length >= 1, "length", length, "expected 1 or more")
    transform = _Transform(call.known.simplify(length), inverse, onesided)
    given = transform.half if inverse and onesided else transform.length
    moved = call.emit(op.reshape(data, relax.ShapeExpr([before, extent, after, parts])))
    terms = minimum(call.known, extent, given)
    count = _extent(call, transform.count, "frequencies")
    result = _transformed(call, transform, moved, terms, count)
    if isinstance(axis, int):
        shape = [*extents[:axis], count, *extents[axis + 1 : -1]]
    else:
        old, new = (to_shape_tensor(call, [*e]) for e in (extents[:-1], [count]))
        shape = symbols(call, call.emit(op.where(axis, new, old)), "extent")
    return op.reshape(result, relax.ShapeExpr([*shape, transform.parts]))


def _around(
    call: Call, extents: Sequence[Extent]
) -> tuple[Extent, Extent, Extent, int | relax.Expr]:
    """The extents before, on and after the axis of a DFT, and the axis.

    The axis is a bool tensor with one element per axis but the last if it is computed.
    """
    rank = len(extents)
    if call.version >= 20 and call.operand(2) is not None and call.constant(2) is None:
        computed = vector(call, 2, "axis")
        if length_of(computed) != 1:
            raise call.invalid("type of axis", computed.ty, "expected one element")
        # A negative axis also counts the last one, which is not transformed.
        last = relax.const(-1, "int64")
        require_all(call, op.not_equal(computed, last))
        is_negative = call.emit(op.less(computed, relax.const(0, "int64")))
        moved = call.emit(op.subtract(computed, last))
        computed = call.emit(op.where(is_negative, moved, computed))
        return *axis_parts(call, extents[:-1], computed), is_axis(call, rank - 1, computed)
    given = call.constant(2) if call.version >= 20 else None
    default = -2 if call.version >= 20 else call.attributes.get("axis", 1)
    (axis,) = axes_of(call, [default if given is None else int(given.item())], rank)
    if axis == rank - 1:
        kind = "operand" if call.version >= 20 else "attribute"
        raise call.invalid(f"{kind} axis", axis, "expected an axis other than the last")
    before, after = (product(call.known, e) for e in (extents[:axis], extents[axis + 1 : -1]))
    return before, extents[axis], after, axis


@converts("STFT", fix=OPERATORS)
def convert_stft(call: Call) -> relax.Expr:
    """Convert an STFT.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the shape of the signal is not (batch, length, 1 or 2), the step is 0, or a frame is
        longer than the signal or its length differs from that of the window.
    """
    switches.note(OPERATORS)
    data, extents = shaped(call, 0, "signal")
    parts = _parts(call, "signal", extents)
    if len(extents) != 3:
        raise call.invalid("shape of signal", extents, "expected rank 3")
    onesided = bool(call.attributes.get("onesided", 1)) and parts == 1
    step = _single(call, 1, "frame_step")
    require(call, step >= 1, "operand frame_step", step, "expected 1 or more")
    window = call.operand(2)
    lengths = [] if window is None else shaped(call, 2, "window")[1]
    length = lengths[0] if lengths else extents[1]
    if call.operand(3) is not None:
        given = _single(call, 3, "frame_length")
        if lengths:
            reason = f"expected {length}, the extent of window"
            matches = expression(given) == expression(length)
            require(call, matches, "operand frame_length", given, reason)
        else:
            length = given
    reason = f"expected 1 to {extents[1]}, the length of signal"
    fits = tirx.all(expression(length) >= 1, expression(length) <= expression(extents[1]))
    require(call, fits, "length of a frame", length, reason)
    transform = _Transform(length, inverse=False, onesided=onesided)
    count = _extent(call, (extents[1] - length) // step + 1, "frames")
    frequencies = _extent(call, transform.count, "frequencies")

    def frames(x: te.Tensor, *operands: Any) -> te.Tensor:
        *windows, step, length, count = operands

        def element(a: tirx.Var, n: tirx.Var, frame: tirx.Var, part: tirx.Var) -> tirx.Expr:
            value = x(a, frame * step + n, part)
            return value * windows[0](n) if windows else value

        return te.compute((x.shape[0], length, count, parts), element, name="frames")

    operands = [tensor for tensor in (data, window) if tensor is not None]
    framed = call.builder.emit_te(frames, *operands, *map(expression, (step, length, count)))
    result = _transformed(call, transform, framed, length, frequencies)
    return op.permute_dims(result, [0, 2, 1, 3])


@converts("MelWeightMatrix", fix=OPERATORS)
def convert_mel_weight_matrix(call: Call) -> relax.Expr:
    """Convert a MelWeightMatrix.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand does not have one element, or a number is known to be negative.
    """
    switches.note(OPERATORS)
    count, length, rate = (
        _single(call, index, name)
        for index, name in enumerate(("num_mel_bins", "dft_length", "sample_rate"))
    )
    require(call, rate >= 1, "operand sample_rate", rate, "expected 1 or more")
    number = call.attributes.get("output_datatype", TensorProto.FLOAT)
    edges = [
        call.emit(op.reshape(_wide(call, call.operands[index]), relax.ShapeExpr([1])))
        for index in (3, 4)
    ]
    corners, rows = _extent(call, count + 2, "corners"), _extent(call, length // 2 + 1, "rows")
    numbers = map(expression, (corners, length, rate))
    bins = call.builder.emit_te(_mel_bins, *edges, *numbers, primfunc_attrs=_UNFUSED)
    shape = map(expression, (rows, count))
    result = call.builder.emit_te(_triangles, bins, *shape, primfunc_attrs=_UNFUSED)
    return op.astype(result, str(np.dtype(helper.tensor_dtype_to_np_dtype(number))))


def _mel_bins(
    low: te.Tensor, high: te.Tensor, corners: tirx.Expr, length: tirx.Expr, rate: tirx.Expr
) -> te.Tensor:
    """The frequencies, in DFT bins, that divide the range into equal steps of mel."""

    def wide(number: float) -> tirx.Expr:
        return tirx.const(number, _WIDE)

    def mel(hertz: tirx.Expr) -> tirx.Expr:
        return wide(2595) * tirx.log10(wide(1) + hertz / wide(700))

    def element(i: tirx.Var) -> tirx.Expr:
        step = (mel(high(0)) - mel(low(0))) / corners.astype(_WIDE)
        exponent = (i.astype(_WIDE) * step + mel(low(0))) / wide(2595)
        hertz = wide(700) * (tirx.exp(exponent * wide(math.log(10))) - wide(1))
        return te.floor((length + 1).astype(_WIDE) * hertz / rate.astype(_WIDE)).astype("int64")

    return te.compute((corners,), element, name="mel_bins")


def _triangles(bins: te.Tensor, rows: tirx.Expr, count: tirx.Expr) -> te.Tensor:
    """One triangle per column, with its corners at three adjacent elements of `bins`."""

    def element(row: tirx.Var, i: tirx.Var) -> tirx.Expr:
        low, center, high = (bins(i + offset) for offset in range(3))

        def ratio(part: tirx.Expr, whole: tirx.Expr) -> tirx.Expr:
            # Adjacent bins may be equal: then another case applies.
            return part.astype(_WIDE) / tirx.max(whole, tirx.const(1, "int64")).astype(_WIDE)

        zero, one = tirx.const(0, _WIDE), tirx.const(1, _WIDE)
        falls = tirx.all(center <= row, row < high)
        rises = tirx.all(low <= row, row <= center, low < center)
        is_step = tirx.all(row == center, low == center)
        rest = tirx.Select(rises, ratio(row - low, center - low), tirx.Select(is_step, one, zero))
        return tirx.Select(falls, ratio(high - row, high - center), rest)

    return te.compute((rows, count), element, name="triangles")
