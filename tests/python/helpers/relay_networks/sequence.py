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
"""Networks on sequences and vectors."""

import numpy as np

from tvm_fixes import relay

from .builder import Expr, Network, call, relu, scalar


def mlp() -> tuple[Network, Expr]:
    """Dense layers, as from Keras."""
    net = Network(11)
    x = net.input("input_1", (4, 20))
    for index, (inputs, outputs) in enumerate(((20, 32), (32, 16))):
        x = relu(net.dense(x, f"dense_{index}", inputs, outputs))
    return net, call("nn.softmax", net.dense(x, "dense_2", 16, 5), axis=1)


def lstm() -> tuple[Network, Expr]:
    """A recurrent layer whose steps are a loop, as from TensorFlow and PyTorch."""
    net = Network(12)
    steps, features, units = 5, 6, 8
    x = net.input("x", (steps, 1, features))
    w_input = net.weight("weight_ih", 4 * units, features)
    w_state = net.weight("weight_hh", 4 * units, units)
    bias = net.weight("bias", 4 * units, scale=0.1)
    state = relay.TensorType([1, units])
    i, h, c = (
        relay.Var("i", relay.TensorType([], "int32")),
        relay.Var("h", state),
        relay.Var("c", state),
    )
    loop = relay.Var("while_loop")
    row = call("take", x, i, axis=0)
    gates = call("add", call("nn.dense", row, w_input), call("nn.dense", h, w_state))
    parts = call("split", call("nn.bias_add", gates, bias), indices_or_sections=4, axis=1)
    enter, forget, cell, out = (relay.TupleGetItem(parts, k) for k in range(4))
    kept = call("multiply", call("sigmoid", forget), c)
    new_c = call("add", kept, call("multiply", call("sigmoid", enter), call("tanh", cell)))
    new_h = call("multiply", call("sigmoid", out), call("tanh", new_c))
    again = relay.Call(loop, [call("add", i, scalar(1, "int32")), new_h, new_c])
    more = call("less", i, scalar(steps, "int32"))
    body = relay.If(more, again, relay.Tuple([i, h, c]))
    zeros = relay.Constant(np.zeros((1, units), "float32"))
    start = relay.Call(loop, [scalar(0, "int32"), zeros, zeros])
    result = relay.Var("result")
    last = relay.Tuple([relay.TupleGetItem(result, 1), relay.TupleGetItem(result, 2)])
    whole = relay.Let(loop, relay.Function([i, h, c], body), relay.Let(result, start, last))
    return net, whole


def dense_3d(net: Network, x: Expr, name: str, inputs: int, outputs: int, rows: int) -> Expr:
    """A dense layer over the last of three axes, reshaped to two axes."""
    flat = call("reshape", x, newshape=[-1, inputs])
    return call("reshape", net.dense(flat, name, inputs, outputs), newshape=[1, rows, outputs])


def layer_norm(net: Network, x: Expr, name: str, width: int) -> Expr:
    """Layer normalization from single operators, as from TensorFlow."""
    mean = call("mean", x, axis=[-1], keepdims=True)
    centered = call("subtract", x, mean)
    var = call("mean", call("multiply", centered, centered), axis=[-1], keepdims=True)
    x = call("divide", centered, call("sqrt", call("add", var, scalar(1e-5))))
    gamma = net.weight(f"{name}.gamma", width, scale=0.2)
    beta = net.weight(f"{name}.beta", width, scale=0.2)
    return call("add", call("multiply", x, call("add", gamma, scalar(1.0))), beta)


def heads(x: Expr, rows: int, count: int, width: int, order: list[int]) -> Expr:
    """Attention heads as a batch."""
    x = call("reshape", x, newshape=[1, rows, count, width])
    x = call("transpose", x, axes=order)
    return call("reshape", x, newshape=[-3, -2])


def bert() -> tuple[Network, Expr]:
    """An encoder layer of BERT over embedded tokens."""
    net = Network(13)
    rows, width, count = 7, 16, 4
    tokens = net.input("input_ids", (1, rows), "int64")
    words = call("take", net.weight("word", 10, width, scale=1.0), tokens, axis=0)
    x = layer_norm(net, call("add", words, net.weight("position", rows, width)), "ln0", width)
    q, k, v = (dense_3d(net, x, name, width, width, rows) for name in ("q", "k", "v"))
    q = heads(q, rows, count, width // count, [0, 2, 1, 3])
    k = heads(k, rows, count, width // count, [0, 2, 1, 3])
    v = heads(v, rows, count, width // count, [0, 2, 3, 1])
    scores = call("nn.batch_matmul", q, k, transpose_b=True)
    scores = call("nn.softmax", call("divide", scores, scalar(2.0)), axis=-1)
    y = call("nn.batch_matmul", scores, v, transpose_b=True)
    y = call("transpose", call("reshape", y, newshape=[1, count, rows, -1]), axes=[0, 2, 1, 3])
    y = call("reshape", y, newshape=[1, rows, width])
    x = layer_norm(net, call("add", x, dense_3d(net, y, "o", width, width, rows)), "ln1", width)
    y = dense_3d(net, x, "up", width, 32, rows)
    half = call("multiply", y, scalar(0.5))
    error = call("erf", call("multiply", y, scalar(0.5**0.5)))
    y = call("multiply", half, call("add", error, scalar(1.0)))
    x = call("add", x, dense_3d(net, y, "down", 32, width, rows))
    return net, layer_norm(net, x, "ln2", width)


def attention() -> tuple[Network, Expr]:
    """Causal attention with a mask, as from PyTorch."""
    net = Network(14)
    rows, width = 6, 8
    q, k, v = (net.input(name, (2, rows, width)) for name in ("q", "k", "v"))
    scores = call("nn.batch_matmul", q, call("transpose", k, axes=[0, 2, 1]), transpose_b=False)
    scores = call("multiply", scores, scalar(width**-0.5))
    mask = relay.Constant(np.tril(np.ones((1, rows, rows), bool)))
    scores = call("where", mask, scores, call("full_like", scores, scalar(-1e9)))
    probabilities = call("nn.softmax", scores, axis=-1)
    y = call("nn.batch_matmul", probabilities, v, transpose_b=False)
    gamma, beta = net.weight("gamma", width), net.weight("beta", width)
    return net, call("nn.layer_norm", y, gamma, beta, axis=-1, epsilon=1e-5)


def dynamic() -> tuple[Network, Expr]:
    """Shapes that are computed: a batch of unknown size, reshaped, sliced and broadcast."""
    net = Network(15)
    x = net.input("x", (3, 4, 6), dims=[relay.Any(), 4, 6])
    shape = call("shape_of", x, dtype="int64")
    batch = call("take", shape, scalar(0, "int64"), axis=0)
    rest = relay.Constant(np.array([24], "int64"))
    wanted = call("concatenate", [call("expand_dims", batch, axis=0), rest], axis=0)
    x = call("dyn.reshape", x, wanted)
    x = net.dense(x, "fc", 24, 10)
    begin, ones = (relay.Constant(np.array(v, "int64")) for v in ([0, 2], [1, 1]))
    ends = call(
        "concatenate",
        [call("expand_dims", batch, axis=0), relay.Constant(np.array([8], "int64"))],
        axis=0,
    )
    x = call("dyn.strided_slice", x, begin, ends, ones)
    scale = net.weight("scale", 6, scale=1.0)
    scale = call("dyn.broadcast_to", scale, call("shape_of", x, dtype="int64"))
    x = call("multiply", x, scale)
    x = call("squeeze", call("expand_dims", x, axis=1, num_newaxis=2), axis=[1])
    return net, call("nn.softmax", x, axis=-1)
