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
"""Elementwise functions."""

import math
from collections.abc import Callable

import torch

from .registry import decomposes

aten = torch.ops.aten


def _unless_nan(
    choose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def rule(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chosen = choose(x, y)
        if not chosen.is_floating_point():
            return chosen
        x, y = x.to(chosen.dtype), y.to(chosen.dtype)
        return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, chosen))

    return rule


@decomposes(aten.exp2.default)
def _exp2(x: torch.Tensor) -> torch.Tensor:
    return torch.pow(2.0, x)


@decomposes(aten.hypot.default)
def _hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = x.abs(), y.abs()
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    # Squares of large numbers would be infinite.
    ratio = torch.where(large == small, torch.ones_like(small), small / large)
    length = large * torch.sqrt(1 + ratio * ratio)
    is_infinite = torch.isinf(x) | torch.isinf(y)
    return torch.where(is_infinite, torch.full_like(length, math.inf), length)


decomposes(aten._is_all_true.default)(aten.all.default)
decomposes(aten._is_any_true.default)(aten.any.default)
decomposes(aten.fmax.default)(_unless_nan(torch.maximum))
decomposes(aten.fmin.default)(_unless_nan(torch.minimum))
