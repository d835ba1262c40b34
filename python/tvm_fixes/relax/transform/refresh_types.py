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
"""The types of GlobalVars made those of the functions that they name."""

import tvm

from ... import _ffi


def RefreshTypes() -> tvm.transform.Pass:
    """Give every GlobalVar of a module the type of the function that it names.

    An import, ``mod[var] = function`` and some of TVM's passes leave the type of a GlobalVar as it
    was before the function changed; a call is then checked against a function that is gone.

    The type of a Relax function is made of those of its parameters and its result, the type of a
    PrimFunc is its own. A GlobalVar whose type differs is replaced by a new one of the same name,
    as key of the module and in all functions that use it, since other modules may share the old
    one. A function that misses the type of a parameter or of its result keeps its GlobalVar, and
    the types of calls stay as they are.

    Returns
    -------
    tvm.transform.Pass
        A module pass. The same module comes back where no type is stale.
    """
    return _ffi.get("tvm_fixes.transform.RefreshTypes")()
