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
"""Floating-point arithmetic against wider types: near zero, large and special values."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.grids import few, is_full
from helpers.relax_modules import build, call, cpu, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.legalize.arithmetic import FIX_ID
from tvm_fixes.support import switches

op = relax.op

DTYPES = ("float16", "bfloat16", "float32", "float64")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -3.0, np.inf, -np.inf, np.nan)


def selu(x: np.ndarray) -> np.ndarray:
    alpha, scale = map(np.longdouble, ("1.67326324235437728481704", "1.05070098735548049341933"))
    return np.where(x > 0, scale * x, scale * alpha * np.expm1(x))


def softplus(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    soft = np.logaddexp(np.longdouble(0), beta * x) / beta
    return np.where(beta * x > threshold, x, soft)


def remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """NumPy's, but a zero has the sign of the dividend, as in PyTorch."""
    exact = np.mod(x, y)
    return np.where(exact == 0, np.copysign(exact, x), exact)


# The operator, its reference, and the tolerance in ulp of float32 or float64.
UNARY = {
    "selu": (op.nn.selu, selu, 5.0),
    "softplus": (op.nn.softplus, lambda x: softplus(x, 1, 20), 2.0),
    "softplus of half": (
        lambda x: op.nn.softplus(x, 0.5, 4.0),
        lambda x: softplus(x, 0.5, 4),
        2.0,
    ),
    "acosh": (op.acosh, np.arccosh, 2.0),
    "asinh": (op.asinh, np.arcsinh, 2.0),
    "atanh": (op.atanh, np.arctanh, 2.0),
    "sinh": (op.sinh, np.sinh, 2.0),
    "cosh": (op.cosh, np.cosh, 2.0),
    "tanh": (op.tanh, np.tanh, 2.0),
    "acos": (op.acos, np.arccos, 1.0),
    "asin": (op.asin, np.arcsin, 1.0),
    "atan": (op.atan, np.arctan, 1.0),
}
BINARY = {
    "floor_divide": (op.floor_divide, np.floor_divide, 1.01),
    "floor_mod": (op.floor_mod, remainder, 0.51),
    "mod": (op.mod, np.fmod, 0.51),
    "power": (op.power, np.power, 1.0),
    "atan2": (op.atan2, np.arctan2, 2.0),
}


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def operands(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    far = 10.0 ** rng.uniform(-30, 30, 200) * rng.choice([-1, 1], 200)
    near = [rng.standard_normal(100), rng.standard_normal(100) * 30, rng.uniform(-1, 1, 100)]
    with np.errstate(over="ignore"):
        return np.concatenate([far, *near, SPECIAL]).astype(numpy_dtype(dtype))


def assert_accurate(got: np.ndarray, exact: np.ndarray, ulps: float, name: str) -> None:
    """Assert half an ulp in 16 bits, else `ulps`, and equal NaN, infinities and signs of zero."""
    info = ml_dtypes.finfo(got.dtype)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rounded = exact.astype(got.dtype)
        is_special = ~np.isfinite(rounded) | ~np.isfinite(got)
        # NumPy does not recognize NaN in bfloat16.
        pair = (array[is_special].astype(np.longdouble) for array in (got, rounded))
        np.testing.assert_array_equal(*pair, err_msg=name)
        magnitude = np.maximum(np.abs(exact), float(info.tiny)).astype(np.longdouble)
        unit = np.exp2(np.floor(np.log2(magnitude)) - info.nmant)
        error = np.abs(got.astype(np.longdouble) - exact) / unit
    limit = 0.51 if info.bits == 16 else ulps
    worst = int(np.argmax(np.where(is_special, 0, error)))
    assert is_special[worst] or error[worst] <= limit, (name, got[worst], exact[worst])
    is_zero = exact == 0
    np.testing.assert_array_equal(np.signbit(got[is_zero]), np.signbit(exact[is_zero]), name)


def results(functions: dict, dtype: str, *data: np.ndarray) -> list[np.ndarray]:
    """The results of all functions, in one build."""
    inputs = {f"x{i}": tensor(array.size, dtype=dtype) for i, array in enumerate(data)}
    mod = build(
        inputs,
        lambda bb, *args: relax.Tuple([bb.emit(emit(*args)) for emit, *_ in functions.values()]),
    )
    vm = relax.VirtualMachine(relax.build(mod, "llvm", relax_pipeline=pipeline()), tvm.cpu())
    return call(vm, "main", *data)


@pytest.mark.parametrize("dtype", DTYPES if is_full() else DTYPES[::2])
def test_of_one_operand(dtype: str) -> None:
    x = operands(dtype)
    for got, (name, (_, expected, ulps)) in zip(
        results(UNARY, dtype, x), UNARY.items(), strict=True
    ):
        with np.errstate(all="ignore"):
            assert_accurate(got, expected(x.astype(np.longdouble)), ulps, name)


def pairs(dtype: str) -> list[np.ndarray]:
    """Two operands: random elements, and each special value with each."""
    x = operands(dtype)
    y = x[np.random.default_rng(1).permutation(x.size)]
    special = np.array(SPECIAL, x.dtype)
    grids = np.meshgrid(special, special)
    return [np.concatenate([z, s.ravel()]) for z, s in zip((x, y), grids, strict=True)]


@pytest.mark.parametrize("dtype", DTYPES if is_full() else DTYPES[1:3])
def test_of_two_operands(dtype: str) -> None:
    a, b = pairs(dtype)
    for got, (name, (_, expected, ulps)) in zip(
        results(BINARY, dtype, a, b), BINARY.items(), strict=True
    ):
        with np.errstate(all="ignore"):
            exact = expected(a.astype(np.longdouble), b.astype(np.longdouble))
        assert_accurate(got, exact, ulps, name)


def test_a_known_power_of_bfloat16_is_a_product():
    x = np.arange(-8, 8, 0.25).astype(ml_dtypes.bfloat16)
    two = relax.const(np.array(2, ml_dtypes.bfloat16))
    mod = build({"x": tensor(64, dtype="bfloat16")}, lambda _, x: relax.op.power(x, two))
    got = run(mod, x, pipeline=pipeline()).astype("float32")
    np.testing.assert_array_equal(got, (x.astype("float32") ** 2).astype(x.dtype).astype("float32"))
    with cpu():
        function = relax.transform.LegalizeOps()(mod)["power"]
    assert len(function.params) == 2


@pytest.mark.parametrize("dtype", DTYPES if is_full() else DTYPES[::2])
def test_log_add_exp(dtype: str) -> None:
    a, b = pairs(dtype)
    [got] = results({"log_add_exp": (op.log_add_exp,)}, dtype, a, b)
    with np.errstate(all="ignore"):
        exact = np.logaddexp(a.astype(np.longdouble), b.astype(np.longdouble))
        # Near 0 the result cancels in any implementation.
        epsilon = float(ml_dtypes.finfo(got.dtype).eps)
        np.testing.assert_allclose(
            got.astype(np.longdouble),
            exact.astype(got.dtype).astype(np.longdouble),
            rtol=2 * epsilon,
            atol=epsilon,
        )


@pytest.mark.parametrize("dtype", ("float16", "bfloat16") if is_full() else ("bfloat16",))
def test_gates_of_16_bits_are_computed_in_32(dtype: str) -> None:
    """Up exactly of float32, of which 1 + erf(-5) has few."""
    x = np.linspace(-5, 5, 1001).astype(numpy_dtype(dtype))
    float64 = x.astype("float64")
    inner = math.sqrt(2 / math.pi) * (float64 + 0.044715 * float64**3)
    expected = {
        "gelu": [value * 0.5 * math.erfc(-value * math.sqrt(0.5)) for value in float64],
        "gelu_tanh": float64 * 0.5 * (1 + np.tanh(inner)),
        "silu": float64 / (1 + np.exp(-float64)),
    }
    functions = {name: (getattr(op.nn, name),) for name in expected}
    epsilon = float(ml_dtypes.finfo(x.dtype).eps)
    for got, (name, exact) in zip(results(functions, dtype, x), expected.items(), strict=True):
        np.testing.assert_allclose(
            got.astype("float64"), exact, rtol=0.51 * epsilon, atol=3e-7, err_msg=name
        )


@pytest.mark.parametrize("dtype", DTYPES if is_full() else DTYPES[1:3])
def test_a_number_that_is_zero_is_not_folded(dtype: str) -> None:
    """0 times infinity or NaN is NaN, the sign of 0 is that of the product, and -0 + 0 is 0."""
    x = np.array(SPECIAL, numpy_dtype(dtype))
    zero, minus_zero = relax.const(0.0, dtype), relax.const(-0.0, dtype)
    functions = {
        "x + 0": (lambda x: op.add(x, zero), lambda x: x + 0),
        "0 + x": (lambda x: op.add(zero, x), lambda x: 0 + x),
        "x + -0": (lambda x: op.add(x, minus_zero), lambda x: x),
        "x - -0": (lambda x: op.subtract(x, minus_zero), lambda x: x + 0),
        "x - 0": (lambda x: op.subtract(x, zero), lambda x: x),
        "0 - x": (lambda x: op.subtract(zero, x), lambda x: 0 - x),
        "x 0": (lambda x: op.multiply(x, zero), lambda x: x * 0),
        "0 x": (lambda x: op.multiply(zero, x), lambda x: 0 * x),
        "0 / x": (lambda x: op.divide(zero, x), lambda x: 0 / x),
        "x / 0": (lambda x: op.divide(x, zero), lambda x: x / np.longdouble(0)),
        "leakyrelu": (lambda x: op.nn.leakyrelu(x, 0.0), lambda x: np.where(x > 0, x, x * 0)),
    }
    for got, (name, (_, expected)) in zip(
        results(functions, dtype, x), functions.items(), strict=True
    ):
        with np.errstate(all="ignore"):
            exact = expected(x.astype(np.longdouble))
        np.testing.assert_array_equal(got.astype(np.longdouble), exact, name)
        is_number = ~np.isnan(exact)
        np.testing.assert_array_equal(
            np.signbit(got[is_number]), np.signbit(exact[is_number]), name
        )


@few(2)
@pytest.mark.parametrize("dtype", ("uint8", "uint16", "uint32", "uint64"))
def test_signs_of_unsigned_integers(dtype: str) -> None:
    x = np.array([0, 1, 200], dtype)
    functions = {"sign": (op.sign,), "negative": (op.negative,)}
    sign, negative = results(functions, dtype, x)
    np.testing.assert_array_equal(sign, np.sign(x))
    np.testing.assert_array_equal(negative, -x)


@pytest.mark.parametrize("dtype", ("uint8", "uint32", "uint64"))
def test_unsigned_integers_wrap_around(dtype: str) -> None:
    """Comparisons and divisions in the same kernel must not assume absence of overflow."""
    x = np.array([0, 1, 3, 200, np.iinfo(dtype).max], dtype)
    zero, three, half = (relax.const(n, dtype) for n in (0, 3, np.iinfo(dtype).max // 2 + 1))
    functions = {
        "subtract": (lambda x: op.subtract(zero, x), lambda x: 0 - x),
        "less": (
            lambda x: op.less(op.subtract(three, x), relax.const(4, dtype)),
            lambda x: 3 - x < 4,
        ),
        "greater": (lambda x: op.less(op.add(x, three), x), lambda x: x + 3 < x),
        "negative": (lambda x: op.less(op.negative(x), three), lambda x: 0 - x < 3),
        "divide": (
            lambda x: op.divide(op.multiply(x, half), half),
            lambda x: x * (np.iinfo(dtype).max // 2 + 1) // (np.iinfo(dtype).max // 2 + 1),
        ),
    }
    for got, (name, (_, expected)) in zip(
        results(functions, dtype, x), functions.items(), strict=True
    ):
        np.testing.assert_array_equal(got, expected(x), name)


@few(4)
@pytest.mark.parametrize("dtype", (*DTYPES, "int8", "int32", "int64", "uint8", "uint32", "uint64"))
def test_ewise_fma(dtype: str) -> None:
    """TVM has no lowering.  16-bit floats are rounded once."""
    random = np.random.default_rng(0)
    arrays = [random.uniform(0, 100, (3, 5)).astype(dtype) for _ in range(3)]
    inputs = {name: tensor(3, 5, dtype=dtype) for name in "abc"}
    mod = build(inputs, lambda bb, *operands: op.ewise_fma(*operands))
    got = run(mod, *arrays)
    compared_dtype = "float64" if dtype in DTYPES else dtype
    a, b, c = (array.astype(compared_dtype) for array in arrays)
    expected = (a * b + c).astype(dtype)
    tolerance = {"float32": 1e-6, "float64": 1e-15}.get(dtype, 0)
    np.testing.assert_allclose(
        got.astype(compared_dtype), expected.astype(compared_dtype), rtol=tolerance
    )


@pytest.mark.parametrize("dtype", ("uint32", "uint64"))
def test_bits_of_unsigned_integers(dtype: str) -> None:
    """Random bits and edge values, with a row and with a scalar."""
    rng, top = np.random.default_rng(0), int(np.iinfo(dtype).max)
    edges = np.array([0, 1, top, top - 1, top // 2, top // 2 + 1, 2**16, 2**32 - 1], dtype)
    x = np.concatenate([edges, rng.integers(0, top, 56, dtype, endpoint=True)])
    row, number = rng.permutation(x), 7
    for function, ufunc in (
        (op.add, np.add),
        (op.subtract, np.subtract),
        (op.multiply, np.multiply),
    ):
        [by_row, by_number] = results(
            {
                "row": (lambda x, f=function: f(op.expand_dims(x, 1), relax.const(row, dtype)),),
                "number": (lambda x, f=function: f(x, relax.const(number, dtype)),),
            },
            dtype,
            x,
        )
        np.testing.assert_array_equal(by_row, ufunc(x[:, None], row))
        np.testing.assert_array_equal(by_number, ufunc(x, x.dtype.type(number)))


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
def test_a_cast_to_bfloat16_rounds(dtype: str) -> None:
    """The cast is fused into its reader's kernel."""
    rng = np.random.default_rng(0)
    special = [0, -0.0, np.inf, -np.inf, np.nan, 2.999, -2.9999, 1.00390625, 1.01171875]
    x = np.array([*special, *rng.uniform(-9, 9, 100)], dtype)

    def whole(x: relax.Expr) -> relax.Expr:
        return op.multiply(op.astype(op.astype(x, "bfloat16"), "float32"), relax.const(3.0))

    [got] = results({"whole": (whole,)}, dtype, x)
    wanted = x.astype(ml_dtypes.bfloat16).astype("float32") * np.float32(3)
    np.testing.assert_array_equal(got, wanted)


@few(2)
@pytest.mark.parametrize("bits", [0x7F80_0001, 0x7FFF_FFFF, 0xFF80_0001, 0xFFFF_FFFF])
def test_a_cast_to_bfloat16_keeps_nan(bits: int) -> None:
    """With the lowest and the highest bits: those of bfloat16 are infinity, or rounding wraps."""
    x = np.array([bits] * 3 + [0x3F80_0000], "uint32").view("float32")
    narrow, both = results(
        {
            "narrow": (lambda x: op.astype(x, "bfloat16"),),
            "both": (lambda x: op.astype(op.astype(x, "bfloat16"), "float32"),),
        },
        "float32",
        x,
    )
    for got in (narrow.astype("float32"), both):
        np.testing.assert_array_equal(got, [np.nan, np.nan, np.nan, 1])


def test_integers_use_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {name: tensor(4, dtype="int32") for name in "ab"}
    mod = build(inputs, lambda bb, a, b: op.floor_mod(bb.emit(op.floor_divide(a, b)), b))
    ours = relax.transform.LegalizeOps()(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(ours, relax.transform.LegalizeOps()(mod))


def test_the_switch_restores_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    small = np.array([-1e-9], "float32")
    assert results({"selu": (op.nn.selu,)}, "float32", small)[0] != 0
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert results({"selu": (op.nn.selu,)}, "float32", small)[0] == 0
    mod = build({"a": tensor(2)}, lambda bb, a: op.ewise_fma(a, a, a))
    tvm.ir.assert_structural_equal(relax.transform.LegalizeOps()(mod), mod)


NUMBERS = {
    "floor_divide": (op.floor_divide, np.floor_divide),
    "floor_mod": (op.floor_mod, remainder),
    "log_add_exp": (op.log_add_exp, np.logaddexp),
    "mod": (op.mod, np.fmod),
    "power": (op.power, np.power),
    "add": (op.add, np.add),
    "subtract": (op.subtract, np.subtract),
    "multiply": (op.multiply, np.multiply),
    "maximum": (op.maximum, np.maximum),
    "not_equal": (op.not_equal, np.not_equal),
}


WITH_NUMBERS = [
    (name, dtype, is_symbolic, is_first)
    for name in NUMBERS
    for dtype in ("float32", "uint32", *(["float16"] if "floor" in name else []))
    if dtype != "uint32" or name not in ("log_add_exp", "power")
    for is_symbolic, is_first in product([False, True], repeat=2)
]


@pytest.mark.parametrize(
    ("name", "dtype", "is_symbolic", "is_first"),
    WITH_NUMBERS if is_full() else WITH_NUMBERS[::3],
)
def test_operands_that_are_numbers(name, dtype, is_symbolic, is_first):
    """TVM lowers a number of TIR, known or a parameter, as an operand of a tensor."""
    operator, reference = NUMBERS[name]
    x = np.array([2.5, 3, 7, 4.25], "float32").astype(numpy_dtype(dtype))
    number = tirx.Var("number", dtype) if is_symbolic else tirx.const(3, dtype)
    params = [relax.Var("x", tensor(4, dtype=dtype)), *([number] if is_symbolic else [])]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            operands = (number, params[0]) if is_first else (params[0], number)
            out = builder.emit_output(operator(*operands))
        builder.emit_func_output(out)
    vm = relax.VirtualMachine(relax.build(builder.get(), "llvm"), tvm.cpu())
    arguments = [tvm.runtime.tensor(x)]
    if is_symbolic:
        arguments.append(3 if dtype == "uint32" else 3.0)
    got = vm["main"](*arguments).numpy()
    widened = x.astype("int64" if dtype == "uint32" else "float64")
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = reference(3, widened) if is_first else reference(widened, 3)
    if dtype == "uint32":
        np.testing.assert_array_equal(got.astype("int64"), expected % 2**32)
    else:
        rtol = 2e-3 if dtype == "float16" else 1e-6
        np.testing.assert_allclose(got.astype("float64"), expected, rtol=rtol, atol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
