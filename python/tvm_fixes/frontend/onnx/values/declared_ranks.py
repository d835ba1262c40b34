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
"""The ranks that a graph declares for results whose rank depends on data.

A Squeeze without axes removes the dims that are 1.  If a dim is symbolic, only a declaration tells
the rank: that of the result itself, or of an output of the graph that has the same rank.
"""

import onnx

_KEEPS_RANK = frozenset(
    "Abs Cast Clip Concat Elu Exp HardSigmoid Identity LeakyRelu Log LogSoftmax Neg Relu Sigmoid "
    "Slice Softmax Softplus Sqrt Tanh Transpose".split()
)
_OF_TWO = frozenset(("Add", "Div", "Mul", "Pow", "Sub"))


def declared_ranks(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the rank of each value for which one is declared, or follows from a declaration."""
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }
    constants = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = len(node.attribute[0].t.dims)
    for node in reversed(graph.node):
        rank = ranks.get(node.output[0]) if node.output else None
        if rank is None or node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type in _KEEPS_RANK:
            ranks.setdefault(node.input[0], rank)
        elif node.op_type in _OF_TWO:
            for one, other in (tuple(node.input), tuple(node.input)[::-1]):
                # The result has the larger rank of both.
                if rank == 0 or constants.get(other, rank) < rank:
                    ranks.setdefault(one, rank)
    return ranks
