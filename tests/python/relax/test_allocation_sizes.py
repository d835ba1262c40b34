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
"""Tensors of symbolic extents get the memory that they need, not that of a large bound."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.relax_modules import build, calls, run, tensor
from tvm_fixes import pipeline, transform
from tvm_fixes.support import switches

LARGE = 10**12


def softmax_rows(*extents: int, bound: int | None = None) -> tvm.IRModule:
    """Softmax of `min(n, extent)` rows, for each of the extents in turn."""
    n = tirx.Var("n", "int64")

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        total = relax.const(0, "float32")
        for extent in extents:
            ones = bb.emit(relax.op.ones((tirx.min(n, extent), 4), "float32"))
            total = bb.emit(relax.op.add(total, bb.emit(relax.op.sum(relax.op.nn.softmax(ones)))))
        return bb.emit(relax.op.add(x, total))

    mod = build({"x": tensor(n)}, emit)
    if bound is None:
        return mod
    bounds = {"tir_var_upper_bound": {"n": bound}}
    return tvm.IRModule({"main": mod["main"].with_attrs(bounds)})


def planned(mod: tvm.IRModule) -> list[list[tirx.Expr]]:
    """The sizes that the planner allocates."""
    steps = [
        relax.transform.LegalizeOps(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
    ]
    after = tvm.transform.Sequential(steps)(mod)
    return [list(call.args[0].values) for call in calls(after, "relax.memory.alloc_storage")]


def literals(sizes: list[list[tirx.Expr]]) -> list[int]:
    return [int(size) for dims in sizes for size in dims if isinstance(size, tirx.IntImm)]


def test_upper_bound_is_not_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = softmax_rows(LARGE)
    assert max(literals(planned(mod))) < LARGE
    np.testing.assert_array_equal(run(mod, np.ones(3, "float32"), pipeline=pipeline()), [4, 4, 4])
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "plan-memory-bounds")
    assert max(literals(planned(mod))) == 16 * LARGE


def test_equal_extents_share_memory() -> None:
    sizes = [dims for dims in planned(softmax_rows(LARGE, LARGE, LARGE)) if not literals([dims])]
    assert len(sizes) == len([d for d in planned(softmax_rows(LARGE)) if not literals([d])])


@pytest.mark.parametrize("mod", (softmax_rows(64), softmax_rows(LARGE, bound=1 << 20)))
def test_small_and_declared_bounds_are_allocated(mod: tvm.IRModule) -> None:
    assert len(literals(planned(mod))) == len(planned(mod))


@pytest.mark.parametrize("bound", (LARGE, 2**62))
def test_large_declared_bounds_are_not_allocated(bound: int) -> None:
    """PyTorch declares the end of a slice as the bound of its extent, even 2**62."""
    mod = softmax_rows(2**62, bound=bound)
    assert max(literals(planned(mod))) < LARGE
    np.testing.assert_array_equal(run(mod, np.ones(3, "float32"), pipeline=pipeline()), [4, 4, 4])


if __name__ == "__main__":
    tvm.testing.main()
