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
import re
import time
from collections.abc import Callable, Iterable, Sequence

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, s_tir, te, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers import grids
from helpers.relax_modules import build, call, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.tirx.transform import ApplyGpuSchedule, LowerElementaryFunctions, ScheduleElementwise

torch = pytest.importorskip("torch")

CHUNK = 1 << 20

# Targets with and without fused multiply-add, which round differently.
TARGETS = ("native", "llvm")

# The largest error, in units in the last place of float32.
FUNCTIONS: dict[str, tuple[Callable[..., tirx.Expr], float]] = {
    "exp": (tirx.exp, 1.1),
    "erf": (tirx.erf, 4),
    "tanh": (tirx.tanh, 2),
    "sigmoid": (tirx.sigmoid, 3),
    "log": (tirx.log, 1),
    "sin": (tirx.sin, 1.6),
    "cos": (tirx.cos, 1.6),
    "atan": (tirx.atan, 0.6),
}

# Functions of two numbers.
PAIRS: dict[str, tuple[Callable[..., tirx.Expr], float]] = {
    "atan2": (tirx.atan2, 0.6),
    # Exact.
    "fmod": (tirx.truncmod, 1e-3),
}

BF16 = "bfloat16"
HALVES = ("float16", BF16)


def pairs(names: Iterable[str], others: Sequence[str]) -> list[tuple[str, str]]:
    """Each name with each of the others; below the full tier with one of them, in turn."""
    if grids.is_full():
        return list(itertools.product(names, others))
    return list(zip(names, itertools.cycle(others)))


def lower(mod: tvm.IRModule, target: str = "llvm") -> tvm.IRModule:
    with tvm.target.Target(target):
        return LowerElementaryFunctions()(mod)


def kernel(
    function: Callable[..., tirx.Expr], target: str, operands: int = 1, vectors: bool = False
) -> Callable[..., np.ndarray]:
    """The function of :data:`CHUNK` elements of float32, compiled; in `vectors` if set."""
    inputs = [te.placeholder((CHUNK,), "float32", name=f"x{i}") for i in range(operands)]
    y = te.compute((CHUNK,), lambda i: function(*(x[i] for x in inputs)), name="y")
    mod = tvm.IRModule({"main": te.create_prim_func([*inputs, y])})
    resolved = resolve(target)
    with resolved:
        scheduled = ScheduleElementwise()(mod) if vectors else mod
        compiled = tvm.compile(LowerElementaryFunctions()(scheduled), target=resolved)

    def compute(*data: np.ndarray) -> np.ndarray:
        out = tvm.runtime.empty((CHUNK,), "float32")
        compiled(*map(tvm.runtime.tensor, data), out)
        return out.numpy()

    return compute


def truth(name: str, *data: np.ndarray) -> np.ndarray:
    """PyTorch's result in float64."""
    with np.errstate(invalid="ignore"):
        wide = [torch.from_numpy(part.astype("float64")) for part in data]
        return getattr(torch, name)(*wide).numpy()


def error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """The error of `got` in ulp of float32; infinite if only one side is NaN."""
    with np.errstate(all="ignore"):
        rounded = want.astype("float32")
        off = np.abs(got - want) / np.spacing(np.abs(rounded)).astype("float64")
    same = (got == rounded) & np.isinf(rounded) | np.isnan(got) & np.isnan(rounded)
    return np.where(same, 0, np.where(np.isnan(off), np.inf, off))


@grids.few(3)
@pytest.mark.parametrize(("name", "target"), pairs(FUNCTIONS, TARGETS))
def test_the_error_is_less_than_what_is_stated(name, target):
    """Numbers of every exponent and sign, including infinities and NaN."""
    function, most = FUNCTIONS[name]
    compute = kernel(function, target)
    step = 64 if grids.is_full() else 2048
    bits = np.arange(0, 1 << 32, step, dtype="uint64").astype("uint32")
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 88.7228, -103.9, 59.306038], "float32")
    bits[: len(special)] = special.view("uint32")
    for begin in range(0, len(bits), CHUNK):
        data = bits[begin : begin + CHUNK].view("float32")
        got = compute(data)
        want = truth(name, data)
        off = error(got, want)
        worst = off.argmax()
        assert off[worst] < most, (data[worst], got[worst], want[worst])
        zeros = (got == 0) & (np.abs(want) < np.finfo("float32").smallest_subnormal / 2)
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


SPECIAL = np.array(
    [0, 1e-45, 1e-38, 1e-3, 0.5, 1, 1.5, 2, 3, 1e3, 2**20, 2**20 + 1, 1e9, 3e38, np.inf, np.nan],
    "float32",
)


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize(("name", "target"), pairs(PAIRS, TARGETS))
def test_the_error_for_two_numbers(name, target, vectors):
    function, most = PAIRS[name]
    compute = kernel(function, target, 2, vectors)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 1 << 32, (2, CHUNK), "uint32").view("float32")
    # Half of them are close to each other, where the quotients are neither tiny nor huge.
    with np.errstate(all="ignore"):
        y[::2] = x[::2] * rng.normal(size=CHUNK // 2).astype("float32")
    special = np.concatenate([SPECIAL, -SPECIAL])
    pairs = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    x[: pairs.shape[1]], y[: pairs.shape[1]] = pairs
    got, want = compute(x, y), truth(name, x, y)
    off = error(got, want)
    worst = off.argmax()
    assert off[worst] < most, (x[worst], y[worst], got[worst], want[worst])
    zeros = (got == 0) & (want == 0)
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_vectors_with_large_numbers_are_computed_one_by_one(name):
    """Whole vectors of small, of large and of mixed numbers."""
    compute = kernel(FUNCTIONS[name][0], "native", vectors=True)
    data = np.linspace(-3e6, 3e6, CHUNK).astype("float32")
    data[::3001] = 1e30
    assert error(compute(data), truth(name, data)).max() < FUNCTIONS[name][1]


def test_only_elements_that_a_choice_computes_are_read():
    """The last lanes are behind the end of the data; one other lane has a large number."""

    @I.ir_module
    class Module:
        @T.prim_func
        def main(x: T.Buffer((6,), "float32"), y: T.Buffer((8,), "float32")):
            for lane in T.vectorized(8):
                y[lane] = T.if_then_else(lane < 6, T.sin(x[lane]), T.float32(2))

    lowered = lower(Module)
    choice = 'T.Cast("int32", T.if_then_else(lane < 6, T.fabs(x[lane]) > '
    assert re.findall(r"is_outside \| (.*> )", lowered.script()) == [choice]
    data = np.array([0.5, 1e30, 3, -2, 1, 0], "float32")
    got = tvm.runtime.empty((8,), "float32")
    tvm.compile(lowered, target="llvm")(tvm.runtime.tensor(data), got)
    want = [*np.sin(data.astype("float64")), 2, 2]
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_passes_over_a_polynomial_take_no_longer():
    """TVM's analyzer puts values in place of variables that are read; erf reads one 16 times."""

    def seconds(function: Callable[..., tirx.Expr]) -> float:
        x = te.placeholder((64,), "float32", name="x")
        y = te.compute((64,), lambda i: function(x[i] + x[0]), name="y")
        mod = lower(tvm.IRModule({"main": te.create_prim_func([x, y])}))
        for lowering in (s_tir.transform.ConvertBlocksToOpaque, s_tir.transform.LowerOpaqueBlock):
            mod = lowering()(mod)
        times = []
        for _ in range(5):
            begin = time.process_time()
            tirx.transform.FlattenBuffer()(mod)
            times.append(time.process_time() - begin)
        return min(times)

    assert seconds(tirx.erf) < 10 * seconds(tirx.exp)


@pytest.mark.parametrize("target", TARGETS)
def test_isnan_compares_bits(target):
    compute = kernel(lambda x: tirx.isnan(x).astype("float32"), target, vectors=True)
    data = np.resize(np.concatenate([SPECIAL, -SPECIAL]), CHUNK)
    # NaN of either sign, quiet and signaling.
    data.view("uint32")[:4] = 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF
    np.testing.assert_array_equal(compute(data), np.isnan(data).astype("float32"))


def test_remainders_follow_the_sign_of_the_divisor():
    """A remainder by Python's rule compares and adds to one by C's rule."""
    divisor = relax.const(1.5, "float32")
    mod = build({"x": tensor(64, 64)}, lambda _, x: relax.op.floor_mod(x, divisor))
    data = np.linspace(-40, 40, 64 * 64).astype("float32").reshape(64, 64)
    got = run(mod, data, pipeline=pipeline(), target="llvm")
    np.testing.assert_array_equal(got, np.remainder(data, np.float32(1.5)))


@pytest.mark.parametrize("divisor", [0.0, -0.0, np.inf, np.nan])
def test_remainders_by_special_constants(divisor):
    constant = relax.const(np.float32(divisor))
    mod = build({"x": tensor(len(SPECIAL))}, lambda _, x: relax.op.mod(x, constant))
    got = run(mod, SPECIAL, pipeline=pipeline(), target="llvm")
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, np.fmod(SPECIAL, np.float32(divisor)))


def test_small_powers_are_products():
    @I.ir_module
    class Before:
        @T.prim_func
        def main(
            x: T.Buffer((4,), "float32", layout=None), y: T.Buffer((4,), "float32", layout=None)
        ):
            for i in range(4):
                y[i] = T.pow(x[i], T.float32(3)) + T.pow(x[i], T.float32(2))

    @I.ir_module
    class Expected:
        @T.prim_func
        def main(
            x: T.Buffer((4,), "float32", layout=None), y: T.Buffer((4,), "float32", layout=None)
        ):
            for i in range(4):
                a = T.float32()
                b = T.float32()
                y[i] = T.Let(
                    a * a * a, where={a: T.reinterpret("float32", T.reinterpret("int32", x[i]))}
                ) + T.Let(b * b, where={b: T.reinterpret("float32", T.reinterpret("int32", x[i]))})

    tvm.ir.assert_structural_equal(lower(Before), Expected)


def test_indices_of_logarithms():
    """A logarithm that is cast to an index, as for buckets of positions."""

    def buckets(_: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        log = relax.op.log(relax.op.astype(x, "float32"))
        index = relax.op.astype(log * relax.const(2, "float32"), "int64") + relax.const(4, "int64")
        capped = relax.op.minimum(index, relax.const(7, "int64"))
        return relax.op.where(relax.op.less(x, relax.const(4, "int64")), x, capped)

    x = np.arange(1, 9)
    expected = np.where(x < 4, x, np.minimum((2 * np.log(x)).astype("int64") + 4, 7))
    got = run(build({"x": tensor(8, dtype="int64")}, buckets), x, pipeline=pipeline())
    np.testing.assert_array_equal(got, expected)


def test_functions_of_booleans():
    """TVM knows the result of comparisons with a boolean, and cannot write it as a vector."""

    def means(_: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        equal = relax.op.equal(x, relax.const(-3, "float32"))
        return relax.op.mean(relax.op.tanh(relax.op.astype(equal, "float32")), 0, keepdims=True)

    x = np.arange(-6, 14, dtype="float32").reshape(5, 4)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
    n, m = (tirx.Var(name, "int64") for name in "nm")
    got = run(build({"x": tensor(n, m)}, means), x, pipeline=pipeline(), target=target)
    np.testing.assert_allclose(
        got, np.tanh((x == -3).astype(x.dtype)).mean(0, keepdims=True), rtol=1e-6
    )


@I.ir_module
class Exp:
    @T.prim_func
    def main(x: T.Buffer((4,), "float32", layout=None)):
        for i in range(4):
            x[i] = T.exp(x[i])


def test_other_powers_other_dtypes_and_other_machines_are_kept():
    @I.ir_module
    class Before:
        @T.prim_func
        def main(
            x: T.Buffer((4,), "float32", layout=None), y: T.Buffer((4,), "float64", layout=None)
        ):
            for i in range(4):
                x[i] = T.pow(x[i], x[0]) + T.pow(x[i], T.float32(4))
                y[i] = T.exp(y[i])

    assert lower(Before).same_as(Before)

    assert LowerElementaryFunctions()(Exp).same_as(Exp)
    assert lower(Exp, "cuda").same_as(Exp)
    assert not lower(Exp).same_as(Exp)


def test_the_switch_leaves_the_functions(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", "elementary-functions")
    assert lower(Exp).same_as(Exp)


OPERATORS = {
    "gelu": (relax.op.nn.gelu, torch.nn.functional.gelu),
    "silu": (relax.op.nn.silu, torch.nn.functional.silu),
    "tanh": (relax.op.tanh, torch.tanh),
    "cube": (lambda x: relax.op.power(x, relax.const(3, "float32")), lambda x: x**3),
    # Nested functions, which are not computed in one expression.
    "tanh of sigmoid of erf": (
        lambda x: relax.op.tanh(relax.op.sigmoid(relax.op.erf(x))),
        lambda x: torch.tanh(torch.sigmoid(torch.erf(x))),
    ),
    "sum of exp of sigmoid": (
        lambda x: relax.op.sum(relax.op.exp(relax.op.sigmoid(x)), 1),
        lambda x: torch.exp(torch.sigmoid(x)).sum(1),
    ),
    "softmax": (lambda x: relax.op.nn.softmax(x, -1), lambda x: torch.softmax(x, -1)),
}


@grids.few(3)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_those_of_pytorch(name):
    emit, expected = OPERATORS[name]
    mod = build({"x": tensor(7, 33)}, lambda builder, x: emit(x))
    data = np.random.default_rng(0).standard_normal((7, 33), "float32") * 4
    data[0, :3] = np.inf, -np.inf, np.nan
    data[1, 0], data[2, 0] = -np.inf, np.nan
    got = run(mod, data, pipeline=pipeline(), target="llvm")
    want = expected(torch.from_numpy(data.astype("float64"))).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@grids.few(3)
@pytest.mark.parametrize(("name", "dtype"), pairs(FUNCTIONS, HALVES))
def test_16_bits_are_computed_in_32(dtype, name):
    emit = relax.op.sigmoid if name == "sigmoid" else getattr(relax.op, name)
    numbers = np.append(np.linspace(-20, 20, 1001), [-0.0, 1e-3, 1e-5, -1e-6, np.inf]).astype(
        ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    )
    mod = build({"x": tensor(len(numbers), dtype=dtype)}, lambda builder, x: emit(x))
    got = run(mod, numbers, pipeline=pipeline(), target="llvm")
    with np.errstate(over="ignore"):
        want = truth(name, numbers).astype(numbers.dtype)
    # NumPy does not know that a NaN of bfloat16 is one.
    got, want = got.astype("float32"), want.astype("float32")
    np.testing.assert_array_equal(got, want)
    is_number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[is_number]), np.signbit(want[is_number]))


@pytest.mark.parametrize(
    "name",
    ["gelu", "gelu_tanh", "silu", "sigmoid", "tanh"] if grids.is_full() else ["gelu", "silu"],
)
def test_bfloat16_behind_a_convolution(name):
    """A convolution's tiles are stored as vectors, for which TVM cannot round these functions."""
    emit = getattr(relax.op if name in ("sigmoid", "tanh") else relax.op.nn, name)
    inputs = {
        "x": tensor(1, 16, 14, 14, dtype="bfloat16"),
        "w": tensor(32, 16, 3, 3, dtype="bfloat16"),
    }
    mod = build(inputs, lambda bb, x, w: emit(bb.emit(relax.op.nn.conv2d(x, w, padding=1))))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 14, 14)).astype(ml_dtypes.bfloat16)
    w = (rng.standard_normal((32, 16, 3, 3)) / 12).astype(ml_dtypes.bfloat16)
    executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
    got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x, w)
    wide = torch.nn.functional.conv2d(
        *(torch.from_numpy(a.astype("float64")) for a in (x, w)), padding=1
    )
    functions = {
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": lambda a: torch.nn.functional.gelu(a, approximate="tanh"),
        "silu": torch.nn.functional.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    }
    # The convolution is rounded, and each step of a gelu: half a unit is 2^-9.
    np.testing.assert_allclose(
        got.astype("float64"), functions[name](wide).numpy(), rtol=2**-6, atol=2**-6
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["cosh", "sinh"])
def test_functions_of_vectors(dtype, name):
    """After a convolution, in vectorized tiles; TVM has neither function on vectors."""
    inputs = {"x": tensor(1, 16, 8, 8, dtype=dtype), "w": tensor(16, 16, 3, 3, dtype=dtype)}
    emit = getattr(relax.op, name)
    mod = build(inputs, lambda bb, x, w: emit(bb.emit(relax.op.nn.conv2d(x, w))))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 8, 8)).astype(dtype)
    w = (rng.standard_normal((16, 16, 3, 3)) / 12).astype(dtype)
    executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
    got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x, w)
    wide = torch.nn.functional.conv2d(*(torch.from_numpy(a.astype("float64")) for a in (x, w)))
    np.testing.assert_allclose(got, getattr(torch, name)(wide).numpy(), rtol=1e-4, atol=1e-5)


def test_bfloat16_that_a_kernel_keeps_to_itself():
    """A bfloat16 intermediate between a float32 and a bfloat16 function."""

    def emit(builder, x, y):
        wide = builder.emit(relax.op.exp(builder.emit(relax.op.astype(x, "float32"))))
        product = builder.emit(relax.op.multiply(builder.emit(relax.op.astype(wide, BF16)), y))
        return relax.op.tanh(product)

    for shape in ((4, 17), (40, 256)):
        mod = build({name: tensor(*shape, dtype=BF16) for name in "xy"}, emit)
        rng = np.random.default_rng(0)
        x, y = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for _ in range(2))
        executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
        got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x, y)
        product = np.exp(x.astype("float32")).astype(ml_dtypes.bfloat16) * y
        np.testing.assert_allclose(
            got.astype("float64"), np.tanh(product.astype("float64")), rtol=2**-7, atol=2**-9
        )


@pytest.mark.parametrize("steps", [("asinh", "exp"), ("abs", "atan", "negative", "sigmoid")])
def test_bfloat16_behind_functions_of_float32(steps):
    """The functions read it inside the value of a Let."""

    def emit(builder, x):
        for step in steps:
            x = builder.emit(getattr(relax.op, step)(x))
        return x

    x = np.linspace(-4, 4, 64).astype(ml_dtypes.bfloat16)
    got = run(build({"x": tensor(64, dtype=BF16)}, emit), x, pipeline=pipeline(), target="llvm")
    want = torch.from_numpy(x.astype("float64"))
    for step in steps:
        want = getattr(torch, step)(want)
    # Each step may be rounded: half a unit is 2^-9.
    np.testing.assert_allclose(got.astype("float64"), want.numpy(), rtol=2**-6)


ROOTS = {"sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}
ROUNDING = {"round": np.round, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, **ROOTS}


@pytest.mark.parametrize("target", ["llvm", "native"])
def test_all_float16_are_rounded(target):
    """In float32: few CPUs have vectors of float16."""
    x = np.arange(1 << 16, dtype="uint16").view("float16")

    def emit(builder, x):
        return relax.Tuple([builder.emit(getattr(relax.op, name)(x)) for name in ROUNDING])

    mod = build({"x": tensor(1 << 16, dtype="float16")}, emit)
    got = run(mod, x, target=resolve(target), pipeline=pipeline())
    with np.errstate(invalid="ignore", divide="ignore"):
        for (name, function), values in zip(ROUNDING.items(), got, strict=True):
            expected = function(x.astype("float32")).astype("float16")
            np.testing.assert_array_equal(values, expected, err_msg=name)
            zeros = expected == 0
            np.testing.assert_array_equal(np.signbit(values[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_inverse_root_is_a_quotient(dtype):
    """LLVM has no intrinsic for vectors of inverse roots."""
    mod = build({"x": tensor(64, dtype=dtype)}, lambda _, x: relax.op.rsqrt(x))
    with resolve("native"):
        (kernel,) = (f for f in pipeline()(mod).functions.values() if isinstance(f, tirx.PrimFunc))
    assert "rsqrt" not in kernel.script().partition("(")[2].replace("tir_rsqrt", "")


def test_kernels_hold_no_call_of_the_c_library():
    mod = build({"x": tensor(64, 64)}, lambda builder, x: relax.op.nn.gelu(x))
    executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
    assembly = "".join(module.inspect_source("s") for module in executable.mod.imports)
    assert "gelu" in assembly
    assert "erff" not in assembly


@pytest.mark.parametrize(("name", "dtype"), pairs(("asinh", "sinh", "round", "mod"), HALVES))
def test_a_gpu_computes_in_float32_what_it_lacks_for_16_bits(dtype, name):
    """CUDA has no hsinh, and TVM's code generator no 16-bit remainder."""
    operator = getattr(relax.op, name)
    mod = build(
        {"x": tensor(5, dtype=dtype)}, lambda _, x: operator(*([x, x] if name == "mod" else [x]))
    )
    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host={"kind": "llvm"})
    with gpu:
        lowered = LowerElementaryFunctions()(relax.transform.LegalizeOps()(mod))
        [function] = [f for _, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)]
        assert 'T.Cast("float32"' in function.script()
        scheduled = ApplyGpuSchedule()(lowered)
    [kernel] = [f for _, f in scheduled.functions_items() if isinstance(f, tirx.PrimFunc)]
    assert kernel.attrs["tirx.is_scheduled"]


def test_a_gpu_computes_in_16_bits_what_it_can():
    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host={"kind": "llvm"})
    mod = build({"x": tensor(5, dtype="float16")}, lambda _, x: relax.op.exp(x))
    with gpu:
        before = relax.transform.LegalizeOps()(mod)
        tvm.ir.assert_structural_equal(LowerElementaryFunctions()(before), before)


if __name__ == "__main__":
    tvm.testing.main()
