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
"""Distances between rows, and products of several matrices."""

import torch

from .registry import decomposes

aten = torch.ops.aten


@decomposes(aten._cdist_forward.default)
def _cdist(x: torch.Tensor, y: torch.Tensor, p: float, mode: int | None) -> torch.Tensor:
    return _norm(x.unsqueeze(-2) - y.unsqueeze(-3), p)


@decomposes(aten._pdist_forward.default)
def _pdist(x: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    count = x.shape[0]
    first, second = torch.triu_indices(count, count, 1, device=x.device).unbind()
    return _norm(x.index_select(0, first) - x.index_select(0, second), p)


def _norm(rows: torch.Tensor, p: float) -> torch.Tensor:
    if rows.shape[-1] == 0:
        return rows.sum(-1)
    return torch.linalg.vector_norm(rows, p, -1)


@decomposes(aten.addbmm.default)
def _addbmm(
    x: torch.Tensor, lhs: torch.Tensor, rhs: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    # The sum over the batch is one product of longer rows.
    rows = lhs.movedim(0, 1).flatten(1)
    return torch.addmm(x, rows, rhs.flatten(0, 1), beta=beta, alpha=alpha)
