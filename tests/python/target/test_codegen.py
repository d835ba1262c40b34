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
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch.nn import functional as F
from tvm import relax
from tvm.relax import op

from helpers.relax_modules import build, run, tensor
from tvm_fixes.support import switches
from tvm_fixes.target.codegen import FIX_ID, register


def few() -> tvm.IRModule:
    """An average that the vectorizer breaks."""

    def emit(_: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.avg_pool2d(
            x, pool_size=[2, 3], dilation=[2, 1], padding=[1, 1, 0, 1], count_include_pad=False
        )

    return build({"x": tensor(1, 4, 4, 3)}, emit)


def test_a_broken_module_is_compiled_again() -> None:
    x = torch.rand(1, 4, 4, 3, generator=torch.Generator().manual_seed(0))
    with switches.collect() as used:
        got = run(few(), x.numpy(), target="llvm")
    assert FIX_ID in used
    # The average of two rows, without the rows before the data.
    rows = F.avg_pool2d(x, (1, 3), stride=1, padding=(0, 1), count_include_pad=False)
    pairs = ((rows[:, :, i] + rows[:, :, i + 2]) / 2 for i in (0, 1))
    want = torch.stack([rows[:, :, 1], *pairs], 2)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)


def test_other_modules_are_compiled_once() -> None:
    with switches.collect() as used:
        run(
            build({"x": tensor(4)}, lambda _, x: op.add(x, x)), np.ones(4, "float32"), target="llvm"
        )
    assert FIX_ID not in used


def test_other_errors_are_kept() -> None:
    register()
    with pytest.raises(tvm.error.InternalError, match="parsing command-line options"):
        relax.build(few(), tvm.target.Target({"kind": "llvm", "cl-opt": ["-slp-threshold=100"]}))


if __name__ == "__main__":
    tvm.testing.main()
