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
"""Families of operators: each function emits one call with valid arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op
from tvm_ffi import structural_equal

from .relax_oracle import FLOATS, INTEGERS, Tensor
from .relax_oracle_elementwise import _EXACT, _FUNCTIONS
from .relax_programs import Item, Maker, Reject
from .relax_structure import branch, call, match_cast, shape_of
from .relax_windowed_families import WINDOWED

_TESTS = ("isfinite", "isinf", "isnan")


def _function(name: str) -> Callable[..., relax.Expr]:
    place: Any = op
    for part in name.split("."):
        place = getattr(place, part)
    return place


def unary(g: Maker) -> None:
    if g.chance(0.5):
        name = g.choice([*_FUNCTIONS])
        g.emit(_function(name)(g.pick_float().var))
        return
    name = g.choice([*_EXACT])
    if name == "logical_not":
        item = g.pick(lambda one: one.dtype == "bool")
    elif name == "bitwise_not":
        item = g.pick(lambda one: one.dtype in INTEGERS)
    elif name in (*_TESTS, "ceil", "floor", "round", "trunc"):
        item = g.pick_float()
    else:
        item = g.pick_number()
    g.emit(_function(name)(item.var))


def activation(g: Maker) -> None:
    x = g.pick_float()
    kind = g.choice(["leakyrelu", "softplus", "clip", "prelu"])
    if kind == "leakyrelu":
        g.emit(op.nn.leakyrelu(x.var, float(g.choice([0.01, 0.5, 0.0]))))
    elif kind == "softplus":
        g.emit(op.nn.softplus(x.var, float(g.choice([1.0, 2.0])), 20.0))
    elif kind == "clip":
        low = float(g.rng.integers(-3, 2))
        g.emit(op.clip(x.var, low, low + float(g.rng.integers(0, 4))))
    else:
        axis = g.between(0, x.rank - 1)
        if not x.is_static(axis):
            raise Reject("TVM's prelu needs a static extent")
        g.emit(op.nn.prelu(x.var, g.given([x.dims[axis]], x.dtype).var, axis))


def like(g: Maker, x: Item) -> Item:
    """A value with the extents and dtype of `x`."""
    same = [
        one
        for one in g.items
        if one.dtype == x.dtype and one.rank == x.rank and _equal(one.dims, x.dims)
    ]
    return g.choice(same) if same and g.chance(0.6) else g.given(x.dims, x.dtype)


def _equal(a: Any, b: Any) -> bool:
    return all(structural_equal(one, other) for one, other in zip(a, b, strict=True))


def broadcast(g: Maker, x: Item, kind: str = "normal") -> Item:
    """A value that broadcasts with `x`."""
    if g.chance(0.3):
        return like(g, x) if kind == "normal" else g.given(x.dims, x.dtype, kind)
    dims = [tirx.IntImm("int64", 1) if g.chance(0.4) else one for one in x.dims]
    dims = dims[g.between(0, len(dims)) :]
    if g.chance(0.1) and x.rank < 4:
        dims = [tirx.IntImm("int64", g.between(1, 3)), *([one for one in x.dims])]
    return g.given(dims, x.dtype, kind)


def binary(g: Maker) -> None:
    x = g.pick_number() if g.chance(0.9) else g.pick(lambda one: one.dtype == "bool")
    names = ["add", "subtract", "multiply", "add", "multiply", "divide", "maximum", "minimum"]
    names += ["equal", "less", "greater_equal", "not_equal", "floor_divide", "floor_mod", "mod"]
    if x.dtype == "bool":
        names = ["logical_and", "logical_or", "logical_xor"]
    elif x.dtype in INTEGERS:
        names += ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]
    else:
        names += ["power", "log_add_exp"]
    name = g.choice(names)
    if name in ("divide", "floor_divide", "mod", "floor_mod"):
        y = broadcast(g, x, "positive")
    elif name in ("left_shift", "right_shift"):
        y = g.given(x.dims, x.dtype, "index", 8)
    elif name == "power":
        base = broadcast(g, x, "positive")
        g.emit(op.power(base.var, x.var))
        return
    else:
        y = broadcast(g, x)
    a, b = (x.var, y.var) if g.chance(0.7) or "mod" in name or "div" in name else (y.var, x.var)
    if "shift" in name:
        a, b = x.var, y.var
    g.emit(_function(name)(a, b))


def scalar(g: Maker) -> None:
    """A call with a constant of rank 0, which TVM lowers differently."""
    x = g.pick_number()
    value = float(g.choice([0.5, 2.0, -1.0, 0.0, 3.0])) if x.dtype in FLOATS else 3
    y = relax.const(value, x.dtype)
    name = g.choice(["add", "subtract", "multiply", "maximum", "minimum", "greater", "equal"])
    g.emit(_function(name)(*((x.var, y) if g.chance(0.6) else (y, x.var))))


def cast(g: Maker) -> None:
    x = g.pick()
    dtype = g.choice([*FLOATS, *INTEGERS, "float32", "float32", "bool"])
    g.emit(op.astype(x.var, dtype))


def where(g: Maker) -> None:
    x = g.pick()
    conditions = [one for one in g.items if one.dtype == "bool"]
    if conditions and g.chance(0.6):
        c = g.choice(conditions)
        if not _equal(c.dims, x.dims) if c.rank == x.rank else True:
            c = g.given(x.dims, "bool")
    else:
        c = broadcast(g, Item(x.var, x.value)) if x.dtype == "bool" else g.given(x.dims, "bool")
    g.emit(op.where(c.var, x.var, like(g, x).var))


def _axes(g: Maker, rank: int, least: int = 0) -> list[int]:
    axes = [axis for axis in range(rank) if g.chance(0.5)]
    if len(axes) < least:
        axes = [g.between(0, rank - 1)]
    return [axis - rank if g.chance(0.2) else axis for axis in axes]


def reduction(g: Maker) -> None:
    x = g.pick_number(1)
    names = ["sum", "max", "min", "prod"]
    names += ["mean", "variance", "std", "sum", "mean"] if x.dtype in FLOATS else []
    axes = None if g.chance(0.2) else _axes(g, x.rank, 1)
    g.emit(_function(g.choice(names))(x.var, axes, keepdims=g.chance(0.5)))


def arg_reduction(g: Maker) -> None:
    x = g.pick_number(1)
    axis = None if g.chance(0.2) else g.between(0, x.rank - 1)
    g.emit(_function(g.choice(["argmax", "argmin"]))(x.var, axis, keepdims=g.chance(0.5)))


def scan(g: Maker) -> None:
    x = g.pick_number(1)
    axis = None if g.chance(0.2) else g.between(0, x.rank - 1)
    name = g.choice(["cumsum", "cumsum", "cumprod"])
    g.emit(_function(name)(x.var, axis, exclusive=g.chance(0.4)))


def sorting(g: Maker) -> None:
    x = g.pick_number(1)
    axis, kind = g.between(0, x.rank - 1), g.choice(["sort", "argsort", "topk", "topk"])
    if kind == "sort":
        g.emit(op.sort(x.var, axis, g.chance(0.5)))
    elif kind == "argsort":
        g.emit(op.argsort(x.var, axis, g.chance(0.5), g.choice(["int32", "int64"])))
    else:
        if not x.is_static(axis):
            raise Reject("topk of a symbolic extent")
        k = g.between(1, x.shape[axis])
        ret = g.choice(["both", "values", "indices"])
        g.emit(op.topk(x.var, k, axis, ret, g.chance(0.5), g.choice(["int32", "int64"])))


def softmax(g: Maker) -> None:
    x = g.pick_float(1)
    axis = g.between(-x.rank, x.rank - 1)
    g.emit(g.choice([op.nn.softmax, op.nn.softmax, op.nn.log_softmax])(x.var, axis))


def matmul(g: Maker) -> None:
    x = g.pick(lambda one: one.rank >= 1 and one.dtype in (*FLOATS, "int32", "int64"))
    inner = x.dims[-1]
    columns = g.choice([1, 2, 3, 4, 5, 8, 16, 17, 32])
    shape = [inner] if g.chance(0.15) else [inner, columns]
    if x.rank > 2 and len(shape) == 2 and g.chance(0.5):
        lead = [1 if g.chance(0.4) else one for one in x.dims[:-2]]
        shape = [*lead[g.between(0, len(lead)) :], *shape]
    if len(shape) > 1 and g.chance(0.3):
        # Transposed, like the weights of a linear layer.
        axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        w = g.given([*shape[:-2], shape[-1], shape[-2]], x.dtype)
        (w,) = g.emit(op.permute_dims(w.var, axes))
        g.emit(op.matmul(x.var, w.var))
    elif g.chance(0.8) or len(shape) < 2 or x.rank < 2:
        g.emit(op.matmul(x.var, g.given(shape, x.dtype).var))
    else:
        rows = g.given([g.between(1, 5), x.dims[-2]], x.dtype)
        g.emit(op.matmul(rows.var, x.var))
    if g.chance(0.5):
        y = g.items[-1]
        if y.rank:
            g.emit(op.add(y.var, g.given([y.dims[-1]], y.dtype).var))


def movement(g: Maker) -> None:
    x = g.pick()
    kinds = [permute, reshape, squeeze, concat, split, repeat, pad, slices, broadcast_to, trilu]
    g.choice(kinds)(g, x)


def permute(g: Maker, x: Item) -> None:
    g.emit(op.permute_dims(x.var, [int(axis) for axis in g.rng.permutation(x.rank)]))


def reshape(g: Maker, x: Item) -> None:
    kind, dims = g.between(0, 3), list(x.dims)
    if kind == 0:
        g.emit(op.flatten(x.var))
    elif kind == 1 and x.rank >= 2:
        axis = g.between(0, x.rank - 2)
        merged = dims[axis] * dims[axis + 1]
        shape = [*dims[:axis], tvm.sym.Analyzer().simplify(merged), *dims[axis + 2 :]]
        g.emit(op.reshape(x.var, relax.ShapeExpr(shape)))
    elif x.rank:
        axis = g.between(0, x.rank - 1)
        if not x.is_static(axis):
            raise Reject("a symbolic extent cannot be split")
        size = x.shape[axis]
        factor = g.choice([one for one in range(1, size + 1) if size % one == 0])
        shape = [*dims[:axis], factor, size // factor, *dims[axis + 1 :]]
        if 0 in shape[x.rank :]:
            raise Reject("TVM reads a 0 as the extent at its position")
        g.emit(op.reshape(x.var, relax.ShapeExpr(shape)))


def squeeze(g: Maker, x: Item) -> None:
    ones = [axis for axis in range(x.rank) if x.is_static(axis) and x.shape[axis] == 1]
    if ones and g.chance(0.6):
        g.emit(op.squeeze(x.var, [g.choice(ones)]))
    else:
        g.emit(op.expand_dims(x.var, [g.between(0, x.rank)]))


def concat(g: Maker, x: Item) -> None:
    if g.chance(0.3):
        parts = [x.var, like(g, x).var]
        g.emit(op.stack(parts, g.between(0, x.rank)))
        return
    axis = g.between(0, x.rank - 1)
    parts = [x]
    for _ in range(g.between(0, 2)):
        extent = g.choice([x.dims[axis], 1, 2, 3])
        parts.append(g.given([*x.dims[:axis], extent, *x.dims[axis + 1 :]], x.dtype))
    order = g.rng.permutation(len(parts))
    g.emit(op.concat([parts[i].var for i in order], axis))


def split(g: Maker, x: Item) -> None:
    axis = g.between(0, x.rank - 1)
    if not x.is_static(axis):
        raise Reject("a split of a symbolic extent")
    size = x.shape[axis]
    if g.chance(0.5):
        sections = g.choice([one for one in range(1, size + 1) if size % one == 0])
        g.emit(op.split(x.var, sections, axis))
    else:
        at = sorted({g.between(1, size) for _ in range(g.between(1, 3))})
        g.emit(op.split(x.var, at, axis))


def repeat(g: Maker, x: Item) -> None:
    kind = g.between(0, 2)
    if kind == 0:
        g.emit(op.flip(x.var, g.between(0, x.rank - 1)))
    elif kind == 1:
        axis = None if g.chance(0.2) else g.between(0, x.rank - 1)
        g.emit(op.repeat(x.var, g.between(1, 3), axis))
    else:
        g.emit(op.tile(x.var, [g.between(1, 2) for _ in range(g.between(1, x.rank + 1))]))


def pad(g: Maker, x: Item) -> None:
    mode = g.choice(["constant", "constant", "reflect", "replicate", "circular"])
    widths = []
    for size in x.shape:
        limit = 2 if mode == "constant" else min(2, size - (mode == "reflect"))
        widths += [g.between(0, limit) if g.chance(0.5) else 0 for _ in range(2)]
    value = float(g.choice([0.0, 0.0, 1.0, -2.0])) if x.dtype in FLOATS else 1.0
    g.emit(op.nn.pad(x.var, widths, mode, value if mode == "constant" else 0.0))


def slices(g: Maker, x: Item) -> None:
    axes = sorted({g.between(0, x.rank - 1) for _ in range(g.between(1, 2))})
    begins, ends, strides = [], [], []
    for axis in axes:
        size = x.shape[axis]
        stride = g.choice([1, 1, 1, 2, 3, -1, -2])
        low, high = g.between(-size - 1, size + 1), g.between(-size - 1, size + 2)
        if stride < 0 and g.chance(0.5):
            low, high = size - 1, -size - 1
        elif g.chance(0.5):
            low, high = g.between(0, size - 1), size
        if not x.is_static(axis):
            low, high = max(low, 0), (x.dims[axis] if g.chance(0.5) else max(high, 0))
            stride = abs(stride)
        begins.append(low)
        ends.append(high)
        strides.append(stride)
    g.emit(op.strided_slice(x.var, axes, begins, ends, strides))


def broadcast_to(g: Maker, x: Item) -> None:
    dims = [
        g.between(1, 4) if x.is_static(axis) and x.shape[axis] == 1 else one
        for axis, one in enumerate(x.dims)
    ]
    if g.chance(0.5):
        dims = [g.between(1, 3), *dims]
    g.emit(op.broadcast_to(x.var, relax.ShapeExpr(dims)))


def trilu(g: Maker, x: Item) -> None:
    if x.rank < 2:
        raise Reject("not a matrix")
    g.emit(g.choice([op.tril, op.triu])(x.var, g.between(-2, 2)))


def indexing(g: Maker) -> None:
    x = g.pick(lambda one: one.rank >= 1)
    axis, dtype = g.between(0, x.rank - 1), g.choice(["int32", "int64"])
    kind = g.choice(["take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"])
    if kind == "take":
        shape = [g.between(1, 4) for _ in range(g.between(0, 2))]
        indices = g.given(shape, dtype, "index", x.dims[axis])
        g.emit(op.take(x.var, indices.var, axis))
    elif kind == "gather_elements":
        shape = [*x.dims[:axis], g.between(1, 4), *x.dims[axis + 1 :]]
        g.emit(op.gather_elements(x.var, g.given(shape, dtype, "index", x.dims[axis]).var, axis))
    elif kind == "gather_nd":
        indices = g.given([g.between(1, 4), 1], "int64", "index", x.dims[0])
        g.emit(op.gather_nd(x.var, indices.var))
    elif kind == "scatter_elements":
        lead = list(x.dims)
        lead.append(lead.pop(axis))
        permutation = g.given(
            x.dims if axis == x.rank - 1 else lead, dtype, "permutation", x.dims[axis]
        )
        if axis != x.rank - 1:
            back = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
            (permutation,) = g.emit(op.permute_dims(permutation.var, back))
        how = g.choice(["update", "add", "max", "min", "mul"])
        g.emit(op.scatter_elements(x.var, permutation.var, like(g, x).var, axis, how))
    else:
        count = g.between(1, x.shape[0])
        indices = g.given([count, 1], "int64", "index", x.dims[0])
        how = g.choice(["update", "add", "max", "min", "mul"])
        updates = g.given([count, *x.dims[1:]], x.dtype)
        g.emit(op.scatter_nd(x.var, indices.var, updates.var, how))


def creation(g: Maker) -> None:
    x = g.pick_number()
    kind = g.choice(["full", "zeros", "full_like", "ones_like", "arange", "one_hot"])
    fill = relax.const(2.5 if x.dtype in FLOATS else 3, x.dtype)
    if kind == "full":
        g.emit(op.full(relax.ShapeExpr(x.dims), fill, x.dtype))
    elif kind == "zeros":
        g.emit(op.zeros(relax.ShapeExpr(x.dims), x.dtype))
    elif kind == "full_like":
        g.emit(op.full_like(x.var, fill))
    elif kind == "ones_like":
        g.emit(op.ones_like(x.var, g.choice([None, "float32", "int64"])))
    elif kind == "arange":
        end = g.choice([*x.dims, 5, 9])
        g.emit(op.arange(g.between(0, 2), end, g.between(1, 2), g.choice(["float32", "int64"])))
    else:
        indices = g.given([g.between(1, 5)], g.choice(["int32", "int64"]), "index", 4)
        on, off = tirx.FloatImm("float32", 2.0), tirx.FloatImm("float32", -1.0)
        g.emit(op.one_hot(indices.var, on, off, 4, g.between(-1, 1)))


def quantization(g: Maker) -> None:
    x = g.pick(lambda one: one.rank >= 1 and one.dtype == "float32")
    axis = g.between(0, x.rank - 1)
    dtype = g.choice(["int8", "uint8"])
    if g.chance(0.5):
        scale, zero = g.given([x.dims[axis]], "float32", "positive"), g.given([x.dims[axis]], dtype)
    else:
        scale, zero = (
            Item(relax.const(value, kind), Tensor(np.array(value), kind))
            for value, kind in ((0.125, "float32"), (3, dtype))
        )
    (q,) = g.emit(op.quantize(x.var, scale.var, zero.var, axis, dtype))
    if g.chance(0.7):
        g.emit(op.dequantize(q.var, scale.var, zero.var, axis, "float32"))


def shapes(g: Maker) -> None:
    """Computations on a shape at run time."""
    x = g.pick(lambda one: one.rank >= 1)
    (t,) = g.emit(op.shape_to_tensor(shape_of(g, x)))
    g.emit(op.multiply(t.var, relax.const(2, "int64")))


def casts(g: Maker) -> None:
    """A cast of a value to new symbols, or to its own extents."""
    x = g.pick(lambda one: one.rank >= 1)
    match_cast(g, x)


def branches(g: Maker) -> None:
    x = g.pick_float()
    g.next_block(dataflow=False)
    if isinstance(x.var, relax.DataflowVar):
        x = g.pick_float()
    branch(g, x, [unary, binary, scalar, activation, reduction, movement])


def calls(g: Maker) -> None:
    x = g.pick(lambda one: one.rank >= 1 and one.dtype in FLOATS)
    call(g, x, [unary, binary, scalar, activation, softmax, movement, reduction])


def nonzero(g: Maker) -> None:
    x = g.pick(lambda one: one.rank >= 1)
    if g.outer is not None:
        raise Reject("not allowed in a branch")
    g.emit(op.nonzero(x.var))


FAMILIES: dict[str, tuple[float, Callable[[Maker], None]]] = {
    "unary": (6, unary),
    "activation": (2, activation),
    "binary": (8, binary),
    "scalar": (3, scalar),
    "cast": (3, cast),
    "where": (2, where),
    "reduction": (4, reduction),
    "arg_reduction": (1, arg_reduction),
    "scan": (1, scan),
    "sorting": (1, sorting),
    "softmax": (2, softmax),
    "matmul": (5, matmul),
    "movement": (8, movement),
    "indexing": (3, indexing),
    "creation": (2, creation),
    "quantization": (1, quantization),
    "shapes": (0.5, shapes),
    "casts": (0.7, casts),
    "branches": (0.7, branches),
    "calls": (1, calls),
    "nonzero": (0.2, nonzero),
    **WINDOWED,
}
