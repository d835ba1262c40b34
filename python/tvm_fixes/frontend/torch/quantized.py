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
"""Quantized programs: the operators of PT2E (``quantized_decomposed``) and of torchao.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A program quantized with PT2E or torchao: ``quantized_decomposed.*``, ``torchao.*``,
    ``aten._int_mm``, ``aten._weight_int8pack_mm``; fake quantization.
Symptom
    ``Unsupported function types [...]``.
Mechanism
    TVM has no converters for them.  ``relax.quantize`` divides by the scale, but PyTorch multiplies
    by its inverse, which rounds other numbers up near ties.
How to remove
    When TVM's importer passes ``test_frontend_torch_quantized``, use it; delete this file,
    ``quantization_parameters``, the test and the fix id ``torch-quantized``.
"""

import math
from typing import Any

import torch
import tvm
from torch import fx
from tvm import relax

from ...errors import OpNotImplemented
from ...fixes.torch_importer import QUANTIZED as FIX_ID
from ...support import switches
from ..dtypes import accumulation_dtype, dtype_of
from .corrections import Converters, static_extent
from .quantization_parameters import limits_of
from .quantized_operands import (
    QuantizedOperands,
    Value,
    arguments_of,
    dtype_of_value,
    is_zero,
    promote,
    shape_of,
    type_of,
)

__all__ = ["KEPT", "Quantized"]

KEPT = ("torchao.quantize_affine.default", "torchao.dequantize_affine.default")
"""The operators with converters here that PyTorch would decompose."""

_HALF = (torch.float16, torch.bfloat16)
_BYTES, _SHORTS = ("int8", "uint8"), ("int16", "uint16")
# A difference of integers of these dtypes may wrap.
_NARROW = (torch.int8, torch.uint8, torch.int16, torch.uint16)
_FAKE = (
    *("fake_quantize_per_tensor_affine.default", "fake_quantize_per_tensor_affine.tensor_qparams"),
    *("fake_quantize_per_tensor_affine_cachemask.default", "fake_quant_per_channel.default"),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    "fake_quantize_per_channel_affine.default",
    "fake_quantize_per_channel_affine_cachemask.default",
)


class Quantized(QuantizedOperands):
    """The converters of quantized operators."""

    def quantized_converters(self) -> Converters:
        """Return the converters by the names of the overloads."""
        per_tensor = ("default", "tensor", "tensor2")
        return {
            **{f"quantize_per_tensor.{name}": self._quantize_per_tensor for name in per_tensor},
            **{f"dequantize_per_tensor.{name}": self._dequantize_per_tensor for name in per_tensor},
            "quantize_per_channel.default": self._quantize_per_channel,
            "dequantize_per_channel.default": self._dequantize_per_channel,
            "quantize_per_token.default": self._quantize_per_token,
            "dequantize_per_token.default": self._dequantize_per_token,
            "quantize_per_channel_group.default": self._quantize_per_group,
            "dequantize_per_channel_group.default": self._dequantize_per_group,
            "quantize_affine.default": self._quantize_blocks,
            "dequantize_affine.default": self._dequantize_blocks,
            "convert_element_type.no_fuse": self._converted_elements,
            **dict.fromkeys(_FAKE, self._fake_quantize),
            "_int_mm.default": self._integer_matmul,
            "_weight_int8pack_mm.default": self._matmul_of_int8_weight,
        }

    def _emit_quantized(
        self,
        node: fx.Node,
        x: relax.Expr,
        inverse: Value,
        zero_point: Value | None,
        limits: tuple[int, int],
        *,
        rounds_last: bool = False,
    ) -> relax.Expr:
        """Quantize `x` with a chain of operators that passes recognize.

        The chain is ``multiply(x, inverse)``, ``round`` (half to even), ``add(., zero_point)``,
        ``clip(., *limits)`` and ``astype`` to the integers of `node`.  `inverse` is 1 / scale.  If
        `rounds_last`, the chain adds before it rounds.  The integer of a NaN is unspecified, as in
        PyTorch.
        """
        emit = self.block_builder.emit
        zero_point = torch.tensor(0) if zero_point is None else zero_point
        dtype = promote(type_of(x), type_of(inverse), type_of(zero_point))
        inverse, zero_point = (
            self._expression(self._cast(value, dtype)) for value in (inverse, zero_point)
        )
        out = emit(relax.op.multiply(self._cast(x, dtype), inverse))
        if rounds_last:
            out = emit(relax.op.round(emit(relax.op.add(out, zero_point))))
        else:
            out = emit(relax.op.add(emit(relax.op.round(out)), zero_point))
        out = emit(relax.op.clip(out, *limits))
        return self._astype(out, self._convert_data_type(node.meta["val"].dtype))

    def _quantized_dtype(self, node: fx.Node, given: dict[str, Any]) -> torch.dtype:
        """Return the dtype of quantized numbers, which may have fewer than 8 bits.

        Raises
        ------
        tvm.error.OpNotImplemented
            If the result is a tensor with a quantizer, or its dtype is not an integer dtype.
        """
        switches.note(FIX_ID)
        dtype = given.get("output_dtype") or given["dtype"]
        if node.target.namespace == "aten" or not str(dtype).startswith(
            ("torch.int", "torch.uint")
        ):
            raise OpNotImplemented(
                f"{node.target} {node.name!r}: quantizes to {dtype}; "
                "expected an integer dtype, as PT2E and torchao write"
            )
        return dtype

    def _wide(self, x: relax.Expr) -> relax.Expr:
        return self._astype(x, accumulation_dtype(dtype_of(x)))

    def _quantize_per_tensor(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        dtype = self._quantized_dtype(node, given)
        scale, zero_point = self._scalars(node, given, dtype)
        if dtype_of_value(scale) in _HALF:
            scale = self._cast(scale, torch.float32)
        # PyTorch divides in float64; in float32, the quotient of float32 numbers is the same.
        inverse = self._cast(self._inverse(scale), torch.float32)
        limits = self._limits(node, given, dtype)
        zero_point = self._cast(zero_point, torch.float32)
        return self._emit_quantized(
            node, self._wide(self.env[given["input"]]), inverse, zero_point, limits
        )

    def _quantize_per_channel(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        dtype = self._quantized_dtype(node, given)
        x, scale, zero_point = self._channel_parameters(node, given, dtype)
        limits = self._limits(node, given, dtype)
        return self._emit_quantized(node, self._wide(x), self._inverse(scale), zero_point, limits)

    def _quantize_per_token(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        dtype = self._quantized_dtype(node, given)
        scale, zero_point = self._parameters(node, given, dtype)
        limits, x = self._limits(node, given, dtype), self.env[given["input"]]
        return self._emit_quantized(
            node, x, self._inverse(scale), zero_point, limits, rounds_last=True
        )

    def _quantize_per_group(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        dtype = self._quantized_dtype(node, given)
        limits = self._limits(node, given, dtype)
        x, (scale, zero_point) = self._groups(given, *self._parameters(node, given, dtype))
        out = self._emit_quantized(
            node, x, self._inverse(scale), zero_point, limits, rounds_last=True
        )
        return self._with_shape(out, self.env[given["input"]].ty.shape)

    def _quantize_blocks(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        dtype = self._quantized_dtype(node, given)
        limits = self._limits(node, given, dtype)
        x, (scale, zero_point) = self._blocks(given, *self._parameters(node, given, dtype))
        out = self._emit_quantized(node, x, self._inverse(scale), zero_point, limits)
        return self._with_shape(out, self.env[given["input"]].ty.shape)

    def _emit_dequantized(
        self,
        node: fx.Node,
        data: relax.Expr,
        scale: Value,
        zero_point: Value | None,
        difference: torch.dtype,
    ) -> relax.Expr:
        """Dequantize integers with ``relax.dequantize`` if its results equal PyTorch's.

        PyTorch computes ``(data - zero_point) * scale`` with a difference of that dtype.  The
        operands broadcast.
        """
        switches.note(FIX_ID)
        out = node.meta["val"].dtype
        scale = self._narrowed(data, scale, out)
        product = promote((difference, len(data.ty.shape)), type_of(scale))
        if self._is_exact(data, scale, zero_point, difference, product):
            result = self._emit_operator(data, scale, zero_point)
            if result is not None:
                result = self._cast(result, product)
                return self._cast(result, out)
        emit = self.block_builder.emit
        result = self._cast(data, difference)
        if zero_point is not None:
            zero_point = self._expression(self._cast(zero_point, difference))
            result = emit(relax.op.subtract(result, zero_point))
        factor = self._expression(self._cast(scale, product))
        return self._cast(emit(relax.op.multiply(self._cast(result, product), factor)), out)

    def _narrowed(self, data: relax.Expr, scale: Value, out: torch.dtype) -> Value:
        """Return scales in float32 if they are float64 and exact in float32.

        A float64 product with 8 or 16 bits is exact, so its rounding to float32 is that of the
        float32 product.
        """
        if dtype_of_value(scale) != torch.float64 or out != torch.float32:
            return scale
        if dtype_of(data) not in (*_BYTES, *_SHORTS):
            return scale
        if isinstance(scale, torch.Tensor):
            return scale.float() if torch.equal(scale.float().double(), scale) else scale
        while isinstance(scale, relax.Var):
            bound = self.block_builder.lookup_binding(scale)
            if isinstance(bound, relax.Call) and bound.op == tvm.ir.Op.get("relax.astype"):
                operand = bound.args[0]
                return operand if dtype_of(operand) == "float32" else scale
            if not isinstance(bound, relax.Var):
                break
            scale = bound
        return scale

    def _is_exact(
        self,
        data: relax.Expr,
        scale: Value,
        zero_point: Value | None,
        difference: torch.dtype,
        product: torch.dtype,
    ) -> bool:
        """Whether PyTorch's result is that of a difference in int32 and a product in float32."""
        if difference in _NARROW and not is_zero(zero_point):
            return False
        if torch.float64 in (product, dtype_of_value(scale)) or not product.is_floating_point:
            return False
        integers = dtype_of(data)
        if integers in _BYTES:
            return True
        if product in _HALF or difference in _HALF:
            return False
        return integers in _SHORTS or (integers == "int32" and is_zero(zero_point))

    def _emit_operator(
        self, data: relax.Expr, scale: Value, zero_point: Value | None
    ) -> relax.Expr | None:
        """Emit ``relax.dequantize``, or return None if the parameters vary along other axes."""
        shape, rank = list(data.ty.shape), data.ty.ndim
        zero_point = torch.tensor(0) if zero_point is None else zero_point
        extents = [[1] * (rank - len(e)) + e for e in map(shape_of, (scale, zero_point))]
        varies = [any(static_extent(e[axis]) != 1 for e in extents) for axis in range(rank)]
        axis = varies.index(True) if True in varies else 0
        if varies.count(True) > 1:
            # The operator has one axis of scales, so the leading axes become one.
            end = rank - varies[::-1].index(True)
            for own in extents:
                is_scalar = all(static_extent(extent) == 1 for extent in own)
                if not is_scalar and not all(map(self._symbols.equal, own[:end], shape[:end])):
                    return None
            axis, shape = 0, [math.prod(shape[:end]), *shape[end:]]
        operands = []
        for value, own in zip((scale, zero_point), extents, strict=True):
            is_scalar = all(static_extent(extent) == 1 for extent in own)
            operands.append(self._with_shape(value, [] if is_scalar else [shape[axis]]))
        scale = self._expression(self._cast(operands[0], torch.float32))
        zero_point = self._expression(self._fit_zero_point(operands[1], dtype_of(data)))
        data, result_shape = self._with_shape(data, shape), data.ty.shape
        out = relax.op.dequantize(data, scale, zero_point, axis, "float32")
        return self._with_shape(self.block_builder.emit(out), result_shape)

    def _fit_zero_point(self, zero_point: Value, dtype: str) -> Value:
        """Return a zero point in a dtype that ``relax.dequantize`` accepts."""
        if isinstance(zero_point, torch.Tensor):
            low, high = limits_of(getattr(torch, dtype))
            fits = bool(((zero_point >= low) & (zero_point <= high)).all())
            return zero_point.to(getattr(torch, dtype) if fits else torch.int32)
        if dtype_of(zero_point) in (*_BYTES, *_SHORTS):
            return zero_point
        return self._cast(zero_point, torch.int32)

    def _dequantize_per_tensor(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        scale, zero_point = self._scalars(node, given, given["dtype"])
        out = node.meta["val"].dtype
        scale = self._cast(scale, torch.float32 if out in _HALF else out)
        return self._emit_dequantized(node, self.env[given["input"]], scale, zero_point, out)

    def _dequantize_per_channel(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        return self._emit_promoted(node, *self._channel_parameters(node, given, given["dtype"]))

    def _dequantize_per_token(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        parameters = self._parameters(node, given, given["dtype"])
        return self._emit_promoted(node, self.env[given["input"]], *parameters)

    def _dequantize_per_group(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        parameters = self._parameters(node, given, given["dtype"])
        data, (scale, zero_point) = self._groups(given, *parameters)
        out = self._emit_promoted(node, data, scale, zero_point)
        return self._with_shape(out, self.env[given["input"]].ty.shape)

    def _emit_promoted(
        self, node: fx.Node, data: relax.Expr, scale: Value, zero_point: Value | None
    ) -> relax.Expr:
        """Dequantize with a difference in the dtype that the integers promote to."""
        difference = dtype_of_value(data)
        if zero_point is not None:
            difference = promote(type_of(data), type_of(zero_point))
        return self._emit_dequantized(node, data, scale, zero_point, difference)

    def _dequantize_blocks(self, node: fx.Node) -> relax.Expr:
        given = arguments_of(node)
        dtype = dtype_of_value(self.env[given["input"]])
        data, (scale, zero_point) = self._blocks(given, *self._parameters(node, given, dtype))
        out = self._emit_dequantized(node, data, scale, zero_point, node.meta["val"].dtype)
        return self._with_shape(out, self.env[given["input"]].ty.shape)

    def _fake_quantize(self, node: fx.Node) -> relax.Expr:
        """Convert a quantization with its dequantization, and return a mask of the range."""
        switches.note(FIX_ID)
        given = arguments_of(node)
        if "axis" in given:
            x, scale, zero_point = self._channel_parameters(node, given, torch.int32)
        else:
            x = self.env[given["input"]]
            scale, zero_point = self._scalars(node, given, torch.int32)
        # PyTorch adds a zero point that is a float before it rounds.
        rounds_last = dtype_of_value(zero_point).is_floating_point
        scale, zero_point = (self._cast(value, torch.float32) for value in (scale, zero_point))
        inverse = self._expression(self._inverse(scale))
        scale, zero_point = self._expression(scale), self._expression(zero_point)
        emit = self.block_builder.emit
        integers = emit(relax.op.multiply(self._astype(x, "float32"), inverse))
        for op in (relax.op.add, relax.op.round) if rounds_last else (relax.op.round, relax.op.add):
            integers = emit(op(integers, zero_point) if op is relax.op.add else op(integers))
        clipped = emit(relax.op.clip(integers, *self._limits(node, given, torch.int32)))
        out = emit(relax.op.multiply(emit(relax.op.subtract(clipped, zero_point)), scale))
        out, mask = self._astype(out, dtype_of(x)), emit(relax.op.equal(integers, clipped))
        if "fake_quant_enabled" in given:
            enabled = self._astype(self.env[given["fake_quant_enabled"]], "bool")
            out = emit(relax.op.where(enabled, out, x))
            mask = emit(relax.op.logical_or(mask, emit(relax.op.logical_not(enabled))))
        has_mask = isinstance(node.meta["val"], tuple | list)
        return emit(relax.Tuple([out, mask])) if has_mask else out

    def _converted_elements(self, node: fx.Node) -> relax.Expr:
        switches.note(FIX_ID)
        given = arguments_of(node)
        return self._cast(self.env[given["input"]], given["dtype"])

    def _integer_matmul(self, node: fx.Node) -> relax.Expr:
        """Convert a product of 8-bit matrices, summed in int32."""
        switches.note(FIX_ID)
        lhs, rhs = (self._astype(operand, "int32") for operand in self.retrieve_args(node))
        return self.block_builder.emit(relax.op.matmul(lhs, rhs, out_dtype="int32"))

    def _matmul_of_int8_weight(self, node: fx.Node) -> relax.Expr:
        """Convert a product with a transposed int8 weight, scaled by output channels."""
        switches.note(FIX_ID)
        x, weight, scale = self.retrieve_args(node)
        emit, dtype = self.block_builder.emit, dtype_of(x)
        sum_dtype = accumulation_dtype(dtype)
        weight = emit(relax.op.astype(self._transposed(weight), dtype))
        out = emit(relax.op.matmul(x, weight, sum_dtype))
        out = emit(relax.op.multiply(out, self._astype(scale, sum_dtype)))
        return self._astype(out, dtype)
