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
"""Normalization, and nn.dropout, which does nothing at inference."""

from typing import Any

from tvm import relax, topi

from ..... import relay
from ...call import Call, converts
from ...values.values import refine
from .activation import axis_of


def _options(call: Call) -> dict[str, float | bool]:
    return {
        "epsilon": float(call.attributes["epsilon"]),
        "center": bool(call.attributes["center"]),
        "scale": bool(call.attributes["scale"]),
    }


def _others(call: Call, *axes: int) -> list[int]:
    """All axes but these."""
    return [axis for axis in range(len(call.input_types[0].shape)) if axis not in axes]


def _with_channels(call: Call, axis: int) -> list[relax.Expr]:
    """Return the inputs with the number of channels that one of them knows; Relax compares them."""
    places = [axis, *([0] * (len(call.operands) - 1))]
    shapes = [list(ty.shape) for ty in call.input_types]
    known = [s[i] for s, i in zip(shapes, places, strict=True) if isinstance(s[i], int)]
    inputs = []
    for expr, ty, shape, place in zip(call.operands, call.input_types, shapes, places, strict=True):
        shape[place] = known[0] if known else shape[place]
        inputs.append(refine(call.builder, expr, relay.TensorType(shape, ty.dtype)))
    return inputs


@converts("nn.batch_norm")
def batch_norm(call: Call) -> Any:
    """Normalize by given means and variances, which it returns unchanged."""
    axis = axis_of(call)
    inputs = _with_channels(call, axis)
    result = relax.op.nn.batch_norm(*inputs, axis=axis, training=False, **_options(call))
    normalized = call.emit(relax.TupleGetItem(call.emit(result), 0))
    return normalized, call.operands[3], call.operands[4]


@converts("nn.layer_norm")
def layer_norm(call: Call) -> relax.Expr:
    """Normalize along one axis."""
    return call.emit(relax.op.nn.layer_norm(*call.operands, axes=[axis_of(call)], **_options(call)))


@converts("nn.instance_norm")
def instance_norm(call: Call) -> relax.Expr:
    """Normalize each channel of each sample."""
    axis = axis_of(call)
    return call.emit(
        relax.op.nn.instance_norm(
            *call.operands, channel_axis=axis, axes=_others(call, 0, axis), **_options(call)
        )
    )


@converts("nn.group_norm")
def group_norm(call: Call) -> relax.Expr:
    """Normalize each group of channels of each sample."""
    axis = axis_of(call)
    return call.emit(
        relax.op.nn.group_norm(
            *call.operands,
            num_groups=int(call.attributes["num_groups"]),
            channel_axis=axis,
            axes=_others(call, 0, axis),
            **_options(call),
        )
    )


@converts("nn.lrn")
def lrn(call: Call) -> relax.Expr:
    """Divide by a power of the sum of the squares of nearby channels."""
    alpha, beta, bias = (float(call.attributes[name]) for name in ("alpha", "beta", "bias"))
    size = int(call.attributes["size"])
    return call.emit_te(topi.nn.lrn, call.operands[0], size, axis_of(call), alpha, beta, bias)


@converts("nn.l2_normalize")
def l2_normalize(call: Call) -> relax.Expr:
    """Divide by the root of the sum of squares along axes."""
    data = call.operands[0]
    axes = [int(axis) for axis in call.attributes["axis"] or []]
    squares = call.emit(relax.op.multiply(data, data))
    total = call.emit(relax.op.sum(squares, axes or None, keepdims=True))
    least = relax.const(float(call.attributes["eps"]), str(call.type.dtype))
    root = call.emit(relax.op.sqrt(call.emit(relax.op.maximum(total, least))))
    return call.emit(relax.op.divide(data, root))


@converts("nn.dropout")
def dropout(call: Call) -> Any:
    """Return the input, and a mask of ones, as nothing is dropped at inference."""
    return call.operands[0], call.emit(relax.op.ones_like(call.operands[0]))
