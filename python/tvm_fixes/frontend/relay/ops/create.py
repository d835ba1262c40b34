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
"""Tensors filled with values, casts, selection and shapes."""

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ..call import Call, converts
from .broadcasting import operands
from .elementwise import first_input, input_dtype, is_float


@converts("cast")
def cast(call: Call) -> relax.Expr:
    """Convert values to a dtype."""
    return cast_to(call, str(call.attributes["dtype"]))


@converts("cast_like")
def cast_like(call: Call) -> relax.Expr:
    """Convert values to the dtype of another tensor."""
    return cast_to(call, input_dtype(call, 1))


def cast_to(call: Call, dtype: str) -> relax.Expr:
    """Convert the first input."""
    if input_dtype(call) == dtype:
        return first_input(call)
    return call.emit(relax.op.astype(first_input(call), dtype))


@converts("reinterpret")
def reinterpret(call: Call) -> relax.Expr:
    """The same bits as values of another dtype of the same size."""
    dtype = str(call.attributes["dtype"])
    source = input_dtype(call)
    if source == dtype:
        return first_input(call)
    if "bool" in (source, dtype) or np.dtype(source).itemsize != np.dtype(dtype).itemsize:
        raise call.fail(f"expected a dtype of the size of {source}, found {dtype}")
    return call.emit_te(topi.reinterpret, first_input(call), dtype)


@converts("zeros", "ones")
def filled(call: Call) -> relax.Expr:
    """A tensor of zeros or ones."""
    return call.emit(
        getattr(relax.op, call.operator)(call.ints("shape"), str(call.attributes["dtype"]))
    )


@converts("zeros_like", "ones_like")
def filled_like(call: Call) -> relax.Expr:
    """Zeros or ones in the shape of another tensor."""
    return call.emit(getattr(relax.op, call.operator)(first_input(call)))


@converts("full")
def full(call: Call) -> relax.Expr:
    """A tensor of one value."""
    dtype = str(call.type.dtype)
    return call.emit(relax.op.full(call.ints("shape"), call.operands[0], dtype))


@converts("full_like")
def full_like(call: Call) -> relax.Expr:
    """One value in the shape and dtype of another tensor."""
    return call.emit(relax.op.full_like(first_input(call), call.operands[1]))


@converts("where")
def where(call: Call) -> relax.Expr:
    """The second input where the condition is not zero, else the third."""
    condition, lhs, rhs = call.operands
    dtype = input_dtype(call)
    if dtype != "bool":
        condition = call.emit(relax.op.not_equal(condition, relax.const(0, dtype)))
    return call.emit(relax.op.where(*operands(call, condition, lhs, rhs)))


@converts("shape_of")
def shape_of(call: Call) -> relax.Expr:
    """The extents as a tensor."""
    if not call.input_types[0].shape:
        raise call.fail("the shape of a tensor without dimensions")
    return extents(call)


@converts("ndarray_size")
def ndarray_size(call: Call) -> relax.Expr:
    """The number of elements."""
    dtype = str(call.attributes["dtype"])
    shape = list(call.input_types[0].shape)
    if all(isinstance(dim, int) for dim in shape):
        return relax.const(math.prod(shape), dtype)
    return call.emit(relax.op.prod(extents(call)))


def extents(call: Call) -> relax.Expr:
    """Return the shape of the first input as a tensor of the attribute "dtype"."""
    dtype = str(call.attributes["dtype"])
    shape = list(call.input_types[0].shape)
    if all(isinstance(dim, int) for dim in shape):
        return relax.const(np.array(shape, dtype), dtype)
    shape_expr = call.emit(relax.op.shape_of(first_input(call)))
    tensor = call.emit(relax.op.shape_to_tensor(shape_expr))
    return tensor if dtype == "int64" else call.emit(relax.op.astype(tensor, dtype))


@converts("arange")
def arange(call: Call) -> relax.Expr:
    """Evenly spaced values: start + step * i."""
    [extent] = call.type.shape
    dtype = str(call.attributes["dtype"])
    start, stop, step = call.operands
    if not isinstance(extent, int):
        if is_float(dtype):
            raise call.fail("a computed interval must be of integers")
        count = call.emit_te(te_arange_count, start, stop, step)
        extent = tirx.Var("arange_count", "int64")
        shape = call.emit(relax.op.tensor_to_shape(count))
        call.builder.match_cast(shape, relax.ShapeType([extent]))
    return call.emit_te(te_arange, start, step, extent)


def te_arange_count(start: te.Tensor, stop: te.Tensor, step: te.Tensor) -> te.Tensor:
    """Count the values of an interval of integers."""

    def element(_: tirx.Var) -> Any:
        low, high, by = (value().astype("int64") for value in (start, stop, step))
        zero = tirx.const(0, "int64")
        distance = tirx.Select(by < zero, low - high, high - low)
        stride = tirx.abs(by)
        return tirx.max(tirx.floordiv(distance + stride - 1, stride), zero)

    return te.compute((1,), element)


def te_arange(start: te.Tensor, step: te.Tensor, extent: Any) -> te.Tensor:
    """Compute the values of an interval."""
    return te.compute((extent,), lambda i: start() + step() * i.astype(start.dtype))
