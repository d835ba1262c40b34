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
"""The two forms of a program: a graph, or a chain of let bindings."""

from .base import Pass, native_pass


def ToANormalForm() -> Pass:
    """Return the pass that binds each intermediate value to a variable.

    Before, ``add(nn.relu(%x), %x)`` nests calls. After, ``let %t0 = nn.relu(%x); add(%t0, %x)`` has
    only variables and constants as operands.
    """
    return native_pass("ToANormalForm")


def ToGraphNormalForm() -> Pass:
    """Return the pass that replaces variables by the values that lets bind to them.

    Before, ``let %a = nn.relu(%x); add(%a, %a)`` names a value. After, ``add(%0, %0)`` shares it.
    Reads and writes of references stay bound, as do recursive functions and values that a function
    captures.
    """
    return native_pass("ToGraphNormalForm")
