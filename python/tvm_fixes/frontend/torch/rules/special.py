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
"""Special functions, computed in float64."""

import math

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Kind
from torch._prims_common import elementwise_dtypes

from .registry import decomposes

aten = torch.ops.aten


def _dtype(x: torch.Tensor) -> torch.dtype:
    """Return the dtype of a function of a tensor that may have integers."""
    return elementwise_dtypes(x, type_promotion_kind=Kind.INT_TO_FLOAT)[1]


@decomposes(aten.erfc.default)
def _erfc(x: torch.Tensor) -> torch.Tensor:
    dtype, x = _dtype(x), x.double()
    # Far from 0, the difference to 1 is lost; there, a continued fraction converges.
    large = x.clamp(min=2)
    fraction = large
    for k in range(40, 0, -1):
        fraction = large + (k / 2) / fraction
    far = torch.exp(-large * large) / (math.sqrt(math.pi) * fraction)
    return torch.where(x > 2, far, 1 - torch.erf(x)).to(dtype)


# Lanczos' approximation of the gamma function, with 7 as the shift.
_LANCZOS = (
    *(0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313),
    *(-176.61502916214059, 12.507343278686905, -0.13857109526572012),
    *(9.9843695780195716e-6, 1.5056327351493116e-7),
)


def _fraction(x: torch.Tensor) -> torch.Tensor:
    """Return the difference from the nearest integer; its sine is precise for all numbers."""
    return x - x.round()


@decomposes(aten.lgamma.default)
def _lgamma(x: torch.Tensor) -> torch.Tensor:
    dtype = _dtype(x)
    x = x.double()
    is_small = x < 0.5
    shifted = torch.where(is_small, -x, x - 1)
    total = _LANCZOS[0] + sum(c / (shifted + i) for i, c in enumerate(_LANCZOS) if i)
    base = shifted + 7.5
    right = 0.5 * math.log(2 * math.pi) + (shifted + 0.5) * base.log() - base + total.log()
    left = math.log(math.pi) - (math.pi * _fraction(x)).sin().abs().log() - right
    out = torch.where(is_small, left, right)
    is_pole = ((x <= 0) & (x == x.floor())) | torch.isinf(x)
    return torch.where(is_pole, torch.full_like(out, math.inf), out).to(dtype)


@decomposes(aten.digamma.default)
def _digamma(x: torch.Tensor) -> torch.Tensor:
    dtype = _dtype(x)
    x = x.double()
    is_small = x < 0.5
    place = torch.where(is_small, 1 - x, x)
    # The series below converges from 10 on.
    total = -sum(1 / (place + step) for step in range(10))
    place = place + 10
    square = 1 / (place * place)
    series = torch.zeros_like(place)
    for coefficient in reversed(_DIGAMMA):
        series = square * (coefficient + series)
    right = total + place.log() - 0.5 / place - series
    fraction = _fraction(x)
    left = right - math.pi / (math.pi * fraction).tan()
    out = torch.where(is_small, left, right)
    is_pole = (x < 0) & (fraction == 0)
    out = torch.where(is_pole, torch.full_like(out, math.nan), out)
    at_zero = torch.where(torch.signbit(x), math.inf, -math.inf).to(out.dtype)
    return torch.where(x == 0, at_zero, out).to(dtype)


# Bernoulli numbers of even index, each divided by its index.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


@decomposes(aten.erfinv.default)
def _inverse_erf(x: torch.Tensor) -> torch.Tensor:
    dtype = _dtype(x)
    x = x.double()
    # A first approximation, followed by Newton's method.
    logarithm = torch.log1p(-x * x)
    half = 2 / (math.pi * 0.147) + logarithm / 2
    y = torch.sqrt(torch.sqrt(half * half - logarithm / 0.147) - half)
    y = torch.where(x < 0, -y, y)
    for _ in range(3):
        y = y - (torch.erf(y) - x) * torch.exp(y * y) * (math.sqrt(math.pi) / 2)
    bound = torch.where(x > 0, math.inf, -math.inf).to(y.dtype)
    return torch.where(x.abs() == 1, bound, y).to(dtype)


def _scaled_bessel(x: torch.Tensor, order: int) -> torch.Tensor:
    """Return ``exp(-|x|)`` times the modified Bessel function of order 0 or 1 of ``|x|``."""
    x = x.abs().unsqueeze(-1)
    # The mean of a periodic function over equal steps converges exponentially.
    angles = torch.arange(_STEPS + 1, dtype=torch.float64, device=x.device) * (math.pi / _STEPS)
    ends = torch.where((angles == 0) | (angles > 3.14), 0.5, 1.0).to(torch.float64) / _STEPS
    cosines = torch.cos(angles)
    weights = ends * cosines if order else ends
    near = (torch.exp(x.clamp(max=_FAR) * (cosines - 1)) * weights).sum(-1)
    x = x.squeeze(-1)
    series, term = torch.ones_like(x), torch.ones_like(x)
    for k in range(1, 8):
        term = term * ((2 * k - 1) ** 2 - 4 * order) / (8 * k * x)
        series = series + term
    return torch.where(x <= _FAR, near, series / torch.sqrt(2 * math.pi * x))


# With this number of steps, the error is below 1e-9 up to this magnitude.
_STEPS, _FAR = 64, 100.0


@decomposes(aten.special_i0e.default)
def _i0e(x: torch.Tensor) -> torch.Tensor:
    return _scaled_bessel(x.double(), 0).to(_dtype(x))


@decomposes(aten.i0.default)
def _i0(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return (_scaled_bessel(wide, 0) * torch.exp(wide.abs())).to(_dtype(x))


@decomposes(aten.special_i1e.default)
def _i1e(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    scaled = _scaled_bessel(wide, 1) * wide.sign()
    return torch.where(wide.abs() < 1e-6, wide / 2, scaled).to(_dtype(x))


@decomposes(aten.special_i1.default)
def _i1(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    out = _scaled_bessel(wide, 1) * torch.exp(wide.abs()) * wide.sign()
    return torch.where(wide.abs() < 1e-6, wide / 2, out).to(_dtype(x))
