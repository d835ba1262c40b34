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
"""Activations and other elementary functions of PyTorch.

Mechanism
    PyTorch decomposes ``selu`` and ``celu`` into an ``elu`` with ``scale`` and ``input_scale``,
    which the converter does not read.  The converter of ``elu`` subtracts 1 from the exponential,
    which cancels near zero; the others use textbook formulas as well.  ``softshrink`` multiplies by
    the result of a comparison, which turns infinities that it should exclude into NaN.
    A decomposed PReLU is three operators, which stop the propagation of a layout.
"""

from tvm import relax

from ....fixes.torch_importer import ACTIVATIONS, PRELU
from ...dtypes import dtype_of
from ...elementary import Elementary
from ...extents import static_extent
from ..call import Call, converts


@converts("celu.default", fix=ACTIVATIONS, noted=True)
def convert_celu(call: Call) -> relax.Expr:
    """Convert a CELU, an ELU whose operand is divided by alpha."""
    x, alpha = call.arguments(input=None, alpha=1.0)
    return Elementary(call.emit).elu(x, alpha, scale=1.0, input_scale=1 / alpha)


@converts("elu.default", fix=ACTIVATIONS, noted=True)
def convert_elu(call: Call) -> relax.Expr:
    """Convert an ELU, into which PyTorch decomposes a SELU."""
    x, alpha, scale, input_scale = call.arguments(input=None, alpha=1.0, scale=1.0, input_scale=1.0)
    return Elementary(call.emit).elu(x, alpha, scale=scale, input_scale=input_scale)


@converts("expm1.default", "log1p.default", fix=ACTIVATIONS, noted=True)
def convert_near_zero(call: Call) -> relax.Expr:
    """Convert a function whose textbook formula cancels near zero."""
    [x] = call.arguments(input=None)
    elementary = Elementary(call.emit)
    return elementary.expm1(x) if call.operator == "expm1.default" else elementary.log1p(x)


@converts("gelu.default", fix=ACTIVATIONS, noted=True)
def convert_gelu(call: Call) -> relax.Expr:
    """Convert a GELU by the error function, or by its approximation."""
    x, approximate = call.arguments(input=None, approximate="none")
    op = relax.op.nn.gelu_tanh if approximate == "tanh" else relax.op.nn.gelu
    return call.emit(op(x))


@converts("hardtanh.default", fix=ACTIVATIONS, noted=True)
def convert_hardtanh(call: Call) -> relax.Expr:
    """Convert a clip."""
    return call.emit(relax.op.clip(*call.arguments(input=None, min_val=-1.0, max_val=1.0)))


@converts("softshrink.default", fix=ACTIVATIONS, noted=True)
def convert_softshrink(call: Call) -> relax.Expr:
    """Convert a shrinkage by where: NaN is not between the bounds, so it passes through.

    With a product, TVM would simplify 0 * x to 0.
    """
    x, bound = call.arguments(input=None, lambd=0.5)
    e = Elementary(call.emit)
    inside = e("where", e("less_equal", e("abs", x), bound), 0.0, x)
    below = e("where", e("less", x, -bound), e("add", x, bound), inside)
    return e("where", e("greater", x, bound), e("subtract", x, bound), below)


@converts("prelu.default", fix=PRELU, noted=True)
def convert_prelu(call: Call) -> relax.Expr:
    """Convert a PReLU with slopes along axis 1, like PyTorch for data of rank 2 or more."""
    x, slope = call.operands
    emit = call.emit
    if slope.ty.ndim == 0:
        slope = emit(relax.op.reshape(slope, (1,)))
    axis = min(x.ty.ndim - 1, 1)
    # TVM's prelu rejects bfloat16, and its lowering needs a static extent of the axis.
    extent = static_extent(x.ty.shape[axis]) if axis >= 0 else None
    if extent is not None and dtype_of(x) != "bfloat16":
        return emit(relax.op.nn.prelu(x, slope, axis))
    slope = relax.op.reshape(slope, [-1 if i == axis else 1 for i in range(x.ty.ndim)])
    negative = emit(relax.op.multiply(x, emit(slope)))
    zero = relax.const(0, dtype_of(x))
    return emit(relax.op.where(emit(relax.op.greater(x, zero)), x, negative))
