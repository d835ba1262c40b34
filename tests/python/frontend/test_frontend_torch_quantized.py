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
"""Operators of quantized PyTorch programs, compared with PyTorch exactly."""

import re

import pytest
import torch
import torch.ao.quantization.fx._decomposed
import tvm
import tvm.testing
from torch import nn

from helpers.growth import BLOCKS, assert_grows_linearly
from helpers.relax_modules import count
from helpers.torch_quantized import Fixed, integers, numbers, same
from tvm_fixes.frontend import torch as importers

ops = torch.ops.quantized_decomposed
aten = torch.ops.aten
I8, U8, I16, I32 = torch.int8, torch.uint8, torch.int16, torch.int32
HALF, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def test_quantize_per_tensor() -> None:
    def function(x: torch.Tensor, half: torch.Tensor, *p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale, wide_scale, zero, low, high = p
        quantize = ops.quantize_per_tensor
        return (
            quantize(x, 0.1, 3, 0, 255, U8),
            quantize(x, 1 / 3, -7, -127, 127, I8),
            quantize(x, 0.1, 3, 0, 15, U8),
            quantize(x, 0.1, 0, -(2**31), 2**31 - 1, I32),
            quantize(x, 0.3, 5, -32768, 32767, I16),
            quantize(half, 0.1, 3, 0, 255, U8),
            quantize.tensor(x, scale, zero, -128, 127, I8),
            quantize.tensor(x, wide_scale, zero, -128, 127, I8),
            quantize.tensor2(x, scale, zero, low, high, I8),
        )

    parameters = (
        *(torch.tensor([1 / 3]), torch.tensor(0.7, dtype=F64), torch.tensor([3])),
        *(torch.tensor(-8), torch.tensor(7)),
    )
    same(Fixed(function, *parameters), numbers(7, 150), numbers(300, dtype=BF16))


def test_dequantize_per_tensor() -> None:
    def function(
        i8: torch.Tensor, u8: torch.Tensor, i16: torch.Tensor, i32: torch.Tensor, *p: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        scale, zero, low, high = p
        dequantize = ops.dequantize_per_tensor
        return (
            dequantize(i8, 0.1, -5, -128, 127, I8),
            dequantize(u8, 1 / 3, 128, 0, 255, U8),
            dequantize(i16, 0.1, 300, -32768, 32767, I16),
            dequantize(i32, 0.1, 0, -(2**31), 2**31 - 1, I32),
            dequantize(i32, 0.1, 7, -(2**31), 2**31 - 1, I32),
            dequantize(i8, 0.1, -128, -128, 127, I8, out_dtype=HALF),
            dequantize(u8, 0.1, 255, 0, 255, U8, out_dtype=BF16),
            dequantize.tensor(i8, scale, zero, -128, 127, I8),
            dequantize.tensor2(i8, scale, zero, low, high, I8),
        )

    parameters = (
        torch.tensor(0.1, dtype=F64),
        torch.tensor([3]),
        torch.tensor(-8),
        torch.tensor(7),
    )
    inputs = [integers(3, 100, dtype=dtype) for dtype in (I8, U8, I16, I32)]
    mod = same(Fixed(function, *parameters), *inputs)
    # Only int32 with a zero point differs from the operator.
    assert count(mod, "relax.dequantize") == 8


def test_quantize_and_dequantize_per_channel() -> None:
    def function(x: torch.Tensor, q: torch.Tensor, *p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale, wide, zero, narrow = p
        return (
            ops.quantize_per_channel(x, scale, zero, 1, -127, 127, I8),
            ops.quantize_per_channel(x, wide, zero, -2, -128, 127, I8),
            ops.dequantize_per_channel(q, scale, zero, 1, -128, 127, I8),
            ops.dequantize_per_channel(q, scale, None, 1, -128, 127, I8),
            ops.dequantize_per_channel(q, scale, zero, -2, -128, 127, I8, out_dtype=BF16),
            ops.dequantize_per_channel(q, wide, zero, 1, -128, 127, I8),
            # A difference in int8 wraps.
            ops.dequantize_per_channel(q, scale, narrow, 1, -128, 127, I8),
        )

    scale = torch.linspace(0.05, 0.4, 5)
    zero = torch.tensor([0, -3, 7, 127, -128])
    parameters = (scale, torch.linspace(0.1, 0.7, 5, dtype=F64), zero, zero.to(I8))
    mod = same(Fixed(function, *parameters), numbers(3, 5, 40), integers(3, 5, 40))
    assert count(mod, "relax.dequantize") == 3


def test_quantize_and_dequantize_per_token() -> None:
    def function(x: torch.Tensor, q: torch.Tensor, *p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale, wide, zero = p
        limits = (-128, 127, I8)
        return (
            ops.quantize_per_token(x, scale, zero, *limits),
            ops.quantize_per_token(x, wide, zero, *limits),
            ops.dequantize_per_token(q, scale, zero, *limits, F32),
            ops.dequantize_per_token(q, wide, zero, *limits, F32),
            ops.dequantize_per_token(q, scale, zero, *limits, HALF),
        )

    scale = torch.linspace(0.05, 0.4, 12).reshape(3, 4, 1)
    wide = torch.linspace(0.1, 0.7, 12, dtype=F64).reshape(3, 4, 1)
    zero = torch.arange(-128, 120, 21)[:12].reshape(3, 4, 1)
    same(Fixed(function, scale, wide, zero), numbers(3, 4, 60), integers(3, 4, 60))


def test_quantize_and_dequantize_groups() -> None:
    def function(x: torch.Tensor, q: torch.Tensor, *p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale, zero, row_scale, row_zero = p
        return (
            ops.quantize_per_channel_group(x, scale, zero, -8, 7, I8, 16),
            ops.dequantize_per_channel_group(q, scale, zero, -8, 7, I8, 16, F32),
            ops.dequantize_per_channel_group(q, scale, None, -8, 7, I8, 16, BF16),
            # The group is wider than the matrix.
            ops.quantize_per_channel_group(x, row_scale, row_zero, -8, 7, I8, 128),
        )

    scale, zero = torch.linspace(0.05, 0.4, 12).reshape(4, 3), torch.arange(-6, 6).reshape(4, 3)
    parameters = (scale, zero.to(I32), scale[:, :1], zero[:, :1].to(I32))
    mod = same(Fixed(function, *parameters), numbers(4, 48)[:, :].nan_to_num(), integers(4, 48))
    assert count(mod, "relax.dequantize") == 2


def test_choice_of_parameters() -> None:
    """Scales and zero points of dynamic quantization, for data on both sides of 0 and on one."""

    def function(
        x: torch.Tensor, positive: torch.Tensor, half: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            *ops.choose_qparams(x, 0, 255, 0.0002, U8),
            *ops.choose_qparams(positive, -128, 127, 0.0002, I8),
            *ops.choose_qparams(half, 0, 255, 0.0002, U8),
            *ops.choose_qparams(torch.zeros_like(x), 0, 255, 0.0002, U8),
            *ops.choose_qparams_symmetric(x, -127, 127, 1e-5, I8),
            *ops.choose_qparams_symmetric(half, 0, 255, 1e-5, U8),
            *ops.choose_qparams_per_token_asymmetric(x, I8),
            *ops.choose_qparams_per_token_asymmetric(half, I8),
        )

    x = numbers(4, 50).clamp(-60, 60)
    same(function, x, x.abs() + 1, x.to(HALF))


def test_dynamic_quantization_of_tokens() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale, zero = ops.choose_qparams_per_token_asymmetric(x, I8)
        q = ops.quantize_per_token(x, scale, zero, -128, 127, I8)
        own, no = ops.choose_qparams_per_token(x, I8)
        p = ops.quantize_per_token(x, own, no, -127, 127, I8)
        return (
            *(q, ops.dequantize_per_token(q, scale, zero, -128, 127, I8, F32)),
            *(p, ops.dequantize_per_token(p, own, no, -127, 127, I8, F32)),
        )

    rows = {0: torch.export.Dim("rows", min=2, max=64)}
    mod = same(function, numbers(4, 50).clamp(-60, 60), dynamic_shapes=((rows,),))
    # The float64 scales come from float32, so a product in float32 is exact, too.
    assert count(mod, "relax.dequantize") == 2


def test_fake_quantization() -> None:
    off = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams

    def function(x: torch.Tensor, *p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale, zero, scales, zeros = p
        return (
            torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
            torch.fake_quantize_per_tensor_affine(x, scale, zero, -127, 127),
            torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7),
            ops.fake_quant_per_channel(x, scales, zeros, 1, -8, 7),
            torch.fake_quantize_per_channel_affine(x, scales, zeros + 0.25, 1, -8, 7),
            *aten.fake_quantize_per_tensor_affine_cachemask(x, 0.3, 0, 0, 15),
            *off(x, scale, zero, torch.zeros(1, dtype=torch.int64), 0, 15),
        )

    parameters = (
        *(torch.tensor([0.2]), torch.tensor([4], dtype=I32)),
        *(torch.linspace(0.1, 0.5, 6), torch.arange(-3, 3, dtype=I32)),
    )
    x = numbers(3, 6, 40)
    # PyTorch converts to int64, where huge numbers are undefined.
    same(Fixed(function, *parameters), x.clamp(-1e6, 1e6))


def test_integer_products() -> None:
    def function(
        a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return torch._int_mm(a, b), aten._weight_int8pack_mm(x, b.t().contiguous(), scale)

    a, b = integers(5, 48), integers(48, 7)
    # Small integers, whose sums are exact in any order.
    x = integers(5, 48).float() / 16
    same(function, a, b, x, torch.full((7,), 0.25))
    same(lambda a: (torch._int_mm(a, a.t()), ops.convert_element_type(a, F32)), a)


def wrong_scale(x: torch.Tensor) -> torch.Tensor:
    return ops.quantize_per_tensor(x, 0.0, 0, -128, 127, I8)


def wrong_zero_point(x: torch.Tensor) -> torch.Tensor:
    return ops.quantize_per_tensor(x, 0.1, 300, 0, 255, U8)


def wrong_axis(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    return ops.quantize_per_channel(x, scale, zero, -3, -128, 127, I8)


def wrong_count(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    return ops.quantize_per_channel(x, scale, zero, 1, -128, 127, I8)


def nan_scale(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    return ops.quantize_per_channel(x, scale, zero, 0, -128, 127, I8)


def computed_limit(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    return ops.quantize_per_tensor.tensor2(x, scale[0], zero[0], zero[1] - 8, zero[1] + 7, I8)


def float8(x: torch.Tensor) -> torch.Tensor:
    return ops.quantize_per_tensor(x, 0.1, 0, -448, 448, torch.float8_e4m3fn)


def packed_weight(x: torch.Tensor) -> torch.Tensor:
    weight = torch.zeros(32, 16, dtype=U8)
    return aten._weight_int4pack_mm_for_cpu(x, weight, 32, torch.ones(1, 32, 2))


NAN, ZEROS = torch.tensor([0.1, torch.nan]), torch.zeros(2, dtype=torch.int64)
REJECTED = {
    "scale": (
        wrong_scale,
        (),
        "attribute scale contains 0.0; expected finite numbers other than 0",
    ),
    "nan": (nan_scale, (NAN, ZEROS), "attribute scale contains nan; expected finite numbers"),
    "zero": (wrong_zero_point, (), "attribute zero_point contains 300; expected 0 to 255"),
    "axis": (
        wrong_axis,
        (NAN[:1], ZEROS[:1]),
        "attribute axis is -3; expected an axis of a tensor of",
    ),
    "count": (wrong_count, (NAN[:1], ZEROS), "attribute scales has 1 elements; expected 32"),
    "limit": (computed_limit, (NAN, ZEROS), "attribute quant_min is computed; expected a number"),
    "float8": (float8, (), "quantizes to torch.float8_e4m3fn; expected an integer dtype"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejections_name_the_operator_and_the_node(name: str) -> None:
    function, buffers, message = REJECTED[name]
    program = torch.export.export(Fixed(function, *buffers), (torch.zeros(2, 32),))
    with pytest.raises(Exception, match=message) as caught:
        importers.from_exported_program(program)
    assert isinstance(caught.value, tvm.error.OpAttributeInvalid | tvm.error.OpNotImplemented)
    assert re.match(
        r"quantized_decomposed\.quantize_per_\w+\.\w+ 'quantize_per_", str(caught.value)
    )


def test_an_unsupported_operator_is_named() -> None:
    program = torch.export.export(Fixed(packed_weight), (torch.zeros(2, 32),))
    expected = r"unsupported operator aten\._weight_int4pack_mm_for_cpu\.default at node '_weight"
    with pytest.raises(tvm.error.OpNotImplemented, match=expected):
        importers.from_exported_program(program)


class Chain(nn.Module):
    """Linear layers in the form in which PT2E writes them."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = blocks
        for index in range(blocks):
            self.register_buffer(f"weight{index}", integers(16, 16))
            self.register_buffer(f"scale{index}", torch.full((16,), 0.01 + index))
            self.register_buffer(f"zero{index}", torch.zeros(16, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in range(self.blocks):
            parameters = (getattr(self, f"{name}{index}") for name in ("weight", "scale", "zero"))
            weight = ops.dequantize_per_channel(*parameters, 0, -128, 127, I8)
            x = ops.quantize_per_tensor(x, 0.1, 3, 0, 255, U8)
            x = ops.dequantize_per_tensor(x, 0.1, 3, 0, 255, U8)
            x = torch.relu(nn.functional.linear(x, weight))
        return x


def test_import_grows_linearly() -> None:
    programs = {n: torch.export.export(Chain(n), (torch.zeros(3, 16),)) for n in BLOCKS}
    assert_grows_linearly(lambda n: importers.from_exported_program(programs[n]))
