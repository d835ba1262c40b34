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

import itertools

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.grids import few, is_full
from helpers.relax_modules import build, call, merge, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.comparison import FIX_ID
from tvm_fixes.support import switches

torch = pytest.importorskip("torch")

OPERATORS = [
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "maximum",
    "minimum",
]


def comparison(name, dtype="bool"):
    operator = getattr(relax.op, name)
    inputs = {"a": tensor(4, 1, dtype=dtype), "b": tensor(4, dtype=dtype)}
    return build(inputs, lambda _, a, b: operator(a, b))


@pytest.fixture(scope="module")
def built():
    mods = {name: comparison(name) for name in OPERATORS}
    return relax.VirtualMachine(relax.build(merge(mods), "llvm"), tvm.cpu())


@few(3)
@pytest.mark.parametrize("name", OPERATORS)
def test_booleans_are_compared_as_numpy_does(built, name):
    pairs = np.array(list(itertools.product([False, True], repeat=2)))
    a, b = pairs[:, :1], pairs[:, 1]
    got = call(built, name, a, b)
    assert got.dtype == "bool"
    np.testing.assert_array_equal(got, getattr(np, name)(a, b))


def test_numbers_use_stock(monkeypatch):
    mod = comparison("equal", "int32")
    ours = relax.transform.LegalizeOps()(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(ours, relax.transform.LegalizeOps()(mod))


NUMBERS = np.array([np.nan, -np.inf, -2.5, -0.0, 0.0, 1.0, 7.0, np.inf], "float32")
BOUNDED = {
    "relu": (relax.op.nn.relu, torch.relu),
    "clip": (lambda x: relax.op.clip(x, -1, 2.5), lambda x: torch.clamp(x, -1, 2.5)),
    "clip_below": (lambda x: relax.op.clip(x, -1, np.inf), lambda x: torch.clamp(x, -1)),
    "clip_nothing": (lambda x: relax.op.clip(x, -np.inf, np.inf), lambda x: x),
}


PASSING = list(itertools.product(BOUNDED, ["float16", "bfloat16", "float32", "float64"]))


# Each operator in one dtype, and each dtype, are among every fifth case.
@pytest.mark.parametrize("name, dtype", PASSING if is_full() else PASSING[::5])
def test_nan_passes(name, dtype):
    emit, expected = BOUNDED[name]
    data = NUMBERS.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    size = tirx.Var("n", "int64")
    for extent in (len(data), size):
        got = run(
            build({"x": tensor(extent, dtype=dtype)}, lambda _, x: emit(x)), data, target="llvm"
        )
        assert got.dtype == data.dtype
        want = expected(torch.from_numpy(data.astype("float64"))).numpy()
        np.testing.assert_array_equal(got.astype("float64"), want)


EXTREMA = list(itertools.product(["maximum", "minimum"], ["float16", "float32", "float64"]))


@pytest.mark.parametrize("name, dtype", EXTREMA if is_full() else EXTREMA[::2])
def test_an_extremum_of_nan_is_nan(name, dtype):
    a, b = NUMBERS.astype(dtype)[:, None], NUMBERS.astype(dtype)
    n = tirx.Var("n", "int64")
    operator = getattr(relax.op, name)
    for shapes in [(8, 1), (8,)], [(n, 1), (8,)], [(8, 1), ()]:
        inputs = {key: tensor(*shape, dtype=dtype) for key, shape in zip("ab", shapes, strict=True)}
        args = a, b if shapes[1] else np.asarray(b[0])
        got = run(build(inputs, lambda _, x, y: operator(x, y)), *args, target="llvm")
        np.testing.assert_array_equal(got, getattr(np, name)(*args))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_differs_from_all_numbers(dtype):
    a, b = NUMBERS.astype(dtype)[:, None], NUMBERS.astype(dtype)
    inputs = {"a": tensor(8, 1, dtype=dtype), "b": tensor(8, dtype=dtype)}
    got = run(build(inputs, lambda _, a, b: relax.op.not_equal(a, b)), a, b, target="llvm")
    np.testing.assert_array_equal(got, a != b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_nan_is_not_equal_to_itself(dtype):
    """After another operator, with which it is fused."""
    x = NUMBERS.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    names = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

    def compare(bb, x):
        negated = bb.emit(relax.op.negative(x))
        return relax.Tuple([bb.emit(getattr(relax.op, n)(negated, negated)) for n in names])

    mod = build({"x": tensor(8, dtype=dtype)}, compare)
    for name, got in zip(names, run(mod, x, pipeline=pipeline(), target="llvm"), strict=True):
        np.testing.assert_array_equal(got, getattr(np, name)(-x, -x), name)


@pytest.mark.parametrize("operator", (relax.op.minimum, relax.op.maximum))
def test_symbols_of_a_kernel_are_those_of_its_operands(operator):
    n, m = (tirx.Var(name, "int64") for name in "nm")
    mod = build({"x": tensor(n, m), "y": tensor(m)}, lambda _, x, y: operator(x, y))
    (kernel,) = (
        function
        for _, function in relax.transform.LegalizeOps()(mod).functions_items()
        if isinstance(function, tirx.PrimFunc)
    )
    x, y, result = (list(parameter.ty.shape) for parameter in kernel.params)
    assert all(a.same_as(b) for a, b in zip([*x, x[1]], [*result, *y], strict=True))


def test_infinite_bounds_are_left_out():
    """CUDA has no name for an infinite bfloat16."""
    inputs = {"x": tensor(4, dtype="bfloat16")}
    mod = build(inputs, lambda _, x: relax.op.clip(x, -np.inf, np.inf))
    assert "inf" not in relax.transform.LegalizeOps()(mod)["clip"].script()


@pytest.mark.parametrize("operator", [relax.op.nn.relu, lambda x: relax.op.clip(x, 0, 2)])
def test_bounds_of_integers_use_stock(monkeypatch, operator):
    mod = build({"x": tensor(4, dtype="int32")}, lambda _, x: operator(x))
    ours = relax.transform.LegalizeOps()(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(ours, relax.transform.LegalizeOps()(mod))


@few(3)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "uint8", "bool"])
def test_classes_of_numbers(dtype):
    data = NUMBERS.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else "float16")
    data = data if "float" in dtype else np.arange(8).astype(dtype)
    names = ("isnan", "isinf", "isfinite")
    mod = build(
        {"x": tensor(8, dtype=dtype)},
        lambda bb, x: relax.Tuple([bb.emit(getattr(relax.op, name)(x)) for name in names]),
    )
    for name, got in zip(names, run(mod, data, target="llvm"), strict=True):
        np.testing.assert_array_equal(got, getattr(np, name)(data), name)


if __name__ == "__main__":
    tvm.testing.main()
