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
"""Integers that overflow wrap around, also where fused operators compare or divide them."""

import time
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from helpers.gpu_modules import run_on_gpu
from helpers.grids import few, is_full
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.tirx.transform import GuardIntegerOverflow
from tvm_fixes.tirx.transform.guard_integer_overflow import FIX_ID

op = relax.op

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
ON_CPUS = list(product(DTYPES, ["llvm", "native"]))


class _Numpy:
    """The operators of the forms, for arrays."""

    def __getattr__(self, name):
        return {"divide": np.floor_divide, "floor_divide": np.floor_divide}.get(
            name, getattr(np, name, None)
        )

    @staticmethod
    def floor_mod(a, b):
        return np.mod(a, b)


# Of two tensors, a constant maker c and the operators o.
FORMS = {
    "x + a >= a": lambda x, a, c, o: o.greater_equal(o.add(x, a), a),
    "x - a < 0": lambda x, a, c, o: o.less(o.subtract(x, a), c(0)),
    "x - a > x": lambda x, a, c, o: o.greater(o.subtract(x, a), x),
    "x + 1 > x": lambda x, a, c, o: o.greater(o.add(x, c(1)), x),
    "x + 5 > 3": lambda x, a, c, o: o.greater(o.add(x, c(5)), c(3)),
    "x * 2 > 4": lambda x, a, c, o: o.greater(o.multiply(x, c(2)), c(4)),
    "x * 3 > x": lambda x, a, c, o: o.greater(o.multiply(x, c(3)), x),
    "a - min(a, x)": lambda x, a, c, o: o.subtract(a, o.minimum(a, x)),
    "max(a, x) - x": lambda x, a, c, o: o.subtract(o.maximum(a, x), x),
    "x * a == 0": lambda x, a, c, o: o.equal(o.multiply(x, a), c(0)),
    "x * x * x * x > 5": lambda x, a, c, o: o.greater(
        o.multiply(o.multiply(x, x), o.multiply(x, x)), c(5)
    ),
    "max(x + a, a)": lambda x, a, c, o: o.maximum(o.add(x, a), a),
    "min(x + 1, x)": lambda x, a, c, o: o.minimum(o.add(x, c(1)), x),
    "x * 2 // 2": lambda x, a, c, o: o.floor_divide(o.multiply(x, c(2)), c(2)),
    "(x * 4 + a) % 4": lambda x, a, c, o: o.floor_mod(o.add(o.multiply(x, c(4)), a), c(4)),
    "x - a == 0": lambda x, a, c, o: o.equal(o.subtract(x, a), c(0)),
    "where(x + a > a, x - a, a)": lambda x, a, c, o: o.where(
        o.greater(o.add(x, a), a), o.subtract(x, a), a
    ),
    "x + a - x * a": lambda x, a, c, o: o.subtract(o.add(x, a), o.multiply(x, a)),
    "|x| >= 0": lambda x, a, c, o: o.greater_equal(o.abs(x), c(0)),
    "x * 0 + 1 > a": lambda x, a, c, o: o.greater(o.add(o.multiply(x, c(0)), c(1)), a),
    "max(x - x, a)": lambda x, a, c, o: o.maximum(o.subtract(x, x), a),
    "|x // a * a|": lambda x, a, c, o: o.abs(
        o.multiply(o.floor_divide(x, o.where(o.equal(a, c(0)), c(1), a)), a)
    ),
    "(x * 2) >> 1": lambda x, a, c, o: o.right_shift(o.multiply(x, c(2)), c(1)),
    "(x + a) & a": lambda x, a, c, o: o.bitwise_and(o.add(x, a), a),
    "~(x - 5) > 0": lambda x, a, c, o: o.greater(o.bitwise_not(o.subtract(x, c(5))), c(0)),
    "~(x - a) >> 5": lambda x, a, c, o: o.right_shift(o.bitwise_not(o.subtract(x, a)), c(5)),
    "max(100 << (a & 7), 1)": lambda x, a, c, o: o.maximum(
        o.left_shift(c(100), o.bitwise_and(a, c(7))), c(1)
    ),
    "x << 3 > x": lambda x, a, c, o: o.greater(o.left_shift(x, c(3)), x),
    "(x << 3) + a > a": lambda x, a, c, o: o.greater(o.add(o.left_shift(x, c(3)), a), a),
    "(x << 2) // 4": lambda x, a, c, o: o.floor_divide(o.left_shift(x, c(2)), c(4)),
    "-x < 0": lambda x, a, c, o: o.less(o.negative(x), c(0)),
}


# Of a tensor, the smallest and the largest number and the operators o.
CONSTANT_FORMS = {
    "x * most * most": lambda x, least, most, o: o.multiply(o.multiply(x, most), most),
    "(x + most) * most": lambda x, least, most, o: o.multiply(o.add(x, most), most),
    "x + most + most": lambda x, least, most, o: o.add(o.add(x, most), most),
    "x // most // most": lambda x, least, most, o: o.floor_divide(o.floor_divide(x, most), most),
    "x + least": lambda x, least, most, o: o.add(x, least),
    "x - least": lambda x, least, most, o: o.subtract(x, least),
}


def extremes(dtype):
    """All pairs of numbers at the ends and in the middle of the range."""
    info = np.iinfo(dtype)
    middle = [0, 1, 2, 5] if info.min == 0 else [-7, -1, 0, 1, 2, 5]
    numbers = [info.min, info.min + 1, *middle, info.max // 2 + 1, info.max - 1, info.max]
    return [np.array(grid.ravel()) for grid in np.meshgrid(*[np.array(numbers, dtype)] * 2)]


@few(2)
@pytest.mark.parametrize(("dtype", "target"), ON_CPUS if is_full() else ON_CPUS[::5])
def test_overflow_wraps_around(dtype, target):
    x, a = extremes(dtype)
    forms = {name: form for name, form in FORMS.items() if dtype[0] == "i" or name[0] not in "-|"}

    def emit(builder, x, a):
        return relax.Tuple(
            [
                builder.emit(form(x, a, lambda n: relax.const(n, dtype), op))
                for form in forms.values()
            ]
        )

    types = {name: tensor(*x.shape, dtype=dtype) for name in "xa"}
    got = run(build(types, emit), x, a, target=resolve(target), pipeline=pipeline())
    with np.errstate(over="ignore"):
        for (name, form), values in zip(forms.items(), got, strict=True):
            expected = form(x, a, np.dtype(dtype).type, _Numpy())
            np.testing.assert_array_equal(values, expected, err_msg=name)


@pytest.mark.parametrize(("dtype", "target"), ON_CPUS if is_full() else ON_CPUS[3::5])
def test_constants_at_the_ends_of_the_range(dtype, target):
    """TVM combines constants, and fails if the result is outside of the range."""
    x, info = extremes(dtype)[0], np.iinfo(dtype)
    limits = np.array(info.min, dtype), np.array(info.max, dtype)

    def emit(builder, x):
        least, most = (relax.const(limit, dtype) for limit in limits)
        return relax.Tuple(
            [builder.emit(form(x, least, most, op)) for form in CONSTANT_FORMS.values()]
        )

    module = build({"x": tensor(*x.shape, dtype=dtype)}, emit)
    got = run(module, x, target=resolve(target), pipeline=pipeline())
    with np.errstate(over="ignore"):
        for (name, form), values in zip(CONSTANT_FORMS.items(), got, strict=True):
            np.testing.assert_array_equal(values, form(x, *limits, _Numpy()), err_msg=name)


@pytest.mark.parametrize(
    "given, wanted, limit",
    [("int8", "uint8", 127), ("int32", "int8", 0), ("int64", "int32", 5), ("uint8", "int8", 0)],
)
def test_narrowing_casts_wrap_around(given, wanted, limit):
    x = extremes(given)[0]

    def emit(builder, x):
        wider = builder.emit(op.maximum(x, relax.const(0, given)))
        narrow = builder.emit(op.astype(wider, wanted))
        return op.less_equal(narrow, relax.const(limit, wanted))

    got = run(build({"x": tensor(*x.shape, dtype=given)}, emit), x, pipeline=pipeline())
    np.testing.assert_array_equal(got, np.maximum(x, 0).astype(wanted) <= limit)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("target", ["llvm", "native"])
def test_a_condition_of_bfloat16(dtype, target):
    def emit(builder, x, n):
        more = builder.emit(op.add(op.multiply(n, n), relax.const(1, dtype)))
        shifted = builder.emit(op.astype(op.subtract(more, n), "bfloat16"))
        kept = builder.emit(op.where(op.greater(more, n), x, shifted))
        return op.astype(op.multiply(kept, kept), "float32")

    x = np.array([1, 2, 3, 4], "float32").astype(ml_dtypes.bfloat16)
    n = np.array([-3, 0, 5, np.iinfo(dtype).max], dtype)
    types = {"x": tensor(4, dtype="bfloat16"), "n": tensor(4, dtype=dtype)}
    got = run(build(types, emit), x, n, target=resolve(target), pipeline=pipeline())
    with np.errstate(over="ignore"):
        more = n * n + 1
        kept = np.where(more > n, x.astype("float32"), (more - n).astype(ml_dtypes.bfloat16))
    np.testing.assert_allclose(got, kept * kept, rtol=0.01)


@I.ir_module
class Before:
    @T.prim_func(private=True, s_tir=True)
    def compare(
        x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "bool"), z: T.Buffer((8,), "int32")
    ) -> None:
        for i in range(8):
            with T.sblock("compare"):
                v = T.axis.spatial(8, i)
                y[v] = x[v] < x[(v + 5) % 8] + 1
                z[v] = x[v] * 3 + v


@I.ir_module
class Expected:
    @T.prim_func(private=True, s_tir=True)
    def compare(
        x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "bool"), z: T.Buffer((8,), "int32")
    ) -> None:
        for i in range(8):
            with T.sblock("compare"):
                v = T.axis.spatial(8, i)
                y[v] = x[v] < T.bitwise_or(
                    T.Cast("int32", T.Cast("int128", x[(v + 5) % 8]) + T.IntImm("int128", 1)), 0
                )
                z[v] = x[v] * 3 + v


def guarded(mod, target="llvm"):
    with tvm.target.Target(target):
        return GuardIntegerOverflow()(mod)


def test_only_compared_sums_of_data_change(monkeypatch):
    tvm.ir.assert_structural_equal(guarded(Before), Expected)
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    assert guarded(Before).same_as(Before)


def test_nested_arithmetic_does_not_grow_exponentially():
    def size_of(steps):
        x = tirx.BufferLoad(tirx.decl_buffer((8,), "int64"), [0])
        value = x
        for _ in range(steps):
            value = tirx.max(value + tirx.const(1, "int64"), tirx.const(0, "int64"))
        function = tirx.PrimFunc([], tirx.BufferStore(x.source, value, [1]))
        after = guarded(tvm.IRModule({"kernel": function}))["kernel"]
        found: list[tirx.Add] = []
        structural_walk(after, (tirx.Add, found.append))
        return len(found)

    sizes = [size_of(steps) for steps in (4, 8, 16)]
    assert sizes[2] < 8 * sizes[0], sizes


def test_the_simplifier_takes_no_exponential_time():
    """TVM's simplifier pushes casts to the dtypes of indices into their operands."""

    def seconds(steps):
        def emit(builder, x, y):
            for _ in range(steps):
                product = builder.emit(op.multiply(builder.emit(op.add(x, y)), x))
                x = builder.emit(op.maximum(product, y))
            return x

        mod = build({name: tensor(2, dtype="int32") for name in "xy"}, emit)
        start = time.process_time()
        relax.build(mod, tvm.target.Target("llvm"), relax_pipeline=pipeline())
        return time.process_time() - start

    seconds(1)
    assert seconds(5) < 0.2 + 4 * seconds(3)


def test_cuda_adds_64_bits_without_sign():
    """C++ defines unsigned overflow."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def compare(x: T.Buffer((8,), "int64"), y: T.Buffer((8,), "bool")) -> None:
            for i in range(8):
                with T.sblock("compare"):
                    v = T.axis.spatial(8, i)
                    y[v] = x[v] < x[v] + T.int64(1)

    text = guarded(Module, {"kind": "cuda", "arch": "sm_90"}).script()
    assert 'T.Cast("uint64", x[v]) + T.uint64(1)' in text
    assert "int128" not in text


def test_the_host_of_cuda_computes_shapes_as_a_cpu():
    """For LLVM, TVM marks arithmetic without sign as never wrapping around."""

    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def main(heap: T.Buffer((2,), "int64")):
            T.func_attr({"tirx.is_host_func": True})
            heap[1] = (heap[0] + T.int64(-1) - heap[0]) // T.int64(2)

    mod = guarded(Module, {"kind": "cuda", "arch": "sm_90"})
    tvm.ir.assert_structural_equal(mod, guarded(Module, "llvm"))
    heap = tvm.runtime.tensor(np.array([3, 0]))
    tvm.compile(mod, "llvm")["main"](heap)
    np.testing.assert_array_equal(heap.numpy(), [3, -1])


def test_cuda_writes_the_smallest_int32_as_one():
    """In C, -2147483648 has 64 bits, and no ``min`` takes numbers of two types."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def least(x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "int32")) -> None:
            for i in range(8):
                with T.sblock("least"):
                    v = T.axis.spatial(8, i)
                    y[v] = T.min(T.bitwise_xor(x[v], T.int32(-2147483648)), x[v])

    text = guarded(Module, {"kind": "cuda", "arch": "sm_90"}).script()
    assert "BitwiseNot(2147483647)" in text or "bitwise_not(2147483647)" in text
    assert "-2147483648" not in text
    assert "-2147483648" in guarded(Module).script()


NARROW = ["int8", "uint8", "uint16", "int16"]


@pytest.mark.parametrize("dtype", NARROW if is_full() else NARROW[::2])
def test_cuda_computes_narrow_integers_as_c(dtype):
    """C's arithmetic on fewer than 32 bits has 32."""
    x, a = extremes(dtype)
    steps = {
        "sum": lambda x, a, o: o.greater(o.add(x, a), a),
        "product": lambda x, a, o: o.greater(o.multiply(o.multiply(x, a), a), x),
        "shift": lambda x, a, o: o.right_shift(o.left_shift(x, a), a),
        "not": lambda x, a, o: o.right_shift(o.bitwise_not(x), a),
        "quotient": lambda x, a, o: o.maximum(o.floor_divide(x, a), a),
    }
    for name, step in steps.items():
        right = a % 7 if name in ("shift", "not") else np.where(a == 0, 1, a).astype(dtype)
        types = {"x": tensor(*x.shape, dtype=dtype), "a": tensor(*x.shape, dtype=dtype)}
        mod = build(types, lambda builder, x, a, own=step: builder.emit(own(x, a, op)))
        with np.errstate(over="ignore"):
            wanted = step(x, right, _Numpy())
        np.testing.assert_array_equal(run_on_gpu(mod, x, right), wanted, err_msg=name)


SHIFTED = list(product(["llvm", "native", "cuda"], ["int32", "int64"]))


@pytest.mark.parametrize(("target", "dtype"), SHIFTED if is_full() else SHIFTED[1::2])
def test_a_shift_beyond_the_dtype_wraps_around(target, dtype):
    """TVM bounds ``100 << (x & 31)`` below by 100."""
    x = np.arange(64).astype(dtype)

    def shifted(x, c, o):
        return o.maximum(o.left_shift(c(100), o.bitwise_and(x, c(bits - 1))), c(1))

    bits = np.iinfo(dtype).bits
    mod = build(
        {"x": tensor(64, dtype=dtype)},
        lambda builder, x: builder.emit(shifted(x, lambda n: relax.const(n, dtype), op)),
    )
    if target == "cuda":
        got = run_on_gpu(mod, x)
    else:
        got = run(mod, x, target=resolve(target), pipeline=pipeline())
    np.testing.assert_array_equal(got, shifted(x, np.dtype(dtype).type, np))


def test_cuda_guards_what_a_negation_of_bits_reads():
    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def compare(x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "bool")) -> None:
            for i in range(8):
                with T.sblock("compare"):
                    v = T.axis.spatial(8, i)
                    y[v] = T.bitwise_not(x[v] - 7) > 0

    text = guarded(Module, {"kind": "cuda", "arch": "sm_90"}).script()
    assert 'T.Cast("int64", x[v]) - T.int64(7)' in text


if __name__ == "__main__":
    tvm.testing.main()
