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
"""PrepareLayout: simplify a module before and after ``ConvertLayout``; the pass is native."""

import tvm

from ... import _ffi


def PrepareLayout() -> tvm.transform.Pass:
    """Prepare a module for ``ConvertLayout``, or remove the no-ops that it leaves.

    - A ``TupleGetItem`` of a tuple expression becomes the field.
    - ``reshape``, ``expand_dims`` and ``squeeze`` of a constant become a constant that shares its
      memory.
    - A constant operand of a broadcast gets the rank of the result.
    - A ``permute_dims`` or ``layout_transform`` that keeps the order of the elements in memory
      becomes a reshape.
    - Consecutive permutes and layout transforms, with reshapes between them, become one permute
      between reshapes; consecutive reshapes become one.
    - A ``pixel_shuffle`` becomes reshapes around a permute, to which layouts propagate.
    - No-op operators are removed, and bindings of dataflow blocks that become unused.

    If nothing changes in a function, the pass returns the same object.

    Returns
    -------
    tvm.transform.Pass
        A function pass.

    Notes
    -----
    Consecutive moves of data are joined if every intermediate axis is a product of factors of the
    first argument's axes. A symbolic extent is one factor, or the product of the extents into which
    an intermediate shape splits it. A ``layout_transform`` is kept if it pads, or if its map does
    more than split, permute and merge axes; so does a transposition of the last two axes that a
    ``matmul`` reads as its second operand, since :func:`FuseTransposeMatmul` handles it.
    """
    return _ffi.get("tvm_fixes.transform.PrepareLayout")()
