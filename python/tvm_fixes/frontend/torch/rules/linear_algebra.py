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
"""Linear algebra by the factorizations that have converters."""

import torch

from .registry import decomposes

aten = torch.ops.aten


def _factored(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the LU factors in float64, the exchanges of rows, and where a pivot is 0."""
    lu, pivots, info = torch.linalg.lu_factor_ex(a.double())
    return lu, pivots, info


@decomposes(aten._linalg_det.default)
def _det(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    lu, pivots, _ = _factored(a)
    det = lu.diagonal(dim1=-2, dim2=-1).prod(-1) * _parity(pivots)
    return det.to(a.dtype), lu.to(a.dtype), pivots


def _parity(pivots: torch.Tensor) -> torch.Tensor:
    """Return the sign of the permutation that the exchanges make."""
    places = torch.arange(1, pivots.shape[-1] + 1, device=pivots.device)
    exchanges = (pivots != places).to(torch.int64).sum(-1)
    return (1 - 2 * (exchanges % 2)).double()


@decomposes(aten._linalg_slogdet.default)
def _slogdet(
    a: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    lu, pivots, _ = _factored(a)
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sign().prod(-1) * _parity(pivots)
    magnitude = diagonal.abs().log().sum(-1)
    return sign.to(a.dtype), magnitude.to(a.dtype), lu.to(a.dtype), pivots


@decomposes(aten.linalg_lu_solve.default)
def _lu_solve(
    lu: torch.Tensor,
    pivots: torch.Tensor,
    b: torch.Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> torch.Tensor:
    if not left:
        return _lu_solve(lu, pivots, b.mT, adjoint=not adjoint).mT
    permutation, lower, upper = torch.lu_unpack(lu.double(), pivots)
    solve, wide = torch.linalg.solve_triangular, b.double()
    if adjoint:
        half = solve(upper.mT, wide, upper=False)
        x = permutation @ solve(lower.mT, half, upper=True, unitriangular=True)
    else:
        half = solve(lower, permutation.mT @ wide, upper=False, unitriangular=True)
        x = solve(upper, half, upper=True)
    return x.to(b.dtype)


@decomposes(aten._linalg_solve_ex.default)
def _solve(
    a: torch.Tensor, b: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    lu, pivots, info = _factored(a)
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    columns = b.unsqueeze(-1) if is_vector else b
    x = _lu_solve(lu, pivots, columns.double(), left=left).to(b.dtype)
    return x.squeeze(-1) if is_vector else x, lu.to(a.dtype), pivots, info


@decomposes(aten.linalg_inv_ex.default)
def _inverse(a: torch.Tensor, *, check_errors: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    x, _, _, info = _solve(a, identity.expand(a.shape))
    return x, info


@decomposes(aten.linalg_lu.default)
def _lu(a: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    lu, pivots, _ = torch.linalg.lu_factor_ex(a, pivot=pivot)
    permutation, lower, upper = torch.lu_unpack(lu, pivots)
    return (permutation if pivot else permutation.new_empty(0)), lower, upper


@decomposes(aten.linalg_lu_factor.default)
def _lu_factor(a: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    lu, pivots, _ = torch.linalg.lu_factor_ex(a, pivot=pivot)
    return lu, pivots


@decomposes(aten.cholesky.default)
def _cholesky(a: torch.Tensor, upper: bool = False) -> torch.Tensor:
    return torch.linalg.cholesky_ex(a, upper=upper)[0]


@decomposes(aten.cholesky_solve.default)
def _cholesky_solve(b: torch.Tensor, factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    lower = (factor.mT if upper else factor).double()
    half = torch.linalg.solve_triangular(lower, b.double(), upper=False)
    return torch.linalg.solve_triangular(lower.mT, half, upper=True).to(b.dtype)


@decomposes(aten.cholesky_inverse.default)
def _cholesky_inverse(factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return _cholesky_solve(identity.expand(factor.shape), factor, upper)


@decomposes(aten.triangular_solve.default)
def _triangular_solve(
    b: torch.Tensor,
    a: torch.Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linalg.solve_triangular(
        a.mT if transpose else a, b, upper=upper != transpose, unitriangular=unitriangular
    )
    return x, a.expand(*x.shape[:-2], *a.shape[-2:]).clone()


@decomposes(aten.linalg_qr.default)
def _qr(a: torch.Tensor, mode: str = "reduced") -> tuple[torch.Tensor, torch.Tensor]:
    vectors, tau = torch.geqrf(a.double())
    rows, columns = a.shape[-2:]
    count = rows if mode == "complete" else min(rows, columns)
    upper = vectors[..., :count, :].triu().to(a.dtype)
    if mode == "r":
        return a.new_empty(0), upper
    return torch.linalg.householder_product(_columns(vectors, count), tau).to(a.dtype), upper


def _columns(vectors: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first columns of a matrix, and zeros after its last one."""
    missing = count - vectors.shape[-1]
    if missing <= 0:
        return vectors[..., :count]
    return torch.nn.functional.pad(vectors, (0, missing))


@decomposes(aten.ormqr.default)
def _multiply_by_reflectors(
    vectors: torch.Tensor,
    tau: torch.Tensor,
    other: torch.Tensor,
    left: bool = True,
    transpose: bool = False,
) -> torch.Tensor:
    q = torch.linalg.householder_product(_columns(vectors, vectors.shape[-2]), tau)
    q = q.mT if transpose else q
    return q @ other if left else other @ q


@decomposes(aten.linalg_matrix_exp.default)
def _matrix_exp(a: torch.Tensor) -> torch.Tensor:
    if a.numel() == 0:
        return a.clone()
    wide = a.double()
    norm = wide.abs().sum(-1).amax(-1).unsqueeze(-1).unsqueeze(-1)
    # The exponential of the matrix divided by a power of 2 is a short series.
    halvings = torch.ceil(torch.log2(norm) + 1).clamp(0, _MAX_HALVINGS)
    scaled = wide * torch.exp2(-halvings)
    identity = torch.eye(a.shape[-1], dtype=wide.dtype, device=a.device).expand(a.shape)
    out = identity
    for degree in range(18, 0, -1):
        out = identity + scaled @ out / degree
    for step in range(_MAX_HALVINGS):
        out = torch.where(halvings > step, out @ out, out)
    return torch.where(norm < 2.0 ** (_MAX_HALVINGS - 1), out, torch.nan).to(a.dtype)


_MAX_HALVINGS = 20
