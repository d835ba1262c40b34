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
"""Transforms that convolutions take over; the pass itself is native."""

import tvm

from ... import _ffi


def FoldLayoutIntoConv() -> tvm.transform.Pass:
    """Let convolutions read and write what is transformed in front of and behind them.

    A ``permute_dims`` or ``layout_transform`` of which every reader is a convolution goes into
    their ``data_layout``, and one that alone reads a convolution into its ``out_layout``: data and
    output of a convolution need not have the same layout, and it visits each element by index in
    any case.

    A transform stays where that would cost more than it saves: in front of a convolution of more
    than 8 channels that then were not innermost; of a convolution in groups; and where it would
    leave data and output in one plain layout, which TVM's own lowering takes.  It stays too where
    the kernel's shape or a shape on the way is not known, where it does more than reorder axes and
    split or merge blocks of channels, and while the fixes ``conv-legalize`` or
    ``conv-transpose-legalize`` are switched off, without which different layouts are not lowered.

    Transforms and convolutions that nobody reads then are left to ``DeadCodeElimination``.

    Returns
    -------
    tvm.transform.Pass
        A function pass.
    """
    return _ffi.get("tvm_fixes.transform.FoldLayoutIntoConv")()
