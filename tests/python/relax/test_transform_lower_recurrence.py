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
"""LowerRecurrence."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.gpu_kernels import GPU
from helpers.gpu_modules import run_on_gpu, scheduled
from helpers.grids import is_full
from helpers.relax_modules import build, calls, cpu, run, tensor
from tvm_fixes.attributes import RECURRENCE
from tvm_fixes.frontend.recurrent import recurrent_layer, steps_of_layer
from tvm_fixes.support import switches
from tvm_fixes.target import resolve
from tvm_fixes.tirx.recurrence import KINDS, Cell
from tvm_fixes.tirx.recurrence_activations import Activation
from tvm_fixes.transform import LowerRecurrence

SWITCH = "matmul-legalize"


def uniform(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).uniform(-1, 1, shape)).astype("float32")


def layer_of(kind: str, hidden: int, batch: int | tirx.Var, **options: object) -> tvm.IRModule:
    rows = len(KINDS[kind].gates) * hidden
    weights = [relax.const(uniform(rows, n, seed=n, scale=n**-0.5)) for n in (2, hidden)]
    bias = [relax.const(uniform(rows, seed=seed)) for seed in (3, 4)]

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.Tuple(recurrent_layer(bb, kind, x, weights, bias, **options))

    return build({"x": tensor(3, batch, 2)}, emit)


def quantized_layer(hidden: int, batch: int, dtype: str) -> tvm.IRModule:
    """An LSTM with integers for R."""
    rng = np.random.default_rng(0)
    rows = 4 * hidden
    low = 0 if dtype == "uint8" else -128
    matrix = rng.integers(low, low + 256, (rows, hidden)).astype(dtype)
    zeros = rng.integers(low, low + 256, rows).astype("int32")
    scales = rng.uniform(0.001, 0.01, rows).astype("float32")
    activations = tuple(map(Activation, KINDS["LSTM"].activations))
    cell = Cell("LSTM", "iofc", activations, is_quantized=True)

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        weights = [relax.const(array) for array in (matrix, scales, zeros)]
        around = [tirx.const(count, "int64") for count in (5, batch)]
        product = bb.emit(relax.op.reshape(x, (5 * batch, rows)))
        return relax.Tuple(steps_of_layer(bb, cell, product, around, weights, None, None))

    return build({"x": tensor(5, batch, rows)}, emit)


def kernels_of(mod: tvm.IRModule) -> list[tirx.PrimFunc]:
    return [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]


def with_and_without(
    mod: tvm.IRModule, monkeypatch: pytest.MonkeyPatch, target: tvm.target.Target, x: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The outputs with the schedule for the CPU, and without it."""
    fast = run(mod, x, pipeline="tvm_fixes", target=target)
    with monkeypatch.context() as context:
        context.setenv(switches.ENVIRONMENT_VARIABLE, SWITCH)
        return fast, run(mod, x, pipeline="tvm_fixes", target=target)


def test_weights_are_packed_once() -> None:
    mod = layer_of("GRU", 20, 1)
    with cpu():
        lowered = LowerRecurrence()(mod)
        assert LowerRecurrence()(lowered).same_as(lowered)
    used = calls(lowered, "relax.call_tir")
    [kernel] = used
    _, _, *products = kernel.args[1].fields
    assert [list(map(int, p.ty.shape.values)) for p in products] == [[2, 20, 20], [1, 20, 20]]
    assert all(isinstance(p, tvm.ir.GenericConst) for p in products)


QUANTIZED = list(product(("int8", "uint8"), (None, "haswell", "native")))


@pytest.mark.parametrize(("dtype", "target"), QUANTIZED if is_full() else QUANTIZED[2::2])
def test_quantized(dtype: str, target: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers are exact, with and without an instruction for dot products."""
    batch, hidden = (5, 50) if target == "native" else (1, 9)
    named = {
        None: cpu,
        "haswell": lambda: tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}),
        "native": lambda: resolve("native"),
    }
    chosen: Callable[[], tvm.target.Target] = named[target]
    x = uniform(5, batch, 4 * hidden)
    fast, plain = with_and_without(quantized_layer(hidden, batch, dtype), monkeypatch, chosen(), x)
    for got, expected in zip(fast, plain, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)


GPU_CASES = {
    "LSTM": ("LSTM", 20, {}),
    "GRU": ("GRU", 33, {}),
    "GRU-linear": ("GRU", 5, {"linear_before_reset": True}),
    "RNN": ("RNN", 1030, {"backwards": True}),
}


@pytest.mark.parametrize("case", GPU_CASES)
def test_on_gpu(case: str) -> None:
    kind, hidden, options = GPU_CASES[case]
    count = 1 if hidden > 1000 and not is_full() else 2
    batch = tirx.Var("b", "int64") if case == "GRU" else count
    mod = layer_of(kind, hidden, batch, **options)
    x = uniform(3, count, 2)
    for got, expected in zip(run_on_gpu(mod, x), run(mod, x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)


def test_quantized_on_gpu() -> None:
    """One thread computes a quantized layer: its states share a scale."""
    mod = quantized_layer(3, 2, "int8")
    x = uniform(5, 2, 12)
    for got, expected in zip(run_on_gpu(mod, x), run(mod, x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)


def test_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = layer_of("RNN", 4, 1)
    assert any(RECURRENCE in kernel.attrs for kernel in kernels_of(mod))
    assert LowerRecurrence()(mod).same_as(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, SWITCH)
    for target in (cpu(), GPU):
        with target:
            assert LowerRecurrence()(mod).same_as(mod)


def test_gpu_kernels_run_in_blocks() -> None:
    texts = [f.script() for f in kernels_of(scheduled(layer_of("LSTM", 20, 2)))]
    [text] = [text for text in texts if "T.tanh" in text]
    assert "blockIdx.x" in text
    assert "alloc_shared" in text


if __name__ == "__main__":
    tvm.testing.main()
