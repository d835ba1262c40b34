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
"""tvm_fixes.target.gpu."""

import pytest
import tvm
import tvm.testing

from tvm_fixes.target import resolve
from tvm_fixes.target.gpu import limits_of, with_limits


@pytest.mark.parametrize(
    "arch, dynamic", [("sm_80", 163), ("sm_86", 99), ("sm_90a", 227), ("sm_100", 227)]
)
def test_limits_of_cuda(arch, dynamic):
    limits = limits_of(resolve(f"cuda/{arch}"))
    assert (limits.threads, limits.shared) == (1024, 48 << 10)
    assert limits.dynamic_shared == dynamic << 10
    assert limits.grid == (2**31 - 1, 65535, 65535)


def test_attributes_of_the_target_count():
    config = {"kind": "cuda", "arch": "sm_90", "max_num_threads": 512}
    limits = limits_of(tvm.target.Target(config | {"max_shared_memory_per_block": 1000}))
    assert (limits.threads, limits.shared) == (512, 1000)


def test_another_kind_has_no_dynamic_memory():
    limits = limits_of(tvm.target.Target("vulkan"))
    assert limits.dynamic_shared == limits.shared == 16 << 10


def test_the_limits_become_attributes():
    target = resolve("cuda/sm_90")
    complete = with_limits(target)
    assert complete.attrs["max_shared_memory_per_block"] == 48 << 10
    assert str(complete.host) == str(target.host)
    assert with_limits(complete).same_as(complete)


if __name__ == "__main__":
    tvm.testing.main()
