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
"""Removal of code that no result depends on."""

from collections.abc import Sequence

from .base import Pass, native_pass


def DeadCodeElimination() -> Pass:
    """Return the pass that removes the bindings of variables that nothing uses.

    Before, ``let %a = nn.relu(%x); %x`` computes a value that is not used. After, it is ``%x``; a
    binding whose value may write a reference is kept.
    """
    return native_pass("DeadCodeElimination")


def RemoveUnusedFunctions(entry_functions: Sequence[str] = ("main",)) -> Pass:
    """Return the pass that removes the functions that no entry function reaches.

    Before, the module may hold functions that nothing calls. After, it holds the entry functions
    and their callees.

    Parameters
    ----------
    entry_functions : sequence of str
        The names of the functions to keep.
    """
    return native_pass("RemoveUnusedFunctions", list(entry_functions))
