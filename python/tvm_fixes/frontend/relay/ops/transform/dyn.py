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
"""Converters of the operators dyn.*, which become static ones if the shape is a constant."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..... import relay
from ....extents import Extent
from ...call import Call, converts
from ...values.extents import reshaped, shaped
from ..broadcasting import broadcast


def constant_values(call: Call, index: int) -> list[Any] | None:
    """Return the elements of an input that is a constant, else None."""
    value = call.constant(index)
    return None if value is None else np.asarray(value).tolist()


def static(call: Call, name: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Convert a call of the static operator with these attributes besides its defaults."""
    node = relay.Call(name, list(call.call.args[: len(inputs)]), dict(attrs))
    complete = relay.complete_attrs(node)
    return replace(call, operator=name, operands=tuple(inputs), attributes=complete).convert()


def given(call: Call, *names: str) -> dict[str, Any]:
    """Return attributes of the call that have a value."""
    return {name: call.attributes[name] for name in names if call.attributes[name] is not None}


def symbols(call: Call, shape: relax.Expr, rank: int) -> list[Extent]:
    """Return new symbols for the elements of a shape that is known only at run time."""
    if str(shape.ty.dtype) != "int64":
        shape = call.emit(relax.op.astype(shape, "int64"))
    extents = [tirx.Var(f"extent_{axis}", "int64") for axis in range(rank)]
    call.builder.match_cast(call.emit(relax.op.tensor_to_shape(shape)), relax.ShapeType(extents))
    return list(extents)


def run_time_shape(call: Call, index: int) -> list[Extent]:
    """Return symbols for the elements of an input that is a shape."""
    tensor, [rank] = shaped(call, index)
    if not isinstance(rank, int):
        raise call.fail("expected a shape with a known number of dimensions")
    return symbols(call, tensor, rank)


def shape_input(call: Call, index: int) -> list[Extent]:
    """Return the elements of an input that is a shape: ints, or symbols."""
    shape = constant_values(call, index)
    return run_time_shape(call, index) if shape is None else shape


@converts("dyn.reshape")
def reshape(call: Call) -> relax.Expr:
    """Reshape to a shape that is an input."""
    newshape = constant_values(call, 1)
    if newshape is not None:
        attrs = {"newshape": newshape, **given(call, "allowzero")}
        return static(call, "reshape", call.operands[:1], attrs)
    data, extents = shaped(call)
    tensor, [rank] = shaped(call, 1)
    if not isinstance(rank, int):
        raise call.fail("expected a shape with a known number of dimensions")
    allow_zero = bool(call.attributes["allowzero"])
    extents_tensor = call.emit(relax.op.shape_to_tensor(relax.ShapeExpr(extents)))
    target = call.emit_te(te_new_shape, extents_tensor, tensor, allow_zero)
    return reshaped(call, data, symbols(call, target, rank))


def te_new_shape(extents: te.Tensor, newshape: te.Tensor, allow_zero: bool) -> te.Tensor:
    """Replace the special values 0, -1 and -3 of a new shape."""
    rank, new_rank = int(extents.shape[0]), int(newshape.shape[0])
    one, zero = tirx.const(1, "int64"), tirx.const(0, "int64")

    def extent(source: Any) -> Any:
        chosen = one
        for axis in range(rank):
            chosen = tirx.Select(source.equal(axis), extents[axis], chosen)
        return chosen

    source: Any = zero
    resolved = []
    for i in range(new_rank):
        value = newshape[i].astype("int64")
        pair = value.equal(-3)
        dim = tirx.Select(pair, extent(source) * extent(source + 1), value)
        if not allow_zero:
            dim = tirx.Select(value.equal(0), extent(source), dim)
        resolved.append(dim)
        source = source + tirx.Select(pair, tirx.const(2, "int64"), one)
    total, known = one, one
    for axis in range(rank):
        total = total * extents[axis]
    for dim in resolved:
        known = known * tirx.Select(dim < 0, one, dim)

    def element(position: tirx.Var) -> Any:
        result = zero
        for i, dim in enumerate(resolved):
            rest = tirx.floordiv(total, tirx.max(known, 1))
            result = tirx.Select(position.equal(i), tirx.Select(dim < 0, rest, dim), result)
        return result

    return te.compute((new_rank,), element, name="new_shape")


@converts("dyn.broadcast_to")
def broadcast_to(call: Call) -> relax.Expr:
    """Broadcast to a shape that is an input."""
    return broadcast(call, *shaped(call), shape_input(call, 1))


@converts("dyn.tile")
def tile(call: Call) -> relax.Expr:
    """Repeat the whole tensor; an input holds the repeats."""
    reps = constant_values(call, 1)
    if reps is not None:
        return call.emit(relax.op.tile(shaped(call)[0], [int(count) for count in reps]))
    data, extents = shaped(call)
    counts = run_time_shape(call, 1)
    rank = max(len(extents), len(counts))
    times = [1] * (rank - len(counts)) + counts
    dims = [1] * (rank - len(extents)) + extents
    shape = [dim * count for dim, count in zip(dims, times, strict=True)]
    return call.emit_te(te_tile, data, shape)


def te_tile(data: te.Tensor, shape: list[Extent]) -> te.Tensor:
    """Read each axis modulo its extent."""
    extra = len(shape) - len(data.shape)

    def element(*position: tirx.Var) -> Any:
        pairs = zip(position[extra:], data.shape, strict=True)
        return data(*(tirx.floormod(index, extent) for index, extent in pairs))

    return te.compute(shape, element, name="tile")


@converts("dyn.zeros", "dyn.ones")
def filled(call: Call) -> relax.Expr:
    """A tensor of zeros or ones, whose shape is an input."""
    shape = shape_input(call, 0)
    emitter = relax.op.zeros if call.operator == "dyn.zeros" else relax.op.ones
    return call.emit(emitter(relax.ShapeExpr(shape), str(call.attributes["dtype"])))


@converts("dyn.full")
def full(call: Call) -> relax.Expr:
    """A tensor of one value, whose shape is an input."""
    shape = shape_input(call, 1)
    dtype = str(call.type.dtype)
    return call.emit(relax.op.full(relax.ShapeExpr(shape), call.operands[0], dtype))


@converts("dyn.strided_slice")
def strided_slice(call: Call) -> relax.Expr:
    """Take a range of each axis; the ranges are inputs."""
    names = ("begin", "end", "strides")
    values = [constant_values(call, i) for i in (1, 2, 3)]
    if all(value is not None for value in values):
        attrs = {**dict(zip(names, values, strict=True)), **given(call, "slice_mode")}
        return static(call, "strided_slice", call.operands[:1], attrs)
    return slice_at_run_time(call)


def slice_at_run_time(call: Call) -> relax.Expr:
    """Take ranges that are known only at run time; axes without a range are kept."""
    data, extents = shaped(call)
    begin, end, strides = (as_int64(call, i) for i in (1, 2, 3))
    kept = extents[int(begin.ty.shape[0]) :]
    op, ones = relax.op, [1] * len(kept)
    if call.attributes["slice_mode"] == "size":
        is_rest = call.emit(op.less(end, relax.const(0, "int64")))
        last = call.emit(op.full_like(end, relax.const(2**62, "int64")))
        end = call.emit(op.where(is_rest, last, call.emit(op.add(begin, end))))
        strides = call.emit(op.ones_like(strides))
    if kept:
        whole = call.emit(op.shape_to_tensor(relax.ShapeExpr(kept)))
        begin = call.emit(op.concat([begin, relax.const([0] * len(kept), "int64")], 0))
        end = call.emit(op.concat([end, whole], 0))
        strides = call.emit(op.concat([strides, relax.const(ones, "int64")], 0))
    return call.emit(op.dynamic_strided_slice(data, begin, end, strides))


def as_int64(call: Call, index: int) -> relax.Expr:
    """Return an input that has integers as int64."""
    tensor, _ = shaped(call, index)
    return tensor if tensor.ty.dtype == "int64" else call.emit(relax.op.astype(tensor, "int64"))


@converts("dyn.expand_dims")
def expand_dims(call: Call) -> relax.Expr:
    """Insert axes at a position that is an input."""
    axis = known(call, 1, "axis")
    attrs = {"axis": axis, **given(call, "num_newaxis")}
    return static(call, "expand_dims", call.operands[:1], attrs)


@converts("dyn.squeeze")
def squeeze(call: Call) -> relax.Expr:
    """Drop axes that are an input."""
    return static(call, "squeeze", call.operands[:1], {"axis": known(call, 1, "axes")})


@converts("dyn.one_hot")
def one_hot(call: Call) -> relax.Expr:
    """One-hot vectors whose length is an input."""
    depth = scalar(known(call, 3, "depth"))
    attrs = {**given(call, "axis", "dtype"), "depth": depth}
    return static(call, "one_hot", call.operands[:3], attrs)


@converts("dyn.sparse_to_dense")
def sparse_to_dense(call: Call) -> relax.Expr:
    """A dense tensor whose shape is an input."""
    attrs = {"output_shape": known(call, 3, "output_shape")}
    return static(call, "sparse_to_dense", call.operands[:3], attrs)


@converts("dyn.topk")
def topk(call: Call) -> Any:
    """The largest elements; their number is an input."""
    attrs = {**given(call, "axis", "ret_type", "is_ascend", "dtype")}
    attrs["k"] = scalar(known(call, 1, "k"))
    return static(call, "topk", call.operands[:1], attrs)


@converts("dyn.nn.pad")
def pad(call: Call) -> relax.Expr:
    """Pad by widths that are an input."""
    attrs = {"pad_width": known(call, 1, "pad_width"), **given(call, "pad_mode")}
    return static(call, "nn.pad", [call.operands[0], call.operands[2]], attrs)


@converts("dyn.nn.upsampling", "dyn.nn.upsampling3d")
def upsampling(call: Call) -> relax.Expr:
    """Resize by factors that are inputs."""
    name = call.operator.removeprefix("dyn.")
    scales = ("scale_d", "scale_h", "scale_w")[4 - len(call.operands) :]
    attrs = {scale: scalar(known(call, i + 1, scale)) for i, scale in enumerate(scales)}
    others = ("layout", "method", "align_corners", "coordinate_transformation_mode")
    attrs |= given(call, *(other for other in others if other in call.attributes))
    return static(call, name, call.operands[:1], attrs)


@converts("dyn.image.resize2d")
def resize2d(call: Call) -> relax.Expr:
    """Resize to a size that is an input."""
    attrs = {name: value for name, value in call.attributes.items() if value is not None}
    attrs |= {"size": known(call, 1, "size"), "roi": known(call, 2, "roi")}
    return static(call, "image.resize2d", call.operands[:1], attrs)


def known(call: Call, index: int, name: str) -> Any:
    """Return the value of an input that must be a constant."""
    values = constant_values(call, index)
    if values is None:
        raise call.fail(f"input {index} ({name}) must be a constant")
    return values


def scalar(value: Any) -> Any:
    """Return the only element."""
    return value[0] if isinstance(value, list) else value
