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
"""Preparation and tidying around ``ConvertLayout``; the pass itself is native."""

import tvm

from ... import _ffi


def PrepareLayout() -> tvm.transform.Pass:
    """Clear the way for ``ConvertLayout``, or clear away the identities that it leaves.

    A field taken of a tuple becomes the field; ``reshape``, ``expand_dims`` and ``squeeze`` of a
    constant become a constant that shares its memory; a constant operand of a broadcast gets the
    rank of the result; a ``permute_dims`` or ``layout_transform`` that leaves every element where
    it is becomes a reshape; permutes and layout transforms in a row, with reshapes between them,
    become one permute between reshapes, and reshapes in a row become one; a ``pixel_shuffle``
    becomes reshapes around a permute, which follow layouts; an operator that changes nothing is
    dropped, and so is what a dataflow block then no longer needs. A function in which nothing
    changes comes back as the same object.

    Returns
    -------
    tvm.transform.Pass
        A function pass.

    Notes
    -----
    What moves data twice is joined where every axis on the way is a product of factors of the axes
    of the first argument. A symbolic extent is one factor, or the product of those that a shape on
    the way has. A ``layout_transform`` that pads, or whose map does more than split, permute and
    merge axes, stays as it is; so does a transposition of the last two axes that a ``matmul`` reads
    as its second operand, since :func:`FuseTransposeMatmul` takes it.
    """
    return _ffi.get("tvm_fixes.transform.PrepareLayout")()
