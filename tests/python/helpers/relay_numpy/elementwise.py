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
"""Operators that compute each element from elements at one place, and reductions."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .registry import OPERATORS, Attrs, Operator, accumulated, axes_of, operator

UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **{name: getattr(np, name) for name in ("abs", "exp", "log", "sqrt", "sin", "cos", "tanh")},
    **{name: getattr(np, name) for name in ("ceil", "floor", "trunc", "negative", "sign")},
    **{name: getattr(np, name) for name in ("isnan", "isinf", "isfinite", "logical_not")},
    "atan": np.arctan,
    "bitwise_not": np.invert,
    "copy": np.copy,
    "erf": np.vectorize(math.erf, otypes=["float64"]),
    "nn.relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-accumulated(x))),
}
"""NumPy's version of each function of one input."""

BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    **{name: getattr(np, name) for name in ("add", "subtract", "multiply", "maximum", "minimum")},
    **{name: getattr(np, name) for name in ("equal", "not_equal", "less", "less_equal")},
    **{name: getattr(np, name) for name in ("greater", "greater_equal", "power")},
    **{name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: getattr(np, name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}

REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in ("sum", "prod", "max", "min", "all", "any")},
    "mean": np.mean,
}


def _unary(name: str) -> Operator:
    def compute(attrs: Attrs, x: np.ndarray) -> np.ndarray:
        result = np.asarray(UNARY[name](x))
        return result if name.startswith("is") else result.astype(x.dtype)

    return compute


def _binary(name: str) -> Operator:
    return lambda attrs, x, y: np.asarray(BINARY[name](x, y))


def _reduction(name: str) -> Operator:
    def compute(attrs: Attrs, x: np.ndarray) -> np.ndarray:
        axes = axes_of(attrs["axis"], x.ndim, attrs["exclude"])
        result = REDUCTIONS[name](accumulated(x), axis=axes, keepdims=bool(attrs["keepdims"]))
        return np.asarray(result).astype(x.dtype)

    return compute


def _index(find: Callable[..., Any]) -> Operator:
    def compute(attrs: Attrs, x: np.ndarray) -> np.ndarray:
        axes = axes_of(attrs["axis"], x.ndim, attrs["exclude"])
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        flat = x.transpose([*kept, *axes]).reshape([*(x.shape[axis] for axis in kept), -1])
        last = flat.shape[-1] - 1
        result = last - find(flat[..., ::-1], -1) if attrs["select_last_index"] else find(flat, -1)
        if attrs["keepdims"]:
            result = result.reshape([1 if a in axes else x.shape[a] for a in range(x.ndim)])
        return np.asarray(result).astype("int32")

    return compute


def _scan(function: Callable[..., Any], neutral: int) -> Operator:
    def compute(attrs: Attrs, x: np.ndarray) -> np.ndarray:
        data, axis = (x.ravel(), 0) if attrs["axis"] is None else (x, attrs["axis"])
        wide = function(accumulated(data), axis=axis)
        if attrs["exclusive"] and wide.shape[axis]:
            first = np.full_like(np.take(wide, [0], axis), neutral)
            wide = np.concatenate([first, np.delete(wide, -1, axis)], axis)
        return wide.astype(attrs["dtype"] or x.dtype)

    return compute


OPERATORS |= {name: _unary(name) for name in UNARY}
OPERATORS |= {name: _binary(name) for name in BINARY}
OPERATORS |= {name: _reduction(name) for name in REDUCTIONS}
OPERATORS |= {"argmax": _index(np.argmax), "argmin": _index(np.argmin)}
OPERATORS |= {"cumsum": _scan(np.cumsum, 0), "cumprod": _scan(np.cumprod, 1)}


@operator("divide")
def divide(attrs: Attrs, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quotients of integers are rounded towards zero."""
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    quotient = np.abs(x.astype("int64")) // np.abs(y.astype("int64"))
    return np.asarray(quotient * np.sign(x) * np.sign(y)).astype(x.dtype)


@operator("mod")
def mod(attrs: Attrs, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The remainder has the sign of the dividend."""
    return np.asarray(np.fmod(x, y))


@operator("round")
def round_half_away(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Halves go away from zero."""
    whole = np.trunc(x)
    return np.asarray(whole + np.sign(x) * (np.abs(x - whole) >= 0.5)).astype(x.dtype)


@operator("clip")
def clip(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Limit the values."""
    low, high = attrs["a_min"], attrs["a_max"]
    if x.dtype.kind != "f":
        low, high = int(low), int(high)
    return np.clip(x, np.asarray(low, x.dtype), np.asarray(high, x.dtype))


@operator("cast")
def cast(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """Convert the elements."""
    return x.astype(attrs["dtype"])


@operator("cast_like")
def cast_like(attrs: Attrs, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Convert the elements to the dtype of `like`."""
    return x.astype(like.dtype)


@operator("where")
def where(attrs: Attrs, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Choose by a condition."""
    return np.where(condition, x, y)


@operator("variance")
def variance(attrs: Attrs, x: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The mean square of the distance to `mean`."""
    axes = axes_of(attrs["axis"], x.ndim, attrs["exclude"])
    count = np.prod([x.shape[axis] for axis in axes]) - bool(attrs["unbiased"])
    total = np.square(accumulated(x) - mean).sum(axes, keepdims=bool(attrs["keepdims"]))
    return np.asarray(total / count).astype(x.dtype)
