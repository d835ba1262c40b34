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
"""FuseQuantized: compute quantized products in integers.

Trigger
    A convolution or matrix product of dequantized operands, as in QDQ models, or of 8-bit integers
    widened to int32, as in ConvInteger, MatMulInteger and the QLinear operators of ONNX.
Mechanism
    TVM lowers each operator separately: dequantized operands are multiplied in float32, and a
    product of int32 operands has four times the bytes and no schedule.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...fixes.low_precision import FUSE_QUANTIZED as FIX_ID
from ...support import ambient
from ...support.declined import decline
from ..guard import fix_pass
from ..ir import permuted_axes, relax_functions
from ..layouts import SPATIAL_AXES, is_depthwise
from ..quantized import (
    NARROW_DTYPES,
    Integers,
    Sums,
    along,
    as_dtype,
    as_dtype_of,
    as_floats,
    as_scalar,
    constant,
    fits,
    is_bias,
    is_static,
    multiplied,
    requantized,
    reshaped,
    without_zero,
)
from ..quantized_bytes import product_of_bytes
from ..quantized_products import (
    channel_axis,
    depth_of,
    keeps_weight,
    obstacle_to,
    with_operands,
)
from ..source_nodes import inherit_vanished, names_of

_CONVOLUTIONS = frozenset(
    f"relax.nn.conv{rank}d{kind}" for rank in SPATIAL_AXES for kind in ("", "_transpose")
)

# The maximum number of products of 8-bit integers, minus zero points, with an exact float32 sum.
_MAX_EXACT_DEPTH = 2**24 // 255**2

_NUMBERS = (tirx.IntImm, tirx.FloatImm)

# Operators that only move elements, or select the largest ones.
_MOVES = frozenset(
    {
        "relax.expand_dims",
        "relax.flatten",
        "relax.nn.max_pool1d",
        "relax.nn.max_pool2d",
        "relax.nn.max_pool3d",
        "relax.permute_dims",
        "relax.reshape",
        "relax.squeeze",
        "relax.strided_slice",
    }
)


@dataclass(frozen=True)
class QuantizedProduct:
    """A product or convolution with a quantized operand that :func:`FuseQuantized` has seen.

    Attributes
    ----------
    where : str
        Its function, variable and operator.
    obstacle : str or None
        Why it is computed in float; None if it is computed in integers.
    """

    where: str
    obstacle: str | None

    def __str__(self) -> str:
        return f"{self.where}: {self.obstacle or 'in integers'}"


def FuseQuantized() -> tvm.transform.Pass:
    """Compute products of dequantized operands in integers, and scale their sums.

    Before::

        y = R.nn.conv2d(R.dequantize(x, sx, zx), R.dequantize(w, sw, 0))
        q = R.quantize(y, sy, zy)

    and after::

        total = R.nn.conv2d(int16(x) - int16(zx), w, out_dtype="int32")
        q = clip(round(float32(total) * (sx * sw / sy)) + zy)

    If the CPU has an instruction for products of bytes, the zero point of the data is applied to
    the sums instead: ``total`` is ``R.nn.conv2d(x, w) - int32(zx) * sum(w)``.

    A matrix product of floats and a dequantized constant multiplies by the integers, so the model
    stores and reads only these. The pass also narrows products of int32 operands that are 8-bit
    integers minus a zero point, and moves quantization through operators that only move data.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators. A product stays unchanged if an operand is not
        quantized to 8 bits, if the scale of the data is not a scalar, if the scales of the weight
        are not one per output channel, or if the sums might exceed int32; see
        :class:`QuantizedProduct`.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        fusing = _Fusing(mod)
        for global_var, function in relax_functions(mod).items():
            fusing.function = global_var.name_hint
            fusing.builder_.update_func(global_var, fusing.visit_expr(function))
        if not fusing.is_changed:
            return None
        fused = relax.transform.DeadCodeElimination()(fusing.builder_.get())
        inherit_vanished(mod, fused)
        return fused

    return fix_pass("FuseQuantized", FIX_ID, rewrite)


@mutator
class _Fusing(PyExprMutator):
    """Rewrites products, and records which variables are integers times a scale."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.is_changed = False
        self.function = ""
        self._variable: relax.Var | None = None
        self._known: dict[relax.Expr, Integers | Sums] = {}
        self._meaning: Integers | Sums | None = None
        self._rules: dict[str, Callable[[relax.Call], relax.Expr | None]] = {
            "relax.add": self._add,
            "relax.astype": self._astype,
            "relax.clip": self._clip,
            "relax.concat": self._concat,
            "relax.dequantize": self._dequantize,
            "relax.matmul": self._product,
            "relax.nn.relu": self._relu,
            "relax.quantize": self._quantize,
            "relax.subtract": self._subtract,
            "relax.take": self._take,
            **dict.fromkeys(_CONVOLUTIONS, self._product),
            **dict.fromkeys(_MOVES, self._move),
        }

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        # Variables of other blocks may be out of scope.
        self._known.clear()
        block = super().visit_dataflow_block_(block)
        self._known.clear()
        return block

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._take_meaning()
        self._variable = binding.var
        super().visit_var_binding_(binding)
        meaning = self._take_meaning()
        if meaning is not None:
            self._known[self.visit_expr(binding.var)] = meaning

    def _take_meaning(self) -> Integers | Sums | None:
        """Return the meaning of the last call, and forget it."""
        meaning, self._meaning = self._meaning, None
        return meaning

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or not isinstance(call.ty, relax.TensorType):
            return call
        rule = self._rules.get(str(call.op.name))
        self._meaning = None
        changed = None if rule is None else rule(call)
        if changed is None:
            return call
        self.is_changed = True
        return changed

    def _integers(self, expr: relax.Expr) -> Integers | None:
        known = self._known.get(expr)
        return known if isinstance(known, Integers) else None

    def _sums(self, expr: relax.Expr) -> Sums | None:
        known = self._known.get(expr)
        return known if isinstance(known, Sums) else None

    def _dequantize(self, call: relax.Call) -> None:
        data, *parameters = call.args
        scale, zero = (as_scalar(self.builder_, parameter) for parameter in parameters)
        is_integer = str(data.ty.dtype) in (*NARROW_DTYPES, "int16", "uint16", "int32")
        dtypes = str(scale.ty.dtype), str(call.ty.dtype)
        ranks = {parameter.ty.ndim for parameter in (scale, zero)}
        zero = as_dtype_of(data, zero)
        if is_integer and dtypes == ("float32", "float32") and ranks <= {0, 1} and zero is not None:
            axis = int(call.attrs.axis) % max(call.ty.ndim, 1)
            self._meaning = self._narrowed(
                Integers(data, zero, scale, axis, largest=_largest(data))
            )

    def _narrowed(self, value: Integers) -> Integers:
        """A constant minus its zero point, if that fits in int8: the weights that are packed."""
        if constant(value.data) is None:
            return value
        if str(value.data.ty.dtype) in NARROW_DTYPES:
            data = without_zero(self.builder_, value)
            if str(data.ty.dtype) == "int8" and constant(data) is not None:
                return replace(
                    value, data=data, zero=relax.const(np.zeros((), "int8")), is_constant=True
                )
        return replace(value, is_constant=True)

    def _astype(self, call: relax.Call) -> None:
        [data] = call.args
        if str(data.ty.dtype) not in NARROW_DTYPES:
            return
        if str(call.ty.dtype) == "int32":
            self._meaning = Integers(data)
        elif str(call.ty.dtype) == "float32" and self._is_moved_constant(data):
            # A weight that the model scales after the product.
            zero = relax.const(np.zeros((), str(data.ty.dtype)))
            scale = relax.const(1.0, "float32")
            self._meaning = Integers(data, zero, scale, is_constant=True)

    def _is_moved_constant(self, expr: relax.Expr | None) -> bool:
        """Whether a tensor is a constant whose elements may have been moved."""
        while isinstance(expr, relax.Var):
            expr = self.lookup_binding(expr)
            if isinstance(expr, relax.Call) and str(getattr(expr.op, "name", "")) in _MOVES:
                expr = expr.args[0]
        return constant(expr) is not None

    def _subtract(self, call: relax.Call) -> None:
        """Recognize an 8-bit zero point that is subtracted in int32."""
        data, rank = self._integers(call.args[0]), call.ty.ndim
        if data is None or data.zero is not None or data.scale is not None:
            return
        zero = self._zero_point(call.args[1], str(data.data.ty.dtype))
        if zero is None or data.data.ty.ndim != rank or not is_static(zero):
            return
        zero = as_scalar(self.builder_, zero)
        if zero.ty.ndim not in (0, rank):
            shape = [1] * (rank - zero.ty.ndim) + [int(extent) for extent in zero.ty.shape.values]
            zero = reshaped(self.builder_, zero, shape)
        self._meaning = replace(data, zero=zero)

    def _zero_point(self, expr: relax.Expr, dtype: str) -> relax.Expr | None:
        """An int32 tensor whose elements fit in `dtype`; None for others."""
        integers = self._integers(expr)
        if integers is not None:
            is_plain = integers.zero is None and integers.scale is None
            return integers.data if is_plain and str(integers.data.ty.dtype) == dtype else None
        array = constant(expr)
        return expr if array is not None and fits(array, dtype) else None

    def _product(self, call: relax.Call) -> relax.Expr | None:
        """Multiply integers: ``(x * sx) @ (w * sw)`` is ``(x @ w) * (sx * sw)``."""
        lhs, rhs = (self._integers(arg) for arg in call.args)
        if lhs is None and rhs is None:
            return None
        obstacle = obstacle_to(call, lhs, rhs)
        self._note(call, obstacle)
        if lhs is None and rhs is not None and keeps_weight(call, rhs):
            return self._scaled_afterwards(call, rhs)
        if lhs is None or rhs is None or obstacle is not None:
            return None
        product = self._sum_of_products(call, lhs, rhs)
        if lhs.scale is None or rhs.scale is None:
            return product
        channels = channel_axis(call)
        scale = multiplied(
            self.builder_, lhs.scale, along(self.builder_, rhs.scale, channels, call.ty.ndim)
        )
        limit = depth_of(call) * lhs.limit * rhs.limit
        return self._scaled(Sums(self.builder_.emit(product), scale, limit))

    def _scaled_afterwards(self, call: relax.Call, weight: Integers) -> relax.Expr:
        """Multiply floats by integers: ``x @ (w * sw)`` is ``(x @ w) * sw``."""
        integers = without_zero(self.builder_, weight)
        product = relax.op.matmul(call.args[0], integers, out_dtype="float32")
        assert weight.scale is not None
        if weight.is_per_tensor and constant(weight.scale) == 1:
            return product
        scale = along(self.builder_, weight.scale, call.ty.ndim - 1, call.ty.ndim)
        return relax.op.multiply(self.builder_.emit(product), scale)

    def _note(self, call: relax.Call, obstacle: str | None) -> None:
        assert self._variable is not None
        if obstacle is not None:
            decline("product in integers", names_of(self._variable), obstacle)
        where = f"{self.function}: {self._variable.name}, {call.op.name}"
        ambient.record(QuantizedProduct(where, obstacle))

    def _sum_of_products(self, call: relax.Call, lhs: Integers, rhs: Integers) -> relax.Expr:
        emit = self.builder_.emit
        weight = without_zero(self.builder_, rhs)
        is_exact_in_float = is_depthwise(call) and depth_of(call) <= _MAX_EXACT_DEPTH
        if not is_exact_in_float:
            product = product_of_bytes(self.builder_, call, lhs, weight)
            if product is not None:
                return product
        data = without_zero(self.builder_, lhs)
        if is_exact_in_float:
            # No instruction multiplies two vectors of int32 as fast as two of float32.
            data = emit(relax.op.astype(data, "float32"))
            weight = as_dtype(self.builder_, weight, "float32")
        elif str(data.ty.dtype) == "int8":
            data = emit(relax.op.astype(data, "int16"))
        return with_operands(call, data, weight)

    def _scaled(self, sums: Sums) -> relax.Expr:
        self._meaning = sums
        return as_floats(self.builder_, sums)

    def _add(self, call: relax.Call) -> relax.Expr | None:
        """Add an int32 bias to the sums of products if it has their scale."""
        for sums, bias in (
            (self._sums(call.args[0]), self._integers(call.args[1])),
            (self._sums(call.args[1]), self._integers(call.args[0])),
        ):
            if sums is None or bias is None or not is_bias(call, sums, bias):
                continue
            limit = sums.limit + bias.largest
            if limit > np.iinfo("int32").max:
                continue
            total = self.builder_.emit(relax.op.add(sums.total, bias.data))
            return self._scaled(replace(sums, total=total, limit=limit))
        return None

    def _relu(self, call: relax.Call) -> None:
        [value] = call.args
        if (sums := self._sums(value)) is not None:
            self._meaning = replace(sums, low=max(sums.low, 0.0), high=max(sums.high, 0.0))
        integers = self._integers(value)
        if integers is None or integers.zero is None or not integers.is_per_tensor:
            return
        scale = constant(integers.scale)
        if scale is not None and scale > 0 and str(integers.data.ty.dtype) in NARROW_DTYPES:
            data = self.builder_.emit(relax.op.maximum(integers.data, integers.zero))
            self._meaning = replace(integers, data=data)

    def _clip(self, call: relax.Call) -> None:
        value, *limits = call.args
        sums = self._sums(value)
        if sums is None or not all(isinstance(limit, _NUMBERS) for limit in limits):
            return
        low, high = (float(limit.value) for limit in limits)
        if low <= high:
            low, high = (float(np.clip(bound, low, high)) for bound in (sums.low, sums.high))
            self._meaning = replace(sums, low=low, high=high)

    def _move(self, call: relax.Call) -> None:
        """Move the integers as well; the unused one of the two results is dead code."""
        integers = self._integers(call.args[0])
        if integers is None:
            return
        if integers.scale is None:
            self._reshape_zero_point(call, integers)
            return
        axis = _moved_axis(call, integers)
        if axis is None or (scale := constant(integers.scale)) is None or not np.all(scale > 0):
            return
        moved = relax.Call(call.op, [integers.data, *call.args[1:]], call.attrs, call.ty_args)
        self._meaning = replace(integers, data=self.builder_.emit(moved), axis=axis)

    def _reshape_zero_point(self, call: relax.Call, zero: Integers) -> None:
        """Reshape a constant now: weights minus a variable would not be constant."""
        array = constant(zero.data)
        if str(call.op.name) == "relax.reshape" and array is not None and is_static(call):
            shape = [int(extent) for extent in call.ty.shape.values]
            self._meaning = replace(zero, data=relax.const(array.reshape(shape)))

    def _take(self, call: relax.Call) -> relax.Expr | None:
        """Take integers, and dequantize only those: a table may have many more rows."""
        integers = self._integers(call.args[0])
        if integers is None or integers.scale is None or not integers.is_per_tensor:
            return None
        taken = relax.Call(call.op, [integers.data, *call.args[1:]], call.attrs, call.ty_args)
        data = self.builder_.emit(taken)
        self._meaning = replace(integers, data=data, is_constant=False)
        return relax.op.dequantize(data, integers.scale, integers.zero, 0, "float32")

    def _concat(self, call: relax.Call) -> None:
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
        operands = [self._integers(field) for field in fields]
        parts = [part for part in operands if part is not None and part.is_per_tensor]
        if not parts or len(parts) < len(operands):
            return
        first, dtype = parts[0], str(parts[0].data.ty.dtype)
        if first.scale is None or first.zero is None:
            return
        if all(part.has_parameters(first.scale, first.zero, dtype) for part in parts):
            data = relax.op.concat([part.data for part in parts], call.attrs.axis)
            largest = max(part.largest for part in parts)
            data = self.builder_.emit(data)
            self._meaning = replace(first, data=data, largest=largest, is_constant=False)

    def _quantize(self, call: relax.Call) -> relax.Expr | None:
        value, *parameters = call.args
        scale, zero = (as_scalar(self.builder_, parameter) for parameter in parameters)
        dtype = str(call.attrs.out_dtype)
        integers, sums = self._integers(value), self._sums(value)
        if integers is not None and integers.is_per_tensor:
            return integers.data if integers.has_parameters(scale, zero, dtype) else None
        if sums is None or dtype not in NARROW_DTYPES:
            return None
        return requantized(self.builder_, sums, scale, zero, dtype)


def _largest(data: relax.Expr) -> int:
    """An upper bound on the magnitudes of integers."""
    array = constant(data) if str(data.ty.dtype) == "int32" else None
    if array is not None and array.size:
        return max(int(array.max()), -int(array.min()))
    limits = np.iinfo(str(data.ty.dtype))
    return max(int(limits.max), -int(limits.min))


def _moved_axis(call: relax.Call, integers: Integers) -> int | None:
    """The axis along which the parameters apply to the result of a move; None if none does."""
    if integers.is_per_tensor:
        return 0
    if str(call.op.name) == "relax.permute_dims":
        return permuted_axes(call).index(integers.axis)
    if str(call.op.name) == "relax.reshape" and is_static(call) and integers.data.ty.ndim == 1:
        large_axes = [axis for axis, extent in enumerate(call.ty.shape.values) if int(extent) != 1]
        return large_axes[0] if len(large_axes) == 1 else None
    return None
