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
"""Products of matrices."""

from tvm import relax

from ...extents import NO_FACTS, is_static, product
from ..call import Call, converts, is_quantized
from .convolution import check_product, weight_of, with_bias


@converts("FULLY_CONNECTED")
def fully_connected(call: Call) -> relax.Expr:
    """Product with the transposed weights; leading axes of the data are joined, or kept."""
    call.check_operands(2, 3)
    check_product(call, 0, 1)
    if call.option_or("weights_format", "DEFAULT") != "DEFAULT":
        raise call.fail(f"weights in the format {call.option('weights_format')}: not supported")
    shape, weights = call.shape(0), call.shape(1)
    if len(weights) != 2 or not is_static(*weights):
        raise call.fail(f"weights of shape {weights}; expected two static extents")
    results, depth = map(int, weights)
    keeps = call.option_or("keep_num_dims", False)
    data = call.real(0)
    if keeps and (not shape or shape[-1] != depth):
        raise call.fail(f"data of shape {shape} for weights of shape {weights}")
    if not keeps:
        count = product(NO_FACTS, shape)
        if depth == 0 or (isinstance(count, int) and count % depth):
            raise call.fail(f"data of shape {shape} for weights of shape {weights}")
        if len(shape) != 2 or shape[1] != depth:
            data = call.emit(relax.op.reshape(data, [NO_FACTS.simplify(count // depth), depth]))
    elif len(shape) == 1:
        data = call.emit(relax.op.reshape(data, [1, depth]))
    value = call.emit(relax.op.matmul(data, weight_of(call, 1, [1, 0])))
    value = with_bias(call, value, 2, 0, 1, 0)
    value = call.quantized_product(call.activated(value))
    return call.emit(relax.op.reshape(value, [results])) if keeps and len(shape) == 1 else value


@converts("BATCH_MATMUL")
def batch_matmul(call: Call) -> relax.Expr:
    """Products of matrices, which may be transposed; leading axes broadcast."""
    call.check_operands(2)
    x, y = call.input(0), call.input(1)
    if is_quantized(x) or is_quantized(y):
        check_product(call, 0, 1)
    left, right = call.real(0), _last(call)
    if call.option("adj_x"):
        left = call.emit(relax.op.permute_dims(left, _swapped(call.rank(0))))
    return call.quantized_product(call.emit(relax.op.matmul(left, right)))


def _last(call: Call) -> relax.Expr:
    rank = call.rank(1)
    order = _swapped(rank) if call.option("adj_y") else list(range(rank))
    known = call.known(1)
    if known is not None and known.size:
        return weight_of(call, 1, order)
    value = call.real(1)
    return call.emit(relax.op.permute_dims(value, order)) if call.option("adj_y") else value


def _swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]
