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
"""NumPy semantics of Relax operators: creation, movement, indexing, sorting."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from .relax_oracle import Interpreter, Tensor, Undefined, operator
from .relax_oracle_elementwise import attr, dtype_of


@operator("full", "zeros", "ones")
def _full(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    name = call.op.name.split(".")[-1]
    fill = args[1].data if name == "full" else float(name == "ones")
    dtype = dtype_of(call, "dtype", args[1].dtype if name == "full" else "float32")
    return inter.numerics.rounded(np.full(args[0], fill), dtype, np.float64(0))


@operator("full_like", "zeros_like", "ones_like")
def _full_like(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    name = call.op.name.split(".")[-1]
    fill = args[1].data if name == "full_like" else float(name == "ones_like")
    dtype = dtype_of(call, "dtype", args[0].dtype)
    return inter.numerics.rounded(np.full(args[0].shape, fill), dtype, np.float64(0))


@operator("arange")
def _arange(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    return inter.numerics.rounded(np.arange(*args), dtype_of(call, "dtype", "int64"))


@operator("tril", "triu")
def _trilu(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    cut = np.tril if call.op.name.endswith("tril") else np.triu
    k = int(args[1]) if len(args) > 1 else attr(call, "k")
    return Tensor(cut(args[0].data, k), args[0].dtype)


@operator("reshape", "broadcast_to", "flatten", "nn.batch_flatten")
def _reshape(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    x = args[0]
    if call.op.name == "relax.broadcast_to":
        return Tensor(np.broadcast_to(x.data, args[1]), x.dtype)
    if call.op.name == "relax.reshape":
        if x.data.size == 0 or np.prod(args[1]) != x.data.size:
            if np.prod(args[1]) != x.data.size:
                raise Undefined("a reshape that changes the number of elements")
        return Tensor(x.data.reshape(args[1]), x.dtype)
    first = x.shape[:1] if "batch" in call.op.name else ()
    return Tensor(x.data.reshape(*first, int(np.prod(x.shape[len(first) :]))), x.dtype)


@operator("permute_dims")
def _permute(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    return Tensor(np.transpose(args[0].data, attr(call, "axes")), args[0].dtype)


@operator("expand_dims")
def _expand(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    return Tensor(np.expand_dims(args[0].data, tuple(attr(call, "axis"))), args[0].dtype)


@operator("squeeze")
def _squeeze(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    axes = attr(call, "axis")
    data = args[0].data
    if axes is not None and any(data.shape[axis] != 1 for axis in axes):
        raise Undefined("squeeze of an extent that is not 1")
    return Tensor(np.squeeze(data, None if axes is None else tuple(axes)), args[0].dtype)


@operator("concat", "stack")
def _concat(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    join = np.concatenate if call.op.name.endswith("concat") else np.stack
    parts = args[0]
    return Tensor(join([part.data for part in parts], attr(call, "axis") or 0), parts[0].dtype)


@operator("split")
def _split(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Any:
    where, axis = attr(call, "indices_or_sections"), attr(call, "axis")
    if isinstance(where, int):
        size = args[0].shape[axis]
        each = -(-size // where)
        where = [each * i for i in range(1, where)]
    parts = tuple(Tensor(part, args[0].dtype) for part in np.split(args[0].data, where, axis))
    # For one section, TVM returns a tensor instead of a tuple.
    return parts if isinstance(call.ty, relax.TupleType) else parts[0]


@operator("flip", "repeat", "tile")
def _repeat(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x = args[0]
    if call.op.name.endswith("flip"):
        return Tensor(np.flip(x.data, attr(call, "axis")), x.dtype)
    if call.op.name.endswith("tile"):
        return Tensor(np.tile(x.data, attr(call, "repeats")), x.dtype)
    return Tensor(np.repeat(x.data, attr(call, "repeats"), attr(call, "axis")), x.dtype)


@operator("nn.pad")
def _pad(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, widths, mode = args[0], attr(call, "pad_width"), attr(call, "pad_mode")
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if mode == "constant":
        value = float(attr(call, "pad_value"))
        return Tensor(np.pad(x.data, pairs, constant_values=value), x.dtype)
    for extent, pair in zip(x.shape, pairs, strict=True):
        if max(pair) > (extent - 1 if mode == "reflect" else extent) or (max(pair) and not extent):
            raise Undefined(f"a padding of {pair} for extent {extent}")
    numpys = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return Tensor(np.pad(x.data, pairs, mode=numpys[mode]), x.dtype)


@operator("strided_slice")
def _strided_slice(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    x, axes, begins, ends = args[:4]
    strides = args[4] if len(args) > 4 else [1] * len(axes)
    at = [slice(None)] * x.data.ndim
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        # A Python slice cannot express an end before the first element.
        is_before = stride < 0 and end < -x.shape[axis]
        at[axis] = slice(begin, None if is_before else end, stride)
    return Tensor(x.data[tuple(at)], x.dtype)


@operator("take")
def _take(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, indices = args
    axis, mode = attr(call, "axis"), attr(call, "mode")
    size = x.data.size if axis is None else x.shape[axis]
    at = indices.data if isinstance(indices, Tensor) else np.asarray(indices)
    if size == 0 and at.size:
        raise Undefined("a take from an empty axis")
    if mode == "clip":
        at = np.clip(at, 0, size - 1)
    elif mode == "wrap":
        at = at % max(size, 1)
    elif np.any((at < 0) | (at >= size)):
        raise Undefined("an index out of bounds")
    return Tensor(np.take(x.data, at, axis), x.dtype)


def _inside(indices: np.ndarray, size: int) -> np.ndarray:
    if np.any((indices < -size) | (indices >= size)):
        raise Undefined("an index out of bounds")
    return indices


@operator("gather_elements")
def _gather_elements(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, indices = args
    axis = attr(call, "axis") % x.data.ndim
    at = list(np.indices(indices.shape))
    at[axis] = _inside(indices.data, x.shape[axis])
    return Tensor(x.data[tuple(at)], x.dtype)


@operator("gather_nd")
def _gather_nd(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, indices = args
    batch, depth = attr(call, "batch_dims"), indices.shape[-1]
    lead = np.indices(indices.shape[:-1])[:batch]
    last = [_inside(indices.data[..., i], x.shape[batch + i]) for i in range(depth)]
    return Tensor(x.data[tuple([*lead, *last])], x.dtype)


@operator("scatter_elements")
def _scatter_elements(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, indices, updates = args
    axis, how = attr(call, "axis") % x.data.ndim, attr(call, "reduction")
    result = np.array(x.data)
    at = list(np.indices(indices.shape))
    at[axis] = _inside(indices.data, x.shape[axis]) % max(x.shape[axis], 1)
    places = [tuple(place) for place in zip(*(index.reshape(-1) for index in at), strict=True)]
    return _scattered(inter, x.dtype, result, places, updates.data.reshape(-1), how)


@operator("scatter_nd")
def _scatter_nd(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, indices, updates = args
    result, depth = np.array(x.data), indices.shape[-1]
    rows = indices.data.reshape(-1, depth)
    for i in range(depth):
        _inside(rows[:, i], x.shape[i])
    values = updates.data.reshape(len(rows), *x.shape[depth:])
    places = [
        tuple(v % max(s, 1) for v, s in zip(row, x.shape[:depth], strict=True)) for row in rows
    ]
    return _scattered(inter, x.dtype, result, places, values, attr(call, "reduction"))


def _scattered(
    inter: Interpreter, dtype: str, result: np.ndarray, places: list[Any], values: Any, how: str
) -> Tensor:
    if how == "update" and len(set(places)) != len(places):
        raise Undefined("two updates of the same element")
    if dtype == "bool" and how != "update":
        raise Undefined("arithmetic of booleans")
    terms = np.abs(result).astype(np.float64)
    combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    for place, value in zip(places, values, strict=True):
        result[place] = value if how == "update" else combine[how](result[place], value)
        terms[place] += np.abs(result[place]) if how in ("add", "mul") else 0
    is_exact = how in ("update", "min", "max")
    return inter.numerics.rounded(result, dtype, np.float64(0) if is_exact else 2 * terms)


@operator("one_hot")
def _one_hot(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    indices, on, off = args
    depth, axis = attr(call, "depth"), attr(call, "axis")
    hot = np.moveaxis(indices.data[..., None] == np.arange(depth), -1, axis)
    dtype = str(call.ty.dtype)
    return inter.numerics.rounded(np.where(hot, on, off), dtype, np.float64(0))


@operator("sort", "argsort", "topk")
def _sort(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Any:
    (x,) = args
    name, axis = call.op.name.split(".")[-1], attr(call, "axis")
    descending = bool(attr(call, "largest" if name == "topk" else "descending"))
    # The sort is stable in both directions, and NaN is the largest element.
    ranks = np.unique(x.data, return_inverse=True)[1].reshape(x.shape)
    order = np.argsort(-ranks if descending else ranks, axis=axis, kind="stable").astype(np.int64)
    if name == "sort":
        return Tensor(np.take_along_axis(x.data, order, axis), x.dtype)
    dtype = dtype_of(call, "dtype", "int32")
    if name == "argsort":
        return Tensor(order, dtype)
    k, kind = attr(call, "k"), attr(call, "ret_type")
    if k > 0:
        order = np.take(order, np.arange(min(k, x.shape[axis])), axis)
    values = Tensor(np.take_along_axis(x.data, order, axis), x.dtype)
    indices = Tensor(order, dtype)
    return {"both": (values, indices), "values": values, "indices": indices}[kind]


@operator("shape_of", "shape_to_tensor", "tensor_to_shape")
def _shape(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Any:
    if call.op.name == "relax.shape_of":
        return list(args[0].shape)
    if call.op.name == "relax.tensor_to_shape":
        return [int(extent) for extent in args[0].data]
    return Tensor(np.array(args[0], np.int64), "int64")


@operator("nonzero")
def _nonzero(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    return Tensor(np.stack(np.nonzero(np.atleast_1d(args[0].data))).astype(np.int64), "int64")


@operator("masked_fill")
def _masked_fill(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    x, mask, value = args
    return inter.numerics.rounded(np.where(mask.data, value, x.data), x.dtype, np.float64(0))


@operator("collapse_sum_to")
def _collapse(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    x, shape = args
    data, terms = x.data, np.abs(x.data)
    extra = data.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + i for i, size in enumerate(shape) if size == 1 and data.shape[extra + i] != 1
    )
    total, magnitude = (np.sum(one, axis=axes).reshape(shape) for one in (data, terms))
    return inter.numerics.rounded(total, x.dtype, 4 * magnitude)
