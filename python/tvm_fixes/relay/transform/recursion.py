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
"""Passes on functions that call themselves."""

from .base import Pass, native_pass


def LiftRecursion() -> Pass:
    """Return the pass that makes local functions that call themselves functions of the module.

    Before, ``let %f = fn (%i) { … %f(%i + %n) … }; %f(0)`` binds one. After, the module has
    ``@f(%i, %n)``, which takes ``%n`` as a parameter, and the call is ``@f(0, %n)``. Types must be
    inferred; a function is unchanged if its parameters, its result or the values that it captures
    are not tensors or tuples of them.
    """
    return native_pass("LiftRecursion")


def FlattenRecursion() -> Pass:
    """Return the pass that limits the nesting of a loop's calls to log n.

    Before, ``@f`` ends by calling itself for the next iteration, so that n iterations nest n calls.
    After, ``@f_step`` is one iteration, ``@f_steps`` runs 2^k of them as two halves, and
    ``@f_loop`` doubles their number until the loop is done. Types must be inferred.
    """
    return native_pass("FlattenRecursion")
