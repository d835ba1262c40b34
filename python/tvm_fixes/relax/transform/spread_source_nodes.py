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
"""Attribution of new variables to the nodes of the original model."""

import tvm

from ..source_nodes import spread


def SpreadSourceNodes() -> tvm.transform.Pass:
    """Attribute variables that a pass added to the nodes of the variables around them.

    Run it after a pass that adds variables and before one that removes the variables that they are
    assigned to, such as ``CanonicalizeBindings``.

    Returns
    -------
    tvm.transform.Pass
        A module pass that returns its module: spans are not part of its value.  See
        :mod:`tvm_fixes.relax.source_nodes`.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        spread(mod)
        return mod

    return tvm.transform.module_pass(run, opt_level=0, name="SpreadSourceNodes")
