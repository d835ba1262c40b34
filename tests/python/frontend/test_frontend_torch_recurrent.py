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
"""Recurrent layers of exported programs: LSTM, GRU, RNN, their cells, and packed sequences."""

import time

import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from torch.export import Dim

from helpers.exported_checks import check_exported, compiled
from helpers.grids import few, is_full
from helpers.growth import size_of
from helpers.relax_modules import count
from helpers.torch_programs import random as seeded
from tvm_fixes.fixes.torch_importer import LOOPS
from tvm_fixes.frontend.torch import from_exported_program, recurrent_shapes
from tvm_fixes.support import switches

CELLS = (nn.LSTM, nn.GRU, nn.RNN)
FEATURES, HIDDEN = 4, 6


def random(*shape, dtype=torch.float32, seed=0):
    return seeded(*shape, dtype=dtype, seed=seed)


class Layer(nn.Module):
    """A recurrent layer, with or without initial states."""

    def __init__(self, cell, **options):
        super().__init__()
        torch.manual_seed(0)
        self.layer = cell(FEATURES, HIDDEN, **options)

    def forward(self, x, *states):
        if len(states) == 2:
            return self.layer(x, states)
        return self.layer(x, *states)


def states_of(cell, *shape):
    return [random(*shape, seed=seed) for seed in range(2 if cell is nn.LSTM else 1)]


@few(1)
@pytest.mark.parametrize("cell", CELLS)
def test_layers_and_directions(cell):
    options = {"num_layers": 2, "bidirectional": True}
    module = Layer(cell, dropout=0.5, **options)
    check_exported(module, (random(7, 3, FEATURES), *states_of(cell, 4, 3, HIDDEN)))
    if is_full() or cell is nn.GRU:
        check_exported(Layer(cell, batch_first=True, bias=False), [random(3, 5, FEATURES)])
    if is_full() or cell is nn.RNN:
        check_exported(Layer(cell, bidirectional=True), [random(9, FEATURES)])


def test_rnn_of_relu():
    check_exported(Layer(nn.RNN, nonlinearity="relu", num_layers=2), [random(7, 3, FEATURES)])


@few(1)
@pytest.mark.parametrize(
    ("cell", "dtype", "tolerance"),
    [
        (nn.LSTM, torch.float16, 5e-3),
        (nn.GRU, torch.bfloat16, 4e-2),
        (nn.RNN, torch.float64, 1e-12),
    ],
)
def test_dtypes(cell, dtype, tolerance):
    module = Layer(cell).to(dtype)
    check_exported(module, [random(6, 3, FEATURES, dtype=dtype)], tolerance=tolerance)


@pytest.mark.parametrize("cell", CELLS if is_full() else CELLS[1:2])
def test_symbolic_steps_and_batch(cell):
    module = Layer(cell, num_layers=2, bidirectional=True, batch_first=True)
    runs = [[random(batch, steps, FEATURES)] for batch, steps in ((3, 5), (1, 20), (7, 1))]
    with recurrent_shapes():
        check_exported(module, *runs, dynamic=({0: Dim("batch"), 1: Dim("steps")},))


PARTS = (lambda x: x[: x.shape[0] // 2], lambda x: x[1::2])


@pytest.mark.parametrize("part", PARTS if is_full() else PARTS[:1])
def test_a_computed_number_of_steps(part):
    class Part(Layer):
        def forward(self, x):
            return self.layer(part(x))

    runs = [[random(steps, 2, FEATURES)] for steps in (9, 20, 5)]
    with recurrent_shapes():
        # PyTorch cannot prove n // 2 <= n, which it demands for a named Dim.
        check_exported(Part(nn.LSTM), *runs, dynamic=({0: Dim.DYNAMIC},))


def test_projections():
    module = Layer(nn.LSTM, proj_size=2, num_layers=2, bidirectional=True)
    if is_full():
        check_exported(module, [random(12, 3, FEATURES)])
        half = random(9, 2, FEATURES, dtype=torch.float16)
        check_exported(module.half(), [half], tolerance=5e-3)
    runs = [[random(12, 3, FEATURES)], [random(2, 1, FEATURES)]]
    module = Layer(nn.LSTM, proj_size=2, bidirectional=True)
    with recurrent_shapes():
        check_exported(module, *runs, dynamic=({0: Dim("steps"), 1: Dim("batch")},))


def test_cells():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.gru = nn.LSTMCell(FEATURES, HIDDEN), nn.GRUCell(FEATURES, HIDDEN)
            self.rnn = nn.RNNCell(FEATURES, HIDDEN)

        def forward(self, x, h, c):
            return self.lstm(x, (h, c)), self.gru(x, h), self.rnn(x, h)

    runs = [(random(n, FEATURES), random(n, HIDDEN), random(n, HIDDEN, seed=1)) for n in (3, 5)]
    check_exported(Cells(), *runs, dynamic=({0: Dim("batch")},) * 3)


def test_a_program_that_is_already_decomposed():
    check_exported(
        Layer(nn.GRU), [random(3, 2, FEATURES)], reload=lambda program: program.run_decompositions()
    )


class Packed(nn.Module):
    """The operator of packed sequences, whose sizes are inputs."""

    def __init__(self, cell, **options):
        super().__init__()
        torch.manual_seed(0)
        self.layer = cell(FEATURES, HIDDEN, **options)

    def forward(self, rows, sizes, *states):
        layer = self.layer
        run = {nn.LSTM: torch.lstm, nn.GRU: torch.gru, nn.RNN: torch.rnn_tanh}[type(layer)]
        states = states if len(states) == 2 else states[0]
        options = (layer.bias, layer.num_layers, 0.0, False, layer.bidirectional)
        return run(rows, sizes, states, layer._flat_weights, *options)


PACKED = [(nn.LSTM, True), (nn.LSTM, False), (nn.GRU, False), (nn.RNN, False)]


@pytest.mark.parametrize(("cell", "projected"), PACKED if is_full() else PACKED[:1])
def test_packed_sequences(cell, projected):
    options = {"proj_size": 2} if projected else {}
    module = Packed(cell, num_layers=2, bidirectional=True, **options)
    runs = []
    for lengths in ((5, 3, 3, 1), (4, 4, 3, 1)):
        sizes = torch.tensor([sum(n > step for n in lengths) for step in range(max(lengths))])
        width = 2 if projected else HIDDEN
        states = states_of(cell, 4, 4, HIDDEN)
        states[0] = states[0][..., :width].contiguous()
        runs.append((random(sum(lengths), FEATURES), sizes, *states))
    with recurrent_shapes():
        axes = ({0: Dim("rows")}, {0: Dim("steps")}, (None,) * (len(runs[0]) - 2))
        check_exported(module, *runs, dynamic=axes)


def test_without_the_fix_each_step_is_imported(monkeypatch):
    program = torch.export.export(Layer(nn.LSTM).eval(), (random(3, 2, FEATURES),))
    assert count(from_exported_program(program), "relax.tanh") == 0
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, LOOPS)
    assert count(from_exported_program(program), "relax.tanh") == 6


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU] if is_full() else [nn.LSTM])
def test_import_does_not_depend_on_the_number_of_steps(cell):
    sizes, seconds = [], []
    for steps in (25, 100, 400) if is_full() else (25, 400):
        with recurrent_shapes():
            start = time.process_time()
            program = torch.export.export(Layer(cell).eval(), (random(steps, 3, FEATURES),))
        mod = from_exported_program(program)
        compiled(mod)
        seconds.append(time.process_time() - start)
        sizes.append(size_of(mod))
    # Only the digits of the number differ.
    assert max(sizes) - min(sizes) < 100, sizes
    assert seconds[-1] < 2 * seconds[0] + 0.5, seconds


if __name__ == "__main__":
    tvm.testing.main()
