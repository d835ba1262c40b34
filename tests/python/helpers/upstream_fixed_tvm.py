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
"""A pytest plugin that runs TVM's tests against TVM with this project's fixes.

Importing `tvm_fixes` corrects the operators. Importers and passes with their own entry points
replace TVM's names while the tests are imported: the tests bind the replacement, but this project's
code still finds TVM's own. A test of the staging area runs with only the fixes of its pull request
enabled.
"""

import os

import pytest
import tvm
import tvm.relax.backend
import tvm.relax.frontend.onnx
import tvm.relax.frontend.torch

import tvm_fixes
from tvm_fixes.support import switches
from upstream import tool as upstream


def _dispatch_sort_scan() -> tvm.transform.Pass:
    """LowerScan, and TVM's pass, which lowers what is left."""
    passes = [tvm_fixes.transform.LowerScan(), tvm.relax.backend.DispatchSortScan()]
    return tvm.transform.Sequential(passes)


_SUBSTITUTES = (
    (tvm.relax.backend, "DispatchSortScan", _dispatch_sort_scan),
    (tvm.relax.frontend.onnx, "from_onnx", tvm_fixes.frontend.onnx.from_onnx),
    *(
        (tvm.relax.frontend.torch, name, getattr(tvm_fixes.frontend.torch, name))
        for name in ("from_exported_program", "from_fx")
    ),
    (tvm.relax.transform, "LiftTransformParams", tvm_fixes.transform.LiftTransformParams),
)

_patch = pytest.MonkeyPatch()
for _module, _name, _fixed in _SUBSTITUTES:
    _patch.setattr(_module, _name, _fixed)


def pytest_collection_finish() -> None:
    _patch.undo()


def pytest_runtest_setup(item: pytest.Item) -> None:
    name = item.path.relative_to(item.config.rootpath).parts[0]
    request = upstream.read_pull_request(item.config.rootpath, name)
    others = [fix for fix in switches.FIX_IDS if fix not in request.fixes]
    os.environ[switches.ENVIRONMENT_VARIABLE] = ",".join(others)
