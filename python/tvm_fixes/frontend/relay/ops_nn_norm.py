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

from tvm import relax, topi

from ... import relay
from .converter import Converted, OpCall, converter
from .ops_nn_activation import axis_of
from .values import refine


def _options(call: OpCall) -> dict[str, float | bool]:
    return {
        "epsilon": float(call.attrs["epsilon"]),
        "center": bool(call.attrs["center"]),
        "scale": bool(call.attrs["scale"]),
    }


def _others(call: OpCall, *axes: int) -> list[int]:
    """All axes but these."""
    return [axis for axis in range(len(call.input_types[0].shape)) if axis not in axes]


def _with_channels(call: OpCall, axis: int) -> list[relax.Expr]:
    """Return the inputs with the number of channels that one of them knows; Relax compares them."""
    places = [axis, *([0] * (len(call.inputs) - 1))]
    shapes = [list(ty.shape) for ty in call.input_types]
    known = [s[i] for s, i in zip(shapes, places, strict=True) if isinstance(s[i], int)]
    inputs = []
    for expr, ty, shape, place in zip(call.inputs, call.input_types, shapes, places, strict=True):
        shape[place] = known[0] if known else shape[place]
        inputs.append(refine(call.builder, expr, relay.TensorType(shape, ty.dtype)))
    return inputs


@converter("nn.batch_norm")
def batch_norm(call: OpCall) -> Converted:
    """Normalize by given means and variances, which it returns unchanged."""
    axis = axis_of(call)
    inputs = _with_channels(call, axis)
    result = relax.op.nn.batch_norm(*inputs, axis=axis, training=False, **_options(call))
    normalized = call.emit(relax.TupleGetItem(call.emit(result), 0))
    return normalized, call.inputs[3], call.inputs[4]


@converter("nn.layer_norm")
def layer_norm(call: OpCall) -> relax.Expr:
    """Normalize along one axis."""
    return call.emit(relax.op.nn.layer_norm(*call.inputs, axes=[axis_of(call)], **_options(call)))


@converter("nn.instance_norm")
def instance_norm(call: OpCall) -> relax.Expr:
    """Normalize each channel of each sample."""
    axis = axis_of(call)
    return call.emit(
        relax.op.nn.instance_norm(
            *call.inputs, channel_axis=axis, axes=_others(call, 0, axis), **_options(call)
        )
    )


@converter("nn.group_norm")
def group_norm(call: OpCall) -> relax.Expr:
    """Normalize each group of channels of each sample."""
    axis = axis_of(call)
    return call.emit(
        relax.op.nn.group_norm(
            *call.inputs,
            num_groups=int(call.attrs["num_groups"]),
            channel_axis=axis,
            axes=_others(call, 0, axis),
            **_options(call),
        )
    )


@converter("nn.lrn")
def lrn(call: OpCall) -> relax.Expr:
    """Divide by a power of the sum of the squares of nearby channels."""
    alpha, beta, bias = (float(call.attrs[name]) for name in ("alpha", "beta", "bias"))
    size = int(call.attrs["size"])
    return call.emit_te(topi.nn.lrn, call.inputs[0], size, axis_of(call), alpha, beta, bias)


@converter("nn.l2_normalize")
def l2_normalize(call: OpCall) -> relax.Expr:
    """Divide by the root of the sum of squares along axes."""
    data = call.inputs[0]
    axes = [int(axis) for axis in call.attrs["axis"] or []]
    squares = call.emit(relax.op.multiply(data, data))
    total = call.emit(relax.op.sum(squares, axes or None, keepdims=True))
    least = relax.const(float(call.attrs["eps"]), str(call.type.dtype))
    root = call.emit(relax.op.sqrt(call.emit(relax.op.maximum(total, least))))
    return call.emit(relax.op.divide(data, root))


@converter("nn.dropout")
def dropout(call: OpCall) -> Converted:
    """Return the input, and a mask of ones, as nothing is dropped at inference."""
    return call.inputs[0], call.emit(relax.op.ones_like(call.inputs[0]))
