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
"""Kernels made of loops, for operators whose steps depend on the data."""

from collections.abc import Callable, Sequence

from tvm import relax, tirx

from ....tirx.loop_kernels import Outputs, loops
from ...extents import NO_FACTS, Extent, expression
from ..call import Call
from ..values.extents import check, shaped


def loop_kernel(
    call: Call,
    inputs: Sequence[relax.Expr],
    outputs: Callable[..., Outputs],
    body: Callable[..., None],
) -> list[relax.Expr]:
    """Compute tensors by a sequence of statements.

    Parameters
    ----------
    call : Call
        The operator.
    inputs : sequence of relax.Expr
        The operands.
    outputs, body : function
        As those of :func:`..loop_kernels.loops`.

    Returns
    -------
    list of relax.Expr
        The results.
    """
    name = call.operator.rpartition(".")[2]
    result = call.emit_te(loops(name, outputs, body), *inputs, primfunc_name_hint=name)
    if not isinstance(result.ty, relax.TupleType):
        return [result]
    return [call.emit(relax.TupleGetItem(result, i)) for i in range(len(result.ty.fields))]


def checked(call: Call, index: int, extents: Sequence[Extent]) -> relax.Expr:
    """Return an input that must have these extents, so that a kernel stays within it.

    Extents that are not known are checked at run time.
    """
    expr, actual = shaped(call, index)
    unclear = [pair for pair in zip(actual, extents, strict=True) if not NO_FACTS.equal(*pair)]
    if unclear:
        check(call.builder, tirx.all(*(tirx.EQ(expression(a), expression(b)) for a, b in unclear)))
    return expr
