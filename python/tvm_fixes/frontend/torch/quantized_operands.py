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

See ``quantized``.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import tvm
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from tvm import relax

from ...errors import OpAttributeInvalid
from ..dtypes import dtype_of
from .corrections import Corrections, static_extent
from .quantization_parameters import (
    check_axis,
    check_count,
    check_scale,
    check_zero_point,
    limits_of,
)
from .symbols import Symbols

__all__ = [
    *("QuantizedOperands", "Value", "arguments_of", "dtype_of_value", "is_zero", "promote"),
    *("shape_of", "type_of"),
]

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


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by the names of the operator's schema."""
    parameters = node.target._schema.arguments
    given = {p.name: p.default_value for p in parameters if p.has_default_value()}
    given |= {p.name: value for p, value in zip(parameters, node.args, strict=False)}
    # Some operators have one scale, some one per channel, and the names differ.
    names = {"scales": "scale", "zero_points": "zero_point", "self": "input"}
    return {names.get(name, name): value for name, value in (given | node.kwargs).items()}


def dtype_of_value(value: Value) -> torch.dtype:
    return value.dtype if isinstance(value, torch.Tensor) else getattr(torch, dtype_of(value))


def shape_of(value: Value) -> list[Any]:
    return list(value.shape if isinstance(value, torch.Tensor) else value.ty.shape)


def type_of(value: Value) -> tuple[torch.dtype, int]:
    return dtype_of_value(value), len(shape_of(value))


def is_zero(value: Value | None) -> bool:
    return value is None or (isinstance(value, torch.Tensor) and not value.any())


class QuantizedOperands(Corrections):
    """Access to scales, zero points and ranges."""

    _symbols: Symbols

    # The parameters, buffers and constants that become constants, by the names of their nodes.
    _known: dict[str, torch.Tensor]
    _keeps_parameters = False

    def from_exported_program(
        self,
        exported_program: ExportedProgram,
        keep_params_as_input: bool,
        *options: Any,
        **named_options: Any,
    ) -> tvm.IRModule:
        """Import like TVM; record whether the parameters stay inputs."""
        self._keeps_parameters = keep_params_as_input
        return super().from_exported_program(
            exported_program, keep_params_as_input, *options, **named_options
        )

    def create_input_vars(self, exported_program: ExportedProgram) -> Any:
        """Create the inputs like TVM; record the values that become constants."""
        kinds = {InputKind.BUFFER, InputKind.CONSTANT_TENSOR}
        if not self._keeps_parameters:
            kinds.add(InputKind.PARAMETER)
        values = exported_program.state_dict | exported_program.constants
        self._known = {
            spec.arg.name: values[spec.target].detach()
            for spec in exported_program.graph_signature.input_specs
            if spec.kind in kinds and isinstance(values.get(spec.target), torch.Tensor)
        }
        return super().create_input_vars(exported_program)

    def _value(self, argument: Any) -> Value:
        """Return an operand that is a tensor or a number."""
        if not isinstance(argument, fx.Node):
            return torch.tensor(
                argument, dtype=torch.float64 if isinstance(argument, float) else None
            )
        while argument.target in _COPIES:
            [argument] = argument.args
        is_input = argument.op == "placeholder" and not self._is_in_branch
        known = self._known.get(argument.name) if is_input else None
        return self.env[argument] if known is None else known

    def _parameters(
        self, node: fx.Node, given: dict[str, Any], dtype: torch.dtype
    ) -> tuple[Value, Value | None]:
        """Return the scale and the zero point of integers of `dtype`; check those known."""
        scale, zero_point = self._value(given["scale"]), given["zero_point"]
        if isinstance(scale, torch.Tensor):
            check_scale(node, scale)
        if zero_point is None:
            return scale, None
        zero_point = self._value(zero_point)
        if isinstance(zero_point, torch.Tensor):
            check_zero_point(node, zero_point, dtype)
        return scale, zero_point if 0 not in shape_of(zero_point) else None

    def _limits(self, node: fx.Node, given: dict[str, Any], dtype: torch.dtype) -> tuple[int, int]:
        """Return the smallest and the largest quantized number."""
        limits = []
        for name, default in zip(("quant_min", "quant_max"), limits_of(dtype), strict=True):
            number = given[name] if given[name] is not None else default
            value = self._value(number)
            if not isinstance(value, torch.Tensor):
                raise OpAttributeInvalid(
                    f"{node.target} {node.name!r}: attribute {name} is computed; "
                    "expected a number known at import"
                )
            limits.append(int(value))
        return limits[0], limits[1]

    def _with_shape(self, value: Value | None, shape: Sequence[Any]) -> Any:
        if value is None or list(map(str, shape_of(value))) == list(map(str, shape)):
            return value
        if isinstance(value, torch.Tensor):
            return value.reshape([int(extent) for extent in shape])
        return self.block_builder.emit(relax.op.reshape(value, shape))

    def _cast(self, value: Value, dtype: torch.dtype) -> Value:
        if isinstance(value, torch.Tensor):
            return value.to(dtype)
        return self._astype(value, self._convert_data_type(dtype))

    def _inverse(self, scale: Value) -> Value:
        if isinstance(scale, torch.Tensor):
            return 1.0 / scale
        return self.block_builder.emit(relax.op.divide(relax.const(1, dtype_of(scale)), scale))

    def _expression(self, value: Value) -> relax.Expr:
        if not isinstance(value, torch.Tensor):
            return value
        return relax.const(self._convert_pytorch_tensor_to_tvm(value.contiguous()))

    def _scalars(
        self, node: fx.Node, given: dict[str, Any], dtype: torch.dtype
    ) -> tuple[Value, Value]:
        """Return the scale and the zero point of a whole tensor, as tensors of rank 0."""
        scale, zero_point = self._parameters(node, given, dtype)
        return self._with_shape(scale, ()), self._with_shape(zero_point, ())

    def _channel_parameters(
        self, node: fx.Node, given: dict[str, Any], dtype: torch.dtype
    ) -> tuple[relax.Expr, Value, Value | None]:
        """Return the data, and scales and zero points that broadcast along the other axes."""
        x = self.env[given["input"]]
        axis = check_axis(node, given["axis"], x.ty.ndim)
        parameters = self._parameters(node, given, dtype)
        extent = x.ty.shape[axis]
        for name, value in zip(("scales", "zero_points"), parameters, strict=True):
            if value is not None:
                check_count(
                    node, name, static_extent(math.prod(shape_of(value))), static_extent(extent)
                )
        shape = [1] * x.ty.ndim
        shape[axis] = extent
        scale, zero_point = (self._with_shape(value, shape) for value in parameters)
        return x, scale, zero_point

    def _groups(
        self, given: dict[str, Any], *values: Value | None
    ) -> tuple[relax.Expr, list[Value | None]]:
        """Return the data with one group per row, and `values` with one element per row."""
        x = self.env[given["input"]]
        shape = list(x.ty.shape)
        size = given["group_size"]
        extent = static_extent(shape[-1])
        # A single group may be narrower than the groups of the other layers.
        if extent is not None and size > extent:
            size = extent
        rows = math.prod(shape[:-1]) * (shape[-1] // size)
        return self._with_shape(x, [rows, size]), [self._with_shape(v, [rows, 1]) for v in values]

    def _blocks(
        self, given: dict[str, Any], *values: Value | None
    ) -> tuple[relax.Expr, list[Value | None]]:
        """Split the axes of the data into blocks; reshape `values`, one per block, to broadcast."""
        x = self.env[given["input"]]
        shape, counts = [], []
        for extent, block in zip(x.ty.shape, self._retrieve_args(given["block_size"]), strict=True):
            if static_extent(block) == 1:
                shape.append(extent)
                counts.append(extent)
            elif self._symbols.equal(block, extent):
                shape.append(extent)
                counts.append(1)
            else:
                shape += [extent // block, block]
                counts += [extent // block, 1]
        return self._with_shape(x, shape), [self._with_shape(value, counts) for value in values]
