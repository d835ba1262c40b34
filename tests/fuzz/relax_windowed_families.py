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
"""Families of operators with windows and norms: convolutions, pooling, resizing."""

from collections.abc import Callable

from tvm import relax
from tvm.relax import op

from .relax_oracle import FLOATS
from .relax_programs import Item, Maker, Reject

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _image(g: Maker, rank: int | None = None) -> tuple[Item, int, str]:
    """A value with channels and spatial axes, the number of spatial axes, and the layout."""
    fits = [
        item
        for item in g.items
        if item.dtype in FLOATS and item.rank in ((3, 4, 5) if rank is None else (rank + 2,))
    ]
    if fits and g.chance(0.7):
        x = g.choice(fits)
    else:
        spatial = g.choice([1, 2, 2, 2, 3]) if rank is None else rank
        batch = g.choice([1, 2, *g.symbols])
        channels = g.choice([1, 2, 3, 4, 8, 16])
        sizes = [g.choice([*range(1, 8 if spatial < 3 else 5), *g.symbols]) for _ in range(spatial)]
        x = g.given([batch, channels, *sizes], g.choice(["float32", "float32", *FLOATS]))
    spatial = x.rank - 2
    layout = f"N{_SPATIAL[spatial]}C" if g.chance(0.25) else f"NC{_SPATIAL[spatial]}"
    return x, spatial, layout


def _windows(g: Maker, rank: int, limit: int = 3) -> list[int]:
    return [g.between(1, limit) for _ in range(rank)]


def conv(g: Maker) -> None:
    x, rank, layout = _image(g)
    axis = layout.index("C")
    if not x.is_static(axis):
        raise Reject("symbolic channels")
    channels = x.shape[axis]
    if channels == 0:
        raise Reject("no channels")
    groups = g.choice([1, 1, 1, channels] + [2] * (channels % 2 == 0))
    outs = groups * g.choice([1, 2, 3, 4, 8])
    kernel = _windows(g, rank)
    order = f"OI{_SPATIAL[rank]}"
    shape = {"O": outs, "I": channels // groups, **dict(zip(_SPATIAL[rank], kernel, strict=True))}
    if layout.endswith("C") and g.chance(0.7):
        order = f"{_SPATIAL[rank]}IO" if g.chance(0.5) else f"O{_SPATIAL[rank]}I"
    w = g.given([shape[axis] for axis in order], x.dtype)
    padding = (
        [g.between(0, 2) for _ in range(2 * rank)] if g.chance(0.5) else [g.between(0, 1)] * rank
    )
    (y,) = g.emit(
        getattr(op.nn, f"conv{rank}d")(
            x.var,
            w.var,
            strides=[g.choice([1, 1, 2]) for _ in range(rank)],
            padding=padding,
            dilation=[g.choice([1, 1, 1, 2]) for _ in range(rank)],
            groups=groups,
            data_layout=layout,
            kernel_layout=order,
        )
    )
    _epilogue(g, y, axis, outs)


def _epilogue(g: Maker, y: Item, axis: int, channels: int) -> None:
    if g.chance(0.5):
        shape = [1] * y.rank
        shape[axis] = channels
        (y,) = g.emit(op.add(y.var, g.given(shape, y.dtype).var))
    if g.chance(0.4):
        (y,) = g.emit(op.nn.relu(y.var))


def conv_transpose(g: Maker) -> None:
    x, rank, layout = _image(g)
    if g.chance(0.7):
        layout = f"NC{_SPATIAL[rank]}"
    axis = layout.index("C")
    if not x.is_static(axis):
        raise Reject("symbolic channels")
    channels = x.shape[axis]
    groups = g.choice([1, 1, 1] + [2] * (channels % 2 == 0))
    each = g.choice([1, 2, 3, 4])
    strides = [g.choice([1, 2, 3]) for _ in range(rank)]
    w = g.given([channels, each, *_windows(g, rank)], x.dtype)
    (y,) = g.emit(
        getattr(op.nn, f"conv{rank}d_transpose")(
            x.var,
            w.var,
            strides=strides,
            padding=[g.between(0, 1) for _ in range(2 * rank)],
            output_padding=[g.between(0, stride - 1) if g.chance(0.3) else 0 for stride in strides],
            dilation=[1] * rank if g.chance(0.8) else [2] * rank,
            groups=groups,
            data_layout=layout,
            kernel_layout=f"IO{_SPATIAL[rank]}",
        )
    )
    _epilogue(g, y, axis, groups * each)


def pool(g: Maker) -> None:
    x, rank, layout = _image(g)
    window = _windows(g, rank)
    kwargs = {"padding": [g.between(0, (extent - 1)) for extent in window] * 2, "layout": layout}
    if g.chance(0.5):
        kwargs["padding"] = [0] * rank
    name = g.choice(["max", "avg"])
    if name == "avg":
        kwargs["count_include_pad"] = g.chance(0.5)
    g.emit(
        getattr(op.nn, f"{name}_pool{rank}d")(
            x.var,
            pool_size=window,
            strides=[g.between(1, 3) for _ in range(rank)],
            dilation=[g.choice([1, 1, 2]) for _ in range(rank)],
            ceil_mode=g.chance(0.3),
            **kwargs,
        )
    )


def adaptive_pool(g: Maker) -> None:
    x, rank, layout = _image(g)
    size = [g.between(1, 3) for _ in range(rank)]
    g.emit(getattr(op.nn, f"adaptive_avg_pool{rank}d")(x.var, size, layout))


def norm(g: Maker) -> None:
    kind = g.choice(["layer", "layer", "rms", "group", "instance", "batch"])
    x = g.pick(
        lambda one: one.dtype in FLOATS and one.rank >= (1 if kind in ("layer", "rms") else 3)
    )
    if kind in ("layer", "rms"):
        count = g.between(1, min(2, x.rank))
        normalized = list(range(x.rank - count, x.rank))
        if g.chance(0.3):
            normalized = [int(axis) for axis in g.rng.permutation(x.rank)[:count]]
        axes = [axis - x.rank if g.chance(0.5) else axis for axis in normalized]
        gamma, beta = (g.given([x.dims[axis] for axis in normalized], x.dtype) for _ in range(2))
        if kind == "rms":
            g.emit(op.nn.rms_norm(x.var, gamma.var, axes))
        else:
            g.emit(op.nn.layer_norm(x.var, gamma.var, beta.var, axes))
        return
    if not x.is_static(1):
        raise Reject("symbolic channels")
    channels = x.shape[1]
    if channels == 0:
        raise Reject("no channels")
    gamma, beta = (g.given([channels], x.dtype) for _ in range(2))
    axes = list(range(2, x.rank))
    if kind == "group":
        groups = g.choice([number for number in range(1, channels + 1) if channels % number == 0])
        g.emit(op.nn.group_norm(x.var, gamma.var, beta.var, groups, 1, axes))
    elif kind == "instance":
        g.emit(op.nn.instance_norm(x.var, gamma.var, beta.var, 1, axes))
    else:
        mean, variance = g.given([channels], x.dtype), g.given([channels], x.dtype, "positive")
        arguments = (x.var, gamma.var, beta.var, mean.var, variance.var)
        g.emit(op.nn.batch_norm(*arguments, axis=1, training=False))


def resize(g: Maker) -> None:
    x, _rank, layout = _image(g, 2)
    mode = g.choice(["half_pixel", "align_corners", "asymmetric"])
    method = "linear"
    if mode == "asymmetric" and g.chance(0.5):
        method = "nearest_neighbor"
    rounding = "floor" if method == "nearest_neighbor" else "round"
    axis = layout.index("H")
    size = [g.choice([1, 2, 3, 5, 8, x.dims[axis] * 2]) for _ in range(2)]
    g.emit(
        op.image.resize2d(
            x.var,
            relax.ShapeExpr(size),
            layout=layout,
            method=method,
            coordinate_transformation_mode=mode,
            rounding_method=rounding,
        )
    )


def pixel_shuffle(g: Maker) -> None:
    x, _rank, _layout = _image(g, 2)
    if not x.is_static(1) or x.shape[1] % 4:
        raise Reject("channels not divisible by 4")
    g.emit(op.nn.pixel_shuffle(x.var, 2))


WINDOWED: dict[str, tuple[float, Callable[[Maker], None]]] = {
    "conv": (5, conv),
    "conv_transpose": (2, conv_transpose),
    "pool": (2, pool),
    "adaptive_pool": (0.7, adaptive_pool),
    "norm": (3, norm),
    "resize": (1, resize),
    "pixel_shuffle": (0.5, pixel_shuffle),
}
