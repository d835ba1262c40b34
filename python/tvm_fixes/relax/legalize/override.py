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
"""Registration of lowerings that replace TVM's."""

from collections.abc import Callable

import tvm
from tvm import relax

from ...support import switches

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
"""A function that LegalizeOps calls to lower an operator."""

# Above TVM's own registrations, which have level 10.
_LEVEL = 11


def override(operator: str, legalize: Callable[..., relax.Expr]) -> None:
    """Replace the lowering of an operator.

    Parameters
    ----------
    operator : str
        The name of the operator.
    legalize : callable
        A :data:`Legalize` with an additional keyword argument ``stock``: the previously registered
        function, to which it passes the calls that it does not lower itself.
    """
    stock = tvm.ir.Op.get(operator).get_attr("FLegalize")

    def lower(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        with switches.at(call.span):
            return legalize(builder, call, stock=stock)

    tvm.ir.register_op_attr(operator, "FLegalize", lower, level=_LEVEL)
