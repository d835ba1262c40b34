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
"""Corrections that both importers of PyTorch programs share.

Trigger
    A convolution, linear layer or matrix product of a dtype other than float32; a 3-D transposed
    convolution; an unbatched convolution; a tile by a symbolic dim.
Mechanism
    The converters pass ``out_dtype="float32"`` for operands of any dtype; none emits
    ``conv3d_transpose`` or expands an unbatched operand; ``relax.op.tile`` takes only integers.
How to remove
    When TVM's importers pass the tests of this package, use them; delete the package, its tests and
    the fix ids ``torch-*``.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from torch import fx, nn
from tvm import relax, tirx
from tvm.relax.frontend.torch.base_fx_graph_translator import BaseFXGraphImporter

from ...errors import OpAttributeInvalid
from ...fixes.torch_importer import (
    CONV_TRANSPOSE,
    DTYPE,
    INSTANCE_NORM,
    LINEAR,
    PRELU,
    TILE,
)
from ...support import switches
from ..dtypes import accumulation_dtype, dtype_of

__all__ = ["Converters", "Corrections", "dtypes", "static_extent"]

Converters = Mapping[type[nn.Module] | str, Callable[[fx.Node], relax.Expr]]


def dtypes(operand: relax.Expr) -> tuple[str, str]:
    """Return the result dtype and the accumulation dtype for the first operand of an operator."""
    dtype = dtype_of(operand)
    if dtype != "float32":
        switches.note(DTYPE)
    return dtype, accumulation_dtype(dtype)


def static_extent(extent: Any) -> int | None:
    """Return `extent` as an int, or None if it is symbolic."""
    return int(extent) if isinstance(extent, int | tirx.IntImm) else None


def _integers(operator: str, name: str, value: Any, count: int) -> list[int]:
    """Return an attribute as `count` integers; a single integer applies to all axes.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an element is symbolic, or the number of elements is neither 1 nor `count`.
    """
    values = list(value) if isinstance(value, list | tuple) else [value]
    values = [static_extent(v) for v in (values * count if len(values) == 1 else values)]
    if len(values) != count or None in values:
        raise OpAttributeInvalid(
            f"{operator}: attribute {name} is {value}; expected {count} integers known at import"
        )
    return values


def _convolution_method(
    op: Callable[..., relax.Expr],
    data_layout: str,
    kernel_layout: str,
    stock: Callable[..., relax.Var] | None,
) -> Callable[..., relax.Expr]:
    """Return the importers' method for `op`: any dtype, batched or not, with or without bias.

    The method calls `stock`, TVM's method, if the fix ``torch-dtype`` is disabled.
    """
    rank = len(data_layout) - 2

    def convert(
        self: "Corrections",
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None,
        *,
        padding: Any,
        groups: int,
        **attributes: Any,
    ) -> relax.Expr:
        emit = self.block_builder.emit
        if x.ty.ndim == rank + 1 and switches.enabled(CONV_TRANSPOSE):
            switches.note(CONV_TRANSPOSE)
            x = emit(relax.op.expand_dims(x, 0))
            out = convert(self, x, weight, bias, padding=padding, groups=groups, **attributes)
            return emit(relax.op.squeeze(out, [0]))
        if stock is not None and not switches.enabled(DTYPE):
            return stock(self, x, weight, bias, padding=padding, groups=groups, **attributes)

        # Padding has one element per axis, or one per end of each axis.
        ends = 2 * rank if isinstance(padding, list) and len(padding) == 2 * rank else rank
        dtype, sum_dtype = dtypes(x)
        out = emit(
            op(
                x,
                weight,
                **{k: _integers(op.__name__, k, v, rank) for k, v in attributes.items()},
                padding=_integers(op.__name__, "padding", padding, ends),
                groups=groups,
                data_layout=data_layout,
                kernel_layout=kernel_layout,
                out_dtype=sum_dtype,
            )
        )
        if not self._is_no_bias(bias):
            bias = relax.op.reshape(self._astype(bias, sum_dtype), (1, -1) + (1,) * rank)
            out = emit(relax.op.add(out, bias))
        return self._astype(out, dtype)

    return convert


class Corrections(BaseFXGraphImporter):
    """Overrides for both importers, which list this class before TVM's."""

    # Whether the importer is in a branch of torch.cond, which is a function with its own variables.
    _is_in_branch = False

    @cached_property
    def _transposed_weights(self) -> dict[relax.Expr, relax.Expr]:
        return {}

    def corrected_converters(self) -> Mapping[str, Converters]:
        """Return the converters that replace or extend TVM's, by fix id."""
        raise NotImplementedError

    def create_convert_map(self) -> dict[type[nn.Module] | str, Callable[[fx.Node], relax.Expr]]:
        """Return TVM's converters, and ours for the enabled fixes."""
        converters = super().create_convert_map()
        for fix_id, corrected in self.corrected_converters().items():
            if switches.enabled(fix_id):
                converters.update(corrected)
        return converters

    def _arguments(self, node: fx.Node, **defaults: Any) -> list[Any]:
        """Return the positional and keyword arguments of a call in the order of `defaults`."""
        given = dict(zip(defaults, node.args, strict=False)) | node.kwargs
        return [self._retrieve_args(given.get(name, value)) for name, value in defaults.items()]

    def _astype(self, value: relax.Expr, dtype: str) -> relax.Expr:
        if dtype_of(value) == dtype:
            return value
        return self.block_builder.emit(relax.op.astype(value, dtype))

    def _scale(self, value: relax.Expr, factor: float) -> relax.Expr:
        if factor == 1:
            return value
        return self.block_builder.emit(
            relax.op.multiply(value, relax.const(factor, dtype_of(value)))
        )

    _conv1d_impl = _convolution_method(
        relax.op.nn.conv1d, "NCW", "OIW", BaseFXGraphImporter._conv1d_impl
    )
    _conv2d_impl = _convolution_method(
        relax.op.nn.conv2d, "NCHW", "OIHW", BaseFXGraphImporter._conv2d_impl
    )
    _conv3d_impl = _convolution_method(
        relax.op.nn.conv3d, "NCDHW", "OIDHW", BaseFXGraphImporter._conv3d_impl
    )
    _conv_transpose1d_impl = _convolution_method(
        relax.op.nn.conv1d_transpose, "NCW", "IOW", BaseFXGraphImporter._conv_transpose1d_impl
    )
    _conv_transpose2d_impl = _convolution_method(
        relax.op.nn.conv2d_transpose, "NCHW", "IOHW", BaseFXGraphImporter._conv_transpose2d_impl
    )
    _conv_transpose3d_impl = _convolution_method(
        relax.op.nn.conv3d_transpose, "NCDHW", "IODHW", None
    )

    def _emit_conv(
        self,
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None,
        *,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
    ) -> relax.Expr:
        """Emit a convolution of the weight's rank; `padding` may be ``"same"`` or ``"valid"``."""
        rank = weight.ty.ndim - 2
        if isinstance(padding, str):
            switches.note(CONV_TRANSPOSE)
            kernel = [int(extent) for extent in weight.ty.shape.values[2:]]
            totals = [
                d * (k - 1) if padding == "same" else 0
                for d, k in zip(_integers("conv", "dilation", dilation, rank), kernel, strict=True)
            ]
            padding = [total // 2 for total in totals] + [total - total // 2 for total in totals]
        method = getattr(self, f"_conv{rank}d_impl")
        return method(
            x, weight, bias, strides=stride, padding=padding, dilation=dilation, groups=groups
        )

    def _emit_conv_transpose(
        self, x: relax.Expr, weight: relax.Expr, bias: relax.Expr | None, **attributes: Any
    ) -> relax.Expr:
        """Emit a transposed convolution of the weight's rank."""
        rank = weight.ty.ndim - 2
        if rank == 3:
            switches.note(CONV_TRANSPOSE)
        attributes["strides"] = attributes.pop("stride")
        return getattr(self, f"_conv_transpose{rank}d_impl")(x, weight, bias, **attributes)

    def _conv_call(self, node: fx.Node) -> relax.Expr:
        """Convert ``conv1d``, ``conv2d`` or ``conv3d`` of ``torch.nn.functional``."""
        if node.kwargs:
            switches.note(CONV_TRANSPOSE)
        options = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
        operands = {"input": None, "weight": None, "bias": None}
        x, weight, bias, *values = self._arguments(node, **operands, **options)
        return self._emit_conv(x, weight, bias, **dict(zip(options, values, strict=True)))

    def _conv_transpose_call(self, node: fx.Node) -> relax.Expr:
        """Convert ``conv_transpose1d``, ``2d`` or ``3d`` of ``torch.nn.functional``."""
        if node.kwargs:
            switches.note(CONV_TRANSPOSE)
        options = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}
        operands = {"input": None, "weight": None, "bias": None}
        x, weight, bias, *values = self._arguments(node, **operands, **options)
        return self._emit_conv_transpose(x, weight, bias, **dict(zip(options, values, strict=True)))

    def _linear_of_dtype(self, node: fx.Node) -> relax.Expr:
        x, weight, bias = self._arguments(node, input=None, weight=None, bias=None)
        return self._emit_linear(x, weight, bias)

    def _emit_linear(
        self, x: relax.Expr, weight: relax.Expr, bias: relax.Expr | None
    ) -> relax.Expr:
        dtype, sum_dtype = dtypes(x)
        emit = self.block_builder.emit
        if bias is not None:
            bias = self._astype(bias, sum_dtype)
        out = emit(relax.op.matmul(x, self._transposed(weight), sum_dtype))
        if bias is not None:
            out = emit(relax.op.add(out, bias))
        return self._astype(out, dtype)

    def _transposed(self, weight: relax.Expr) -> relax.Expr:
        """Reverse the axes of a weight; layers that share the weight share the result."""
        if self._is_in_branch:
            return self.block_builder.emit(relax.op.permute_dims(weight))
        if weight not in self._transposed_weights:
            transposed = self.block_builder.emit(relax.op.permute_dims(weight))
            self._transposed_weights[weight] = transposed
        return self._transposed_weights[weight]

    def _bilinear_call(self, node: fx.Node) -> relax.Expr:
        """Convert ``sum(x[..., i] * weight[:, i, j] * y[..., j]) + bias``.

        To avoid an outer product, the weight is reshaped to one matrix whose rows are the pairs
        (output, element of `x`).
        """
        switches.note(LINEAR)
        x, y, weight, bias = self._arguments(node, input1=None, input2=None, weight=None, bias=None)
        emit = self.block_builder.emit
        dtype, sum_dtype = dtypes(x)
        outputs, rows, columns = weight.ty.shape
        *batch, _ = x.ty.shape
        matrix = emit(relax.op.reshape(weight, (outputs * rows, columns)))
        products = emit(relax.op.linear(y, matrix, None, sum_dtype))
        products = emit(relax.op.reshape(products, (*batch, outputs, rows)))
        x = emit(relax.op.expand_dims(self._astype(x, sum_dtype), -1))
        out = emit(relax.op.squeeze(emit(relax.op.matmul(products, x, sum_dtype)), [-1]))
        if bias is not None:
            out = emit(relax.op.add(out, self._astype(bias, sum_dtype)))
        return self._astype(out, dtype)

    def _matmul_of_dtype(self, node: fx.Node) -> relax.Expr:
        lhs, rhs = self.retrieve_args(node)
        dtype, sum_dtype = dtypes(lhs)
        out = self.block_builder.emit(relax.op.matmul(lhs, rhs, sum_dtype))
        return self._astype(out, dtype)

    def _addmm_of_dtype(self, node: fx.Node) -> relax.Expr:
        return self._add_scaled_matmul(node, self._addmm)

    def _baddbmm_of_dtype(self, node: fx.Node) -> relax.Expr:
        return self._add_scaled_matmul(node, self._baddbmm)

    def _add_scaled_matmul(
        self, node: fx.Node, float32_converter: Callable[[fx.Node], relax.Var]
    ) -> relax.Expr:
        """Convert ``beta * addend + alpha * (lhs @ rhs)``; omit a term whose factor is 0.

        PyTorch documents that with ``beta=0``, NaN and infinity in `addend` do not propagate.
        """
        addend, lhs, rhs = self.retrieve_args(node)
        alpha: Any = node.kwargs.get("alpha", 1)
        beta: Any = node.kwargs.get("beta", 1)
        dtype, sum_dtype = dtypes(lhs)
        if dtype == "float32" and alpha != 0:
            return float32_converter(node)

        switches.note(DTYPE)
        emit = self.block_builder.emit
        product = self.block_builder.normalize(relax.op.matmul(lhs, rhs, sum_dtype))
        if beta == 0:
            addend = relax.const(0, sum_dtype)
        else:
            addend = self._scale(self._astype(addend, sum_dtype), beta)
        if alpha == 0:
            out = emit(relax.op.broadcast_to(addend, product.ty.shape))
        else:
            out = self._scale(emit(product), alpha)
            if beta != 0:
                out = emit(relax.op.add(addend, out))
        return self._astype(out, dtype)

    def _emit_batch_norm(
        self,
        x: relax.Expr,
        weight: relax.Expr | None,
        bias: relax.Expr | None,
        running_mean: relax.Expr | None,
        running_var: relax.Expr | None,
        *,
        training: bool,
        epsilon: float,
    ) -> relax.Expr:
        """Normalize by the running statistics, or in training mode by those of the batch.

        Like PyTorch, compute in the accumulation dtype of the parameters.
        """
        values, parameters = self._norm_operands(x, weight, bias, running_mean, running_var)
        normalized = self.block_builder.emit(
            relax.op.nn.batch_norm(
                values,
                *parameters,
                axis=1,
                epsilon=epsilon,
                training=training or running_mean is None,
            )
        )
        out = self.block_builder.emit(relax.TupleGetItem(normalized, 0))
        return self._astype(out, dtype_of(x))

    def _norm_operands(
        self, x: relax.Expr, *parameters: relax.Expr | None
    ) -> tuple[relax.Expr, list[relax.Expr]]:
        """Cast the data and the parameters of a norm to the parameters' accumulation dtype.

        The parameters are weight, bias, mean and variance; a missing one gets its identity value.
        """
        given = [value for value in parameters if value is not None]
        # PyTorch accepts float32 parameters for 16-bit data, too.
        inner = accumulation_dtype(dtype_of(given[0] if given else x))

        def default(value: int) -> relax.Expr:
            channels = static_extent(x.ty.shape[1])
            if channels is None:
                shape = relax.ShapeExpr([x.ty.shape[1]])
                return self.block_builder.emit(relax.op.full(shape, relax.const(value, inner)))
            return relax.const(np.full(channels, value), inner)

        operands = [
            default(identity) if value is None else self._astype(value, inner)
            for value, identity in zip(parameters, (1, 0, 0, 1), strict=False)
        ]
        return self._astype(x, inner), operands

    def _instance_norm_call(self, node: fx.Node) -> relax.Expr:
        *operands, use_input_stats, _momentum, epsilon, _ = self.retrieve_args(node)
        return self._emit_instance_norm(*operands, use_input_stats=use_input_stats, epsilon=epsilon)

    def _emit_instance_norm(
        self,
        x: relax.Expr,
        weight: relax.Expr | None,
        bias: relax.Expr | None,
        running_mean: relax.Expr | None,
        running_var: relax.Expr | None,
        *,
        use_input_stats: bool,
        epsilon: float,
    ) -> relax.Expr:
        """Normalize by the statistics of each channel, or by the running statistics."""
        switches.note(INSTANCE_NORM)
        if not use_input_stats:
            return self._emit_batch_norm(
                x, weight, bias, running_mean, running_var, training=False, epsilon=epsilon
            )
        values, parameters = self._norm_operands(x, weight, bias)
        norm = relax.op.nn.instance_norm(
            values, *parameters, channel_axis=1, axes=list(range(2, x.ty.ndim)), epsilon=epsilon
        )
        return self._astype(self.block_builder.emit(norm), dtype_of(x))

    def _prelu_call(self, node: fx.Node) -> relax.Expr:
        return self._emit_prelu(*self.retrieve_args(node))

    def _emit_prelu(self, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
        """Emit a PReLU with slopes along axis 1, like PyTorch for data of rank 2 or more."""
        switches.note(PRELU)
        emit = self.block_builder.emit
        if slope.ty.ndim == 0:
            slope = emit(relax.op.reshape(slope, (1,)))
        axis = min(x.ty.ndim - 1, 1)
        # TVM's prelu rejects bfloat16, and its lowering needs a static extent of the axis.
        extent = static_extent(x.ty.shape[axis]) if axis >= 0 else None
        if extent is not None and dtype_of(x) != "bfloat16":
            return emit(relax.op.nn.prelu(x, slope, axis))
        slope = relax.op.reshape(slope, [-1 if i == axis else 1 for i in range(x.ty.ndim)])
        negative = emit(relax.op.multiply(x, emit(slope)))
        zero = relax.const(0, dtype_of(x))
        return emit(relax.op.where(emit(relax.op.greater(x, zero)), x, negative))

    def _tile_call(self, node: fx.Node) -> relax.Expr:
        """Convert ``tile`` and ``repeat``; the numbers of repeats may be symbolic."""
        x, *repeats = self.retrieve_args(node)
        if len(repeats) == 1 and isinstance(repeats[0], list | tuple):
            [repeats] = repeats
        emit = self.block_builder.emit
        numbers = [static_extent(number) for number in repeats]
        if None not in numbers:
            return emit(relax.op.tile(x, numbers))

        switches.note(TILE)
        rank = max(x.ty.ndim, len(repeats))
        extents = [1] * (rank - x.ty.ndim) + list(x.ty.shape)
        repeats = [1] * (rank - len(repeats)) + list(repeats)
        pairs = list(zip(repeats, extents, strict=True))
        x = emit(relax.op.reshape(x, [e for _, extent in pairs for e in (1, extent)]))
        x = emit(relax.op.broadcast_to(x, [e for pair in pairs for e in pair]))
        return emit(relax.op.reshape(x, [repeat * extent for repeat, extent in pairs]))
