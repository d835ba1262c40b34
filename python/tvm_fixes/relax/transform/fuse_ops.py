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
"""TVM's pass ``FuseOps``, which keeps the nodes of the original model."""

import tvm
from tvm import relax

from ..kept_symbols import keep_symbols
from ..lifted_runs import lift_runs, lower_runs
from ..scalar_params import scalars_in_shapes
from ..source_nodes import join_fused, spread


def FuseOps() -> tvm.transform.Pass:
    """Group kernels with ``relax.transform.FuseOps``, and join the nodes that each group computes.

    Returns
    -------
    tvm.transform.Pass
        A module pass.  See :mod:`tvm_fixes.relax.source_nodes`,
        :mod:`tvm_fixes.relax.kept_symbols` and :mod:`tvm_fixes.relax.scalar_params`.
    """
    stock = relax.transform.FuseOps()

    def fuse(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        lifted = lift_runs(mod)
        spread(lifted)
        fused = stock(lifted)
        join_fused(lifted, fused)
        return scalars_in_shapes(keep_symbols(lower_runs(fused)))

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseOps")
