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
"""FoldLayoutIntoConv: fold layout transforms into convolutions; the pass is native."""

import tvm

from ... import _ffi


def FoldLayoutIntoConv() -> tvm.transform.Pass:
    """Fold the layout transforms before and after convolutions into their layout attributes.

    A ``permute_dims`` or ``layout_transform`` that only convolutions read becomes part of their
    ``data_layout``; the only reader of a convolution becomes part of its ``out_layout``.  Data and
    output of a convolution may have different layouts, and the kernel computes the index of each
    element anyway.

    A transform is kept if folding it would cost more than it saves: before a convolution of more
    than 8 channels, if the channels would then not be innermost; next to a grouped convolution; and
    if data and output would share a plain layout, for which TVM's own lowering is used. It is
    also kept if the kernel's shape or an intermediate shape is unknown, if it does more than
    reorder axes and split or merge channel blocks, and while the fix ``conv-legalize`` or
    ``conv-transpose-legalize`` is switched off, since TVM does not lower mixed layouts.

    ``DeadCodeElimination`` removes the transforms and convolutions that become unused.

    Returns
    -------
    tvm.transform.Pass
        A function pass.
    """
    return _ffi.get("tvm_fixes.transform.FoldLayoutIntoConv")()
