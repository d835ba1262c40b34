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
"""Operands of quantized operators: known at import, or computed by the program.

See ``converters``.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from tvm import relax

from .....errors import OpAttributeInvalid
from ....dtypes import accumulation_dtype, dtype_of
from ....extents import static_extent
from ...call import Call
from .parameters import (
    check_axis,
    check_count,
    check_scale,
    check_zero_point,
    limits_of,
)

Value: TypeAlias = torch.Tensor | relax.Expr
"""An operand that is known at import, or one that the program computes."""

# Operators whose result equals their operand.
_COPIES = tuple(
    getattr(torch.ops.aten, name).default
    for name in ("alias", "clone", "detach", "lift_fresh_copy")
)


def promote(*types: tuple[torch.dtype, int]) -> torch.dtype:
    """Return PyTorch's dtype of arithmetic on tensors of these dtypes and ranks."""
    (dtype, rank), *others = types
    for other, other_rank in others:
        pair = [
            torch.empty((1,) * r, dtype=d, device="meta")
            for d, r in ((dtype, rank), (other, other_rank))
        ]
        dtype, rank = torch.result_type(*pair), max(rank, other_rank)
    return dtype


def dtype_of_value(value: Value) -> torch.dtype:
    return value.dtype if isinstance(value, torch.Tensor) else getattr(torch, dtype_of(value))


def shape_of(value: Value) -> list[Any]:
    return list(value.shape if isinstance(value, torch.Tensor) else value.ty.shape)


def type_of(value: Value) -> tuple[torch.dtype, int]:
    return dtype_of_value(value), len(shape_of(value))


def is_zero(value: Value | None) -> bool:
    return value is None or (isinstance(value, torch.Tensor) and not value.any())


def reshaped(call: Call, value: Value | None, shape: Sequence[Any]) -> Any:
    if value is None or list(map(str, shape_of(value))) == list(map(str, shape)):
        return value
    if isinstance(value, torch.Tensor):
        return value.reshape([int(extent) for extent in shape])
    return call.emit(relax.op.reshape(value, shape))


def cast(call: Call, value: Value, dtype: torch.dtype) -> Value:
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return call.astype(value, call.context.dtype(dtype))


def inverse_of(call: Call, scale: Value) -> Value:
    if isinstance(scale, torch.Tensor):
        return 1.0 / scale
    return call.emit(relax.op.divide(relax.const(1, dtype_of(scale)), scale))


def expression_of(call: Call, value: Value) -> relax.Expr:
    if not isinstance(value, torch.Tensor):
        return value
    return relax.const(call.context.tensor(value.contiguous()))


class Operands(dict[str, Any]):
    """The arguments of a quantized operator by name; see the operator's schema."""

    def __init__(self, call: Call) -> None:
        self.call = call
        node = call.node
        parameters = node.target._schema.arguments
        arguments = {p.name: p.default_value for p in parameters if p.has_default_value()}
        arguments |= {p.name: value for p, value in zip(parameters, node.args, strict=False)}
        # Some operators have one scale, some one per channel, and the names differ.
        names = {"scales": "scale", "zero_points": "zero_point", "self": "input"}
        super().__init__((names.get(n, n), value) for n, value in (arguments | node.kwargs).items())

    @property
    def data(self) -> relax.Expr:
        """The tensor to quantize or to dequantize."""
        return self.call.context.env[self["input"]]

    def accumulated(self) -> relax.Expr:
        """Cast the data to the dtype of sums, in which it is scaled."""
        return self.call.astype(self.data, accumulation_dtype(dtype_of(self.data)))

    def _operand(self, argument: Any) -> Value:
        """Return an operand that is a tensor or a number."""
        if not isinstance(argument, fx.Node):
            return torch.tensor(
                argument, dtype=torch.float64 if isinstance(argument, float) else None
            )
        while argument.target in _COPIES:
            [argument] = argument.args
        is_input = argument.op == "placeholder" and not self.call.context.is_in_branch
        known = self.call.context.known.get(argument.name) if is_input else None
        return self.call.context.env[argument] if known is None else known

    def parameters(self, dtype: torch.dtype) -> tuple[Value, Value | None]:
        """Return the scale and the zero point of integers of `dtype`; check those known."""
        scale, zero_point = self._operand(self["scale"]), self["zero_point"]
        if isinstance(scale, torch.Tensor):
            check_scale(self.call.node, scale)
        if zero_point is None:
            return scale, None
        zero_point = self._operand(zero_point)
        if isinstance(zero_point, torch.Tensor):
            check_zero_point(self.call.node, zero_point, dtype)
        return scale, zero_point if 0 not in shape_of(zero_point) else None

    def limits(self, dtype: torch.dtype) -> tuple[int, int]:
        """Return the smallest and the largest quantized number."""
        limits = []
        for name, default in zip(("quant_min", "quant_max"), limits_of(dtype), strict=True):
            number = self[name] if self[name] is not None else default
            value = self._operand(number)
            if not isinstance(value, torch.Tensor):
                raise OpAttributeInvalid(
                    f"{self.call.where}: attribute {name} is computed; "
                    "expected a number known at import"
                )
            limits.append(int(value))
        return limits[0], limits[1]

    def scalars(self, dtype: torch.dtype) -> tuple[Value, Value]:
        """Return the scale and the zero point of a whole tensor, as tensors of rank 0."""
        scale, zero_point = self.parameters(dtype)
        return reshaped(self.call, scale, ()), reshaped(self.call, zero_point, ())

    def channel_parameters(self, dtype: torch.dtype) -> tuple[relax.Expr, Value, Value | None]:
        """Return the data, and scales and zero points that broadcast along the other axes."""
        x = self.data
        axis = check_axis(self.call.node, self["axis"], x.ty.ndim)
        parameters = self.parameters(dtype)
        extent = x.ty.shape[axis]
        for name, value in zip(("scales", "zero_points"), parameters, strict=True):
            if value is not None:
                check_count(
                    self.call.node,
                    name,
                    static_extent(math.prod(shape_of(value))),
                    static_extent(extent),
                )
        shape = [1] * x.ty.ndim
        shape[axis] = extent
        scale, zero_point = (reshaped(self.call, value, shape) for value in parameters)
        return x, scale, zero_point

    def in_groups(self, *values: Value | None) -> tuple[relax.Expr, list[Value | None]]:
        """Return the data with one group per row, and `values` with one element per row."""
        x = self.data
        shape = list(x.ty.shape)
        size = self["group_size"]
        extent = static_extent(shape[-1])
        # A single group may be narrower than the groups of the other layers.
        if extent is not None and size > extent:
            size = extent
        rows = math.prod(shape[:-1]) * (shape[-1] // size)
        data = reshaped(self.call, x, [rows, size])
        return data, [reshaped(self.call, value, [rows, 1]) for value in values]

    def in_blocks(self, *values: Value | None) -> tuple[relax.Expr, list[Value | None]]:
        """Split the axes of the data into blocks; reshape `values`, one per block, to broadcast."""
        x = self.data
        shape, counts = [], []
        for extent, block in zip(
            x.ty.shape, self.call.context.values(self["block_size"]), strict=True
        ):
            if static_extent(block) == 1:
                shape.append(extent)
                counts.append(extent)
            elif self.call.symbols.equal(block, extent):
                shape.append(extent)
                counts.append(1)
            else:
                shape += [extent // block, block]
                counts += [extent // block, 1]
        data = reshaped(self.call, x, shape)
        return data, [reshaped(self.call, value, counts) for value in values]
