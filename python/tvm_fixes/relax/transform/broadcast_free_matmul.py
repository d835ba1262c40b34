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
"""BroadcastFreeMatmul: let matmuls read operands before broadcasting; the pass is native."""

import tvm

from ... import _ffi


def BroadcastFreeMatmul() -> tvm.transform.Pass:
    """Let a matmul read the original of an operand that is a repeated tensor.

    The pass follows operands back over ``broadcast_to``, ``tile``, ``repeat``, ``expand_dims``,
    ``squeeze``, ``reshape``, ``flatten`` and ``permute_dims``, to the tensor before its first
    repetition.  Before::

        w1 = R.broadcast_to(w, R.shape([16, 64, 96]))
        lv = R.matmul(x, w1)                            # x: (16, 7, 64)
        y = R.add(lv, bias)

    and after::

        lv = R.matmul(x, w)
        y = R.add(lv, bias)

    1. If one operand varies along a batch axis, or a part of one, and the other is repeated there,
       the matmul reads the latter without that axis: a matmul broadcasts by itself, and the axis
       becomes rows of the operand that varies.
    2. If both operands are repeated along a batch axis, or if rows of the first or columns of the
       second operand are repeated, the matmul computes them once and the result is repeated.
    3. A repetition along the reduction axis stays, since it changes the sum.

    The result keeps its shape, its dtype and its place before bias and activation; if only a part
    of an axis is repeated, as in grouped attention, a reshape follows the matmul.
    Extents may be symbolic; the pass follows a broadcast if each extent is provably 1 or unchanged.

    Returns
    -------
    tvm.transform.Pass
        A function pass, for Relax functions with high-level operators.  If nothing applies, it
        returns the same function object; a second run is a no-op.

    Notes
    -----
    No element is moved or computed twice: a permute between the broadcast and the matmul applies to
    the smaller tensor instead, unless something else reads its result.  The pass logs why it left
    a matmul unchanged, at level ``DEBUG`` to Python's logger ``tvm_fixes.BroadcastFreeMatmul``.
    """
    return _ffi.get("tvm_fixes.transform.BroadcastFreeMatmul")()
