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
"""Operators that change the shape of a tensor, or join and split tensors."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx

from ...extents import NO_FACTS, Extent, expression, is_static, product
from ..call import MAX_KNOWN, Array, Call, Value, converts, is_quantized, is_small_integer


def shape_of(extents: Sequence[Extent]) -> relax.ShapeExpr:
    """A shape of extents."""
    return relax.ShapeExpr(list(map(expression, extents)))


@converts("RESHAPE")
def reshape(call: Call) -> Value:
    """The elements in another shape, in which -1 stands for the rest."""
    call.require_same_quantization()
    if call.has(1):
        target = call.extents(1, "the shape")
    else:
        option = call.option_or("new_shape", None)
        if option is None:
            raise call.fail("the shape is missing")
        target = [int(extent) for extent in option]
    if target == [0] and not call.has(1):
        target = []  # as old files write a scalar
    target = _completed(call, target, call.shape(0))
    value = call.known(0)
    if is_small_integer(value) and is_static(*target):
        return value.reshape(target)
    return relax.op.reshape(call.operand(0), shape_of(target))


def _completed(call: Call, target: list[Extent], shape: Sequence[Extent]) -> list[Extent]:
    """The shape with the rest of the elements instead of -1."""
    open_dims = [axis for axis, extent in enumerate(target) if is_static(extent) and extent == -1]
    if any(is_static(extent) and extent < -1 for extent in target) or len(open_dims) > 1:
        raise call.fail(f"the shape is {target}")
    count = product(NO_FACTS, shape)
    others = product(
        NO_FACTS, [extent for axis, extent in enumerate(target) if axis not in open_dims]
    )
    if not open_dims:
        if NO_FACTS.equal(count, others) is False or (is_static(count, others) and count != others):
            raise call.fail(f"the shape is {target}, for data of shape {list(shape)}")
        return target
    if is_static(count, others) and (others == 0 or count % others):
        raise call.fail(f"the shape is {target}, for data of shape {list(shape)}")
    rest = NO_FACTS.simplify(
        count // others if is_static(count, others) else _quotient(count, others)
    )
    return [rest if axis in open_dims else extent for axis, extent in enumerate(target)]


def _quotient(count: Extent, others: Extent) -> tirx.Expr:
    return tirx.floordiv(expression(count), expression(others))


@converts("SQUEEZE")
def squeeze(call: Call) -> Value:
    """The elements without axes of extent 1, all of them by default."""
    call.require_same_quantization()
    shape = call.shape(0)
    dims = call.option_or("squeeze_dims", None)
    axes = sorted({call.axis(int(axis), len(shape)) for axis in (() if dims is None else dims)})
    if not axes:
        axes = [
            axis for axis, extent in enumerate(shape) if isinstance(extent, int) and extent == 1
        ]
    if any(not isinstance(shape[axis], int) or shape[axis] != 1 for axis in axes):
        raise call.fail(f"the axes are {axes}, of data of shape {shape}")
    value = call.known(0)
    if is_small_integer(value):
        return np.squeeze(value, tuple(axes))
    return relax.op.squeeze(call.operand(0), axes) if axes else call.operand(0)


@converts("EXPAND_DIMS")
def expand_dims(call: Call) -> Value:
    """The elements with one more axis."""
    call.require_same_quantization()
    [axis] = call.ints(1, "the axis")
    axis = call.axis(axis, call.rank(0) + 1)
    value = call.known(0)
    if is_small_integer(value):
        return np.expand_dims(value, axis)
    return relax.op.expand_dims(call.operand(0), axis)


@converts("TRANSPOSE")
def transpose(call: Call) -> relax.Expr:
    """The elements with the axes in another order."""
    call.require_same_quantization()
    rank = call.rank(0)
    order = [call.axis(axis, rank) for axis in call.ints(1, "the order of axes")]
    if sorted(order) != list(range(rank)):
        raise call.fail(f"the order of axes is {order}, for data of rank {rank}")
    return relax.op.permute_dims(call.operand(0), order)


@converts("SHAPE")
def shape(call: Call) -> Array:
    """The shape as a vector."""
    extents = call.shape(0)
    if is_static(*extents):
        return np.array(extents, call.outputs[0].dtype)
    return _array(extents)


@converts("RANK")
def rank(call: Call) -> Array:
    """The number of axes."""
    return np.array(call.rank(0), call.outputs[0].dtype)


def _array(elements: Sequence[Any]) -> Array:
    """A vector of objects."""
    vector = np.empty(len(elements), object)
    vector[:] = list(elements)
    return vector


def _aligned(call: Call) -> list[Any]:
    """All operands as integers of the result's parameters, or as real numbers."""
    indices = range(len(call.operands))
    out = call.outputs[0]
    if all(call.has_same_quantization(call.input(index), out) for index in indices):
        return [call.operand(index) for index in indices]
    return [call.real(index) for index in indices]


def _joined(call: Call, value: relax.Expr) -> relax.Expr:
    indices = range(len(call.operands))
    if all(call.has_same_quantization(call.input(i), call.outputs[0]) for i in indices):
        if call.option_or("fused_activation_function", "NONE") == "NONE":
            return value
        if is_quantized(call.outputs[0]):
            raise call.fail("a fused activation function of integers is not supported")
        return call.activated(value)
    return call.as_output(call.activated(value))


def _known_operands(call: Call) -> list[Array] | None:
    """All operands, if they are parts of a shape."""
    values = call.known_integers()
    if values is not None and any(value.dtype == object for value in values):
        return [value.astype(object) for value in values]
    return values


@converts("CONCATENATION")
def concatenation(call: Call) -> Value:
    """The operands, joined along an axis."""
    axis = call.axis(call.option("axis"), call.rank(0))
    known = _known_operands(call)
    if known is not None:
        return np.concatenate(known, axis)
    return _joined(call, call.emit(relax.op.concat(_aligned(call), axis)))


@converts("PACK")
def pack(call: Call) -> Value:
    """The operands, joined along a new axis."""
    axis = call.axis(call.option("axis"), call.rank(0) + 1)
    known = _known_operands(call)
    if known is not None:
        return np.stack(known, axis)
    return _joined(call, call.emit(relax.op.stack(_aligned(call), axis)))


@converts("UNPACK")
def unpack(call: Call) -> list[Any]:
    """The parts of a tensor along an axis, without this axis."""
    call.require_same_quantization()
    axis = call.axis(call.option("axis"), call.rank(0))
    count = call.shape(0)[axis]
    if count != len(call.outputs):
        raise call.fail(f"{len(call.outputs)} results, of an axis of extent {count}")
    value = call.known(0)
    if is_small_integer(value):
        return [np.take(value, index, axis) for index in range(int(count))]
    parts = _split(call, call.operand(0), [1] * int(count), axis)
    return [call.emit(relax.op.squeeze(part, [axis])) for part in parts]


@converts("SPLIT", "SPLIT_V")
def split(call: Call) -> list[Any]:
    """Parts of a tensor along an axis, of equal or of given sizes."""
    data, place = (1, 0) if call.operator == "SPLIT" else (0, 2)
    tensor = call.input(data)
    call.require_same_quantization(tensor, *call.outputs)
    [axis] = call.ints(place, "the axis")
    axis = call.axis(axis, call.rank(data))
    extent, count = call.shape(data)[axis], len(call.outputs)
    if not isinstance(extent, int):
        raise call.fail("the extent of the axis must be static")
    if call.operator == "SPLIT":
        if extent % count:
            raise call.fail(f"{count} parts of an axis of extent {extent}")
        sizes = [extent // count] * count
    else:
        sizes = call.ints(1, "the sizes")
        rest = extent - sum(size for size in sizes if size >= 0)
        sizes = [rest if size < 0 else size for size in sizes]
        if sum(sizes) != extent or len(sizes) != count or min(sizes) < 0:
            raise call.fail(f"the sizes are {sizes}, of an axis of extent {extent}")
    value = call.known(data)
    if is_small_integer(value):
        return list(np.split(value, np.cumsum(sizes)[:-1], axis))
    return _split(call, call.operand(data), sizes, axis)


def _split(call: Call, value: relax.Expr, sizes: Sequence[int], axis: int) -> list[relax.Expr]:
    if len(sizes) == 1:
        return [value]
    bounds = [int(bound) for bound in np.cumsum(sizes)[:-1]]
    parts = call.emit(relax.op.split(value, bounds, axis))
    return [call.emit(relax.TupleGetItem(parts, index)) for index in range(len(sizes))]


@converts("TILE")
def tile(call: Call) -> relax.Expr:
    """The tensor, repeated along its axes."""
    call.require_same_quantization()
    repeats = call.ints(1, "the numbers of repetitions")
    if len(repeats) != call.rank(0):
        raise call.fail(f"{len(repeats)} numbers of repetitions, of data of rank {call.rank(0)}")
    return relax.op.tile(call.operand(0), repeats)


@converts("BROADCAST_TO")
def broadcast_to(call: Call) -> relax.Expr:
    """The tensor in a larger shape."""
    call.require_same_quantization()
    return relax.op.broadcast_to(call.operand(0), shape_of(call.extents(1, "the shape")))


@converts("BROADCAST_ARGS")
def broadcast_args(call: Call) -> Array:
    """The shape to which two shapes broadcast."""
    shapes = [call.extents(index, "a shape") for index in range(2)]
    if not is_static(*shapes[0], *shapes[1]):
        raise call.fail("shapes with symbolic extents are not supported")
    try:
        extents = np.broadcast_shapes(*(tuple(map(int, extents)) for extents in shapes))
    except ValueError:
        raise call.fail(f"the shapes {shapes[0]} and {shapes[1]} do not broadcast") from None
    return np.array(extents, call.outputs[0].dtype)


@converts("FILL")
def fill(call: Call) -> Value:
    """A tensor of equal elements."""
    call.require_same_quantization(call.outputs[0], call.input(1))
    target, value = call.extents(0, "the shape"), call.known(1)
    if is_small_integer(value) and is_static(*target) and math.prod(target) <= MAX_KNOWN:
        return np.full(list(map(int, target)), value.reshape(())[()], value.dtype)
    scalar = call.emit(relax.op.reshape(call.operand(1), []))
    return relax.op.full(shape_of(target), scalar, call.outputs[0].dtype)


@converts("RANGE")
def arange(call: Call) -> Value:
    """Numbers from a start up to a limit."""
    call.reject_quantized(call.outputs[0])
    bounds = [call.elements(index, "a bound").reshape(-1)[0] for index in range(3)]
    dtype = call.outputs[0].dtype
    if not is_static(*bounds):
        start, end, step = bounds
        if isinstance(step, tirx.Expr) or step <= 0:
            raise call.fail(f"the step is {step}; expected a positive constant")
        return relax.op.arange(start, end, int(step), dtype)
    start, end, step = (bound.item() if hasattr(bound, "item") else bound for bound in bounds)
    if step == 0:
        raise call.fail("the step is 0")
    steps = (end - start) / step
    count = math.ceil(steps) if steps > 0 else 0
    call.limited(count, "the number of elements")
    return (start + step * np.arange(count)).astype(dtype)
