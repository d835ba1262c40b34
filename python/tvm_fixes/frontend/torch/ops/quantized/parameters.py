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
"""Choice and checks of the parameters of quantization: scales, zero points and ranges.

See ``converters``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

from .....errors import OpAttributeInvalid

__all__ = ["check_axis", "check_count", "check_scale", "check_zero_point", "limits_of", "rules_for"]


def limits_of(dtype: torch.dtype) -> tuple[int, int]:
    """Return the smallest and largest integer of a dtype such as ``int8`` or ``uint4``.

    Raises
    ------
    ValueError
        If `dtype` is not an integer dtype.
    """
    matched = re.fullmatch(r"torch\.(u?)int(\d+)", str(dtype))
    if matched is None:
        raise ValueError(f"expected an integer dtype, got {dtype}")
    bits = int(matched[2])
    return (0, 2**bits - 1) if matched[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _reject(node: fx.Node, name: str, actual: Any, expected: str) -> None:
    raise OpAttributeInvalid(
        f"{node.target} {node.name!r}: attribute {name} {actual}; expected {expected}"
    )


def check_scale(node: fx.Node, scale: torch.Tensor) -> None:
    """Check that the known `scale` of `node` has only finite numbers other than 0.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If it has another number.
    """
    wrong = scale[~torch.isfinite(scale) | (scale == 0)]
    if wrong.numel():
        _reject(node, "scale", f"contains {wrong[0].item()}", "finite numbers other than 0")


def check_zero_point(node: fx.Node, zero_point: torch.Tensor, dtype: torch.dtype) -> None:
    """Check that the known `zero_point` of `node` is in the range of `dtype`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If it is not.
    """
    low, high = limits_of(dtype)
    wrong = zero_point[~((zero_point >= low) & (zero_point <= high))]
    if wrong.numel():
        _reject(node, "zero_point", f"contains {wrong[0].item()}", f"{low} to {high}")


def check_axis(node: fx.Node, axis: int, rank: int) -> int:
    """Return `axis` of a tensor of `rank`, counted from the front.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        _reject(node, "axis", f"is {axis}", f"an axis of a tensor of rank {rank}")
    return axis % rank


def check_count(node: fx.Node, name: str, count: int | None, extent: int | None) -> None:
    """Check that an operand has one element for each of `extent` elements; None is unknown.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the numbers differ.
    """
    if count is not None and extent is not None and count != extent:
        _reject(node, name, f"has {count} elements", f"{extent}")


def _range(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and largest element of `x` and 0."""
    low, high = torch.amin(x), torch.amax(x)
    return torch.minimum(low, torch.zeros_like(low)), torch.maximum(high, torch.zeros_like(high))


def _affine(
    x: torch.Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    smallest, largest = _range(x)
    scale = (largest - smallest) / float(high - low)
    scale = torch.maximum(scale, torch.full((1,), eps, dtype=torch.float32))
    zero_point = low - torch.round(smallest / scale).to(torch.int32)
    zero_point = torch.clamp(zero_point, low, high)
    return scale.to(torch.float64), zero_point.to(torch.int64)


def _symmetric(
    x: torch.Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    smallest, largest = _range(x)
    scale = torch.maximum(-smallest, largest) / (float(high - low) / 2)
    scale = torch.maximum(scale, torch.full((1,), eps, dtype=torch.float32))
    zero_point = torch.full((1,), 128 if dtype == torch.uint8 else 0, dtype=torch.int64)
    return scale.to(torch.float64), zero_point


def _per_token(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    largest = torch.amax(torch.abs(x), dim=-1, keepdim=True)
    if largest.dtype == torch.float16:
        largest = largest.to(torch.float32)
    scale = torch.clamp(largest, min=1e-5) / limits_of(dtype)[1]
    return scale, torch.zeros_like(scale)


def _per_token_affine(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = -128, 127
    smallest = torch.amin(x, dim=-1, keepdim=True)
    largest = torch.amax(x, dim=-1, keepdim=True)
    smallest = torch.minimum(smallest, torch.zeros_like(smallest))
    largest = torch.maximum(largest, torch.zeros_like(largest))
    scale = torch.clamp(
        (largest - smallest) / float(high - low), min=torch.finfo(torch.float32).eps
    )
    from_low, from_high = smallest / scale, largest / scale
    # The end of the range whose quantized value has the smaller error decides.
    is_low = (low + from_low) + (high + from_high) > 0
    zero_point = torch.where(is_low, low - from_low, high - from_high)
    zero_point = torch.round(torch.clamp(zero_point, low, high))
    return scale.to(torch.float64), zero_point.to(torch.int64)


# PyTorch's own implementations read elements, which stops the export.
_RULES: Mapping[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {
    "quantized_decomposed.choose_qparams.tensor": _affine,
    "quantized_decomposed.choose_qparams_symmetric.tensor": _symmetric,
    "quantized_decomposed.choose_qparams_per_token.default": _per_token,
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default": _per_token_affine,
}


def rules_for(targets: Iterable[Any]) -> dict[Any, Callable[..., Any]]:
    """Return the decompositions of those `targets` that choose scales and zero points."""
    return {target: _RULES[str(target)] for target in targets if str(target) in _RULES}
