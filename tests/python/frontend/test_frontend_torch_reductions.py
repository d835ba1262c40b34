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
"""Reductions, numbers and elementary operators of exported PyTorch programs, on special values."""

import math

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import is_full
from helpers.relax_modules import cpu
from helpers.torch_programs import Call, check_function, import_exported

NAN, INF = math.nan, math.inf


def check_exactly(function, *inputs: torch.Tensor) -> None:
    """Compare outputs with PyTorch's exactly, except for NaN payloads and signs of zero."""
    mod = import_exported(Call(function), inputs)
    executable = relax.build(mod, cpu(), relax_pipeline="tvm_fixes")
    given = [tvm.runtime.from_dlpack(x) for x in inputs]
    outputs = relax.VirtualMachine(executable, tvm.cpu())["main"](*given)
    for number, (output, expected) in enumerate(zip(outputs, function(*inputs), strict=True)):
        torch.testing.assert_close(
            torch.from_dlpack(output),
            expected,
            rtol=0,
            atol=0,
            equal_nan=True,
            msg=lambda text, number=number: f"output {number}: {text}",
        )


@pytest.mark.parametrize(
    "dtype", (torch.float32, torch.bfloat16) if is_full() else (torch.bfloat16,)
)
def test_extrema_of_nan(dtype: torch.dtype) -> None:
    x = torch.tensor([[1, NAN, 3], [4, 2, 4], [-1, -5, NAN], [-INF, INF, 0]], dtype=dtype)
    check_exactly(
        lambda x: (
            *x.max(1),
            *x.min(0, keepdim=True),
            *torch.aminmax(x, dim=1),
            *(x.amax(), x.amin((0, 1)), x.amax(1, keepdim=True), x.amax(-1), x.max(), x.min()),
        ),
        x,
    )


def test_extrema_of_integers_and_booleans() -> None:
    x = torch.tensor([[3, -7, 2**40], [0, 0, -1]])
    check_exactly(lambda x: (x.amax(1), *x.max(1), *x.min(0)), x)
    check_exactly(lambda x: (x.amax(1), *x.max(1), *x.min(0), x.max()), x > 0)


def test_axes_of_a_tensor_without_axes() -> None:
    check_function(
        lambda s: (
            *(s.sum(0), s.mean(-1), s.amax(0), s.prod(0), s.cumsum(0), s.flip(0), s.argmax(0)),
            *(*s.max(0), *s.min(-1), *s.sort(), *torch.topk(s, 1)),
            *(F.softmax(s, 0), F.log_softmax(s, -1), s.var(unbiased=False), torch.any(s > 0, 0)),
        ),
        torch.tensor(2.5),
    )


QUOTIENTS = (torch.float32, torch.float16, torch.float64)


@pytest.mark.parametrize("dtype", QUOTIENTS if is_full() else QUOTIENTS[:1])
def test_quotients_and_remainders(dtype: torch.dtype) -> None:
    """1 // 0.1 is 9 with a remainder of nearly 0.1, since 0.1 is rounded up."""
    pairs = [(1, 0.1), (-1, 0.1), (5.5, -2), (-5.5, 2), (7, INF), (-2, INF), (2, -INF), (1, 0)]
    pairs += [(INF, 3), (0, 3), (3, NAN), (-0.3, 0.1), (1000, 3)]
    x, y = torch.tensor(pairs, dtype=torch.float64).to(dtype).unbind(1)
    check_exactly(
        lambda x, y: (
            *(torch.remainder(x, y), torch.fmod(x, y), torch.floor_divide(x, y), x // 0.1),
            *(torch.div(x, y, rounding_mode="floor"), 1.0 % y, x != y, y == x),
        ),
        x.clone(),
        y.clone(),
    )


def test_remainders_of_bfloat16() -> None:
    x, y = torch.tensor([5.5, -7, 100]).bfloat16(), torch.tensor([2.0, 3, -7]).bfloat16()
    check_exactly(lambda x, y: (torch.fmod(x, y), torch.remainder(x, y)), x, y)


def test_zero_times_infinity_and_nan() -> None:
    x = torch.tensor([1.0, NAN, INF, -INF])
    check_exactly(lambda x: (x * 0, 0.0 * x, torch.mul(x, 0.0)), x)


def test_signs_of_zero() -> None:
    """An angle shows them."""
    x = torch.tensor([1.0, -1.0, 0.0, -0.0, 3.0, -3.0])
    check_exactly(lambda x: (torch.atan2(x, x * 0), torch.atan2(x, x % -3), 1 / (0 * x)), x)


RANGES = [
    *((5, -1, -2), (5, 0, -1), (3, 3, -1), (0, 5, 0.5), (1, 2, 0.3), (0, -1, -0.25), (2, 9, 3)),
    *((4, 4), (0.5, 6)),
]


def test_ranges() -> None:
    dtypes = (None, torch.float32, torch.float16, torch.bfloat16, torch.float64)
    given = [(numbers, dtype) for numbers in RANGES for dtype in dtypes]
    given += [
        (numbers, dtype)
        for numbers in RANGES
        for dtype in (torch.int64, torch.int32)
        if all(isinstance(number, int) for number in numbers)
    ]
    check_exactly(
        lambda x: (x, *(torch.arange(*numbers, dtype=dtype) for numbers, dtype in given)),
        torch.ones(1),
    )


def test_ranges_of_symbolic_sizes() -> None:
    def ranges(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x.shape[0]
        return (
            torch.arange(rows - 1, -1, -1),
            torch.arange(0, rows, 2),
            torch.arange(rows, dtype=torch.float32),
        )

    check_function(ranges, torch.ones(5, 2), dynamic=[0], others=((torch.ones(8, 2),),))


def test_fills_of_bfloat16_with_symbolic_sizes() -> None:
    check_function(
        lambda x: (
            *(torch.full_like(x, 2.5), torch.full_like(x, -INF), torch.zeros_like(x)),
            *(x.masked_fill(x > 0, -INF), x.new_full((x.shape[0], 2), NAN)),
        ),
        torch.randn(5, 3).bfloat16(),
        dynamic=[0],
        others=((torch.randn(7, 3).bfloat16(),),),
    )


def test_elements_selected_by_a_mask() -> None:
    """Results of data-dependent size, also concatenated and on broadcast data."""
    check_function(
        lambda x, mask, y, column: (
            torch.cat([torch.masked_select(x, mask).unsqueeze(1), y]),
            torch.masked_select(column, mask),
        ),
        torch.randn(4),
        torch.tensor([True, False, True, True]),
        torch.randn(2, 1),
        torch.randn(3, 1),
    )


PADS = ("circular", "reflect", "replicate")


@pytest.mark.parametrize("mode", PADS if is_full() else PADS[:2])
def test_pads_of_symbolic_sizes(mode: str) -> None:
    check_function(
        lambda x: (F.pad(x, (3, 2, 1, 3), mode=mode),),
        torch.randn(1, 2, 5, 4),
        dynamic=[2],
        others=((torch.randn(1, 2, 9, 4),),),
    )


if __name__ == "__main__":
    tvm.testing.main()
