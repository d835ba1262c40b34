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
"""A limit on the depth of recursive calls.

The virtual machine runs them on the stack of the process, and a few thousand calls exhaust it.
"""

from tvm import relax, tirx

from .... import _ffi, relay
from ..values.extents import check

MAX_CALLS = 1000
"""The maximum depth of recursive calls."""


def recursive_functions(mod: relay.IRModule) -> set[str]:
    """Return the names of functions that call themselves, directly or not, except loops.

    The functions that ``FlattenRecursion`` makes of a loop call themselves too, but only a few
    times.
    """
    return set(map(str, _ffi.get("tvm_fixes.relay.RecursiveFunctions")(mod)))


def depth_param() -> relax.Var:
    """Return a parameter for the number of open calls."""
    return relax.Var("depth", relax.ShapeType([tirx.Var("depth", "int64")]))


def check_depth(builder: relax.BlockBuilder, depth: tirx.Var) -> None:
    """Emit the check that fails at run time if too many calls are open."""
    check(builder, depth <= MAX_CALLS)
