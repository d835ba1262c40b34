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
"""Operators for which TVM has no layout rule, and their converted calls."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import op

from helpers.layout_cases import Case
from helpers.relax_modules import integers


def mask(*shape: int) -> relax.Expr:
    return relax.const(integers(*shape) > 0)


def values(*shape: int) -> relax.Expr:
    return relax.const(integers(*shape))


def indices(*shape: int) -> relax.Expr:
    return relax.const(np.abs(integers(*shape)).astype("int64") % 3)


SCALES = relax.const(2.0 ** integers(8, seed=1))
ZEROS = relax.const(integers(8, seed=2).astype("int8"))
SCALE, ZERO, BOUNDARIES = relax.const(0.5), relax.const(1, "int8"), relax.const(integers(3, seed=3))


@dataclass(frozen=True)
class Followed:
    """An operator on a tensor (2, 8, 6, 5), and its converted calls.

    Attributes
    ----------
    emit : callable
        The call in the model.
    nhwc : callable
        The call on the same data in (2, 6, 5, 8).
    back : tuple of int
        The permutation that restores the layout of the result.
    packed : callable or None
        The call on the same data in (2, 2, 6, 5, 4); None if the data is unpacked.
    """

    emit: Callable[[relax.Expr], relax.Expr]
    nhwc: Callable[[relax.Expr], relax.Expr]
    back: tuple[int, ...] = (0, 3, 1, 2)
    packed: Callable[[relax.Expr], relax.Expr] | None = None


def same(emit: Callable[[relax.Expr], relax.Expr]) -> Followed:
    return Followed(emit, emit, packed=emit)


def along(
    emit: Callable[[relax.Expr, int], relax.Expr], axis: int, back: tuple[int, ...] = (0, 3, 1, 2)
) -> Followed:
    """An operator along an axis; only a layout with packed channels cannot move the axis."""
    from_start = axis % 4

    def packed(x):
        return emit(x, from_start)

    return Followed(
        lambda x: emit(x, axis),
        lambda x: emit(x, (0, 3, 1, 2)[from_start]),
        back,
        packed if from_start != 1 else None,
    )


def pad(mode: str = "constant") -> Followed:
    return Followed(
        lambda x: op.nn.pad(x, [1, 0, 0, 0, 1, 2, 3, 0], mode),
        lambda x: op.nn.pad(x, [1, 0, 1, 2, 3, 0, 0, 0], mode),
        packed=lambda x: op.nn.pad(x, [1, 0, 0, 0, 1, 2, 3, 0, 0, 0], mode),
    )


FOLLOWED = {
    "leakyrelu": same(lambda x: op.nn.leakyrelu(x, 0.2)),
    "clip": same(lambda x: op.clip(x, -1, 2)),
    "softplus": same(lambda x: op.nn.softplus(x, 2.0, 10.0)),
    "zeros_like": same(op.zeros_like),
    "ones_like": same(lambda x: op.ones_like(x, "int32")),
    "full_like": same(lambda x: op.full_like(x, relax.const(2.0))),
    "bucketize": same(lambda x: op.bucketize(x, BOUNDARIES)),
    "pad": pad(),
    "pad by reflection": pad("reflect"),
    "pad of channels": Followed(
        lambda x: op.nn.pad(x, [0, 0, 4, 4, 1, 2, 0, 0]),
        lambda x: op.nn.pad(x, [0, 0, 1, 2, 0, 0, 4, 4]),
    ),
    "log_softmax": along(op.nn.log_softmax, 1),
    "log_softmax from the end": along(op.nn.log_softmax, -1),
    "argmax": along(op.argmax, 1, back=(0, 1, 2)),
    "argmax that keeps the axis": along(lambda x, axis: op.argmax(x, axis, True), 2),
    "argmin": along(op.argmin, -1, back=(0, 2, 1)),
    "argmin of rows": along(op.argmin, 2, back=(0, 2, 1)),
    "cumsum": along(lambda x, axis: op.cumsum(x, axis, exclusive=True), 1),
    "cumprod": along(lambda x, axis: op.cumprod(x, axis), -2),
    "sort": along(lambda x, axis: op.sort(x, axis, descending=True), 2),
    "argsort": along(lambda x, axis: op.argsort(x, axis), 1),
    "topk": along(lambda x, axis: op.topk(x, 2, axis, "values"), 3),
    "take": along(lambda x, axis: op.take(x, indices(4), axis, "clip"), 1),
    "take of one": along(lambda x, axis: op.take(x, indices(), axis, "clip"), 2, back=(0, 2, 1)),
    "take of a number": along(
        lambda x, axis: op.take(x, relax.prim_value(2), axis, "clip"), -1, back=(0, 2, 1)
    ),
    "take of a table": Followed(
        lambda x: op.take(x, indices(2, 3), 2, "clip"),
        lambda x: op.take(x, indices(2, 3), 1, "clip"),
        (0, 4, 1, 2, 3),
        lambda x: op.take(x, indices(2, 3), 2, "clip"),
    ),
    "slice_scatter of channels": Followed(
        lambda x: op.slice_scatter(x, values(2, 4, 6, 5), 0, 8, 2, axis=1),
        lambda x: op.slice_scatter(
            x, op.permute_dims(values(2, 4, 6, 5), [0, 2, 3, 1]), 0, 8, 2, axis=3
        ),
    ),
    "slice_scatter of rows": Followed(
        lambda x: op.slice_scatter(x, values(2, 8, 3, 5), 0, 6, 2, axis=-2),
        lambda x: op.slice_scatter(
            x, op.permute_dims(values(2, 8, 3, 5), [0, 2, 3, 1]), 0, 6, 2, axis=1
        ),
        packed=lambda x: op.slice_scatter(x, values(2, 2, 3, 5, 4), 0, 6, 2, axis=2),
    ),
    "quantize": along(lambda x, axis: op.quantize(x, SCALES, ZEROS, axis), 1),
    "quantize with one scale": Followed(
        lambda x: op.quantize(x, SCALE, ZERO, 1),
        lambda x: op.quantize(x, SCALE, ZERO, 0),
        packed=lambda x: op.quantize(x, SCALE, ZERO, 0),
    ),
    "where": same(lambda x: op.where(relax.const(True), x, x)),
    "where, per channel": Followed(
        lambda x: op.where(mask(1, 8, 1, 1), relax.const(0.0), x),
        lambda x: op.where(op.permute_dims(mask(1, 8, 1, 1), [0, 2, 3, 1]), relax.const(0.0), x),
        packed=lambda x: op.where(mask(1, 2, 1, 1, 4), relax.const(0.0), x),
    ),
    "where, by a mask of one channel": Followed(
        lambda x: op.where(mask(2, 1, 6, 5), x, relax.const(0.0)),
        lambda x: op.where(op.permute_dims(mask(2, 1, 6, 5), [0, 2, 3, 1]), x, relax.const(0.0)),
        packed=lambda x: op.where(mask(2, 1, 6, 5, 1), x, relax.const(0.0)),
    ),
    "where, of lower rank": Followed(
        lambda x: op.where(mask(8, 1, 1), x, relax.const(0.0)),
        lambda x: op.where(op.permute_dims(mask(8, 1, 1), [1, 2, 0]), x, relax.const(0.0)),
        packed=lambda x: op.where(mask(2, 1, 1, 4), x, relax.const(0.0)),
    ),
    "broadcast_to": Followed(
        lambda x: op.broadcast_to(x, (2, 8, 6, 5)),
        lambda x: op.broadcast_to(x, (2, 6, 5, 8)),
        packed=lambda x: op.broadcast_to(x, (2, 2, 6, 5, 4)),
    ),
    "broadcast_to a higher rank": Followed(
        lambda x: op.broadcast_to(x, (3, 2, 8, 6, 5)),
        lambda x: op.broadcast_to(x, (3, 2, 6, 5, 8)),
        (0, 1, 4, 2, 3),
        lambda x: op.broadcast_to(x, (3, 2, 2, 6, 5, 4)),
    ),
}

RESTORED = {
    "argmax of all": lambda x: op.argmax(x),
    "argmin of all, which keeps the axes": lambda x: op.argmin(x, keepdims=True),
    "cumsum of all": lambda x: op.cumsum(x),
    "cumprod of all": lambda x: op.cumprod(x),
    "pixel_shuffle": lambda x: op.nn.pixel_shuffle(x, 2),
    "tril": lambda x: op.tril(x, 1),
    "triu": lambda x: op.triu(x),
    "where, along the last axis": lambda x: op.where(mask(5), x, relax.const(0.0)),
    "flatten": lambda x: op.flatten(x),
    "batch_flatten": lambda x: op.nn.batch_flatten(x),
    "layout_transform": lambda x: op.layout_transform(
        x, lambda n, c, h, w: (n, c // 2, h, w, c % 2)
    ),
    "grid_sample": lambda x: op.image.grid_sample(x, relax.const(integers(2, 2, 3, 4) / 4)),
}


SHAPES = {
    1: (8,),
    2: (2, 8),
    3: (2, 8, 4),
    4: (2, 8, 3, 4),
    5: (2, 8, 3, 2, 4),
    6: (2, 8, 1, 2, 3, 2),
}


def cases_of_rank(ndim: int) -> list[Case]:
    """Every operator on operands of rank `ndim`, with lower ranks for broadcasts."""
    shape = SHAPES[ndim]
    found = []

    def add(name, text, emit, *shapes, **attrs):
        found.append(Case(f"relax.{name}", f"{ndim}-D {text}", emit, shapes or (shape,), **attrs))

    for name in ("leakyrelu", "clip", "softplus", "zeros_like", "ones_like", "full_like"):
        add(name, "", FOLLOWED[name].emit)
    add("bucketize", "", FOLLOWED["bucketize"].emit)
    add("argmax", "of all", lambda x: op.argmax(x))
    add("argmin", "of all, which keeps the axes", lambda x: op.argmin(x, keepdims=True))
    add("cumsum", "of all", lambda x: op.cumsum(x))
    for axis in {0, 1 % ndim, ndim - 1, -1, -ndim}:
        scales = relax.const(2.0 ** integers(shape[axis], seed=1))
        zeros = relax.const(integers(shape[axis], seed=2).astype("int8"))
        for name, emit in {
            "nn.log_softmax": op.nn.log_softmax,
            "argmax": op.argmax,
            "argmin": lambda x, axis: op.argmin(x, axis, keepdims=True),
            "cumsum": op.cumsum,
            "cumprod": lambda x, axis: op.cumprod(op.sign(x), axis, exclusive=True),
            "sort": op.sort,
            "argsort": lambda x, axis: op.argsort(x, axis, descending=True),
            "topk": lambda x, axis: op.topk(x, 1, axis),
            "quantize": lambda x, axis, s=scales, z=zeros: op.quantize(x, s, z, axis),
            "dequantize": lambda x, axis, s=scales, z=zeros: op.dequantize(
                op.astype(x, "int8"), s, z, axis
            ),
        }.items():
            add(
                name,
                f"axis={axis}",
                lambda x, emit=emit, axis=axis: emit(x, axis),
                static="quantize" in name,
            )
        if shape[axis] < 3:
            continue
        for of in ((), (2,), (2, 1)):
            add(
                "take",
                f"axis={axis}, of {list(of)}",
                lambda x, axis=axis, of=of: op.take(x, indices(*of), axis, "clip"),
            )
    for axis in range(-ndim, ndim):
        part = list(shape)
        part[axis] = -(-shape[axis] // 2)
        add(
            "slice_scatter",
            f"axis={axis}",
            lambda x, y, axis=axis, end=shape[axis]: op.slice_scatter(x, y, 0, end, 2, axis),
            shape,
            tuple(part),
        )
    add("quantize", "one scale", lambda x: op.quantize(x, SCALE, ZERO, -1))
    widths = [(3 * i) % 4 % min(shape) if min(shape) > 1 else 0 for i in range(2 * ndim)]
    unpadded = [0, 0] + [0, 0] * (ndim > 1) + widths[4:] if ndim > 1 else widths
    for mode in ("constant", "reflect", "replicate", "circular"):
        add("nn.pad", f"{mode} {widths}", lambda x, m=mode, w=widths: op.nn.pad(x, w, m))
        add("nn.pad", f"{mode} {unpadded}", lambda x, m=mode, w=unpadded: op.nn.pad(x, w, m))
    ones = (*shape[:1], *[1] * (ndim - 1))
    first, last = (1, *shape[1:]), shape[-1:]

    def where(condition, x, y):
        return op.where(op.greater(condition, relax.const(0.0)), x, y)

    for shapes in (
        (shape, shape, shape),
        (ones, shape, first),
        (shape, last, ()),
        (first, ones, shape[1:]),
        ((*shape[:1], *ones[1:2], *shape[2:]), shape, last),
    ):
        # conv1d has static channels, so a broadcast with symbolic ones has no known shape.
        text = " ".join(str(list(operand)) for operand in shapes)
        add("where", text, where, *shapes, static=shape[1:] in shapes)
    add("broadcast_to", "itself", lambda x: op.broadcast_to(x, x.ty.shape))
    add("broadcast_to", "leading axes", lambda x: op.broadcast_to(x, [3, 1, *x.ty.shape]))
    add("broadcast_to", "units", lambda x: op.broadcast_to(x, shape), first, static=True)
    for axis, batch in ((1, 0), (-1, -ndim), (0, -1)) if ndim > 1 else ():
        lengths = indices(shape[batch])
        add(
            "reverse_sequence",
            f"axes={axis, batch}",
            lambda x, n=lengths, axis=axis, batch=batch: op.reverse_sequence(x, n, axis, batch),
            static=True,
        )
    if ndim > 1:
        add("tril", "", lambda x: op.tril(x, 1))
        add("triu", "", lambda x: op.triu(x, -1))
    if ndim > 2:
        pixels = (*shape[:-3], 8, *shape[-2:])
        add("nn.pixel_shuffle", "", lambda x: op.nn.pixel_shuffle(x, 2), pixels)
    return found
