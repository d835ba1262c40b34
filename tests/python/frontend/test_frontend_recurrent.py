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
"""Recurrent layers: one kernel for all steps of a direction."""

import ml_dtypes  # noqa: F401 registers bfloat16
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from tvm import relax, tirx

from helpers.grids import few, is_full
from helpers.growth import largest_kernel, size_of
from helpers.lowering import lowered_before
from helpers.relax_modules import build, cpu, run, tensor
from tvm_fixes.frontend.recurrent import recurrent_layer
from tvm_fixes.lowering import stages
from tvm_fixes.support import switches
from tvm_fixes.target import resolve

ORDERS = {"RNN": "h", "GRU": "rzh", "LSTM": "ifco"}
"""PyTorch's orders of the gates."""


def layer_of(
    module: nn.RNNBase,
    steps: int | tirx.Var,
    batch: int | tirx.Var,
    *,
    weights_are_inputs: bool = False,
    **options: object,
) -> tvm.IRModule:
    """A module that computes a layer of PyTorch."""
    kind = type(module).__name__
    dtype = str(module.weight_hh_l0.dtype).removeprefix("torch.")
    parameters = [p.detach() for p in module.parameters()]
    inputs = {"x": tensor(steps, batch, module.input_size, dtype=dtype)}
    if weights_are_inputs:
        inputs |= {f"w{i}": tensor(*p.shape, dtype=dtype) for i, p in enumerate(parameters)}

    def emit(bb, x, *weights):
        if not weights_are_inputs:
            weights = [relax.const(p.double().numpy().astype(dtype), dtype) for p in parameters]
        options.setdefault("gates", ORDERS[kind])
        options.setdefault("linear_before_reset", kind == "GRU")
        return relax.Tuple(recurrent_layer(bb, kind, x, weights[:2], weights[2:], **options))

    return build(inputs, emit)


def random_layer(kind: type[nn.RNNBase], features: int, hidden: int, dtype: torch.dtype):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(features, hidden, dtype=dtype)


@few(2)
@pytest.mark.parametrize(
    "kind, hidden, batch, dtype, is_symbolic, target",
    [
        *([(nn.LSTM, 33, 5, "float32", True, None)] if is_full() else []),
        (nn.LSTM, 150, 5, "float32", True, "native"),
        *([(nn.LSTM, 16, 8, "float64", False, None)] if is_full() else []),
        (nn.LSTM, 1, 1, "float16", False, None),
        *([(nn.GRU, 130, 3, "float32", False, None)] if is_full() else []),
        (nn.GRU, 7, 6, "bfloat16", True, None),
        (nn.GRU, 70, 2, "float64", False, "native"),
        (nn.RNN, 40, 1, "float32", True, None),
    ],
)
def test_equals_pytorch(
    kind: type[nn.RNNBase],
    hidden: int,
    batch: int,
    dtype: str,
    is_symbolic: bool,
    target: str | None,
) -> None:
    module = random_layer(kind, 3, hidden, getattr(torch, dtype))
    shape = [tirx.Var(name, "int64") for name in "tb"] if is_symbolic else [6, batch]
    mod = layer_of(module, *shape)
    executable = relax.build(mod, resolve(target) if target else cpu(), relax_pipeline="tvm_fixes")
    vm = relax.VirtualMachine(executable, tvm.cpu())
    sizes = [(6, batch), (1, 1), (0, 2), (3, 4)] if is_symbolic else [(6, batch)]
    for size in sizes:
        x = torch.randn(*size, 3, generator=torch.Generator().manual_seed(1))
        got = vm["main"](tvm.runtime.tensor(x.numpy().astype(dtype)))
        if size[0] == 0:
            assert got[0].shape == (*size, hidden)
            assert all(not state.numpy().any() for state in list(got)[1:])
            continue
        with torch.no_grad():
            y, states = module.double()(x.to(getattr(torch, dtype)).double())
        states = states if isinstance(states, tuple) else (states,)
        tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-13}[dtype]
        for result, expected in zip(got, (y, *(s[0] for s in states)), strict=True):
            assert str(result.dtype) == dtype
            np.testing.assert_allclose(
                result.numpy().astype("float64"), expected.numpy(), rtol=0, atol=tolerance
            )


def test_weights_that_are_inputs() -> None:
    """Nothing is packed at compile time."""
    module = random_layer(nn.GRU, 4, 18, torch.float32)
    x = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(1))
    weights = [p.detach().numpy() for p in module.parameters()]
    got = run(
        layer_of(module, 5, 2, weights_are_inputs=True), x.numpy(), *weights, pipeline="tvm_fixes"
    )
    with torch.no_grad():
        expected = module(x)[0].numpy()
    np.testing.assert_allclose(got[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("is_backwards", (False, True) if is_full() else (True,))
def test_switched_off(is_backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the schedule for a CPU, the kernel computes the same."""
    module = random_layer(nn.LSTM, 3, 20, torch.float32)
    mod = layer_of(module, 4, 3, backwards=is_backwards, clip=0.3)
    x = np.random.default_rng(0).normal(size=(4, 3, 3)).astype("float32")
    scheduled = run(mod, x, pipeline="tvm_fixes")
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "matmul-legalize")
    for got, expected in zip(run(mod, x, pipeline="tvm_fixes"), scheduled, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


def test_size_does_not_depend_on_steps() -> None:
    sizes = set()
    module = random_layer(nn.LSTM, 3, 8, torch.float32)
    for steps in (25, 100, 400):
        mod = layer_of(module, steps, 1)
        lowering = stages("cpu")
        with cpu():
            lowered = lowered_before(mod, lowering, "Lower")
        # Extents have up to three digits.
        text = [size_of(mod), size_of(lowered), largest_kernel(lowered), len(lowered.functions)]
        sizes.add(tuple(round(count, -2) for count in text))
    assert len(sizes) == 1, sizes


if __name__ == "__main__":
    tvm.testing.main()
