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
"""Pooling."""

from collections.abc import Callable
from typing import Any

from tvm import relax, topi

from ...call import Call, converts
from .layouts import is_packed, spatial_axes

_ADAPTIVE_TE: dict[int, Callable[..., Any]] = {
    1: topi.nn.adaptive_pool1d,
    2: topi.nn.adaptive_pool,
    3: topi.nn.adaptive_pool3d,
}


def _kind(call: Call) -> tuple[str, int]:
    """ "max" or "avg", and the number of spatial axes, from the operator's name."""
    return ("max" if "max" in call.operator else "avg"), int(call.operator[-2])


def _summable(call: Call) -> tuple[relax.Expr, bool]:
    """Return the data, wide enough for sums, and whether Relax averages it in the same dtype.

    The average of integers has a dtype that differs from its type in Relax.
    """
    (data,) = call.operands
    dtype = str(data.ty.dtype)
    if dtype in ("int8", "uint8", "int16", "uint16"):
        return call.emit(relax.op.astype(data, "int32")), False
    return data, "int" not in dtype


def _spatial(layout: str, count: int) -> list[int]:
    """The positions of the spatial axes."""
    letters = "".join(letter for letter in layout if not letter.isdigit())
    return [letters.index(letter) for letter in spatial_axes(count)]


def _check_windows(call: Call, options: dict[str, Any], padding: list[int]) -> None:
    """Raise an error if ceil_mode has a window beyond the data, which Relax would leave out."""
    num_axes = len(options["strides"])
    for i, axis in enumerate(_spatial(options["layout"], num_axes)):
        stride = options["strides"][i]
        span = (options["pool_size"][i] - 1) * options["dilation"][i] + 1
        extent = call.input_types[0].shape[axis]
        count = call.type.shape[axis]
        if isinstance(extent, int) and isinstance(count, int):
            is_beyond = (count - 1) * stride >= extent + padding[i]
        else:
            is_beyond = stride + padding[num_axes + i] > span
        if is_beyond:
            raise call.fail("with ceil_mode, a window begins beyond the data")


@converts(*(f"nn.{kind}_pool{count}d" for kind in ("max", "avg") for count in (1, 2, 3)))
def pool(call: Call) -> relax.Expr:
    """Reduce windows to their largest element or to their average."""
    kind, num_axes = _kind(call)
    padding = call.ints("padding", num_axes)
    if len(padding) == num_axes:
        padding = padding * 2
    options: dict[str, Any] = {
        name: call.ints(name, num_axes) for name in ("pool_size", "strides", "dilation")
    }
    options["layout"] = str(call.attributes["layout"])
    options["ceil_mode"] = bool(call.attributes["ceil_mode"])
    if options["ceil_mode"]:
        _check_windows(call, options, padding)
    if kind == "avg":
        options["count_include_pad"] = bool(call.attributes["count_include_pad"])
    data, is_exact = _summable(call) if kind == "avg" else (call.operands[0], True)
    if is_exact and not is_packed(options["layout"]):
        reduce = getattr(relax.op.nn, f"{kind}_pool{num_axes}d")
        return call.emit(reduce(data, padding=padding, **options))
    return call.emit_te(
        getattr(topi.nn, f"pool{num_axes}d"),
        data,
        options.pop("pool_size"),
        options.pop("strides"),
        options.pop("dilation"),
        padding,
        kind,
        **options,
    )


@converts("nn.global_avg_pool2d", "nn.global_max_pool2d")
def global_pool(call: Call) -> relax.Expr:
    """Reduce each channel to its largest element or to its average."""
    kind, layout = _kind(call)[0], str(call.attributes["layout"])
    if kind == "max":
        return call.emit(relax.op.max(call.operands[0], _spatial(layout, 2), keepdims=True))
    data, is_exact = _summable(call)
    if is_packed(layout) or not is_exact:
        return call.emit_te(topi.nn.global_pool, data, kind, layout)
    return call.emit(relax.op.nn.adaptive_avg_pool2d(data, [1, 1], layout))


@converts(*(f"nn.adaptive_{kind}_pool{count}d" for kind in ("max", "avg") for count in (1, 2, 3)))
def adaptive_pool(call: Call) -> relax.Expr:
    """Reduce one window per element of the result."""
    kind, num_axes = _kind(call)
    layout = str(call.attributes["layout"])
    size = call.ints("output_size", num_axes)
    if not size:
        return call.operands[0]
    data, is_exact = _summable(call) if kind == "avg" else (call.operands[0], False)
    if is_exact and not is_packed(layout):
        average = getattr(relax.op.nn, f"adaptive_avg_pool{num_axes}d")
        return call.emit(average(data, size, layout))
    return call.emit_te(_ADAPTIVE_TE[num_axes], data, size, kind, layout)
