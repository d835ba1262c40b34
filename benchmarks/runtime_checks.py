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
"""What checks at run time cost, in models of dynamic shapes: embedded tokens, and convolutions."""

from collections.abc import Callable

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax

from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.pipeline import pipeline
from tvm_fixes.relax.transform import InsertRuntimeChecks

from .measure import Comparison, compare

LARGEST_COST = 0.01
"""The share of a run's time that checks may take."""

# One ratio is off by some 9 percent on a quiet machine; the median of so many by 0.4.
_RUNS = 1000


class _Tokens(nn.Module):
    """Embedded tokens in layers of two products."""

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
    """Convolutions of padded pictures, whose borders are mirrored."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(c, 32, 3, padding=1, padding_mode="reflect") for c in (3, 32, 32))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def models() -> dict[str, tuple[tvm.IRModule, np.ndarray]]:
    """The models, imported, and an input of each."""
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


def _runner(mod: tvm.IRModule, x: np.ndarray) -> Callable[[], object]:
    executable = tvm.compile(mod, "llvm", relax_pipeline=pipeline())
    machine = relax.VirtualMachine(executable, tvm.cpu())
    argument = tvm.runtime.tensor(x)
    return lambda: machine["main"](argument)


def comparisons() -> list[Comparison]:
    """Each model without checks and with them.

    Raises
    ------
    RuntimeError
        If there is nothing to check in a model.
    """
    found = []
    for name, (mod, x) in models().items():
        checked = InsertRuntimeChecks()(mod)
        count = checked.script(show_meta=False).count("R.assert_op(")
        if count == 0:
            raise RuntimeError(f"{name}: nothing is checked")
        ways = {"without checks": _runner(mod, x), f"with {count} checks": _runner(checked, x)}
        found.append(compare(f"run {name}", ways, runs=_RUNS))
    return found


def check(comparison: Comparison) -> None:
    """Hold the checks to their share.

    Raises
    ------
    RuntimeError
        If a run with checks takes more than :data:`LARGEST_COST` longer than one without.
    """
    _, checked = comparison.ways
    cost = comparison.ratio(checked) - 1
    if cost > LARGEST_COST:
        raise RuntimeError(
            f"{comparison.title}: checks take {cost:.1%}, more than {LARGEST_COST:.0%}"
        )
