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
"""Lowering of relax.nn.layer_norm, group_norm and instance_norm."""

import itertools
import math
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, LegalizeOps

import tvm_fixes
from helpers.conv_cases import numpy_dtype
from helpers.conv_checks import allocations
from helpers.grids import batched, few, is_full, sample
from helpers.relax_modules import UNOPTIMIZED_CPU, build, call, calls, merge, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.transform import FoldConstant
from tvm_fixes.support import switches

EPSILON = 1e-5
DTYPES = ("float16", "bfloat16", "float32", "float64")
EXTENTS = (3, 5, 2)


@dataclass(frozen=True)
class Norm:
    """One call. In a layer norm, the parameters' axes are the reduced ones."""

    operator: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    channel_axis: int = 1
    groups: int = 1
    dtype: str = "float32"
    mean: float = 0.0
    center: bool = True
    scale: bool = True
    dynamic: bool = False

    @property
    def parameter_axes(self) -> list[int]:
        axes = self.axes if self.operator == "layer_norm" else (self.channel_axis,)
        return [axis % len(self.shape) for axis in axes]

    @property
    def count(self) -> int:
        """The number of reduced elements."""
        members = math.prod(self.shape[axis] for axis in self.axes)
        if self.operator == "group_norm":
            members *= self.shape[self.channel_axis] // self.groups
        return members

    def module(self) -> tvm.IRModule:
        names = [f"d{axis}" for axis in range(len(self.shape))]
        shape = [tirx.Var(name, "int64") for name in names] if self.dynamic else self.shape
        parameter = tensor(*(shape[axis] for axis in self.parameter_axes), dtype=self.dtype)
        inputs = {
            "x": tensor(*shape, dtype=self.dtype),
            "gamma": parameter,
            "beta": parameter,
        }
        return build(inputs, lambda _builder, *operands: self.call(*operands))

    def call(self, *operands: relax.Expr) -> relax.Expr:
        norms, axes = relax.op.nn, list(self.axes)
        flags = {"epsilon": EPSILON, "center": self.center, "scale": self.scale}
        if self.operator == "layer_norm":
            return norms.layer_norm(*operands, axes, **flags)
        if self.operator == "instance_norm":
            return norms.instance_norm(*operands, self.channel_axis, axes, **flags)
        return norms.group_norm(*operands, self.groups, self.channel_axis, axes, **flags)

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(len(self.shape))
        parameter = [self.shape[axis] for axis in self.parameter_axes]
        arrays = (
            rng.normal(self.mean, 1, self.shape),
            rng.uniform(0.5, 2, parameter),
            rng.normal(0, 1, parameter),
        )
        return [array.astype(numpy_dtype(self.dtype)) for array in arrays]

    def averaged(self, function, x: np.ndarray) -> np.ndarray:
        """`function` of NumPy over the axes and the group, for each element of `x`."""
        axes = [axis % x.ndim for axis in self.axes]
        shape = x.shape
        if self.operator == "group_norm":
            channel = self.channel_axis % x.ndim
            x = x.reshape(*shape[:channel], self.groups, -1, *shape[channel + 1 :])
            axes = [channel + 1, *(axis + (axis > channel) for axis in axes)]
        kept = function(x, tuple(axes), keepdims=True)
        return np.broadcast_to(kept, x.shape).reshape(shape)

    def parameter(self, array: np.ndarray) -> np.ndarray:
        """A parameter, to be broadcast with the data."""
        order = np.argsort(self.parameter_axes)
        axes = sorted(self.parameter_axes)
        rest = tuple(axis for axis in range(len(self.shape)) if axis not in axes)
        return np.expand_dims(array.transpose(order), rest)

    def reference(self, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """The reference in extended precision: with a large mean, float64 would round too early."""
        x, gamma, beta = (array.astype(np.longdouble) for array in (x, gamma, beta))
        centered = x - self.averaged(np.mean, x)
        out = centered / np.sqrt(self.averaged(np.mean, centered**2) + EPSILON)
        out = out * self.parameter(gamma) if self.scale else out
        return out + self.parameter(beta) if self.center else out


def assert_close(norm: Norm, got: np.ndarray, arrays: list[np.ndarray]) -> None:
    """Compare with the reference, within the error bound of the arithmetic.

    A sum of n terms is off by at most n * eps * sum|terms| in the dtype of sums (Higham, Accuracy
    and Stability of Numerical Algorithms, section 4.2). So the mean of the first pass is off by
    `drift`, and what the second sums are the differences from that mean. The result is rounded to
    its dtype once.
    """
    expected = norm.reference(*arrays)
    x, gamma, beta = (array.astype(np.longdouble) for array in arrays)
    eps = float(np.finfo("float64" if norm.dtype == "float64" else "float32").eps)
    n, centered = norm.count + 4, x - norm.averaged(np.mean, x)
    variance = norm.averaged(np.mean, centered**2)
    drift = n * eps * norm.averaged(np.mean, np.abs(x))
    deviation = np.sqrt(variance + EPSILON)
    spread = np.sqrt(variance) + drift
    bound = n * eps * spread / deviation
    bound += 4 * eps * drift / deviation
    bound += np.abs(centered) / deviation * (n * eps * (spread / deviation) ** 2 + 8 * eps)
    if norm.scale:
        bound = bound * np.abs(norm.parameter(gamma))
    if norm.center:
        bound = bound + eps * np.abs(norm.parameter(beta))
    bound = bound + eps * np.abs(expected)
    out = ml_dtypes.finfo(numpy_dtype(norm.dtype))
    bound = bound + float(out.eps) / 2 * (np.abs(expected) + bound) + float(out.smallest_subnormal)
    assert got.dtype == numpy_dtype(norm.dtype)
    assert got.shape == expected.shape
    error = np.abs(got.astype(np.longdouble) - expected)
    assert (error <= bound).all(), f"{norm}: off by {error.max()}, {(error / bound).max()} bounds"


def assert_computes(norms: list[Norm], target: tvm.target.Target = UNOPTIMIZED_CPU) -> None:
    """Build all at once, run each, compare it with the reference."""
    mod = merge({f"f{i}": norm.module() for i, norm in enumerate(norms)})
    vm = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
    for i, norm in enumerate(norms):
        arrays = norm.arrays()
        assert_close(norm, call(vm, f"f{i}", *arrays), arrays)


def geometries() -> list[Norm]:
    """Each operator in one to three spatial dimensions, channels first and last."""
    norms = []
    for rank in (1, 2, 3):
        extents = EXTENTS[:rank]
        spatial = tuple(range(2, rank + 2))
        first, last = (2, 6, *extents), (2, *extents, 6)
        for groups in (1, 2, 3, 6):
            norms.append(Norm("group_norm", first, spatial, 1, groups))
            norms.append(Norm("group_norm", last, tuple(range(1, rank + 1)), -1, groups))
        norms.append(Norm("instance_norm", first, spatial))
        norms.append(Norm("instance_norm", first, spatial[::-1], 1 - len(first)))
        norms.append(Norm("instance_norm", last, tuple(range(1, rank + 1)), rank + 1))
        norms.append(Norm("instance_norm", last, tuple(range(-rank - 1, -1)), -1))
        for axes in ((-1,), (1,), spatial, spatial[::-1], (1, *spatial), (-1, 0)):
            norms.append(Norm("layer_norm", first, axes))
    return norms


GRID = [
    replace(norm, dtype=dtype, mean=mean, center=center, scale=scale, dynamic=dynamic)
    for norm, dtype, mean, (center, scale), dynamic in itertools.product(
        geometries(),
        DTYPES,
        (0.0, 1000.0),
        ((True, True), (False, True), (True, False)),
        (False, True),
    )
    # TVM's type inference rejects a group norm in bfloat16.
    if (norm.operator, dtype) != ("group_norm", "bfloat16")
]
CASES = sample(GRID, 48)
EDGES = [
    Norm("layer_norm", (7,), (0,)),
    Norm("layer_norm", (2, 3, 4), (0, 1, 2)),
    Norm("layer_norm", (2, 3, 4), (2, 0, 1), dtype="bfloat16"),
    Norm("layer_norm", (3, 1), (1,)),  # a single element, which is its mean
    Norm("instance_norm", (3, 4), ()),
    Norm("instance_norm", (3, 4, 5), (0, 2)),
    Norm("group_norm", (3, 4), (), 1, 2),
    Norm("group_norm", (3, 4, 5), (0, 2), 1, 2),
    Norm("group_norm", (2, 4, 3, 5), (3,), 1, 2),
    Norm("group_norm", (4, 6), (1,), 0, 2),
    Norm("instance_norm", (1, 1, 300, 300), (2, 3), dtype="float16"),
    Norm("layer_norm", (2, 16384), (1,), mean=1000.0),
    Norm("group_norm", (1, 4, 64, 64), (2, 3), 1, 2, mean=-1000.0),
]


@st.composite
def random_norms(draw: st.DrawFn) -> Norm:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=5)))
    operator = draw(st.sampled_from(["layer_norm", "group_norm", "instance_norm"]))
    order = draw(st.permutations(range(len(shape))))
    least = 1 if operator == "layer_norm" else 0
    axes = order[1 : 1 + draw(st.integers(least, len(shape) - 1))]
    channels = shape[order[0]]
    dtypes = [d for d in DTYPES if (operator, d) != ("group_norm", "bfloat16")]
    sign = st.sampled_from([0, len(shape)])  # an axis from the start or from the end
    return Norm(
        operator,
        shape,
        tuple(axis - draw(sign) for axis in axes),
        order[0] - draw(sign),
        draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0])),
        draw(st.sampled_from(dtypes)),
        draw(st.sampled_from([0.0, 1.0, -30.0, 1e4])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@pytest.mark.parametrize("norms", [CASES[i : i + 48] for i in range(0, len(CASES), 48)])
def test_grid(norms: list[Norm]) -> None:
    assert_computes(norms)


def test_edges() -> None:
    assert_computes(EDGES, tvm.target.Target("llvm"))


@batched(5 if is_full() else 10)
@given(norms=st.lists(random_norms(), min_size=5, max_size=5))
def test_random(norms: list[Norm]) -> None:
    assert_computes(norms)


@few(1)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_reference_equals_pytorch(rank: int) -> None:
    spatial = tuple(range(2, rank + 2))
    shape = (2, 6, *EXTENTS[:rank])
    functional = torch.nn.functional
    for norm, expected in (
        (
            Norm("layer_norm", shape, spatial),
            lambda x, *p: functional.layer_norm(x, x.shape[2:], *p),
        ),
        (Norm("group_norm", shape, spatial, 1, 3), lambda x, *p: functional.group_norm(x, 3, *p)),
        (
            Norm("instance_norm", shape, spatial),
            lambda x, *p: functional.instance_norm(x, None, None, *p),
        ),
    ):
        arrays = replace(norm, dtype="float64", mean=3.0).arrays()
        got = norm.reference(*arrays)
        np.testing.assert_allclose(
            got, expected(*map(torch.tensor, arrays)), rtol=1e-12, atol=1e-12
        )


@few(4)
@pytest.mark.parametrize("mean", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("operator", ["layer_norm", "group_norm", "instance_norm"])
def test_no_error_grows_with_the_mean(operator: str, mean: float) -> None:
    norm = Norm(operator, (1, 4, 64, 64), (2, 3), 1, 2, mean=mean)
    arrays = norm.arrays()
    got = run(norm.module(), *arrays)
    np.testing.assert_allclose(got, norm.reference(*arrays), rtol=0, atol=3e-5)


@few(2)
@pytest.mark.parametrize("value", [0.0, 1.0, 1000.1, -3e7, 1e-30])
def test_equal_elements_are_beta(value: float) -> None:
    norm = Norm("instance_norm", (1, 2, 64, 64), (2, 3))
    x, gamma, beta = norm.arrays()
    got = run(norm.module(), np.full_like(x, value), gamma, beta)
    expected = np.broadcast_to(norm.parameter(beta), got.shape)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_infinities_and_nan_give_nan(value: float) -> None:
    """Elements that share mean and variance also become NaN; the square of 1e30 overflows."""
    norm = Norm("instance_norm", (1, 2, 8, 8), (2, 3))
    x, gamma, beta = norm.arrays()
    expected = norm.reference(x, gamma, beta).astype("float64")
    expected[0, 0] = np.nan
    x[0, 0, 3, 4] = value
    got = run(norm.module(), x, gamma, beta)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("operator", ["layer_norm", "group_norm", "instance_norm"])
def test_no_elements(operator: str) -> None:
    """FoldConstant lowers input-independent calls before any other pass sees them."""
    norm = Norm(operator, (2, 4, 0), (2,), 1, 2)

    def emit(builder: relax.BlockBuilder) -> relax.Expr:
        x = relax.op.zeros((2, 4, 0), "float32")
        ones = relax.op.ones((0 if operator == "layer_norm" else 4,), "float32")
        call = norm.module()["main"].body.blocks[0].bindings[0].value
        return relax.Call(
            call.op, [builder.emit(operand) for operand in (x, ones, ones)], call.attrs
        )

    mod = FoldConstant()(build({}, emit))
    assert run(mod, pipeline=pipeline()).shape == (2, 4, 0)


def test_channels_that_may_be_no_whole_groups_are_checked_at_run_time() -> None:
    norm = Norm("group_norm", (2, 6, 5), (2,), 1, 3, dynamic=True)
    arrays = norm.arrays()
    assert_close(norm, run(norm.module(), *arrays), arrays)
    with pytest.raises((RuntimeError, ValueError), match=r"\(5 vs\. 3\) .*shape\[0\] mismatch"):
        run(norm.module(), arrays[0][:, :5].copy(), arrays[1][:5].copy(), arrays[2][:5].copy())


@few(3)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("operator", ["layer_norm", "group_norm", "instance_norm"])
def test_one_function_without_a_copy_of_the_data(operator: str, dtype: str) -> None:
    norm = Norm(operator, (2, 4, 8, 8), (2, 3), 1, 2, dtype=dtype)
    mod = LegalizeOps()(norm.module())
    ((var, func),) = [(v, f) for v, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)]
    assert var.name_hint == operator
    slices = (2, 2) if operator == "group_norm" else (2, 4)
    buffers = {(str(buffer.dtype), *map(int, buffer.shape)) for buffer in allocations(func)}
    assert buffers == {("float32", *slices)}


@pytest.mark.parametrize("operator", ["layer_norm", "group_norm", "instance_norm"])
def test_elementwise_operators_fuse(operator: str) -> None:
    norm = Norm(operator, (2, 4, 8, 8), (2, 3), 1, 2)
    parameter = tensor(*(norm.shape[axis] for axis in norm.parameter_axes))
    mod = build(
        {"x": tensor(*norm.shape), "gamma": parameter, "beta": parameter},
        lambda builder, x, gamma, beta: relax.op.add(
            relax.op.nn.silu(builder.emit(norm.call(x, gamma, beta))), x
        ),
    )
    mod = tvm.transform.Sequential([LegalizeOps(), AnnotateTIROpPattern(), FuseOps(), FuseTIR()])(
        mod
    )
    (found,) = calls(mod, "relax.call_tir")
    assert found.args[0].name_hint == f"fused_{operator}_silu_add"


def test_equal_calls_share_one_function() -> None:
    norm = Norm("group_norm", (2, 4, 8), (2,), 1, 2)
    mod = LegalizeOps()(merge({"f": norm.module(), "g": norm.module()}))
    assert len([f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)]) == 1


@pytest.mark.parametrize("operator", ["group_norm", "instance_norm"])
def test_switched_off(monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    norm = Norm(operator, (1, 4, 16, 16), (2, 3), 1, 2, mean=1000.0)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "norm-variance")
    arrays = norm.arrays()
    error = run(norm.module(), *arrays) - norm.reference(*arrays)
    assert not np.abs(error).max() < 0.1  # or NaN


def test_switched_off_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "norm-variance")
    mod = Norm("layer_norm", (2, 4), (1,), dtype="float64").module()
    with pytest.raises(tvm.error.InternalError, match="only support float32 and float16"):
        LegalizeOps()(mod)


def test_the_fix_is_noted() -> None:
    with switches.collect() as noted:
        LegalizeOps()(Norm("layer_norm", (2, 4), (1,)).module())
    assert noted == {"norm-variance"}


def test_register_again_is_harmless() -> None:
    tvm_fixes.relax.legalize.register()
    assert_computes([EDGES[0]])


if __name__ == "__main__":
    tvm.testing.main()
