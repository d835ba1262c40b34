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
"""Type promotion: PyTorch operators that compute in a dtype other than their operands' dtypes.

Trigger
    An operation on integers with a Python float or another dtype, on a tensor of rank 0, or on a
    size of the program; ``add`` and ``sub`` with ``alpha``; a division of integers; a unary
    function of integers; ``cumsum``, ``cumprod`` and ``prod`` of booleans or small integers;
    ``any`` of numbers, or of no elements; ``clamp`` of integers; ``ones_like`` and similar calls
    with another dtype; a power of 0.5.
Mechanism
    The converters cast a Python scalar to the dtype of the tensor, promote two tensors regardless
    of their ranks, and pass integers to Relax operators that do not promote them.
How to remove
    See ``corrections``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Kind
from torch._prims_common import elementwise_dtypes
from tvm import relax
from tvm.ir import PrimType

from ...fixes.torch_importer import PROMOTION as FIX_ID
from ...support import switches
from ..dtypes import accumulation_dtype, dtype_of
from .corrections import Converters, Corrections

__all__ = ["Promotion", "value_of"]

_ARITHMETIC: dict[str, Callable[..., relax.Expr]] = {
    "add": relax.op.add,
    "add_": relax.op.add,
    "sub": relax.op.subtract,
    "mul": relax.op.multiply,
    "mul_": relax.op.multiply,
    "remainder": relax.op.floor_mod,
    "fmod": relax.op.mod,
    "max": relax.op.maximum,
    "min": relax.op.minimum,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "logaddexp": relax.op.log_add_exp,
    "bitwise_and": relax.op.bitwise_and,
    "bitwise_or": relax.op.bitwise_or,
    "bitwise_or_": relax.op.bitwise_or,
    "bitwise_xor": relax.op.bitwise_xor,
    "__and__": relax.op.bitwise_and,
    "__or__": relax.op.bitwise_or,
    "__xor__": relax.op.bitwise_xor,
    "eq": relax.op.equal,
    "ne": relax.op.not_equal,
    "ge": relax.op.greater_equal,
    "gt": relax.op.greater,
    "le": relax.op.less_equal,
    "lt": relax.op.less,
}
# The logical operators that replace arithmetic and bitwise operators on booleans.
_ON_BOOLEANS: dict[str, Callable[..., relax.Expr]] = {
    "add": relax.op.logical_or,
    "add_": relax.op.logical_or,
    "mul": relax.op.logical_and,
    "mul_": relax.op.logical_and,
    "max": relax.op.logical_or,
    "min": relax.op.logical_and,
    "maximum": relax.op.logical_or,
    "minimum": relax.op.logical_and,
    "bitwise_and": relax.op.logical_and,
    "bitwise_or": relax.op.logical_or,
    "bitwise_or_": relax.op.logical_or,
    "bitwise_xor": relax.op.logical_xor,
    "__and__": relax.op.logical_and,
    "__or__": relax.op.logical_or,
    "__xor__": relax.op.logical_xor,
}
# PyTorch computes these powers as roots, so that of -inf is NaN, except in float16.
_ROOTS = {0.5: relax.op.sqrt, -0.5: relax.op.rsqrt}
_FLOATING: dict[str, Callable[..., relax.Expr]] = {
    "div": relax.op.divide,
    "atan2": relax.op.atan2,
}
_BINARY_OVERLOADS = ("Tensor", "Scalar", "Scalar_Tensor", "default", "other")

_FLOATING_UNARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "expm1"),
    *("log", "log2", "log10", "log1p", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt"),
    *("tan", "tanh"),
)
_SUMS = {
    **{name: name for name in ("cumprod.default", "cumsum.default", "prod.default")},
    **{name: name for name in ("sum.default", "sum.dim_IntList")},
    "prod.dim_int": "prod.default",
}
_ANY = ("any.default", "any.dim", "any.dims")
_FILLS = {"empty_like": 0, "zeros_like": 0, "new_zeros": 0, "ones_like": 1, "new_ones": 1}


def value_of(argument: Any) -> Any:
    """Return PyTorch's value of an argument: a fake tensor, a number, or a symbolic number."""
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def _example(argument: Any) -> Any:
    """Return an operand for PyTorch's promotion; an example replaces a symbolic number."""
    value = value_of(argument)
    for symbolic, example in (
        (torch.SymBool, True),
        (torch.SymInt, 1),
        (torch.SymFloat, 1.0),
    ):
        if isinstance(value, symbolic):
            return example
    return value


def _number(argument: Any) -> float | None:
    """Return an argument that is a number, or None for other arguments."""
    return argument if isinstance(argument, int | float) else None


class Promotion(Corrections):
    """Converters of elementwise operators and sums that promote dtypes like PyTorch."""

    def promoting_converters(self, stock: Converters) -> Converters:
        """Return converters that replace those of `stock`, or wrap them."""
        converters: dict[Any, Callable[[fx.Node], relax.Expr]] = {}
        for kind, operators in ((Kind.DEFAULT, _ARITHMETIC), (Kind.INT_TO_FLOAT, _FLOATING)):
            for name, op in operators.items():
                for key in (f"{name}.{overload}" for overload in _BINARY_OVERLOADS):
                    known = stock.get(key) or stock.get(key.replace("Scalar_Tensor", "Tensor"))
                    if known is not None and key not in ("max.default", "min.default"):
                        boolean_op = _ON_BOOLEANS.get(name)
                        converters[key] = self._binary_converter(op, boolean_op, kind, known)
        for name in _FLOATING_UNARY:
            converters[f"{name}.default"] = self._in_dtype_converter(stock[f"{name}.default"])
        for name, known_name in _SUMS.items():
            converters[name] = self._in_dtype_converter(stock[known_name])
        for name, number in _FILLS.items():
            key = f"{name}.default"
            converters[key] = self._fill_converter(number, stock[key])
        return converters | {
            **dict.fromkeys(_ANY, self._any),
            "bitwise_not.default": self._inverse_converter(stock["bitwise_not.default"]),
            "clamp.default": self._clamp_converter(stock["clamp.default"]),
            "clamp.Tensor": self._clamp_converter(stock["clamp.default"]),
            "copy.default": self._copied,
            "div.Tensor_mode": self._rounded_quotient,
            "div.Scalar_mode": self._rounded_quotient,
            "pow.Scalar": self._power_converter(stock["pow.Scalar"]),
            "pow.Tensor_Scalar": self._power_converter(stock["pow.Tensor_Scalar"]),
            "pow.Tensor_Tensor": self._power_converter(stock["pow.Tensor_Tensor"]),
            "floor_divide.default": self._rounded_quotient,
            "full_like.default": self._full_like_converter(stock["full_like.default"]),
            "rsub.Tensor": self._reversed_difference,
            "rsub.Scalar": self._reversed_difference,
            "scalar_tensor.default": self._scalar_tensor_of_size(stock["scalar_tensor.default"]),
            "where.self": self._where_converter(stock["where.self"]),
        }

    def _result_dtype(self, kind: Kind, *operands: Any) -> str:
        """Return the dtype in which PyTorch computes an elementwise operator of `operands`."""
        examples = [_example(operand) for operand in operands if operand is not None]
        _, dtype = elementwise_dtypes(*examples, type_promotion_kind=kind)
        return self._convert_data_type(dtype)

    def _operand(self, argument: Any, dtype: str) -> relax.Expr:
        """Convert an argument (a tensor, a number or a size) to a tensor of `dtype`."""
        value = self._retrieve_args(argument)
        if not isinstance(value, relax.Expr):
            if "int" in dtype and isinstance(value, int | float):
                # PyTorch truncates and wraps a number that does not fit the dtype.
                value = torch.tensor(value).to(getattr(torch, dtype)).numpy()
            return relax.const(value, dtype)
        if isinstance(value.ty, PrimType):
            return self._prim_value_to_scalar_tensor(value, dtype)
        return self._astype(value, dtype)

    def _has_dtype(self, argument: Any, dtype: str) -> bool:
        """Whether a tensor has `dtype`, or a number fits it; False for a size of the program."""
        value = self._retrieve_args(argument)
        if isinstance(value, int | float) and "int" in dtype:
            return np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
        if not isinstance(value, relax.Expr):
            return True
        return isinstance(value.ty, relax.TensorType) and dtype_of(value) == dtype

    def _binary_converter(
        self,
        op: Callable[..., relax.Expr],
        boolean_op: Callable[..., relax.Expr] | None,
        kind: Kind,
        stock: Callable[[fx.Node], relax.Expr],
    ) -> Callable[[fx.Node], relax.Expr]:
        def convert(node: fx.Node) -> relax.Expr:
            operands = node.args[:2]
            alpha = self._retrieve_args(node.kwargs.get("alpha", 1))
            dtype = self._result_dtype(kind, *operands)
            is_plain = alpha == 1 and dtype != "bool"
            if is_plain and all(self._has_dtype(operand, dtype) for operand in operands):
                return stock(node)
            switches.note(FIX_ID)
            if dtype == "bool" and boolean_op is None:
                # A comparison: TVM's code generator does not compare booleans.
                dtype = "int8"
            # With a factor, PyTorch rounds the result to 16 bits, and not the product.
            inner = dtype if alpha == 1 else accumulation_dtype(dtype)
            lhs, rhs = (self._operand(operand, inner) for operand in operands)
            if alpha != 1:
                factor = self._operand(alpha, inner)
                rhs = self.block_builder.emit(relax.op.multiply(rhs, factor))
            chosen = boolean_op if dtype == "bool" and boolean_op is not None else op
            result = self.block_builder.emit(chosen(lhs, rhs))
            # The result of a comparison is a boolean in any case.
            return result if inner == dtype else self._astype(result, dtype)

        return convert

    def _in_dtype_converter(
        self, stock: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        """Wrap the converter of a unary function to cast its operand to the result's dtype."""

        def convert(node: fx.Node) -> relax.Expr:
            argument = node.args[0]
            dtype = self._convert_data_type(node.meta["val"].dtype)
            x = self.env[argument]
            if dtype_of(x) == dtype:
                return stock(node)
            switches.note(FIX_ID)
            self.env[argument] = self._astype(x, dtype)
            try:
                return stock(node)
            finally:
                self.env[argument] = x

        return convert

    def _inverse_converter(
        self, stock: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        def convert(node: fx.Node) -> relax.Expr:
            x = self.env[node.args[0]]
            if dtype_of(x) != "bool":
                return stock(node)
            switches.note(FIX_ID)
            return self.block_builder.emit(relax.op.logical_not(x))

        return convert

    def _power_converter(
        self, stock: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        def convert(node: fx.Node) -> relax.Expr:
            dtype = self._result_dtype(Kind.BOOL_TO_LONG, *node.args)
            number = _number(node.args[1])
            if "int" in dtype and number is not None and number >= 0:
                switches.note(FIX_ID)
                return self._integer_power(self._operand(node.args[0], dtype), int(number))
            if number in _ROOTS and dtype != "float16":
                switches.note(FIX_ID)
                return self.block_builder.emit(_ROOTS[number](self._operand(node.args[0], dtype)))
            if all(self._has_dtype(operand, dtype) for operand in node.args):
                return stock(node)
            switches.note(FIX_ID)
            base, exponent = (self._operand(operand, dtype) for operand in node.args)
            return self.block_builder.emit(relax.op.power(base, exponent))

        return convert

    def _integer_power(self, base: relax.Expr, exponent: int) -> relax.Expr:
        """Emit a power of integers as products; TVM's ``power`` has no lowering for integers."""
        emit, result = self.block_builder.emit, None
        while exponent:
            if exponent % 2:
                result = base if result is None else emit(relax.op.multiply(result, base))
            exponent //= 2
            if exponent:
                base = emit(relax.op.multiply(base, base))
        if result is None:
            return emit(relax.op.ones_like(base))
        return result

    def _any(self, node: fx.Node) -> relax.Expr:
        """Convert ``any``; of no elements, it is the smallest uint8, which is False."""
        switches.note(FIX_ID)
        x, *options = node.args
        axis = options[0] if options else node.kwargs.get("dim")
        keepdims = options[1] if len(options) > 1 else node.kwargs.get("keepdim", False)
        ones = self._astype(self._astype(self.env[x], "bool"), "uint8")
        largest = self.block_builder.emit(relax.op.max(ones, axis, keepdims=keepdims))
        return self._astype(largest, "bool")

    def _fill_converter(
        self, number: int, stock: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        def convert(node: fx.Node) -> relax.Expr:
            dtype = self._convert_data_type(node.meta["val"].dtype)
            like = self.env[node.args[0]]
            if dtype_of(like) == dtype:
                return stock(node)
            switches.note(FIX_ID)
            shape = self._retrieve_args(node.args[1]) if len(node.args) > 1 else like.ty.shape
            if not isinstance(shape, relax.Expr):
                shape = relax.ShapeExpr(shape)
            return self.block_builder.emit(relax.op.full(shape, relax.const(number, dtype), dtype))

        return convert

    def _copied(self, node: fx.Node) -> relax.Expr:
        """Convert ``copy``: broadcast a number or a tensor to the shape and dtype of another."""
        switches.note(FIX_ID)
        like = self.env[node.args[0]]
        source = self._operand(node.args[1], dtype_of(like))
        return self.block_builder.emit(relax.op.broadcast_to(source, like.ty.shape))

    def _clamp_converter(
        self, stock: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        def convert(node: fx.Node) -> relax.Expr:
            given = dict(zip(("x", "min", "max"), node.args, strict=False)) | node.kwargs
            x, bounds = given["x"], [given.get("min"), given.get("max")]
            dtype = self._result_dtype(Kind.DEFAULT, x, *bounds)
            plain = all(bound is None or isinstance(bound, int | float) for bound in bounds)
            if plain and "float" in dtype and dtype_of(self.env[x]) == dtype:
                return stock(node)
            # For a missing bound, TVM's clip uses infinity, which is not an integer.
            switches.note(FIX_ID)
            out = self._operand(x, dtype)
            for bound, op in zip(bounds, (relax.op.maximum, relax.op.minimum), strict=True):
                if bound is not None:
                    out = self.block_builder.emit(op(out, self._operand(bound, dtype)))
            return out

        return convert

    def _where_converter(
        self, stock: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        def convert(node: fx.Node) -> relax.Expr:
            condition, *branches = node.args
            dtype = self._result_dtype(Kind.DEFAULT, *branches)
            tensors = [self._retrieve_args(branch) for branch in branches]
            if all(isinstance(v, relax.Expr) and dtype_of(v) == dtype for v in tensors):
                return stock(node)
            switches.note(FIX_ID)
            lhs, rhs = (self._operand(branch, dtype) for branch in branches)
            return self.block_builder.emit(relax.op.where(self.env[condition], lhs, rhs))

        return convert

    def _rounded_quotient(self, node: fx.Node) -> relax.Expr:
        """Convert ``div``, with or without a rounding mode, and ``floor_divide``."""
        operands = node.args[:2]
        is_floor = node.target.__name__.startswith("floor_divide")
        mode = "floor" if is_floor else node.kwargs.get("rounding_mode")
        kind = Kind.INT_TO_FLOAT if mode is None else Kind.DEFAULT
        dtype = self._result_dtype(kind, *operands)
        if not all(self._has_dtype(operand, dtype) for operand in operands):
            switches.note(FIX_ID)
        lhs, rhs = (self._operand(operand, dtype) for operand in operands)
        emit = self.block_builder.emit
        if mode == "floor":
            # PyTorch does not round a Python number to 16 bits, which could change the floor.
            inner = accumulation_dtype(dtype)
            lhs, rhs = (self._operand(operand, inner) for operand in operands)
            return self._astype(emit(relax.op.floor_divide(lhs, rhs)), dtype)
        quotient = emit(relax.op.divide(lhs, rhs))
        # A quotient of integers is already truncated.
        return emit(relax.op.trunc(quotient)) if mode == "trunc" and "float" in dtype else quotient

    def _reversed_difference(self, node: fx.Node) -> relax.Expr:
        operands = node.args[:2]
        dtype = self._result_dtype(Kind.DEFAULT, *operands)
        alpha = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
        inner = dtype if alpha == 1 else accumulation_dtype(dtype)
        lhs, rhs = (self._operand(operand, inner) for operand in operands)
        emit = self.block_builder.emit
        if alpha != 1:
            switches.note(FIX_ID)
            lhs = emit(relax.op.multiply(lhs, relax.const(alpha, inner)))
        return self._astype(emit(relax.op.subtract(rhs, lhs)), dtype)

    def _convert_scalar_fill_value(self, value: Any, dtype: str) -> relax.Expr:
        own = self._fill_value(value, dtype) if isinstance(value, int | float) else None
        return super()._convert_scalar_fill_value(value, dtype) if own is None else own

    def _fill_value(self, value: Any, dtype: str) -> relax.Expr | None:
        """Return the fill value as a tensor of rank 0, or None if TVM's has `dtype`, too."""
        if self._has_dtype(value, dtype):
            return None
        switches.note(FIX_ID)
        return self._operand(value, dtype)

    def _full_like_converter(
        self, stock: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        def convert(node: fx.Node) -> relax.Expr:
            dtype = self._convert_data_type(node.meta["val"].dtype)
            number = self._fill_value(node.args[1], dtype)
            if number is None:
                return stock(node)
            return self.block_builder.emit(
                relax.op.full_like(self.env[node.args[0]], number, dtype)
            )

        return convert

    def _scalar_tensor_of_size(
        self, stock: Callable[[fx.Node], relax.Expr]
    ) -> Callable[[fx.Node], relax.Expr]:
        def convert(node: fx.Node) -> relax.Expr:
            dtype = self._convert_data_type(node.meta["val"].dtype)
            if not isinstance(node.args[0], fx.Node) and self._has_dtype(node.args[0], dtype):
                return stock(node)
            switches.note(FIX_ID)
            return self._operand(node.args[0], dtype)

        return convert
