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
"""Relay's reductions, scans and operators that create tensors, compared with NumPy."""

import numpy as np
import pytest
import tvm.testing

from helpers.relay_checks import check_program, parameters, program, run_program
from tvm_fixes.errors import RelayError
from tvm_fixes.frontend.relay import from_relay
from tvm_fixes.frontend.relay.ops import reduce


def sample(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ("float32", "int8", "int64"))
def test_reductions(dtype: str) -> None:
    x = sample(3, 1, 5, dtype=dtype)
    expected = {}
    for name in ("sum", "max", "min", "prod"):
        f = getattr(np, name)
        kind = {"dtype": dtype} if name in ("sum", "prod") else {}
        expected |= {
            f"{name}(%x0)": f(x, **kind),
            f"{name}(%x0, axis=[-1, 0])": f(x, (0, 2), **kind),
            f"{name}(%x0, axis=[1], keepdims=True, exclude=True)": f(
                x, (0, 2), keepdims=True, **kind
            ),
            f"{name}(%x0, axis=[0, 1, 2], exclude=True)": x,
        }
    check_program(expected, x)


def test_result_of_another_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "sum(%x0, axis=[1], exclude=True)"
    monkeypatch.setattr(reduce, "reduced_axes", lambda call: [1])
    expected = r"sum at .*: the converter returns R.Tensor\(\(2, 4\).*; expected Tensor\[\(3"
    with pytest.raises(RelayError, match=expected):
        check_program({text: np.zeros(3, "float32")}, np.zeros((2, 3, 4), "float32"))
    monkeypatch.undo()
    check_program({text: np.full(3, 8, "float32")}, np.ones((2, 3, 4), "float32"))


def test_reductions_of_bools() -> None:
    x = sample(3, 4) > -2
    every, some = np.all(x, 1), np.any(x, 0, keepdims=True)
    check_program(
        {f"{name}(%x0, axis=[1])": every for name in ("all", "min", "prod")}
        | {f"{name}(%x0, axis=[0], keepdims=True)": some for name in ("any", "max", "sum")},
        x,
    )


@pytest.mark.parametrize("name, dtype", (("argmax", "float32"), ("argmin", "int32")))
def test_argmax(name: str, dtype: str) -> None:
    x = sample(4, 7, 3, dtype=dtype) // 3
    f = getattr(np, name)
    last = 6 - f(x[:, ::-1], 1)
    flat = np.transpose(x, (1, 0, 2)).reshape(7, 12)
    check_program(
        {
            body: np.asarray(value, "int32")
            for body, value in (
                (f"{name}(%x0, axis=[1])", f(x, 1)),
                (f"{name}(%x0)", f(x)),
                (f"{name}(%x0, axis=[-2], select_last_index=True)", last),
                (f"{name}(%x0, axis=[0, 2])", f(flat, 1)),
                (f"{name}(%x0, axis=[1], exclude=True, keepdims=True)", f(flat, 1)[None, :, None]),
            )
        },
        x,
    )


def test_mean_and_variance() -> None:
    x = np.random.default_rng(1).normal(size=(3, 5, 2)).astype("float32")
    check_program(
        {"mean(%x0)": x.mean(), "mean(%x0, axis=[1])": x.mean(1)}
        | {"mean(%x0, axis=[1], exclude=True, keepdims=True)": x.mean((0, 2), keepdims=True)}
        | {"variance(%x0, mean(%x0, axis=[1], keepdims=True), axis=[1])": x.var(1)}
        | {
            "variance(%x0, mean(%x0, axis=[0, 2], keepdims=True), axis=[1], exclude=True, "
            "keepdims=True, unbiased=True)": x.var((0, 2), ddof=1, keepdims=True)
        },
        x,
        rtol=1e-5,
    )


def test_mean_of_integers_and_float16() -> None:
    x = np.array([[-7, 4, 1], [100, 90, 60]], "int32")
    y = np.full((4096,), 48, "float16")
    truncated = np.trunc(x.mean(1)).astype("int32")
    zeros = 'zeros(shape=[4096], dtype="float16")'
    check_program(
        {"mean(%x0, axis=[1])": truncated, "mean(%x1)": np.float16(48)}
        | {f"variance(%x1, {zeros})": np.float16(48 * 48)},
        x,
        y,
    )


def test_unknown_extents() -> None:
    x = np.random.default_rng(1).normal(size=(3, 5)).astype("float32")
    integers = np.arange(6, dtype="int32")
    check_program(
        {"sum(%x0, axis=[0])": x.sum(0), "mean(%x0, axis=[0])": x.mean(0)}
        | {"variance(%x0, %x0, axis=[0])": np.zeros(5, "float32")}
        | {"mean(%x1)": np.int32(2), 'shape_of(%x0, dtype="int32")': np.int32([3, 5])}
        | {'ndarray_size(%x0, dtype="int64")': np.int64(15)},
        x,
        integers,
        shapes=[("?", 5), ("?",)],
        rtol=1e-5,
        atol=1e-6,
    )


def test_scalars() -> None:
    x = np.array(3, "float32")
    names = ("sum", "max", "min", "prod", "mean", "exp")
    expected = {f"{name}(%x0)": np.exp(x) if name == "exp" else x for name in names}
    check_program(expected | {"where(greater(%x0, 5f), %x0, 2f)": np.float32(2)}, x)


def test_other_operators_with_unknown_extents() -> None:
    x = sample(3, 4)
    check_program(
        {"cumsum(%x0, axis=1)": x.cumsum(1), "cumsum(%x0)": x.cumsum()}
        | {'einsum((%x0, %x0), equation="ij,ik->jk")': x.T @ x}
        | {"argmax(%x0, axis=[1])": x.argmax(1).astype("int32")}
        | {"zeros_like(%x0)": 0 * x, "full_like(%x0, 2)": 0 * x + 2}
        | {"argmin(%x0, axis=[0], select_last_index=True)": 2 - x[::-1].argmin(0).astype("int32")},
        x,
        shapes=[("?", 4)],
    )


@pytest.mark.parametrize("name", ("cumsum", "cumprod"))
def test_scans(name: str) -> None:
    x = sample(3, 4, 2, dtype="int32")
    f = getattr(np, name)
    shifted = np.full((3, 4, 2), name == "cumprod", "int32")
    shifted[:, 1:] = f(x, 1)[:, :-1]
    check_program(
        {f"{name}(%x0, axis=1)": f(x, 1, dtype="int32"), f"{name}(%x0)": f(x, dtype="int32")}
        | {f"{name}(%x0, axis=-2, exclusive=True)": shifted}
        | {f'{name}(%x0, axis=0, dtype="float32")': f(x, 0, dtype="float32")},
        x,
    )


def test_einsum() -> None:
    x, y, square = sample(2, 3, 4), sample(4, 3), sample(3, 3)
    check_program(
        {'einsum((%x0, %x1), equation="bij,jk->bik")': np.einsum("bij,jk->bik", x, y)}
        | {'einsum((%x0, %x1), equation="...ij, jk")': np.einsum("...ij,jk", x, y)}
        | {'einsum((%x2,), equation="ii")': np.einsum("ii", square)}
        | {'einsum((%x2,), equation="ii->i")': np.einsum("ii->i", square)}
        | {'einsum((%x0,), equation="i...->...i")': np.einsum("i...->...i", x)}
        | {'einsum((%x2, %x1, %x1), equation="ab,cb,ca->")': np.einsum("ab,cb,ca->", square, y, y)},
        *(x, y, square),
    )


@pytest.mark.parametrize("rows", (1, 4))
def test_einsum_with_unknown_extents(rows: int) -> None:
    x, y = sample(2, 3, 4), sample(rows, 5)
    check_program(
        {'einsum((%x0, %x1), equation="...ij,jk->...ik")': np.einsum("...ij,jk", x, y)}
        | {'einsum((%x1, %x1), equation="...a,...a->...")': np.einsum("ba,ba->b", y, y)},
        *(x, y),
        shapes=[("?", 3, "?"), ("?", 5)],
    )


def test_filled() -> None:
    x = sample(2, 3, dtype="int8")
    check_program(
        {'zeros(shape=[2, 3], dtype="int8")': np.zeros((2, 3), "int8")}
        | {'ones(shape=[], dtype="float16")': np.float16(1)}
        | {"full(2.5f, shape=[3])": np.full(3, 2.5, "float32")}
        | {'full(2.5f, shape=[3], dtype="int32")': np.full(3, 2, "int32")}
        | {"full(sum(%x0), shape=[2])": np.full(2, x.sum(), "int8")}
        | {"full_like(%x0, 3.5f)": np.full_like(x, 3)}
        | {"zeros_like(%x0)": np.zeros_like(x), "ones_like(%x0)": np.ones_like(x)}
        | {'shape_of(%x0, dtype="int64")': np.int64([2, 3])}
        | {'ndarray_size(%x0, dtype="int32")': np.int32(6)},
        x,
    )


def test_casts() -> None:
    x = np.array([-2.7, -0.5, 0.0, 0.3, 100.9], "float32")
    y = np.array([-1, 0, 255, 256, 300], "int32")
    check_program(
        {f'cast(%x0, dtype="{dtype}")': x.astype(dtype) for dtype in ("int8", "int64", "float16")}
        | {f'cast(%x1, dtype="{dtype}")': y.astype(dtype) for dtype in ("uint8", "bool", "float64")}
        | {'cast(%x0, dtype="bool")': x.astype(bool), "cast_like(%x0, %x1)": x.astype("int32")}
        | {'reinterpret(%x0, dtype="int32")': x.view("int32")}
        | {'reinterpret(%x1, dtype="uint32")': y.view("uint32")},
        x,
        y,
    )


def test_where() -> None:
    x, y = sample(3, 4), sample(4)
    flags = np.array([[2], [0], [-1]], "int8")
    check_program(
        {"where(%x2, %x0, %x1)": np.where(flags, x, y)}
        | {"where(greater(%x0, %x1), %x1, 0f)": np.where(x > y, y, np.float32(0))}
        | {"where(%x0, %x0, %x1)": np.where(x, x, y)},
        *(x, y, flags),
    )


def test_arange() -> None:
    falling = np.float32(3) + np.float32(-0.7) * np.arange(6, dtype="float32")
    check_program(
        {'arange(2, 17, 5, dtype="int32")': np.arange(2, 17, 5, dtype="int32")}
        | {'arange(3f, -1f, -0.7f, dtype="float32")': falling}
        | {'arange(0i64, 3i64, 1i64, dtype="int64")': np.arange(3)}
    )


@pytest.mark.parametrize("start, stop, step", ((0, 7, 1), (2, 9, 3), (5, -4, -2), (3, 3, 1)))
def test_computed_arange(start: int, stop: int, step: int) -> None:
    limits = [np.array(value, "int32") for value in (start, stop, step)]
    got = run_program('multiply(arange(%x0, %x1, %x2, dtype="int32"), 2)', *limits)
    expected = 2 * np.arange(start, stop, step, dtype="int32")
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "body, message",
    (
        ("argmax(%x0, axis=[0], exclude=True)", "no axis is left to reduce"),
        ("mean(%x0)", "the number of elements to average, 200, does not fit int8"),
        ("any(%x0)", "expected a tensor of bool, found dtype int8"),
        ('reinterpret(%x0, dtype="int32")', "expected a dtype of the size of int8, found int32"),
        ("shape_of(sum(%x0), dtype=int32)", "the shape of a tensor without dimensions"),
    ),
)
def test_rejected(body: str, message: str) -> None:
    x = np.zeros(200, "int8")
    with pytest.raises(RelayError) as raised:
        from_relay(program(body.replace("=int32", '="int32"'), parameters([x])))
    assert message in str(raised.value)


if __name__ == "__main__":
    tvm.testing.main()
