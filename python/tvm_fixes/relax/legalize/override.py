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
"""Lowerings in the place of TVM's."""

import functools
from collections.abc import Callable

import tvm
from tvm import relax

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
"""How LegalizeOps lowers a call of an operator."""

# Above TVM's own registrations, which are at 10.
_LEVEL = 11


def override(operator: str, legalize: Callable[..., relax.Expr]) -> None:
    """Put a lowering in force.

    Parameters
    ----------
    operator : str
        The name of the operator.
    legalize : callable
        Called as a :data:`Legalize`, and with the function that was registered before as ``stock``,
        to which it hands the calls that it leaves alone.
    """
    stock = tvm.ir.Op.get(operator).get_attr("FLegalize")
    tvm.ir.register_op_attr(
        operator, "FLegalize", functools.partial(legalize, stock=stock), level=_LEVEL
    )
