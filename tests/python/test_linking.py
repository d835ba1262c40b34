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
"""The loading of built modules below the full tier (helpers/linking.py)."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import is_full
from helpers.linking import linked
from helpers.relax_modules import UNOPTIMIZED_CPU, build, call, tensor

X = np.array([[-0.5, 0.0], [1.5, np.nan]], "float32")


def executable(dtype: str = "float32") -> relax.VMExecutable:
    mod = build(
        {"x": tensor(2, 2, dtype=dtype)},
        lambda _builder, x: relax.op.tanh(x) + relax.const(np.full((2, 2), 2, dtype)),
    )
    return relax.build(mod, UNOPTIMIZED_CPU)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_linked_copy_computes_what_the_module_does(dtype: str) -> None:
    built = executable(dtype)
    copy = linked(built.mod)
    assert [module.kind for module in copy.imports] == ["library"]
    assert [module.kind for module in built.mod.imports] == ["llvm"]
    expected, got = (
        call(relax.VirtualMachine(module, tvm.cpu()), "main", X.astype(dtype))
        for module in (built.mod, copy)
    )
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_allclose(got, np.tanh(X.astype(dtype)) + 2, rtol=2e-3)


def test_the_quick_tier_links() -> None:
    built = executable()
    assert built.jit().imports[0].kind == ("llvm" if is_full() else "library")
    assert built.jit() is built.jit()


def test_other_modules_are_left_to_tvm() -> None:
    built = executable()
    built.mod.imports[0].import_module(executable().mod)
    assert linked(built.mod) is None


if __name__ == "__main__":
    tvm.testing.main()
