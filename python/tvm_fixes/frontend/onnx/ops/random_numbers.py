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
"""RandomUniform, RandomNormal, their Like forms, Bernoulli and Multinomial.

The numbers are those of Threefry with the attribute ``seed`` as its key, so each call of a model
computes the same numbers. Without a seed, the name of the node is the key.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any

from onnx import TensorProto, helper
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as T

from ....fixes.onnx_importer import OPERATORS
from ....support import switches
from ....tirx.loop_kernels import cast, computed, when
from ...dtypes import dtype_of
from ...extents import expression, product
from ...random_tensors import Key, computing_dtype, random_tensor
from ...threefry import normal_number, uniform_number
from ..call import Call, Extent, converts
from .shape_operands import require, shaped


def _key(call: Call) -> Key:
    """The key: the bits of the seed; without a seed, a hash of the node's name."""
    seed = call.attributes.get("seed")
    if seed is None:
        return zlib.crc32(call.source.name.encode()), 1
    return int.from_bytes(struct.pack("<f", seed), "little"), 0


def _made_of_words(
    call: Call,
    extents: list[Extent],
    dtype: str,
    make: Callable[[list[tirx.Expr]], tirx.Expr],
    words_each: int = 1,
) -> relax.Expr:
    """A tensor whose elements `make` computes, each from `words_each` random words."""
    size = expression(product(call.known, extents))
    result = random_tensor(
        call.builder, _key(call), extents, make, size=size, words_each=words_each
    )
    return result if dtype_of(result) == dtype else op.astype(result, dtype)


@converts("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", fix=OPERATORS)
def convert_random(call: Call) -> relax.Expr:
    """Convert a RandomUniform, RandomNormal, or the Like form of one.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the dtype of the result is not a floating-point dtype.
    """
    switches.note(OPERATORS)
    number = call.attributes.get("dtype")
    if call.operator.endswith("Like"):
        data, extents = shaped(call, 0, "input")
        default = dtype_of(data)
    else:
        extents, default = list(call.attributes["shape"]), "float32"
    dtype = str(helper.tensor_dtype_to_np_dtype(number)) if number else default
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        raise call.invalid("dtype", dtype, "expected floating-point numbers")
    inner = computing_dtype(dtype)
    if call.operator.startswith("RandomNormal"):
        mean, scale = (
            tirx.const(call.attributes.get(name, default), inner)
            for name, default in (("mean", 0.0), ("scale", 1.0))
        )
        normal = lambda words: normal_number(words, inner) * scale + mean  # noqa: E731
        return _made_of_words(call, extents, dtype, normal, words_each=2)
    low, high = (call.attributes.get(*bound) for bound in (("low", 0.0), ("high", 1.0)))
    span, least = tirx.const(high - low, inner), tirx.const(low, inner)
    uniform = lambda words: uniform_number(words[0], inner) * span + least  # noqa: E731
    return _made_of_words(call, extents, dtype, uniform)


@converts("Bernoulli", fix=OPERATORS)
def convert_bernoulli(call: Call) -> relax.Expr:
    """Convert a Bernoulli: an element is 1 with the probability given by the operand."""
    switches.note(OPERATORS)
    data, extents = shaped(call, 0, "input")
    inner = computing_dtype(dtype_of(data))
    if dtype_of(data) != inner:
        data = call.emit(op.astype(data, inner))
    drawn = _made_of_words(call, extents, inner, lambda words: uniform_number(words[0], inner))
    number = call.attributes.get("dtype")
    dtype = str(helper.tensor_dtype_to_np_dtype(number)) if number else dtype_of(call.operands[0])
    return op.astype(call.emit(op.less(call.emit(drawn), data)), dtype)


@converts("Multinomial", fix=OPERATORS)
def convert_multinomial(call: Call) -> relax.Expr:
    """Convert a Multinomial: random indices; the operand holds the logarithms of their weights.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the operand does not have two dims, or has no classes.
    """
    switches.note(OPERATORS)
    data, extents = shaped(call, 0, "input")
    if len(extents) != 2:
        raise call.invalid("shape of input", extents, "expected rank 2")
    require(call, extents[1] >= 1, "shape of input", extents, "expected 1 class or more")
    count = call.attributes.get("sample_size", 1)
    number = call.attributes.get("dtype", TensorProto.INT32)
    if dtype_of(data) != "float64":
        data = call.emit(op.astype(data, "float64"))
    # The softmax subtracts the maximum first, so that no weight overflows.
    sums = call.emit(op.cumsum(call.emit(op.nn.softmax(data, 1)), 1))
    shape = [extents[0], count]
    drawn = _made_of_words(
        call, shape, "float64", lambda words: uniform_number(words[0], "float64")
    )

    def chosen(sums: te.Tensor, drawn: te.Tensor) -> te.Tensor:
        def body(sums: Any, drawn: Any, result: Any) -> None:
            rows, classes = sums.shape
            with T.serial(0, rows) as row, T.serial(0, count) as sample:
                result[row, sample] = cast(0, "int64")
                limit = drawn[row, sample] * sums[row, classes - 1]
                with T.serial(0, classes - 1) as index:
                    # Skips classes of weight 0, whose cumulative sum equals that of the class
                    # before.
                    with when(sums[row, index] <= limit):
                        result[row, sample] = (index + 1).astype("int64")

        return computed("multinomial", [sums, drawn], [(drawn.shape, "int64")], body)

    indices = call.builder.emit_te(chosen, sums, call.emit(drawn))
    return op.astype(indices, str(helper.tensor_dtype_to_np_dtype(number)))
