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
"""NumPy semantics of Relax operators: elementwise, reductions and matrix products."""

from collections.abc import Callable, Sequence
from math import erf, erfc, prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np
from tvm import relax

from .relax_oracle import FLOATS, Interpreter, Tensor, Undefined, operator

_Array = np.ndarray


def attr(call: relax.Call, name: str) -> Any:
    """An attribute as a Python value."""
    value = getattr(call.attrs, name)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "value"):
        return value.value
    if hasattr(value, "__iter__") and not hasattr(value, "dtype"):
        return [int(number) if hasattr(number, "value") else number for number in value]
    return value


def dtype_of(call: relax.Call, name: str, default: str) -> str:
    value = getattr(call.attrs, name)
    text = "" if value is None else str(getattr(value, "dtype", value))
    return default if text in ("", "void") else text


def _sigmoid(x: _Array) -> _Array:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


_erf = np.vectorize(erf, otypes=[np.float64])
_normal = np.vectorize(lambda x: 0.5 * erfc(-x / sqrt(2)), otypes=[np.float64])


# Exact for any float, and defined for integers.
_EXACT: dict[str, Callable[[_Array], _Array]] = {
    "abs": np.abs,
    "negative": np.negative,
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.rint,
    "trunc": np.trunc,
    # As in PyTorch, the sign of NaN is 0; ONNX's NaN comes from the importer.
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),
    "nn.relu": lambda x: np.where(x < 0, 0, x),
    "nn.relu6": lambda x: np.where(np.isnan(x), x, np.clip(x, 0, 6)),
    "bitwise_not": np.invert,
    "logical_not": np.logical_not,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
}

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805

# Functions of floats, and the magnitude of the terms in their usual formulas.
_FUNCTIONS: dict[str, tuple[Callable[[_Array], _Array], Callable[[_Array], _Array] | None]] = {
    "exp": (np.exp, lambda x: np.exp(x) * (1 + np.abs(x))),
    "log": (np.log, lambda x: np.abs(np.log(x)) + 1),
    "sqrt": (np.sqrt, None),
    "rsqrt": (lambda x: 1 / np.sqrt(x), None),
    "square": (np.square, None),
    "sin": (np.sin, lambda x: np.abs(np.sin(x)) + 0.5 * np.abs(x)),
    "cos": (np.cos, lambda x: np.abs(np.cos(x)) + 0.5 * np.abs(x)),
    "tan": (np.tan, lambda x: (np.abs(x) + 1) * (1 + np.tan(x) ** 2)),
    "asin": (np.arcsin, lambda x: np.abs(np.arcsin(x)) * 4),
    "acos": (np.arccos, lambda x: np.abs(np.arccos(x)) * 4 + 2),
    "atan": (np.arctan, lambda x: np.abs(np.arctan(x)) * 2),
    "sinh": (np.sinh, lambda x: np.cosh(x) * (1 + np.abs(x))),
    "cosh": (np.cosh, lambda x: np.cosh(x) * (1 + np.abs(x))),
    "asinh": (np.arcsinh, lambda x: np.abs(np.arcsinh(x)) + 1),
    "acosh": (np.arccosh, lambda x: np.abs(np.arccosh(x)) + 1),
    "atanh": (np.arctanh, lambda x: np.abs(np.arctanh(x)) + 1),
    "tanh": (np.tanh, lambda x: np.abs(np.tanh(x)) * 4),
    "erf": (_erf, lambda x: np.abs(_erf(x)) * 4),
    "sigmoid": (_sigmoid, lambda x: _sigmoid(x) * (2 + np.abs(x))),
    "nn.silu": (lambda x: x * _sigmoid(x), lambda x: np.abs(x) * _sigmoid(x) * (2 + np.abs(x))),
    "nn.gelu": (lambda x: x * _normal(x), lambda x: 2 * np.abs(x)),
    "nn.gelu_tanh": (
        lambda x: 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        lambda x: 2 * np.abs(x),
    ),
    "nn.selu": (
        lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0))),
        lambda x: np.where(x > 0, x, 4),
    ),
}

_EXACT_BINARY: dict[str, Callable[[_Array, _Array], _Array]] = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
_COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}


def _exact(name: str) -> None:
    @operator(name)
    def run(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
        (x,) = args
        is_test = name in ("isfinite", "isinf", "isnan", "logical_not")
        if name in ("abs", "negative") and x.dtype in ("int32", "int64"):
            if (x.data == np.iinfo(x.dtype).min).any():
                raise Undefined("the sign of the smallest integer")
        return inter.numerics.rounded(
            _EXACT[name](x.data), "bool" if is_test else x.dtype, np.float64(0)
        )


def _function(name: str) -> None:
    @operator(name)
    def run(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
        (x,) = args
        function, error = _FUNCTIONS[name]
        if x.dtype not in FLOATS and name != "square":
            raise Undefined(f"{name} of {x.dtype}")
        return inter.numerics.rounded(function(x.data), x.dtype, error and error(x.data))


def _exact_binary(name: str) -> None:
    @operator(name)
    def run(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
        a, b = _same(args)
        dtype = "bool" if name in _COMPARISONS else a.dtype
        return inter.numerics.rounded(_EXACT_BINARY[name](a.data, b.data), dtype, np.float64(0))


for _name in _EXACT:
    _exact(_name)
for _name in _FUNCTIONS:
    _function(_name)
for _name in _EXACT_BINARY:
    _exact_binary(_name)


def _same(args: Sequence[Tensor]) -> Sequence[Tensor]:
    if len({operand.dtype for operand in args}) != 1:
        raise Undefined("operands of several dtypes")
    return args


@operator("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power")
def _arithmetic(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    a, b = _same(args)
    name, x, y = call.op.name.split(".")[-1], a.data, b.data
    is_float = a.dtype in FLOATS
    if a.dtype == "bool":
        raise Undefined("arithmetic of booleans")
    if name in ("divide", "floor_divide", "mod", "floor_mod") and not is_float:
        low = -(2 ** (8 * np.dtype(a.dtype).itemsize - 1))
        if np.any(y == 0) or np.any((x == low) & (y == -1)):
            raise Undefined("an integer division without a result")
    if name == "power" and not is_float:
        raise Undefined("a power of integers")
    result, error = {
        "add": lambda: (x + y, None),
        "subtract": lambda: (x - y, None),
        "multiply": lambda: (x * y, None),
        # C's integer division, which rounds toward 0.
        "divide": lambda: (x / y, None) if is_float else (_truncated(x, y), None),
        "floor_divide": lambda: (np.floor_divide(x, y), np.abs(x / y) if is_float else None),
        "mod": lambda: (np.fmod(x, y), np.abs(x)) if is_float else (np.fmod(x, y), None),
        "floor_mod": lambda: (np.mod(x, y), np.abs(x) if is_float else None),
        "power": lambda: (
            np.power(x, y),
            np.abs(np.power(x, y)) * (4 + np.abs(np.log(np.abs(x)) * y)),
        ),
    }[name]()
    return inter.numerics.rounded(result, a.dtype, error)


def _truncated(x: _Array, y: _Array) -> _Array:
    quotient = np.abs(x) // np.abs(y)
    return np.where((x < 0) != (y < 0), -quotient, quotient)


@operator("atan2", "log_add_exp")
def _float_binary(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    a, b = _same(args)
    if call.op.name == "relax.atan2":
        return inter.numerics.rounded(np.arctan2(a.data, b.data), a.dtype)
    result = np.logaddexp(a.data, b.data)
    return inter.numerics.rounded(result, a.dtype, np.abs(a.data) + np.abs(b.data) + 1)


@operator("left_shift", "right_shift")
def _shift(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    a, b = _same(args)
    if np.any(b.data < 0) or np.any(b.data >= 8 * np.dtype(a.dtype).itemsize):
        raise Undefined("a shift by the bit width or more")
    shift = np.left_shift if "left" in call.op.name else np.right_shift
    return inter.numerics.rounded(shift(a.data, b.data), a.dtype)


@operator("clip")
def _clip(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    x, low, high = args
    data = np.minimum(np.maximum(x.data, low), high)
    return inter.numerics.rounded(data, x.dtype, np.float64(0))


@operator("nn.leakyrelu")
def _leakyrelu(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    (x,) = args
    data = np.where(x.data > 0, x.data, x.data * attr(call, "alpha"))
    return inter.numerics.rounded(data, x.dtype)


@operator("nn.softplus")
def _softplus(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x = args[0].data
    beta, threshold = attr(call, "beta"), attr(call, "threshold")
    data = np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta)
    return inter.numerics.rounded(data, args[0].dtype, np.abs(data) + 1)


@operator("nn.prelu")
def _prelu(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, alpha = args
    shape = [1] * x.data.ndim
    shape[attr(call, "axis")] = -1
    data = np.where(x.data > 0, x.data, x.data * alpha.data.reshape(shape))
    return inter.numerics.rounded(data, x.dtype)


@operator("astype")
def _astype(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    (x,) = args
    dtype = dtype_of(call, "dtype", x.dtype)
    if dtype == "bool":
        return Tensor(x.data != 0, dtype)
    if x.dtype in FLOATS and dtype not in FLOATS:
        limits = np.iinfo(dtype)
        data = np.trunc(x.data)
        # 2**63 is representable as a float, but not as an int64.
        inside = (data >= limits.min) & (data <= limits.max) & (data < 2.0**63)
        if not np.all(inside):
            raise Undefined(f"a cast of a number out of range of {dtype}")
        return Tensor(data.astype(np.int64), dtype)
    return inter.numerics.rounded(x.data, dtype, np.float64(0))


@operator("where")
def _where(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    c, a, b = args
    _same(args[1:])
    return Tensor(np.where(c.data, a.data, b.data), a.dtype)


@operator("ewise_fma")
def _fma(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    a, b, c = (operand.data for operand in _same(args))
    return inter.numerics.rounded(a * b + c, args[0].dtype, np.abs(a * b) + np.abs(c))


def axes_of(call: relax.Call, name: str, ndim: int) -> tuple[int, ...]:
    axes = attr(call, name)
    axes = range(ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    return tuple(axis % ndim for axis in axes)


@operator("sum", "mean", "prod", "max", "min", "variance", "std")
def _reduce(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    (x,) = args
    name, data = call.op.name.split(".")[-1], x.data
    axes, keep = axes_of(call, "axis", data.ndim), bool(attr(call, "keepdims"))
    count = prod(data.shape[axis] for axis in axes)
    if x.dtype == "bool" or (x.dtype not in FLOATS and name in ("mean", "variance", "std")):
        raise Undefined(f"{name} of {x.dtype}")
    if count == 0 and name not in ("sum", "prod"):
        raise Undefined(f"{name} of an empty axis")
    kwargs = {"axis": axes, "keepdims": keep}
    if name in ("max", "min"):
        return Tensor(getattr(np, name)(data, **kwargs), x.dtype)
    if x.dtype not in FLOATS:
        return inter.numerics.rounded(getattr(np, name)(data, dtype=np.int64, **kwargs), x.dtype)
    total = np.sum(np.abs(data), **kwargs)
    depth = 1 + np.log2(count + 1) if count < 64 else sqrt(count)
    if name == "sum":
        return inter.numerics.rounded(np.sum(data, **kwargs), x.dtype, depth * total)
    if name == "prod":
        limits = ml_dtypes.finfo(x.dtype)
        least = np.prod(np.minimum(np.abs(data), 1), **kwargs)
        if (
            (least < limits.smallest_normal)
            & (np.prod(np.maximum(np.abs(data), 1), **kwargs) > limits.max)
        ).any():
            raise Undefined("a product that overflows or underflows, depending on the order")
        result = np.prod(data, **kwargs)
        return inter.numerics.rounded(result, x.dtype, count * np.abs(result))
    if name == "mean":
        return inter.numerics.rounded(np.mean(data, **kwargs), x.dtype, depth * total / count)
    variance = np.var(data, **kwargs)
    magnitude = np.mean(
        np.abs(data - np.mean(data, axis=axes, keepdims=True)) * np.abs(data), **kwargs
    )
    if name == "variance":
        return inter.numerics.rounded(variance, x.dtype, depth * (variance + magnitude))
    error = depth * (variance + magnitude) / np.maximum(np.sqrt(variance), 1e-30)
    return inter.numerics.rounded(np.sqrt(variance), x.dtype, error)


@operator("argmax", "argmin")
def _arg_reduce(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    (x,) = args
    axis = attr(call, "axis")
    if (x.data.size if axis is None else x.data.shape[axis]) == 0:
        raise Undefined("argmax of an empty axis")
    find = np.argmax if "max" in call.op.name else np.argmin
    return Tensor(
        np.asarray(find(x.data, axis=axis, keepdims=bool(attr(call, "keepdims"))), np.int64),
        "int64",
    )


@operator("cumsum", "cumprod")
def _scan(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    (x,) = args
    axis, exclusive = attr(call, "axis"), bool(attr(call, "exclusive"))
    dtype = dtype_of(call, "dtype", x.dtype)
    data = x.data.reshape(-1) if axis is None else x.data
    axis = 0 if axis is None else axis
    is_sum = "sum" in call.op.name
    scan = np.cumsum if is_sum else np.cumprod
    result = scan(data, axis=axis, dtype=np.float64 if dtype in FLOATS else np.int64)
    error = np.cumsum(np.abs(data), axis=axis) if is_sum else np.abs(result)
    if exclusive and data.shape[axis]:
        first = np.full_like(np.take(result, [0], axis), 0 if is_sum else 1)
        rest = np.arange(data.shape[axis] - 1)
        result = np.concatenate([first, np.take(result, rest, axis)], axis)
    return inter.numerics.rounded(result, dtype, 2 * data.shape[axis] * error)


@operator("matmul")
def _matmul(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    a, b = args
    dtype = dtype_of(call, "out_dtype", a.dtype)
    result = np.matmul(a.data, b.data)
    if dtype not in FLOATS:
        return inter.numerics.rounded(result, dtype)
    terms = np.matmul(np.abs(a.data), np.abs(b.data))
    return inter.numerics.rounded(result, dtype, (2 + sqrt(a.data.shape[-1])) * terms)


@operator("einsum")
def _einsum(inter: Interpreter, call: relax.Call, args: Sequence[Any]) -> Tensor:
    parts = [operand.data for operand in args[0]]
    subscripts = attr(call, "subscripts")
    terms = np.einsum(subscripts, *map(np.abs, parts))
    return inter.numerics.rounded(np.einsum(subscripts, *parts), args[0][0].dtype, 4 * terms)


@operator("quantize", "dequantize")
def _quantize(inter: Interpreter, call: relax.Call, args: Sequence[Tensor]) -> Tensor:
    x, scale, zero = args
    dtype = dtype_of(call, "out_dtype", "int8")
    shape = [1] * x.data.ndim
    if scale.data.ndim:
        shape[attr(call, "axis")] = -1
    scales, zeros = scale.data.reshape(shape), zero.data.reshape(shape if zero.data.ndim else [])
    if call.op.name == "relax.dequantize":
        return inter.numerics.rounded((x.data - zeros) * scales, dtype)
    if not np.all(np.isfinite(x.data)):
        raise Undefined("a quantized NaN or infinity")
    # Rounding the quotient to its dtype first decides ties between two integers.
    quotient = inter.numerics.rounded(x.data / scales, x.dtype).data
    limits = np.iinfo(dtype)
    return inter.numerics.rounded(np.clip(np.rint(quotient) + zeros, limits.min, limits.max), dtype)
