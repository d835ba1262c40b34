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
"""Activation functions, nn.bias_add and nn.batch_flatten."""

import math

from tvm import relax, topi

from .converter import OpCall, converter
from .nn_layouts import extents


def axis_of(call: OpCall) -> int:
    """Return the attribute axis, made non-negative."""
    axis = int(call.attrs["axis"])
    return axis + len(call.input_types[0].shape) if axis < 0 else axis


@converter("nn.relu")
def relu(call: OpCall) -> relax.Expr:
    """The larger of the input and 0."""
    return call.emit(relax.op.nn.relu(call.inputs[0]))


@converter("nn.leaky_relu")
def leaky_relu(call: OpCall) -> relax.Expr:
    """The input where it is positive, else alpha times the input."""
    return call.emit(relax.op.nn.leakyrelu(call.inputs[0], float(call.attrs["alpha"])))


@converter("nn.prelu")
def prelu(call: OpCall) -> relax.Expr:
    """Like nn.leaky_relu, with one alpha for each channel."""
    return call.emit(relax.op.nn.prelu(call.inputs[0], call.inputs[1], axis_of(call)))


@converter("nn.bias_add")
def bias_add(call: OpCall) -> relax.Expr:
    """Add a vector along an axis."""
    data, bias = call.inputs
    after = len(call.input_types[0].shape) - 1 - axis_of(call)
    if after:
        bias = call.emit(relax.op.expand_dims(bias, list(range(1, after + 1))))
    return call.emit(relax.op.add(data, bias))


@converter("nn.softmax")
def softmax(call: OpCall) -> relax.Expr:
    """Softmax along an axis."""
    return call.emit(relax.op.nn.softmax(call.inputs[0], axis_of(call)))


@converter("nn.fast_softmax")
def fast_softmax(call: OpCall) -> relax.Expr:
    """Softmax along an axis, with an approximate exponential function."""
    return call.emit_te(topi.nn.fast_softmax, call.inputs[0], axis=axis_of(call))


@converter("nn.log_softmax")
def log_softmax(call: OpCall) -> relax.Expr:
    """The logarithm of the softmax along an axis."""
    return call.emit(relax.op.nn.log_softmax(call.inputs[0], axis_of(call)))


@converter("nn.batch_flatten")
def batch_flatten(call: OpCall) -> relax.Expr:
    """Join all axes but the first."""
    shape = extents(call, call.inputs[0])
    return call.emit(relax.op.reshape(call.inputs[0], [shape[0], math.prod(shape[1:])]))
