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
"""Relay's elementwise operators, compared with NumPy and PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch
import tvm.testing

from helpers.grids import few
from helpers.relay_checks import check_program, parameters, program, run_program
from tvm_fixes.errors import RelayError, UnsupportedOperatorError
from tvm_fixes.frontend.relay import from_relay

FLOATS = np.array([[-2.5, -1.5, -0.75, -0.5, 0.0], [0.25, 0.5, 0.75, 1.5, 2.5]])
LHS = np.array([[7, -7, 5, -128], [7, -7, 0, 127]])
RHS = np.array([[2, 2, -3, 3], [-2, -2, 5, -1]])


def rejected(body: str, *inputs: np.ndarray) -> str:
    """The message of a program without a translation."""
    with pytest.raises((RelayError, UnsupportedOperatorError)) as raised:
        from_relay(program(body, parameters(inputs)))
    return str(raised.value)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_functions(dtype: str) -> None:
    x = FLOATS.astype(dtype)
    y = np.abs(x) + dtype_one(dtype)
    z = (x / 4).astype(dtype)
    unary = ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "sigmoid", "erf")
    expected = {f"{name}(%x0)": torch_function(name, x) for name in unary}
    inverse = ("asin", "acos", "atan", "asinh", "atanh")
    expected |= {f"{name}(%x2)": torch_function(name, z) for name in inverse}
    positive = ("sqrt", "rsqrt", "log", "log2", "log10", "acosh")
    expected |= {f"{name}(%x1)": torch_function(name, y) for name in positive}
    check_program(expected, x, y, z, rtol=3e-6, atol=1e-6)


def dtype_one(dtype: str) -> Any:
    return np.dtype(dtype).type(1)


def torch_function(name: str, x: np.ndarray) -> np.ndarray:
    return getattr(torch, name)(torch.from_numpy(x)).numpy()


def test_functions_of_float16() -> None:
    x = FLOATS.astype("float16")
    names = ("exp", "tanh", "erf", "sigmoid", "sqrt", "sin")
    wide = np.abs(x).astype("float32")
    check_program(
        {f"{n}(abs(%x0))": torch_function(n, wide).astype("float16") for n in names},
        x,
        rtol=4e-3,
    )


def test_fast_functions() -> None:
    x = np.linspace(-4, 4, 33, dtype="float32")
    names = ("exp", "tanh", "erf")
    expected = {f"fast_{name}(%x0)": torch_function(name, x) for name in names}
    check_program(expected, x, rtol=1e-3, atol=1e-5)


def test_rounding() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 2.5, 0.49999997, 8388609.0, np.inf, -1.2], "float32")
    away = np.array([-3, -2, -1, 1, 3, 0, 8388609.0, np.inf, -1], "float32")
    integers = np.array([-3, 4], "int32")
    check_program(
        {"round(%x0)": away, "floor(%x0)": np.floor(x), "ceil(%x0)": np.ceil(x)}
        | {"trunc(%x0)": np.trunc(x), "abs(%x0)": np.abs(x), "negative(%x0)": -x}
        | {"sign(%x0)": np.sign(x), "copy(%x0)": x, "abs(%x1)": np.abs(integers)}
        | {f"{name}(%x1)": integers for name in ("round", "floor", "ceil", "trunc")}
        | {"negative(%x1)": -integers, "sign(%x1)": np.sign(integers)},
        x,
        integers,
    )


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64", "int32"))
def test_predicates(dtype: str) -> None:
    x = np.array([1, 0, 3]) if dtype == "int32" else np.array([np.nan, np.inf, -np.inf, 1])
    x = x.astype(dtype)
    names = ("isnan", "isinf", "isfinite")
    check_program({f"{name}(%x0)": getattr(np, name)(x) for name in names}, x)


@few(2)
@pytest.mark.parametrize("dtype", ("int8", "int32", "int64", "uint8"))
def test_integers(dtype: str) -> None:
    x, y = LHS.astype(dtype), RHS.astype(dtype)
    if dtype == "int8":
        x, y = x[:, :3], y[:, :3]  # -128 / -1 has no result.
    quotient = np.trunc(x.astype("float64") / y).astype(dtype)
    rest = np.fmod(x, y)
    shift = (np.abs(y) % 4).astype(dtype)
    with np.errstate(over="ignore"):
        check_program(
            {"add(%x0, %x1)": x + y, "subtract(%x0, %x1)": x - y, "multiply(%x0, %x1)": x * y}
            | {"divide(%x0, %x1)": quotient, "trunc_divide(%x0, %x1)": quotient}
            | {"mod(%x0, %x1)": rest, "trunc_mod(%x0, %x1)": rest}
            | {"floor_divide(%x0, %x1)": x // y, "floor_mod(%x0, %x1)": x % y}
            | {"maximum(%x0, %x1)": np.maximum(x, y), "minimum(%x0, %x1)": np.minimum(x, y)}
            | {"left_shift(%x0, %x2)": x << shift, "right_shift(%x0, %x2)": x >> shift}
            | {"bitwise_and(%x0, %x1)": x & y, "bitwise_or(%x0, %x1)": x | y}
            | {"bitwise_xor(%x0, %x1)": x ^ y, "bitwise_not(%x0)": ~x}
            | {"logical_xor(%x0, %x1)": x ^ y},
            x,
            y,
            shift,
        )


def test_floats_with_broadcasting() -> None:
    x = np.array([[[7.5], [-7.5]], [[5.25], [-5.25]]], "float32")
    y = np.array([[2.0, -2.0, 1.75]], "float32")
    quotient = x / y
    check_program(
        {"add(%x0, %x1)": x + y, "subtract(%x0, %x1)": x - y, "multiply(%x0, %x1)": x * y}
        | {"divide(%x0, %x1)": quotient, "trunc_divide(%x0, %x1)": np.trunc(quotient)}
        | {"mod(%x0, %x1)": np.fmod(x, y), "trunc_mod(%x0, %x1)": np.fmod(x, y)}
        | {"floor_divide(%x0, %x1)": np.floor(quotient), "floor_mod(%x0, %x1)": np.mod(x, y)}
        | {"maximum(%x0, %x1)": np.maximum(x, y), "minimum(%x1, %x0)": np.minimum(x, y)}
        | {"power(abs(%x0), %x1)": np.abs(x) ** y, "power(%x1, 3f)": y**3},
        x,
        y,
    )


@few(2)
@pytest.mark.parametrize("dtype", ("float32", "int32", "uint8", "bool"))
def test_comparisons(dtype: str) -> None:
    x = np.array([0, 1, 1, 0, 1]).astype(dtype)
    y = np.array([[0], [1]]).astype(dtype)
    names = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    names = names[:2] if dtype == "bool" else names
    check_program({f"{name}(%x0, %x1)": getattr(np, name)(x, y) for name in names}, x, y)


def test_bools() -> None:
    x, y = np.array([False, True, False, True]), np.array([[True], [False]])
    check_program(
        {"logical_and(%x0, %x1)": x & y, "logical_or(%x0, %x1)": x | y}
        | {"logical_xor(%x0, %x1)": x ^ y, "logical_not(%x0)": ~x}
        | {"maximum(%x0, %x1)": x | y, "minimum(%x0, %x1)": x & y}
        | {"bitwise_and(%x0, %x1)": x & y, "bitwise_or(%x0, %x1)": x | y}
        | {"bitwise_xor(%x0, %x1)": x ^ y, "bitwise_not(%x0)": ~x},
        x,
        y,
    )


def test_clip() -> None:
    x = np.array([-3.5, -1, 0, 2.5, 9], "float32")
    y = np.array([-128, -3, 0, 5, 127], "int8")
    z = np.array([2**62, -(2**62), 5], "int64")
    h, d = np.array([np.inf, -7], "float16"), np.array([0.05, 0.2, 5])
    check_program(
        {"clip(%x0, a_min=-1.5f, a_max=2.25f)": np.clip(x, -1.5, 2.25)}
        | {"clip(%x0, a_min=-inff, a_max=0f)": np.minimum(x, 0)}
        | {"clip(%x1, a_min=-1.7f, a_max=4.9f)": np.clip(y, -1, 4)}
        | {"clip(%x1, a_min=-1000f, a_max=300f)": y}
        | {"clip(%x2, a_min=-1e30f, a_max=1e30f)": z}
        | {"clip(%x3, a_min=-1f, a_max=1e30f)": np.maximum(h, np.float16(-1))}
        | {"clip(%x4, a_min=0.1f64, a_max=0.3f64)": np.clip(d, 0.1, 0.3)},
        *(x, y, z, h, d),
    )


def test_fixed_point_multiply() -> None:
    x = np.array([[0, 1, -1, 5], [1000, -1001, 12345, -12346]], "int32")
    expected = {}
    for multiplier in (1 << 30, 1395864371):
        for shift in (-31, -30, -3, 0, 1, 2, 6):
            body = f"fixed_point_multiply(%x0, multiplier={multiplier}, shift={shift})"
            scale = multiplier * 2.0 ** (shift - 31)
            expected[body] = np.floor(x * scale + 0.5).astype("int32")
    check_program(expected, x)


@pytest.mark.parametrize("has_left", (True, False))
def test_fixed_point_multiply_per_axis(has_left: bool) -> None:
    x = np.array([[100, -100, 1], [-7, 7, 12345]], "int32")
    multiplier = np.array([1 << 30, 1395864371, 2000000000], "int32")
    left, right = np.array([2, 0, 1], "int32"), np.array([0, 3, 0], "int32")
    exponent = (left if has_left else 0) - right - 31.0
    expected = np.floor(x * (multiplier * 2.0**exponent) + 0.5).astype("int32")
    body = (
        "fixed_point_multiply_per_axis(%x0, %x1, %x2, %x3, "
        f"is_lshift_required={has_left}, is_rshift_required=True, axes=[1])"
    )
    check_program({body: expected}, x, multiplier, left, right)


@pytest.mark.parametrize("rows", ((4, 4), (4, 1), (1, 4)))
def test_unknown_extents(rows: tuple[int, int]) -> None:
    x, y = (np.arange(3.0 * n, dtype="float32").reshape(n, 3) for n in rows)
    got = run_program("add(exp(%x0), %x1)", x, y, shapes=[("?", 3), ("?", "?")])
    np.testing.assert_allclose(got, np.exp(x) + y, rtol=1e-6)


def test_unknown_and_known_extents() -> None:
    x, y = np.ones((1, 3), "float32"), np.arange(6, dtype="float32").reshape(2, 3)
    check_program(
        {"add(%x0, %x1)": x + y, "where(greater(%x1, 2f), %x0, %x1)": np.where(y > 2, x, y)}
        | {"floor_divide(%x1, %x1)": y // np.where(y == 0, np.nan, y)},
        x,
        y,
        shapes=[("?", "?"), (2, "?")],
    )


def test_extents_that_do_not_fit() -> None:
    x, y = np.ones((2, 3), "float32"), np.ones((3, 3), "float32")
    with pytest.raises(RuntimeError, match="shape"):
        run_program("add(%x0, %x1)", x, y, shapes=[("?", 3), ("?", 3)])


def test_branches_of_different_shapes() -> None:
    x, y = np.ones((2, 3), "float32"), np.ones((4, 3), "float32")
    body = "round(if (%x2) { %x0 } else { %x1 })"
    got = run_program(body, x, y, np.array(False), shapes=[("?", 3), ("?", 3), ()])
    np.testing.assert_array_equal(got, y)


def test_annotations_vanish() -> None:
    x = np.arange(3, dtype="float32")
    body = 'annotation.stop_fusion(annotation.cast_hint(%x0, dtype="int8"))'
    check_program({body: x, "on_device(device_copy(exp(%x0)), device_type=1)": np.exp(x)}, x)


@pytest.mark.parametrize(
    "body, message",
    (
        ("exp(%x0)", "expected a tensor of float, found dtype int32"),
        ("power(%x0, %x0)", "power at 1:39: expected a tensor of float"),
        ("logical_and(%x0, %x0)", "expected a tensor of bool"),
        ("add(equal(%x0, %x0), equal(%x0, %x0))", "expected a tensor of float or int"),
        ("fixed_point_multiply(%x0, multiplier=3, shift=40)", "attribute 'shift'"),
        ("memory.kill(%x0)", "the program was lowered for the Relay VM"),
    ),
)
def test_rejected(body: str, message: str) -> None:
    assert message in rejected(body, np.zeros(3, "int32"))


if __name__ == "__main__":
    tvm.testing.main()
