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
"""RefreshTypes: update the types of GlobalVars from their functions; the pass is native."""

import tvm

from ... import _ffi


def RefreshTypes() -> tvm.transform.Pass:
    """Give every GlobalVar of a module the type of the function that it names.

    An import, ``mod[var] = function`` and some of TVM's passes do not update the type of a
    GlobalVar when its function changes; calls are then checked against a stale type.

    The type of a Relax function follows from its parameters and its result; a PrimFunc stores its
    type. If the type differs, a new GlobalVar of the same name replaces the old one as a key of the
    module and in all functions that use it; the old one stays unchanged, since other modules may
    share it. If a parameter or the result of a function has no type, its GlobalVar is kept. The
    types of calls do not change.

    Returns
    -------
    tvm.transform.Pass
        A module pass. If no type is stale, it returns the same module object.
    """
    return _ffi.get("tvm_fixes.transform.RefreshTypes")()
