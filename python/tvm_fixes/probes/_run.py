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
"""Lowering, building and running the program of a probe."""

import numpy as np
import tvm
from tvm import relax


def lower(module: tvm.IRModule, relax_pipeline: tvm.transform.Pass) -> tvm.IRModule:
    """Lower `module` for the CPU with `relax_pipeline`."""
    with tvm.target.Target("llvm"):
        return relax_pipeline(module)


def run(
    module: tvm.IRModule,
    *inputs: np.ndarray,
    relax_pipeline: str | tvm.transform.Pass = "default",
) -> np.ndarray:
    """Build `module` for the CPU with `relax_pipeline`, and run its ``main``."""
    executable = relax.build(module, tvm.target.Target("llvm"), relax_pipeline=relax_pipeline)
    vm = relax.VirtualMachine(executable, tvm.cpu())
    return vm["main"](*map(tvm.runtime.tensor, inputs)).numpy()
