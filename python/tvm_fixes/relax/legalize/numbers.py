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
"""Operands that are numbers of TIR, constant or symbolic, instead of tensors."""

from tvm import relax, te, tirx


def with_constants(bb: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """`call` with scalar constants for operands that are known numbers."""
    operands = [
        relax.const(operand.value, str(operand.ty.dtype))
        if isinstance(operand, tirx.IntImm | tirx.FloatImm)
        else operand
        for operand in call.args
    ]
    if all(new is old for new, old in zip(operands, call.args, strict=True)):
        return call
    return bb.normalize(relax.Call(call.op, operands, call.attrs, call.ty_args, call.span))


def as_tensors(*operands: te.Tensor | tirx.Expr) -> list[te.Tensor]:
    """The operands of a kernel, with numbers repeated to the shape of the first tensor."""
    shape = next(operand.shape for operand in operands if isinstance(operand, te.Tensor))

    def repeat(number: tirx.Expr) -> te.Tensor:
        return te.compute(shape, lambda *_: number, name="number")

    return [operand if isinstance(operand, te.Tensor) else repeat(operand) for operand in operands]
