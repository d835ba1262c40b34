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
"""``BlockBuilder.function`` after an error.

Trigger
    An error within ``with builder.function(...)``, such as an operator that an importer rejects.
Mechanism
    ``FunctionScope.__exit__`` restores the stack of builders, but ends neither the block nor the
    scope that ``__enter__`` began; only ``emit_func_output`` does.
How to remove
    When TVM passes the tests of this file, delete it, its test and probe, its call in
    :mod:`tvm_fixes` and the fix id ``unfinished-functions``.
"""

import functools
from typing import Any

from tvm.relax.block_builder import FunctionScope

from ..fixes.environment import UNFINISHED_FUNCTIONS as FIX_ID
from ..support import switches

_stock_exit = FunctionScope.__exit__


def _exit(self: Any, *error: Any) -> None:
    """End the function, and its block if it has no output."""
    is_unfinished = not self._is_emit_func_output_called
    try:
        _stock_exit(self, *error)
    finally:
        if is_unfinished and switches.enabled(FIX_ID):
            switches.note(FIX_ID)
            self._bb._end_block()
            self._bb.end_scope()


@functools.cache
def register() -> None:
    """End functions after an error in all block builders; a second call is a no-op."""
    FunctionScope.__exit__ = _exit
