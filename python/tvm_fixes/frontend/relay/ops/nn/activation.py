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

from ...call import Call, converts
from .layouts import extents


def axis_of(call: Call) -> int:
    """Return the attribute axis, made non-negative."""
    axis = int(call.attributes["axis"])
    return axis + len(call.input_types[0].shape) if axis < 0 else axis


@converts("nn.relu")
def relu(call: Call) -> relax.Expr:
    """The larger of the input and 0."""
    return call.emit(relax.op.nn.relu(call.operands[0]))


@converts("nn.leaky_relu")
def leaky_relu(call: Call) -> relax.Expr:
    """The input where it is positive, else alpha times the input."""
    return call.emit(relax.op.nn.leakyrelu(call.operands[0], float(call.attributes["alpha"])))


@converts("nn.prelu")
def prelu(call: Call) -> relax.Expr:
    """Like nn.leaky_relu, with one alpha for each channel."""
    return call.emit(relax.op.nn.prelu(call.operands[0], call.operands[1], axis_of(call)))


@converts("nn.bias_add")
def bias_add(call: Call) -> relax.Expr:
    """Add a vector along an axis."""
    data, bias = call.operands
    after = len(call.input_types[0].shape) - 1 - axis_of(call)
    if after:
        bias = call.emit(relax.op.expand_dims(bias, list(range(1, after + 1))))
    return call.emit(relax.op.add(data, bias))


@converts("nn.softmax")
def softmax(call: Call) -> relax.Expr:
    """Softmax along an axis."""
    return call.emit(relax.op.nn.softmax(call.operands[0], axis_of(call)))


@converts("nn.fast_softmax")
def fast_softmax(call: Call) -> relax.Expr:
    """Softmax along an axis, with an approximate exponential function."""
    return call.emit_te(topi.nn.fast_softmax, call.operands[0], axis=axis_of(call))


@converts("nn.log_softmax")
def log_softmax(call: Call) -> relax.Expr:
    """The logarithm of the softmax along an axis."""
    return call.emit(relax.op.nn.log_softmax(call.operands[0], axis_of(call)))


@converts("nn.batch_flatten")
def batch_flatten(call: Call) -> relax.Expr:
    """Join all axes but the first."""
    shape = extents(call, call.operands[0])
    return call.emit(relax.op.reshape(call.operands[0], [shape[0], math.prod(shape[1:])]))
