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
"""Computation of values that are known at compile time."""

from .base import Pass, native_pass


def FoldConstant() -> Pass:
    """Return the pass that computes calls of operators on small constants.

    Before, ``add(1, 2)`` and ``shape_of(%x)`` of a static tensor are calls. After, both are
    constants. The pass skips tensors of more than 4096 elements.
    """
    return native_pass("FoldConstant")


def SimplifyIf() -> Pass:
    """Return the pass that takes the branch of an If whose condition is a constant.

    Before, ``if (True) { %x } else { %y }`` holds both branches. After, it is ``%x``.
    """
    return native_pass("SimplifyIf")
