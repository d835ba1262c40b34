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
"""Activations of the domain com.microsoft, with a bias or a residual."""

import numpy as np
from tvm import relax

from .....fixes.onnx_importer import MICROSOFT
from ....dtypes import dtype_of
from ...call import Call, converts
from ..quantized.steps import named_operands
from .operands import check_rank, check_vector, named_shape, round_to, widen


@converts("com.microsoft.Gelu", fix=MICROSOFT, noted=True)
def convert_gelu(call: Call) -> relax.Expr:
    """Convert a Gelu, with the error function."""
    inputs = named_operands(call, "X", ("X",))
    return _rounded(call, relax.op.nn.gelu(widen(call, inputs["X"])))


@converts("com.microsoft.FastGelu", fix=MICROSOFT, noted=True)
def convert_fast_gelu(call: Call) -> relax.Expr:
    """Convert a FastGelu, with the hyperbolic tangent, of data and an optional bias."""
    inputs = named_operands(call, "X bias", ("X",))
    return _rounded(call, relax.op.nn.gelu_tanh(_biased(call, inputs["X"], inputs["bias"])))


@converts("com.microsoft.BiasGelu", fix=MICROSOFT, noted=True)
def convert_bias_gelu(call: Call) -> relax.Expr:
    """Convert a BiasGelu."""
    inputs = named_operands(call, "A B", ("A", "B"))
    return _rounded(call, relax.op.nn.gelu(_biased(call, inputs["A"], inputs["B"], "B")))


@converts("com.microsoft.QuickGelu", fix=MICROSOFT, noted=True)
def convert_quick_gelu(call: Call) -> relax.Expr:
    """Convert a QuickGelu, ``x * sigmoid(alpha * x)``."""
    data = widen(call, named_operands(call, "X", ("X",))["X"])
    alpha = relax.const(np.float32(call.attributes.get("alpha", 1.702)), dtype_of(data))
    gate = relax.op.sigmoid(relax.op.multiply(data, alpha))
    return _rounded(call, relax.op.multiply(data, gate))


@converts("com.microsoft.BiasSplitGelu", fix=MICROSOFT, noted=True)
def convert_bias_split_gelu(call: Call) -> relax.Expr:
    """Convert a BiasSplitGelu: the first half of the channels times the Gelu of the second.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the number of channels is unknown or odd.
    """
    inputs = named_operands(call, "X bias", ("X", "bias"))
    channels = check_rank(call, "X", inputs["X"], 3)[-1]
    if not isinstance(channels, int) or channels % 2:
        raise call.invalid("last extent of X", channels, "expected an even number")
    halves = call.emit(relax.op.split(_biased(call, inputs["X"], inputs["bias"]), 2, -1))
    left, right = (call.emit(relax.TupleGetItem(halves, index)) for index in range(2))
    return _rounded(call, relax.op.multiply(left, relax.op.nn.gelu(right)))


@converts("com.microsoft.BiasAdd", fix=MICROSOFT, noted=True)
def convert_bias_add(call: Call) -> relax.Expr:
    """Convert a BiasAdd: data, bias and residual."""
    inputs = named_operands(call, "X bias skip", ("X", "bias", "skip"))
    biased = _biased(call, inputs["X"], inputs["bias"])
    return _rounded(call, relax.op.add(biased, widen(call, inputs["skip"])))


def _biased(
    call: Call, data: relax.Expr, bias: relax.Expr | None, name: str = "bias"
) -> relax.Expr:
    """Data and bias, added in the accumulation dtype."""
    wide = widen(call, data)
    if bias is None:
        return wide
    shape = named_shape(call, "X", data)
    if not shape:
        raise call.invalid("rank of X", 0, "expected at least 1")
    check_vector(call, name, bias, shape[-1])
    return call.emit(relax.op.add(wide, widen(call, bias)))


def _rounded(call: Call, value: relax.Expr) -> relax.Expr:
    return round_to(call, value, dtype_of(call.operands[0]))
