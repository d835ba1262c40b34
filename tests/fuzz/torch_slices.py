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
"""PyTorch programs whose slices end far out of range: a part of the campaign ``slices``."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import tvm_fixes

_HUGE = (10**9, 2**31 - 1, 2**31, 2**62, 2**63 - 1)

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class _Slices(nn.Module):
    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results, value = [], x
        for step in self.steps:
            value = step(value, y)
            results.append(value)
        return (*results, value @ value.transpose(-1, -2))


def _bound(rng: np.random.Generator) -> int | None:
    if rng.random() < 0.15:
        return None
    if rng.random() < 0.5:
        return int(rng.integers(-8, 9))
    huge = int(rng.choice(_HUGE))
    return huge if rng.random() < 0.6 else -huge


def _step(rng: np.random.Generator) -> Step:
    axis, (start, end) = int(rng.integers(-3, 3)), (_bound(rng) for _ in range(2))
    if rng.random() < 0.5:
        start, end = (0, int(rng.choice(_HUGE))) if rng.random() < 0.7 else (None, end)
    stride = int(rng.choice((1, 1, 1, 2, 3, 2**31)))
    offset = int(rng.choice((0, 1, -1, 3, 10**9)))
    at = (slice(None),) * (axis % 3)
    kind = int(rng.integers(6))
    if kind == 0:  # as far as another tensor
        return lambda x, y: x[(*at, slice(start, y.shape[0] + offset, stride))]
    if kind == 1:
        return lambda x, y: x[(*at, slice(-(y.shape[0] + offset), end, stride))]
    if kind == 2:
        return lambda x, y: torch.cat([x[(*at, slice(start, end))], x], axis)
    if kind == 3:
        return lambda x, y: x[(*at, slice(start, end, stride))] * 2 + x.shape[axis]
    return lambda x, y: x[(*at, slice(start, end, stride))]


def run_case(seed: int) -> str | None:
    """Export, compile and compare the program of `seed` at three sizes."""
    torch.set_num_threads(1)
    rng = np.random.default_rng([10, seed])
    module = _Slices([_step(rng) for _ in range(int(rng.integers(1, 4)))]).eval()
    shape = [int(extent) for extent in rng.integers(3, 7, 3)]
    axes = [axis for axis in range(3) if rng.random() < 0.5]
    dynamic: Any = ({axis: torch.export.Dim.AUTO for axis in axes}, {0: torch.export.Dim.AUTO})
    inputs = _inputs(rng, shape, 4)
    try:
        program = torch.export.export(module, inputs, dynamic_shapes=dynamic)
    except Exception as error:  # limitations of torch.export
        return f"torch.export: {' '.join(str(error).split())[:200]}"
    model = tvm_fixes.compile(program, compare=False)
    accepts = program.module()
    for count in (4, 2, 9, 5):
        other = [
            extent + count - 4 if axis in axes else extent for axis, extent in enumerate(shape)
        ]
        inputs = _inputs(rng, [max(extent, 2) for extent in other], count)
        is_accepted = True
        try:
            accepts(*inputs)
        except Exception:  # sizes that violate a guard
            is_accepted = False
        try:
            results = model.run(*inputs)
        except Exception:
            if is_accepted:
                raise
            continue
        with torch.no_grad():
            wanted = module(*inputs)
        for index, (ours, theirs) in enumerate(zip(results, wanted, strict=True)):
            value = np.asarray(ours)
            where = f"result {index} of inputs {[tuple(x.shape) for x in inputs]}"
            assert value.shape == tuple(theirs.shape), f"{where}: {value.shape}, not {theirs.shape}"
            same = np.allclose(value, theirs.numpy(), 1e-4, 1e-4)
            assert same, f"{where}: {value}, not {theirs}"
    return None


def _inputs(
    rng: np.random.Generator, shape: list[int], count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.from_numpy(rng.integers(-4, 5, shape).astype("float32"))
    return x, torch.zeros(count)
