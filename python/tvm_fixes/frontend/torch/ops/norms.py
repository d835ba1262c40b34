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
"""Norms of batches, groups and instances.

Trigger
    A dtype other than float32; a batch norm in a program that is not decomposed; an instance norm;
    a group norm without weight or bias.
Mechanism
    The converter of ``batch_norm`` always trains, and uses the momentum as epsilon.  The
    decomposition of an instance norm uses the running variance as epsilon.
"""

import numpy as np
from tvm import relax

from ....fixes.torch_importer import BATCH_NORM, DTYPE, INSTANCE_NORM
from ....support import switches
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import static_extent
from ..call import Call, converts
from ..values.operands import dtypes


@converts("_native_batch_norm_legit_no_training.default", fix=DTYPE)
def convert_eval_batch_norm(call: Call) -> relax.Expr:
    """Convert a batch norm in eval mode, which normalizes by the running statistics."""
    x, weight, bias, mean, var, _momentum, epsilon = call.operands
    dtype, sum_dtype = dtypes(x)
    if dtype == sum_dtype:
        return call.proceed()
    return _emit_batch_norm(call, x, weight, bias, mean, var, training=False, epsilon=epsilon)


@converts("batch_norm.default", fix=BATCH_NORM, noted=True)
def convert_batch_norm(call: Call) -> relax.Expr:
    """Convert a batch norm, in training mode by the statistics of the batch."""
    x, weight, bias, mean, var, training, _momentum, epsilon, *_ = call.operands
    return _emit_batch_norm(call, x, weight, bias, mean, var, training=training, epsilon=epsilon)


@converts("native_group_norm.default", fix=DTYPE)
def convert_group_norm(call: Call) -> relax.Expr:
    """Convert a group norm."""
    x, weight, bias, _batch, _channels, _extent, groups, epsilon = call.operands
    if dtype_of(x) == "float32" and weight is not None and bias is not None:
        return call.proceed()
    switches.note(DTYPE)
    values, parameters = _norm_operands(call, x, weight, bias)
    axes = list(range(2, x.ty.ndim))
    norm = relax.op.nn.group_norm(values, *parameters, groups, 1, axes, epsilon=epsilon)
    return call.astype(call.emit(norm), dtype_of(x))


@converts("native_layer_norm.default", fix=DTYPE)
def convert_layer_norm(call: Call) -> relax.Expr:
    """Convert a layer norm whose parameters and data differ in dtype, as in autocast."""
    x, extents, weight, bias, epsilon = call.operands
    if all(value is None or dtype_of(value) == dtype_of(x) for value in (weight, bias)):
        return call.proceed()
    switches.note(DTYPE)
    inner = accumulation_dtype(dtype_of(x))
    values, *parameters = (
        None if value is None else call.astype(value, inner) for value in (x, weight, bias)
    )
    norm = call.with_operands(values, extents, *parameters, epsilon).proceed()
    return call.astype(norm, dtype_of(x))


@converts("instance_norm.default", fix=INSTANCE_NORM, noted=True)
def convert_instance_norm(call: Call) -> relax.Expr:
    """Convert an instance norm, by the statistics of each channel or by the running ones."""
    x, weight, bias, running_mean, running_var, use_input_stats, _momentum, epsilon, _ = (
        call.operands
    )
    if not use_input_stats:
        return _emit_batch_norm(
            call, x, weight, bias, running_mean, running_var, training=False, epsilon=epsilon
        )
    values, parameters = _norm_operands(call, x, weight, bias)
    norm = relax.op.nn.instance_norm(
        values, *parameters, channel_axis=1, axes=list(range(2, x.ty.ndim)), epsilon=epsilon
    )
    return call.astype(call.emit(norm), dtype_of(x))


def _emit_batch_norm(
    call: Call,
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
    values, parameters = _norm_operands(call, x, weight, bias, running_mean, running_var)
    normalized = call.emit(
        relax.op.nn.batch_norm(
            values,
            *parameters,
            axis=1,
            epsilon=epsilon,
            training=training or running_mean is None,
        )
    )
    out = call.emit(relax.TupleGetItem(normalized, 0))
    return call.astype(out, dtype_of(x))


def _norm_operands(
    call: Call, x: relax.Expr, *parameters: relax.Expr | None
) -> tuple[relax.Expr, list[relax.Expr]]:
    """Cast the data and parameters of a norm to the accumulation dtype of the parameters.

    The parameters are weight, bias, mean and variance; a missing one gets its identity value.
    """
    given = [value for value in parameters if value is not None]
    # PyTorch accepts float32 parameters for 16-bit data, too.
    inner = accumulation_dtype(dtype_of(given[0] if given else x))

    def parameter_of(value: int) -> relax.Expr:
        channels = static_extent(x.ty.shape[1])
        if channels is None:
            shape = relax.ShapeExpr([x.ty.shape[1]])
            return call.emit(relax.op.full(shape, relax.const(value, inner)))
        return relax.const(np.full(channels, value), inner)

    operands = [
        parameter_of(identity) if value is None else call.astype(value, inner)
        for value, identity in zip(parameters, (1, 0, 0, 1), strict=False)
    ]
    return call.astype(x, inner), operands
