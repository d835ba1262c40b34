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
"""ScheduleReductions: numbers, and kernels that stay unchanged."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax.transform import LegalizeOps
from tvm_ffi import structural_walk

from helpers.conv_cases import numpy_dtype
from helpers.grids import batched, few, is_full
from helpers.lowering import lowered_before
from helpers.relax_modules import build, call, merge, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.lowering import stages
from tvm_fixes.support import switches
from tvm_fixes.tirx.transform import ScheduleReductions
from tvm_fixes.tirx.transform.schedule_reductions import FIX_ID

CPU = tvm.target.Target("llvm")
NORMS = ("layer_norm", "group_norm", "instance_norm", "rms_norm")
REDUCTIONS = ("sum", "mean", "max", "min")
OPERATORS = ("softmax", "log_softmax", *NORMS, *REDUCTIONS)
# One element, primes, and sizes around a vector.
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 67)
GROUPS = 3
EPSILON = 1e-5
ERROR = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}


@dataclass(frozen=True)
class Case:
    """An operator, between element-wise operators if it `is_fused`."""

    operator: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: str = "float32"
    dynamic: tuple[int, ...] = ()
    mean: float = 0.0
    is_fused: bool = False

    @property
    def parameter_axes(self) -> tuple[int, ...]:
        """The axes of a norm's parameters."""
        return (1,) if self.operator in ("group_norm", "instance_norm") else self.axes

    def parameter(self) -> np.ndarray:
        shape = [self.shape[axis] for axis in self.parameter_axes]
        values = np.linspace(0.5, 1.5, math.prod(shape)).reshape(shape)
        return values.astype(numpy_dtype(self.dtype))

    def data(self) -> np.ndarray:
        values = np.random.default_rng(len(self.shape)).normal(self.mean, 1, self.shape)
        return values.astype(numpy_dtype(self.dtype))

    def module(self) -> tvm.IRModule:
        shape = [
            tirx.Var(f"d{axis}", "int64") if axis in self.dynamic else extent
            for axis, extent in enumerate(self.shape)
        ]
        inputs = {"x": tensor(*shape, dtype=self.dtype)}
        if self.operator in NORMS:
            known = [self.shape[axis] for axis in self.parameter_axes]
            inputs["gamma"] = tensor(*known, dtype=self.dtype)
        return build(inputs, self.emit)

    def emit(self, builder: relax.BlockBuilder, x: relax.Var, *gamma: relax.Var) -> relax.Expr:
        op, nn = relax.op, relax.op.nn
        half = relax.const(0.5, self.dtype)
        x = builder.emit(op.multiply(x, half)) if self.is_fused else x
        spatial, axes = list(range(2, len(self.shape))), list(self.axes)
        result = builder.emit(
            {
                "softmax": lambda: nn.softmax(x, axes[0]),
                "log_softmax": lambda: nn.log_softmax(x, axes[0]),
                "layer_norm": lambda: nn.layer_norm(x, *gamma, *gamma, axes),
                "rms_norm": lambda: nn.rms_norm(x, *gamma, axes),
                "instance_norm": lambda: nn.instance_norm(x, *gamma, *gamma, 1, spatial),
                "group_norm": lambda: nn.group_norm(x, *gamma, *gamma, GROUPS, 1, spatial),
            }.get(self.operator, lambda: getattr(op, self.operator)(x, axes))()
        )
        return builder.emit(op.add(op.abs(result), half)) if self.is_fused else result

    def reference(self) -> np.ndarray:
        x = torch.tensor(self.data().astype("float64"))
        x = 0.5 * x if self.is_fused else x
        spatial, axes = list(range(2, len(self.shape))), list(self.axes)
        if self.operator in ("softmax", "log_softmax"):
            result = getattr(torch.nn.functional, self.operator)(x, axes[0])
        elif self.operator in REDUCTIONS:
            name = {"max": "amax", "min": "amin"}.get(self.operator, self.operator)
            result = getattr(x, name)(axes)
        else:
            rest = [axis for axis in range(x.ndim) if axis not in self.parameter_axes]
            gamma = torch.tensor(np.expand_dims(self.parameter().astype("float64"), rest))
            averaged = axes if self.operator in ("layer_norm", "rms_norm") else spatial
            if self.operator == "rms_norm":
                square = (x * x).mean(averaged, keepdim=True)
                result = x / torch.sqrt(square + EPSILON) * gamma
            else:
                grouped = x
                if self.operator == "group_norm":
                    grouped = x.reshape(x.shape[0], GROUPS, -1)
                    averaged = [2]
                variance, mean = torch.var_mean(grouped, averaged, correction=0, keepdim=True)
                scaled = (grouped - mean) / torch.sqrt(variance + EPSILON)
                result = scaled.reshape(x.shape) * gamma + gamma
        return (result.abs() + 0.5 if self.is_fused else result).numpy()

    def arguments(self) -> list[np.ndarray]:
        return [self.data(), *([self.parameter()] if self.operator in NORMS else [])]


def assert_computes(cases: list[Case]) -> None:
    """Compare all `cases`, in one module, with PyTorch in float64."""
    modules = {f"case{index}": case.module() for index, case in enumerate(cases)}
    executable = relax.build(merge(modules), "llvm", relax_pipeline=pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for name, case in zip(modules, cases, strict=True):
        expected = case.reference()
        # With cancellation, the error is relative to the summands.
        scale = max(np.abs(expected).max(), case.operator == "sum" and np.abs(case.data()).sum())
        got = call(vm, name, *case.arguments()).astype("float64")
        assert got.shape == expected.shape, case
        assert np.abs(got - expected).max() <= ERROR[case.dtype] * scale, case


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    operator = draw(st.sampled_from(OPERATORS))
    rank = draw(st.integers(3 if operator in ("group_norm", "instance_norm") else 1, 4))
    shape = [draw(st.sampled_from(EXTENTS)) for _ in range(rank)]
    for axis in range(rank):
        if math.prod(shape) > 1 << 16:
            shape[axis] = 2
    if operator == "group_norm":
        shape[1] = GROUPS * draw(st.integers(1, 6))
    if operator == "instance_norm":
        # With a single element, the result is only a rounding error.
        shape[-1] += 2
    axes = sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1)))
    if operator in ("softmax", "log_softmax"):
        axes = axes[:1]
    fixed = (1,) if operator in ("group_norm", "instance_norm") else axes
    dynamic = {axis for axis in range(rank) if axis not in fixed or operator not in NORMS}
    dtype = draw(st.sampled_from(sorted(ERROR)))
    if operator == "group_norm" and dtype == "bfloat16":
        # Type inference rejects that.
        dtype = "float16"
    return Case(
        operator,
        tuple(shape),
        tuple(axes),
        dtype,
        tuple(dynamic & draw(st.sets(st.integers(0, 3)))),
        is_fused=draw(st.booleans()),
    )


BATCH = 5 if is_full() else 2


@batched(5 if is_full() else 10)
@given(cases=st.lists(random_cases(), min_size=BATCH, max_size=BATCH))
def test_random(cases: list[Case]) -> None:
    assert_computes(cases)


def test_large_mean() -> None:
    """A mean that is large relative to the deviation."""
    assert_computes(
        [
            Case("layer_norm", (3, 768), (1,), mean=1000.0, dtype="float64"),
            Case("sum", (5, 1000), (1,), mean=1000.0),
            Case("mean", (1000, 5), (0,), mean=1000.0),
        ]
    )
    case = Case("layer_norm", (3, 768), (1,), mean=1000.0)
    got = run(case.module(), *case.arguments(), pipeline=pipeline())
    np.testing.assert_allclose(got, case.reference(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extent", [1, 3, 16, 37] if is_full() else [1, 37])
def test_nan_and_infinity(extent: int) -> None:
    rows = np.zeros((4, extent), "float32")
    rows[0] = -np.inf
    rows[1, extent // 2] = np.nan
    rows[2, -1] = np.inf
    rows[3, 0] = -np.inf
    operators = {
        "softmax": (relax.op.nn.softmax, torch.softmax),
        "max": (relax.op.max, torch.amax),
        "sum": (relax.op.sum, torch.sum),
    }
    n, m = (tirx.Var(name, "int64") for name in "nm")
    for emit, reference in operators.values():
        for shape in ((4, extent), (n, m)):
            mod = build({"x": tensor(*shape)}, lambda _builder, x, emit=emit: emit(x, 1))
            got = run(mod, rows, pipeline=pipeline())
            np.testing.assert_array_equal(got, reference(torch.tensor(rows), 1).numpy())


@few(1)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_no_elements(shape: tuple[int, int]) -> None:
    n, m = (tirx.Var(name, "int64") for name in "nm")
    for known in (shape, (n, m)):
        total = build({"x": tensor(*known)}, lambda _builder, x: relax.op.sum(x, 1))
        got = run(total, np.zeros(shape, "float32"), pipeline=pipeline())
        np.testing.assert_array_equal(got, np.zeros(shape[0], "float32"))
        softmax = build({"x": tensor(*known)}, lambda _builder, x: relax.op.nn.softmax(x, 1))
        assert run(softmax, np.zeros(shape, "float32"), pipeline=pipeline()).shape == shape


def test_a_sum_of_16_bits_does_not_stop() -> None:
    mod = build({"x": tensor(4096, dtype="float16")}, lambda _builder, x: relax.op.sum(x))
    assert run(mod, np.ones(4096, "float16"), pipeline=pipeline()) == 4096


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_a_logarithm_of_16_bits_in_front_of_a_cast(dtype: str) -> None:
    """After TVM's bfloat16 pass, a bfloat16 variable and its value differ in dtype."""
    mod = build(
        {"x": tensor(3, 21, dtype=dtype)},
        lambda builder, x: relax.op.astype(builder.emit(relax.op.nn.log_softmax(x)), "float32"),
    )
    x = (np.arange(63).reshape(3, 21) % 5).astype(numpy_dtype(dtype))
    wide = x.astype("float32")
    want = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    np.testing.assert_allclose(run(mod, x, pipeline=pipeline()), want, atol=0.05)


def test_integers() -> None:
    mod = build({"x": tensor(3, 37, dtype="int32")}, lambda _builder, x: relax.op.sum(x, 1))
    x = np.arange(3 * 37, dtype="int32").reshape(3, 37)
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), x.sum(1))


def test_two_results() -> None:
    """A kernel with two results is unchanged and correct."""

    def emit(_builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        total = relax.op.sum(x, 1, keepdims=True)
        return relax.Tuple([total, relax.op.subtract(x, total)])

    x = np.random.default_rng(0).normal(size=(5, 37)).astype("float32")
    total, rest = run(build({"x": tensor(5, 37)}, emit), x, pipeline=pipeline())
    np.testing.assert_allclose(total, x.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(rest, x - x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_a_masked_softmax() -> None:
    def emit(builder: relax.BlockBuilder, x: relax.Var, mask: relax.Var) -> relax.Expr:
        lowest = relax.const(-np.inf, "float32")
        return relax.op.nn.softmax(builder.emit(relax.op.where(mask, x, lowest)), -1)

    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(3, 4, 37)).astype("float32"), rng.random((4, 37)) < 0.5
    mod = build({"x": tensor(3, 4, 37), "mask": tensor(4, 37, dtype="bool")}, emit)
    masked = torch.tensor(x).masked_fill(~torch.tensor(mask), -torch.inf)
    expected = torch.softmax(masked, -1).numpy()
    np.testing.assert_allclose(run(mod, x, mask, pipeline=pipeline()), expected, rtol=1e-5)


def vectorized_loops(mod: tvm.IRModule) -> int:
    """The number of vectorized loops in its kernels."""
    kinds: list[int] = []
    for function in mod.functions.values():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (tirx.For, lambda loop: kinds.append(loop.kind)))
    return kinds.count(tirx.ForKind.VECTORIZED)


def legalized() -> tvm.IRModule:
    return LegalizeOps()(Case("softmax", (4, 64), (1,)).module())


def test_for_a_cpu_alone() -> None:
    mod = legalized()
    for target in (CPU, tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host="llvm")):
        with target:
            scheduled = ScheduleReductions()(mod)
        assert (vectorized_loops(scheduled) > 0) == (target is CPU)
    tvm.ir.assert_structural_equal(ScheduleReductions()(mod), mod)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    with CPU:
        tvm.ir.assert_structural_equal(ScheduleReductions()(legalized()), legalized())


def test_scheduled_kernels_are_kept() -> None:
    with CPU:
        once = ScheduleReductions()(legalized())
        tvm.ir.assert_structural_equal(ScheduleReductions()(once), once)


def test_a_reduction_that_fits_no_vector_is_kept() -> None:
    """Vectors of two float64 lanes; extents may be 0."""
    cases = [
        Case("mean", (15, 2, 32), (1,), "float64", (0, 1, 2)),
        Case("mean", (97, 3), (1,), "float64", (0, 1), is_fused=True),
    ]
    assert_computes(cases)
    mod = LegalizeOps()(cases[0].module())
    with CPU:
        tvm.ir.assert_structural_equal(ScheduleReductions()(mod), mod)


@pytest.mark.parametrize("batch", [(), (1,)])
def test_rows_that_are_padded(batch: tuple[int, ...]) -> None:
    """Each row is reduced once, not once for each of its elements."""
    shape = (*batch, 3, 50, 457)

    def emit(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = builder.emit(relax.op.nn.softmax(x))
        scale, zero = relax.const(1 / 255, "float32"), relax.const(0, "uint8")
        y = builder.emit(relax.op.quantize(y, scale, zero, 0, "uint8"))
        return relax.op.nn.pad(y, [0, 0] * (len(shape) - 1) + [0, 1])

    mod, lowering = build({"x": tensor(*shape)}, emit), stages()
    with CPU:
        lowered = lowered_before(mod, lowering, "Lower")
    [kernel] = [f for _, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)]
    parallel: list[int] = []

    def look(loop: tirx.For) -> None:
        if loop.kind == tirx.ForKind.PARALLEL:
            parallel.append(int(loop.extent))

    structural_walk(kernel.body, (tirx.For, look))
    assert parallel == [3 * 50]
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    expected = np.round(torch.softmax(torch.from_numpy(x), -1).numpy() * 255)
    got = run(mod, x, pipeline=pipeline())
    assert np.abs(got[..., :-1].astype("float32") - expected).max() <= 1
    assert not got[..., -1].any()


def test_windows_are_kept() -> None:
    """Adjacent windows overlap or have gaps."""
    mod = LegalizeOps()(
        build({"x": tensor(1, 4, 16, 16)}, lambda _builder, x: relax.op.nn.avg_pool2d(x, (2, 2)))
    )
    with CPU:
        tvm.ir.assert_structural_equal(ScheduleReductions()(mod), mod)


def test_functions_of_functions_behind_a_reduction():
    """The last function depends only on the one before it, so its elements are not rows."""

    def emit(builder, x):
        x = builder.emit(relax.op.tanh(builder.emit(relax.op.nn.softmax(x, -1))))
        return relax.op.tanh(x)

    x = np.random.default_rng(0).standard_normal((5, 16)).astype("float32")
    exponentials = np.exp(x.astype("float64"))
    expected = np.tanh(np.tanh(exponentials / exponentials.sum(-1, keepdims=True)))
    got = run(build({"x": tensor(5, 16)}, emit), x, pipeline=pipeline())
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_sum_whose_rows_all_have_one_element() -> None:
    """The sum is followed by an operator that reads a scalar."""

    def emit(builder, x, divisor):
        mean = builder.emit(relax.op.mean(x, [0, 1], keepdims=True))
        return relax.op.floor_mod(mean, divisor)

    mod = build({"x": tensor(1, 2, 2), "divisor": tensor()}, emit)
    x, divisor = np.array([[[-1, 4], [0, -9]]], "float32"), np.array(1.75, "float32")
    got = run(mod, x, divisor, pipeline=pipeline())
    np.testing.assert_array_equal(got, np.mod(x.mean((0, 1), keepdims=True), divisor))


def test_axes_of_which_one_has_no_elements() -> None:
    """The fused loop has no iterations, and must not divide to compute positions."""
    op, outputs = relax.op, ("sum", "max")
    n = tirx.Var("n", "int64")
    mod = build(
        {"x": tensor(n, 0)},
        lambda builder, x: builder.emit(
            relax.Tuple([getattr(op, name)(x, [0, 1], keepdims=True) for name in outputs])
        ),
    )
    total, largest = run(mod, np.zeros((3, 0), "float32"), pipeline=pipeline())
    assert total == [[0]] and largest == [[-np.inf]]


AXES = ([0], [1, 2], [0, 1], [0, 1, 2])


@pytest.mark.parametrize("axes", AXES if is_full() else AXES[:1])
def test_an_intermediate_of_symbolic_extents(axes: list[int]) -> None:
    """FlattenBuffer needs the extents of an intermediate buffer before the loops over it."""
    k, n = tirx.Var("k", "int64"), tirx.Var("n", "int64")

    def emit(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = builder.emit(relax.op.exp(builder.emit(relax.op.tanh(x))))
        return relax.op.sum(
            builder.emit(relax.op.multiply(y, builder.emit(relax.op.tanh(y)))), axes
        )

    mod = build({"x": tensor(k, n, n)}, emit)
    for extent in (1, 3, 18):
        x = np.random.default_rng(0).standard_normal((2, extent, extent)).astype("float32")
        y = np.exp(np.tanh(x.astype("float64")))
        got = run(mod, x, pipeline=pipeline())
        np.testing.assert_allclose(got, (y * np.tanh(y)).sum(tuple(axes)), rtol=1e-5)


@pytest.mark.parametrize("extent", [20, 40])
def test_rounding_errors_of_a_sum_over_symbolic_axes(extent: int) -> None:
    """The summands of a row that are in no whole part are a part of their own."""
    shape = [tirx.Var("n", "int64"), tirx.Var("m", "int64"), 9]
    mod = build({"x": tensor(*shape)}, lambda _builder, x: relax.op.sum(x, [0, 1]))
    got = run(mod, np.full((200_000 // extent, extent, 9), 0.1, "float32"), pipeline=pipeline())
    np.testing.assert_allclose(got, 200_000 * float(np.float32(0.1)), rtol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
