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
"""Type promotion, compared with PyTorch."""

import math

import pytest
import torch
import tvm
import tvm.testing
from tvm.relax.frontend import torch as tvm_torch

import tvm_fixes
from helpers.grids import is_full
from helpers.torch_programs import Call, check_function, import_exported, random
from tvm_fixes.support import switches

INTEGERS = torch.arange(-3, 5)
FLOATS = random(8, dtype=torch.float32, seed=0)
BOOLEANS = FLOATS > 0

# Both are computed in float32.
HALVES = (torch.float16, torch.bfloat16) if is_full() else (torch.bfloat16,)


def test_integers_and_numbers() -> None:
    check_function(
        lambda x: (
            x * 0.5,
            x + 1,
            x > 0.5,
            1.5 - x,
            1 - x,
            x / 2,
            x // 3,
            x % 3,
            torch.fmod(x, 3),
            x**2,
            x.abs() ** 0.5,
            2.0**x,
        ),
        INTEGERS,
    )


@pytest.mark.parametrize("mode", (None, "floor", "trunc"))
def test_quotients(mode: str | None) -> None:
    check_function(
        lambda x, y, z: (
            torch.div(x, 3, rounding_mode=mode),
            torch.div(x, y, rounding_mode=mode),
            torch.div(y, x.abs() + 1, rounding_mode=mode),
            torch.div(x, z, rounding_mode=mode),
        ),
        INTEGERS,
        torch.full((8,), 2.5),
        torch.tensor([2, -2, 3, -3, 1, -1, 5, 7], dtype=torch.int32),
    )


def test_tensors_without_axes_do_not_widen() -> None:
    scalar = torch.tensor(2.0, dtype=torch.float64)
    check_function(lambda x, y, n: (x * y, x + n, n * y), FLOATS, scalar, INTEGERS)


def test_factors_of_sums() -> None:
    check_function(
        lambda x, y: (
            torch.add(x, y, alpha=2),
            torch.sub(x, y, alpha=0.5),
            torch.rsub(x, y, alpha=3),
            torch.add(x, 1, alpha=-2),
        ),
        FLOATS,
        FLOATS.flip(0),
    )


def test_functions_of_integers() -> None:
    check_function(
        lambda x: (
            torch.exp(x),
            torch.sigmoid(x),
            torch.tanh(x),
            torch.log1p(x.abs()),
            torch.sqrt(x.abs()),
            torch.rsqrt(x.abs() + 1),
            torch.sin(x),
            torch.reciprocal(x.abs() + 1),
        ),
        INTEGERS,
    )


def test_booleans() -> None:
    check_function(
        lambda x: (
            x.cumsum(0),
            x.sum(),
            x.any(),
            ~x,
            x & ~x,
            x | x.flip(0),
            x ^ x.flip(0),
            x * 3,
            x * x,
            x + x.flip(0),
            torch.maximum(x, x.flip(0)),
            x == x.flip(0),
            x != x.flip(0),
            x > x.flip(0),
            x == True,  # noqa: E712
        ),
        BOOLEANS,
    )


def test_any_and_bounds_of_integers() -> None:
    small = INTEGERS.to(torch.int8)
    check_function(
        lambda x, y: (
            x.any(),
            x.reshape(2, 4).any(1),
            x.clamp(min=0),
            x.clamp(max=2),
            x.clamp(-1, 1),
            x.clamp(0.5),
            y.cumsum(0),
            y.prod(),
            torch.clamp(x, min=y),
        ),
        INTEGERS,
        small,
    )


def test_any_and_all_of_no_elements() -> None:
    check_function(
        lambda x, b: (x[4:].any(), x[4:].any(0), b[4:].any(), b[4:].any(0), b[4:].all()),
        INTEGERS.reshape(4, -1),
        BOOLEANS.repeat(4, 1),
    )


def test_choices_and_fills() -> None:
    check_function(
        lambda x, n, b: (
            torch.where(b, x, n),
            torch.where(b, n, 0.5),
            torch.ones_like(x, dtype=torch.int64),
            torch.zeros_like(n, dtype=torch.float64),
            torch.cat([x, n]),
        ),
        FLOATS,
        INTEGERS,
        BOOLEANS,
    )


def test_sizes_as_operands() -> None:
    check_function(
        lambda x: (x * x.shape[0], x + x.shape[0] // 2, torch.full((2,), x.shape[0]) / 3),
        random(5, 3, dtype=torch.float32, seed=0),
        dynamic=(0,),
        others=[(random(9, 3, dtype=torch.float32, seed=1),)],
    )


def test_what_needs_no_promotion_is_imported_as_tvm_does() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x * 2 + x) > 0.5

    with switches.collect() as acted:
        mod = import_exported(Call(function), (FLOATS,))
    assert acted == set()
    stock = import_exported(Call(function), (FLOATS,), of=tvm_torch)
    tvm.ir.assert_structural_equal(mod, stock)


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Call(lambda x: x * 0.5)
    with switches.collect() as acted:
        import_exported(module, (INTEGERS,))
    assert acted == {"torch-promotion"}
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-promotion")
    stock = import_exported(module, (INTEGERS,), of=tvm_torch)
    tvm.ir.assert_structural_equal(import_exported(module, (INTEGERS,)), stock)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_comparisons_with_itself_find_nan(dtype: torch.dtype) -> None:
    x = torch.tensor([1, torch.nan, -torch.inf, 0], dtype=dtype)
    check_function(
        lambda x: (
            torch.where(x != x, 5, x),
            *(torch.where(f(x, x), x, 7) for f in (torch.eq, torch.le, torch.ge, torch.lt)),
        ),
        x,
    )


@pytest.mark.parametrize(
    "dtype", (torch.int8, torch.uint8, torch.int64) if is_full() else (torch.int8, torch.uint8)
)
def test_powers_of_integers_by_a_number(dtype: torch.dtype) -> None:
    x = torch.arange(7).to(dtype) - (0 if dtype == torch.uint8 else 3)
    check_function(lambda x: (x**0, x**1, x**2, x**3, x**11, x**2.0, x**True, (x > 1) ** 3), x)


@pytest.mark.parametrize(
    "dtype", (*HALVES, torch.float32, torch.float64) if is_full() else (*HALVES, torch.float64)
)
def test_roots_of_infinity(dtype: torch.dtype) -> None:
    x = torch.tensor([-math.inf, -0.0, 0.0, 4.0, -4.0, math.inf, math.nan] * 5, dtype=dtype)
    check_function(lambda x: (x**0.5, x**-0.5, x ** torch.full_like(x, 0.5), x**2), x)


def test_roots_of_integers() -> None:
    check_function(lambda x: (x**0.5, (x + 1) ** -0.5), torch.arange(5))


def test_bounds_that_the_dtype_does_not_hold() -> None:
    x = torch.tensor([0, 1, 5, 255], dtype=torch.uint8)
    check_function(lambda x: (x.clamp(-1, 2), x.clamp(max=-2)), x)


def test_numbers_that_the_dtype_does_not_hold() -> None:
    """Out-of-range numbers wrap around, even in comparisons."""
    x = torch.tensor([0, 1, 5, 255], dtype=torch.uint8)
    check_function(
        lambda x: (
            x + -3,
            x * 300,
            x & -3,
            x < -3,
            x == -1,
            torch.fmod(x, -3),
            torch.add(x, x, alpha=-1),
            x.clone().copy_(-1.5),
            x.clone().copy_(300.7),
            torch.where(x > 3, x, -1),
            torch.full_like(x, -1),
            x.masked_fill(x > 3, -1),
        ),
        x,
    )


class Interpolated(torch.nn.Module):
    """Sums with a factor: PyTorch rounds only the result to 16 bits."""

    def forward(self, x, y, w):
        return [
            *(torch.lerp(x, y, weight) for weight in (0.3, 0.7, 1.0, w)),
            torch.lerp(x, x, 0.5),
            torch.add(x, y, alpha=2),
            torch.sub(x, y, alpha=2),
            torch.rsub(x, y, alpha=2),
            torch.addcmul(x, y, w, value=2),
            torch.addcdiv(x, y, w, value=0),
        ]


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_sums_of_infinities(dtype):
    # Whole vectors: PyTorch's scalar code rounds the product of `alpha`, too.
    # In float32, a product that overflows is infinite unless the CPU adds without rounding it.
    largest = torch.finfo(dtype).max / (4 if dtype == torch.float32 else 1)
    values = torch.tensor([0, 1, -1, math.inf, -math.inf, math.nan, largest, -largest]).to(dtype)
    x, y = values.repeat_interleave(len(values)), values.repeat(len(values))
    inputs = (x, y, torch.linspace(-1, 2, len(x)).to(dtype))
    model = tvm_fixes.compile((Interpolated().eval(), inputs), compare=False)
    for ours, theirs in zip(model.run(*inputs), Interpolated()(*inputs), strict=True):
        assert torch.equal(ours.isnan(), theirs.isnan())
        assert torch.equal(ours.isinf(), theirs.isinf())


if __name__ == "__main__":
    tvm.testing.main()
