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
"""GuardFloatArithmetic: float arithmetic that TVM would simplify like integer arithmetic."""

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.relax_modules import build, merge, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches
from tvm_fixes.tirx.transform import GuardFloatArithmetic

X = np.array([1.5, -0.0, 3e-8, np.inf, -np.inf, np.nan, 7e9, -2], "float32")
Y = np.array([1.5, 2, 1, np.inf, np.inf, 1, np.nan, -3e-8], "float32")


def number(value, dtype="float32"):
    return relax.const(value, dtype)


def self_difference(x):
    n = op.astype(x, "int64")
    return op.subtract(n, n)


def with_upper_triangle(function, x, y, dtype="float32"):
    """A function of a column and the elements of another one above its diagonal, all 0."""
    x, y = op.reshape(x, (8, 1)), op.reshape(op.astype(y, dtype), (8, 1))
    return op.reshape(function(x, op.triu(y, 1)), (8,))


@np.errstate(all="ignore")
def divided(x, y):
    return x / y


# Expressions by name, with their NumPy references.
EXPRESSIONS = {
    "x - x": lambda x, y: (op.subtract(x, x), X - X),
    "x + y - y": lambda x, y: (op.subtract(op.add(x, y), y), X + Y - Y),
    "x + y - x": lambda x, y: (op.subtract(op.add(x, y), x), X + Y - X),
    "x - (x + y)": lambda x, y: (op.subtract(x, op.add(x, y)), X - (X + Y)),
    "x + 1e8 - 1e8": lambda x, y: (
        op.subtract(op.add(x, number(1e8)), number(1e8)),
        X + np.float32(1e8) - np.float32(1e8),
    ),
    "x[0:] - x": lambda x, y: (
        op.subtract(op.strided_slice(x, [0], [0], [8], [1], assume_inbound=True), x),
        X - X,
    ),
    "0 - x": lambda x, y: (op.subtract(number(0.0), x), np.float32(0) - X),
    "x * zeros": lambda x, y: (op.multiply(x, op.zeros((8,), "float32")), X * np.zeros(8, "f4")),
    "1 / (x + zeros)": lambda x, y: (
        op.divide(number(1.0), op.add(x, op.zeros((8,), "float32"))),
        divided(np.float32(1), X + np.float32(0)),
    ),
    "1 / (-0 * y + 0)": lambda x, y: (
        op.divide(number(1.0), op.add(op.multiply(y, number(-0.0)), number(0.0))),
        divided(np.float32(1), Y * np.float32(-0.0) + np.float32(0)),
    ),
    "1 / zeros": lambda x, y: (
        op.divide(number(1.0), op.zeros((8,), "float32")),
        np.full(8, np.inf, "f4"),
    ),
    "zeros / x": lambda x, y: (
        op.divide(op.zeros((8,), "float32"), x),
        divided(np.zeros(8, "f4"), X),
    ),
    "x / cast zeros": lambda x, y: (
        op.divide(x, op.astype(op.zeros((8,), "int64"), "float32")),
        divided(X, np.zeros(8, "f4")),
    ),
    "x / cast (n - n)": lambda x, y: (
        op.divide(x, op.astype(self_difference(op.less(x, y)), "float32")),
        divided(X, np.zeros(8, "f4")),
    ),
    "x / upper triangle": lambda x, y: (
        with_upper_triangle(op.divide, x, y),
        divided(X, np.zeros(8, "f4")),
    ),
    "x * upper triangle": lambda x, y: (
        with_upper_triangle(op.multiply, x, y),
        X * np.zeros(8, "f4"),
    ),
    "x / cast upper triangle": lambda x, y: (
        with_upper_triangle(lambda x, y: op.divide(x, op.astype(y, "float32")), x, y, "float16"),
        divided(X, np.zeros(8, "f4")),
    ),
    "not x < y": lambda x, y: (op.logical_not(op.less(x, y)), ~(X < Y)),
    "not x >= y": lambda x, y: (op.logical_not(op.greater_equal(x, y)), ~(X >= Y)),
    "x[1:] == x[:7]": lambda x, y: (
        op.equal(op.strided_slice(x, [0], [1], [8]), op.strided_slice(x, [0], [0], [7])),
        X[1:] == X[:-1],
    ),
    "x[1:] != x[:7]": lambda x, y: (
        op.not_equal(op.strided_slice(x, [0], [1], [8]), op.strided_slice(x, [0], [0], [7])),
        X[1:] != X[:-1],
    ),
    "-x == -x": lambda x, y: (op.equal(op.negative(x), op.negative(x)), ~np.isnan(X)),
    "-x != -x": lambda x, y: (op.not_equal(op.negative(x), op.negative(x)), np.isnan(X)),
}


@np.errstate(all="ignore")
@pytest.mark.parametrize("target", ("llvm", {"kind": "llvm", "mcpu": "haswell"}))
def test_matches_numpy(target):
    mods, expected = {}, {}
    inputs = {"x": tensor(8), "y": tensor(8)}
    for index, (name, make) in enumerate(EXPRESSIONS.items()):

        def emit(builder, x, y, make=make):
            return builder.emit(make(x, y)[0])

        mods[f"f{index}"] = build(inputs, emit)
        expected[f"f{index}"] = name, make(*(relax.Var(v, ty) for v, ty in inputs.items()))[1]
    executable = relax.build(merge(mods), tvm.target.Target(target), relax_pipeline=pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for index, (name, values) in expected.items():
        got = vm[index](tvm.runtime.tensor(X), tvm.runtime.tensor(Y)).numpy()
        np.testing.assert_array_equal(got, values, name)


@pytest.mark.parametrize("dtype", ("float16", "float64"))
def test_other_float_dtypes(dtype):
    def emit(builder, x):
        whole = builder.emit(op.add(x, number(256.0, dtype)))
        return builder.emit(op.subtract(whole, number(256.0, dtype)))

    x, big = np.array([0.1, np.inf, -3.3], dtype), np.array(256, dtype)
    got = run(build({"x": tensor(3, dtype=dtype)}, emit), x, pipeline=pipeline(), target="llvm")
    np.testing.assert_array_equal(got, x + big - big)


def test_bfloat16():
    mod = build({"x": tensor(2, dtype="bfloat16")}, lambda b, x: b.emit(op.subtract(x, x)))
    x = np.array([np.inf, 1], ml_dtypes.bfloat16)
    got = run(mod, x, pipeline=pipeline(), target="llvm")
    np.testing.assert_array_equal(got.astype("float32"), np.array([np.nan, 0], "float32"))


def test_constant_operands():
    x = relax.const(np.array([np.inf, 1], "float32"))
    mod = build({}, lambda builder: builder.emit(op.subtract(x, x)))
    np.testing.assert_array_equal(
        run(mod, pipeline=pipeline(), target="llvm"), np.array([np.nan, 0], "f4")
    )


@I.ir_module
class Before:
    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), n: T.Buffer((8,), "int32")
    ):
        for i in range(8):
            y[i] = T.Select(not x[i] < y[i], x[i] + y[i] - x[i], y[i] - T.float32(1))
            n[i] = (n[i] - n[i]) * 0


@I.ir_module
class Expected:
    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), n: T.Buffer((8,), "int32")
    ):
        for i in range(8):
            y[i] = T.Select(
                T.Cast("int8", x[i] < y[i]) == T.int8(0),
                x[i] + y[i] + x[i] * T.float32(-1),
                y[i] - T.float32(1),
            )
            n[i] = (n[i] - n[i]) * 0


def guarded(mod):
    with tvm.target.Target("llvm"):
        return GuardFloatArithmetic()(mod)


def test_before_and_after():
    tvm.ir.assert_structural_equal(guarded(Before), Expected)


def test_is_idempotent():
    tvm.ir.assert_structural_equal(guarded(Expected), Expected)


def test_disabled_fix_changes_nothing(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "float-arithmetic")
    assert guarded(Before).same_as(Before)


if __name__ == "__main__":
    tvm.testing.main()
