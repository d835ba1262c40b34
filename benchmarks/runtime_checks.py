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
"""The cost of runtime checks in models with dynamic shapes: embedded tokens, and convolutions.

A model is compiled for the CPU of this machine as three functions of one executable: twice without
checks, and once with them.  They share kernels and weights, because the address of a weight changes
the time of its matrix product by several percent, more than the effect to measure.  The second
function without checks is the control.
"""

from functools import partial

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.utils import copy_with_new_vars

from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import InsertRuntimeChecks
from tvm_fixes.target import resolve

from .measure import Comparison, compare

MAX_COST = 0.01
"""The maximum cost of the checks, as a share of a run's time."""

# On a quiet machine, a single ratio is off by about 9%, and the median of 1000 ratios by 0.4%.
_RUNS = 1000


class _Tokens(nn.Module):
    """An embedding, and layers of two matrix products each."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.GELU(),
                nn.Linear(4 * width, width),
            )
            for _ in range(2)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = x + layer(x)
        return x


class _Reflections(nn.Module):
    """Convolutions of images with reflection padding."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(c, 32, 3, padding=1, padding_mode="reflect") for c in (3, 32, 32))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def models() -> dict[str, tuple[tvm.IRModule, np.ndarray]]:
    """Return the imported models, and an input for each."""
    batch, length = torch.export.Dim("batch", max=16), torch.export.Dim("length", max=512)
    height, width = (torch.export.Dim(name, min=4, max=256) for name in ("height", "width"))
    cases = {
        "tokens": (_Tokens(), torch.randint(0, 1000, (2, 64)), {0: batch, 1: length}),
        "convolutions": (
            _Reflections(),
            torch.randn(2, 3, 128, 96),
            {0: batch, 2: height, 3: width},
        ),
    }
    imported = {}
    for name, (module, x, dims) in cases.items():
        program = torch.export.export(module.eval(), (x,), dynamic_shapes=(dims,))
        mod = from_exported_program(program, unwrap_unit_return_tuple=True)
        imported[name] = mod, x.numpy()
    return imported


def comparisons() -> list[Comparison]:
    """Compare each model without checks, again without checks, and with checks.

    Raises
    ------
    RuntimeError
        If a model gets no checks.
    """
    comparisons = []
    for name, (mod, x) in models().items():
        checked = InsertRuntimeChecks()(mod)
        count = checked.script(show_meta=False).count("R.assert_op(")
        if count == 0:
            raise RuntimeError(f"{name}: nothing is checked")
        functions = {
            "without checks": mod["main"],
            "without checks, again": mod["main"],
            f"with {count} checks": checked["main"],
        }
        executable = _one_executable(list(functions.values()))
        machine, argument = relax.VirtualMachine(executable, tvm.cpu()), tvm.runtime.tensor(x)
        implementations = {
            name: partial(machine[f"function{i}"], argument) for i, name in enumerate(functions)
        }
        comparisons.append(compare(f"run {name}", implementations, runs=_RUNS))
    return comparisons


def _one_executable(functions: list[relax.Function]) -> relax.VMExecutable:
    named = {f"function{i}": function for i, function in enumerate(functions)}
    mod = tvm.IRModule(
        {name: copy_with_new_vars(f).with_attr("global_symbol", name) for name, f in named.items()}
    )
    return tvm.compile(mod, resolve("native"), relax_pipeline=pipeline())


def check(comparison: Comparison) -> None:
    """Check that the cost is within its limit.

    Raises
    ------
    RuntimeError
        If the checks add more than :data:`MAX_COST` to the time of a run.
    """
    checked = comparison.implementations[-1]
    cost = comparison.ratio(checked) - 1
    if cost > MAX_COST:
        raise RuntimeError(f"{comparison.title}: checks take {cost:.1%}, more than {MAX_COST:.0%}")
