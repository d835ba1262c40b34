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
"""Distributions, derived from ``rand`` and ``randn``."""

from typing import Any

import torch
from torch import Tensor

from .registry import decomposes

aten, prims = torch.ops.aten, torch.ops.prims


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _rand_of(x: Tensor) -> Tensor:
    """Return numbers in [0, 1) in the shape of a tensor, in float32 or float64."""
    return torch.rand(x.shape, dtype=_wide(x.dtype), device=x.device)


@decomposes(aten.bernoulli.p, aten.bernoulli.Tensor)
def _bernoulli(x: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    return (_rand_of(x) < p).to(x.dtype)


@decomposes(aten.native_dropout.default)
def _dropout(x: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    is_kept = _rand_of(x) >= p
    return x * is_kept * (1 / (1 - p) if p < 1 else 0.0), is_kept


@decomposes(aten.exponential.default)
def _exponential(x: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    # Half a step, so that the logarithm is neither 0 nor infinite.
    half = 2.0**-53 if x.dtype == torch.float64 else 2.0**-24
    return ((_rand_of(x) + half).log() * (-1 / lambd)).to(x.dtype)


@decomposes(aten.uniform.default)
def _uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    return torch.rand_like(x) * (high - low) + low


@decomposes(prims.uniform.default)
def _uniform_of_shape(
    shape: Any, *, low: float, high: float, dtype: torch.dtype, device: Any, generator: Any = None
) -> Tensor:
    return torch.rand(shape, dtype=dtype, device=device) * (high - low) + low


@decomposes(aten.normal_functional.default)
def _normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    return torch.randn_like(x) * std + mean


@decomposes(aten.normal.Tensor_float, aten.normal.Tensor_Tensor, aten.normal.float_Tensor)
def _normal_of_tensors(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
    shape = torch.broadcast_shapes(*(x.shape for x in tensors))
    return torch.randn(shape, dtype=tensors[0].dtype, device=tensors[0].device) * std + mean


@decomposes(aten.normal.float_float)
def _normal_of_shape(
    mean: float, std: float, size: Any, *, generator: Any = None, **options: Any
) -> Tensor:
    return torch.randn(size, **options) * std + mean


@decomposes(aten.multinomial.default)
def _multinomial(
    weights: Tensor, count: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    weights = weights.double()
    if not replacement:
        # The least of exponential numbers, each divided by its weight, is an element of that
        # weight; the next ones are drawn from the others.
        return (weights / _exponential(weights)).topk(count, -1).indices
    sums = weights.cumsum(-1)
    drawn = torch.rand((*weights.shape[:-1], count), dtype=torch.float64, device=weights.device)
    return torch.searchsorted(sums, drawn * sums[..., -1:], right=True)


@decomposes(aten.randperm.default)
def _permutation(
    n: Any, *, dtype: torch.dtype | None = None, device: Any = None, **options: Any
) -> Tensor:
    numbers = torch.rand((n,), dtype=torch.float64, device=device)
    return numbers.argsort().to(dtype or torch.int64)


@decomposes(aten.rrelu_with_noise_functional.default)
def _rrelu(
    x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, generator: Any = None
) -> tuple[Tensor, Tensor]:
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise
    slopes = torch.where(x <= 0, torch.rand_like(x) * (upper - lower) + lower, 1)
    return x * slopes, slopes
