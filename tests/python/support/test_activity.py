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
"""Reports of the passes that run."""

import pytest
import tvm
import tvm.testing
from tvm import relax

import tvm_fixes
from helpers.models import conv_net
from tvm_fixes.support import activity


def test_passes_and_the_passes_around_them():
    heard = []
    inner = tvm.transform.Sequential([relax.transform.Normalize()], name="Inner")
    with activity.heard_by(heard.append):
        with tvm.transform.PassContext(instruments=[activity.ReportPasses()]):
            inner(tvm.IRModule())
    assert heard == ["Inner", "Normalize", "Inner", ""]


def test_after_a_pass_that_raises():
    @tvm.transform.module_pass(opt_level=0, name="Fails")
    def fails(mod, _context):
        raise ValueError("no")

    @tvm.transform.module_pass(opt_level=0, name="Outer")
    def outer(mod, _context):
        with pytest.raises(ValueError, match="no"):
            fails(mod)
        return mod

    heard = []
    with activity.heard_by(heard.append):
        with tvm.transform.PassContext(instruments=[activity.ReportPasses()]):
            outer(tvm.IRModule())
    assert heard == ["Outer", "Fails", ""]


def test_a_compilation():
    heard = []
    with activity.heard_by(heard.append):
        tvm_fixes.compile(conv_net(), compare=False)
    assert {"LegalizeOps", "FuseOps", "tirx.LowerIntrin"} <= set(heard)


if __name__ == "__main__":
    tvm.testing.main()
