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
"""Matmuls of tensors that are repeated, as matmuls of the tensors themselves."""

import tvm

from ... import _ffi


def BroadcastFreeMatmul() -> tvm.transform.Pass:
    """Let a matmul read a smaller tensor in place of what repeats it.

    Operands are followed back over ``broadcast_to``, ``tile``, ``repeat``, ``expand_dims``,
    ``squeeze``, ``reshape``, ``flatten`` and ``permute_dims``, to the tensor that is first
    repeated.  Before::

        w1 = R.broadcast_to(w, R.shape([16, 64, 96]))
        lv = R.matmul(x, w1)                            # x: (16, 7, 64)
        y = R.add(lv, bias)

    and after::

        lv = R.matmul(x, w)
        y = R.add(lv, bias)

    1. Where one operand varies along an axis of the batch, or a part of one, and the other does
       not, the latter is read without it: a matmul broadcasts by itself, and the axis counts as
       rows of the operand that varies.
    2. Where neither varies, and where rows of the first or columns of the second operand are
       repeated, they are computed once and the result is repeated.
    3. What is repeated along the axis that is summed over stays: its sum is another.

    The result keeps its shape, its dtype and its place before bias and activation; where only a
    part of an axis is repeated, as in grouped attention, a reshape stands behind the matmul.
    Extents may be symbolic; a broadcast is followed where each extent is proved to be 1 or to stay
    as it is.

    Returns
    -------
    tvm.transform.Pass
        A function pass, for Relax functions with high-level operators.  The same function comes
        back where nothing applies, so that a second run changes nothing.

    Notes
    -----
    No element is moved or computed twice: a permute that lies between the broadcast and the matmul
    is done of the smaller tensor instead, unless something else reads its result.  Why a matmul was
    left as it was is logged at level ``DEBUG`` to Python's logger
    ``tvm_fixes.BroadcastFreeMatmul``.
    """
    return _ffi.get("tvm_fixes.transform.BroadcastFreeMatmul")()
