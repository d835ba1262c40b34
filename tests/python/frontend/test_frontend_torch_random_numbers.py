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
"""Random numbers of PyTorch programs: their distribution, and that each run has the same ones."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program as tvm_from_exported_program

from helpers.grids import is_full
from helpers.relax_modules import cpu
from helpers.torch_programs import Call, import_exported, run_all
from tvm_fixes.frontend.torch import from_exported_program

COUNT = 20_000
FIVE = 5 / math.sqrt(COUNT)
"""Five standard errors of a mean of numbers with deviation 1."""


def drawn(function, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The outputs of a compiled function, which two runs agree on."""
    mod = import_exported(Call(function), inputs)
    vm = relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu())
    first, second = (
        [torch.from_dlpack(x) for x in vm["main"](*map(tvm.runtime.from_dlpack, inputs))]
        for _ in range(2)
    )
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    return first


def assert_distribution(x: torch.Tensor, mean: float, deviation: float, tail: float = 2) -> None:
    """Check mean and deviation; `tail` bounds the root of the kurtosis."""
    x = x.double().flatten()
    assert abs(x.mean().item() - mean) < FIVE * deviation
    assert abs(x.std().item() - deviation) < FIVE * deviation * tail
    # Neighbors are independent.
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < FIVE


def test_uniform_numbers() -> None:
    x = torch.zeros(COUNT // 4, 4)
    found = drawn(
        lambda x: (
            torch.rand(x.shape),
            torch.rand_like(x, dtype=torch.float64),
            torch.rand_like(x).half(),
            torch.rand(x.shape, dtype=torch.float16),
            torch.rand(x.shape, dtype=torch.bfloat16),
            x.clone().uniform_(-2, 4),
        ),
        x,
    )
    for number, values in enumerate(found[:5]):
        assert_distribution(values, 0.5, 1 / math.sqrt(12))
        assert values.min() >= 0
        # Numbers of float16 that are rounded afterwards may become 1.
        assert values.max() < 1 or number == 2
    assert_distribution(found[5], 1, 6 / math.sqrt(12))
    assert found[5].min() >= -2
    assert found[5].max() <= 4
    assert [values.dtype for values in found[3:5]] == [torch.float16, torch.bfloat16]
    # Tensors differ from each other.
    assert (found[0] != found[2].float()).float().mean() > 0.99


def test_normal_numbers() -> None:
    x = torch.linspace(-1, 1, COUNT)
    found = drawn(
        lambda x: (
            torch.randn(COUNT),
            torch.randn_like(x, dtype=torch.float64),
            torch.randn(COUNT, dtype=torch.bfloat16),
            (x.clone().normal_(3, 2) - 3) / 2,
            torch.normal(x, 2.0) / 2 - x / 2,
            (torch.normal(1.0, x.abs() + 1) - 1) / (x.abs() + 1),
            (torch.normal(x.reshape(-1, 1), torch.ones(1, 2)) - x.reshape(-1, 1))[:, 1],
            torch.normal(3.0, 2.0, (COUNT,)) / 2 - 1.5,
            x.clone().log_normal_().log() - 1,
        ),
        x,
    )
    for values in found[:8]:
        assert_distribution(values, 0, 1)
        assert abs((values.double() ** 3).mean()) < 5 * math.sqrt(15 / COUNT)
    assert_distribution(found[8], 0, 2)


def test_integers_and_orders() -> None:
    x = torch.zeros(COUNT, dtype=torch.int64)
    whole, low, like, order, short = drawn(
        lambda x: (
            torch.randint(10, (COUNT,)),
            torch.randint(-3, 4, (COUNT,), dtype=torch.int32),
            torch.randint_like(x, 5, 6),
            torch.randperm(COUNT),
            torch.randint_like(x.float(), 2),
        ),
        x,
    )
    assert_distribution(whole, 4.5, math.sqrt(99 / 12))
    assert set(whole.tolist()) == set(range(10))
    assert low.dtype == torch.int32
    assert set(low.tolist()) == set(range(-3, 4))
    assert set(like.tolist()) == {5}
    torch.testing.assert_close(order.sort().values, torch.arange(COUNT))
    assert_distribution(order, (COUNT - 1) / 2, COUNT / math.sqrt(12))
    assert_distribution(short, 0.5, 0.5)


def test_choices() -> None:
    weights = torch.tensor([0.0, 1, 0, 3, 0])
    p = torch.full((COUNT,), 0.3)
    tensor, number, given, replaced, once, waiting, steps = drawn(
        lambda weights, p: (
            torch.bernoulli(p),
            torch.bernoulli(p, 0.7),
            p.clone().bernoulli_(p / 3),
            torch.multinomial(weights, COUNT, replacement=True),
            torch.multinomial(weights.expand(COUNT, 5), 2),
            p.clone().exponential_(2.0),
            p.clone().geometric_(0.25),
        ),
        weights,
        p,
    )
    for values, mean in ((tensor, 0.3), (number, 0.7), (given, 0.1)):
        assert set(values.tolist()) == {0, 1}
        assert_distribution(values, mean, math.sqrt(mean * (1 - mean)), tail=3)
    assert set(replaced.tolist()) == {1, 3}
    assert_distribution(replaced, 2.5, math.sqrt(0.75))
    assert once.dtype == torch.int64
    assert {tuple(pair) for pair in once.tolist()} == {(1, 3), (3, 1)}
    assert_distribution(once[:, 0], 2.5, math.sqrt(0.75))
    assert waiting.min() > 0
    assert waiting.max() < math.inf
    assert_distribution(waiting, 0.5, 0.5, tail=3)
    assert_distribution(steps, 4, math.sqrt(12), tail=3)


@pytest.mark.parametrize("decompose", (True, False))
def test_dropout(decompose: bool) -> None:
    x = torch.ones(COUNT)
    mod = import_exported(
        Call(lambda x: (F.dropout(x, 0.25), F.dropout(x, 1.0), F.dropout(x, 0.5, False))),
        (x,),
        decompose=decompose,
    )
    some, none, every = run_all(mod, x)
    torch.testing.assert_close(some.unique(), torch.tensor([0.0, 4 / 3]))
    assert_distribution(some, 1, 4 / 3 * math.sqrt(3 / 16), tail=3)
    assert not none.any()
    assert every.all()


def test_dropout_of_channels_and_slopes() -> None:
    x = -torch.ones(COUNT // 4, 4, 3)
    channels, alpha, slopes, softmax = drawn(
        lambda x: (
            F.dropout1d(x, 0.5),
            F.alpha_dropout(x[..., 0], 0.5, training=True),
            F.rrelu(x[..., 0], 0.25, 0.5, training=True),
            F.gumbel_softmax(x.squeeze(-1)[:, 0], hard=True),
        ),
        x,
    )
    assert (channels == channels[..., :1]).all()
    assert_distribution(channels[..., 0], -1, 1, tail=3)
    assert len(alpha.unique()) == 2
    assert_distribution(-slopes, 0.375, 0.25 / math.sqrt(12))
    assert (softmax.sum(-1) == 1).all()


class Drawing(nn.Module):
    """Random tensors of symbolic shapes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.randn_like(x), F.dropout(x), torch.randperm(x.shape[0])


def test_number_of_elements_is_symbolic() -> None:
    x = torch.ones(5, 3)
    mod = import_exported(Drawing(), (x,), dynamic=(0,))
    small, large = run_all(mod, x), run_all(mod, torch.ones(99, 3))
    assert [len(values) for values in small] == [5] * 3
    assert abs(large[0].mean()) < 5 / math.sqrt(297)
    assert abs(large[1].mean() - 1) < 5 / math.sqrt(297)
    assert len(large[2].unique()) == 99


@pytest.mark.parametrize("kind", (nn.GRU, nn.LSTM, nn.RNN) if is_full() else (nn.LSTM,))
def test_dropout_between_recurrent_layers_is_rejected(kind: type[nn.Module]) -> None:
    """PyTorch's decomposition ignores it."""
    module = kind(3, 3, num_layers=2, dropout=0.5).train()
    x = (torch.ones(4, 2, 3),)
    with pytest.raises(tvm.error.OpNotImplemented, match=r"attribute dropout is 0\.5 in training"):
        from_exported_program(torch.export.export(module, x))
    from_exported_program(torch.export.export(module.eval(), x))


def test_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the fix, a dropout is TVM's: its operand."""
    monkeypatch.setenv("TVM_FIXES_DISABLE", "torch-random")
    program = torch.export.export(nn.Dropout(0.5).train(), (torch.ones(4),))
    ours, stock = from_exported_program(program), tvm_from_exported_program(program)
    tvm.ir.assert_structural_equal(ours, stock)


if __name__ == "__main__":
    tvm.testing.main()
