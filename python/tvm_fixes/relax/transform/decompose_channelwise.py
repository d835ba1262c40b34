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
"""DecomposeChannelwise: write norms and PReLU as arithmetic; the pass is native."""

import tvm

from ... import _ffi


def DecomposeChannelwise() -> tvm.transform.Pass:
    """Decompose the operators with a channel axis into operators that work in any layout.

    ``batch_norm`` in inference mode, ``instance_norm``, ``group_norm`` and ``prelu`` become means,
    differences and products. All operands but the activation have an extent of 1 in every axis
    except batch and channels. Sums are computed in float32 or wider, and the variance is the mean
    of the squared centered values, which avoids the cancellation in a difference of means.

    The pass skips a batch norm in training mode, a norm without scale or offset, data of unknown
    shape, and groups of a symbolic number of channels.

    Returns
    -------
    tvm.transform.Pass
        A function pass.
    """
    return _ffi.get("tvm_fixes.transform.DecomposeChannelwise")()
