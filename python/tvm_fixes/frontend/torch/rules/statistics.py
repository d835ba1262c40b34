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
"""Norms and statistics."""

from collections.abc import Sequence

import torch

from .registry import decomposes

aten = torch.ops.aten


@decomposes(aten.var_mean.correction)
def _var_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    axes = list(range(x.ndim)) if not dim else dim
    correction = 1 if correction is None else correction
    variance = torch.var(x, axes, correction=correction, keepdim=keepdim)
    return variance, torch.mean(x, axes, keepdim)


@decomposes(aten.native_layer_norm.default)
def _layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    axes = list(range(x.ndim - len(normalized_shape), x.ndim))
    wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = wide.mean(axes, keepdim=True)
    scale = torch.rsqrt((wide - mean).square().mean(axes, keepdim=True) + eps)
    out = (wide - mean) * scale
    out = out if weight is None else out * weight
    out = out if bias is None else out + bias
    # With float32 parameters, the statistics of 16-bit data are float32.
    kept = x.dtype if weight is None else weight.dtype
    return out.to(x.dtype), mean.to(kept), scale.to(kept)


@decomposes(aten.renorm.default)
def _renorm(x: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """Scale down each slice along an axis whose norm exceeds `maxnorm`."""
    axes = [axis for axis in range(x.ndim) if axis != dim % x.ndim]
    wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    norms = torch.linalg.vector_norm(wide, p, axes, keepdim=True)
    factors = torch.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)
    # PyTorch rounds the factors to the dtype of the data.
    return x * factors.to(x.dtype)
