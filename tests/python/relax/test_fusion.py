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
"""tvm_fixes.relax.fusion."""

import pytest
import tvm
import tvm.testing
from tvm import relax

from tvm_fixes.relax.fusion import unfused
from tvm_fixes.relax.transform.fuse_ops import FuseOps


def fused(*operators, returns_all=False) -> tvm.IRModule:
    """A chain of operators, lowered and fused."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4, 8], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [x]
            for operator in operators:
                values.append(builder.emit(operator(values[-1]), f"v{len(values)}"))
            result = values[-1] if not returns_all else relax.Tuple(values[1:])
            out = builder.emit_output(result)
        builder.emit_func_output(out)
    lower = [
        relax.transform.LegalizeOps(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.AnnotateTIROpPattern(),
        FuseOps(),
    ]
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential(lower)(builder.finalize())


def square(x: relax.Expr) -> relax.Expr:
    return relax.op.matmul(relax.op.permute_dims(x), x)


def total(x: relax.Expr) -> relax.Expr:
    return relax.op.sum(x, axis=1)


def in_blocks(x: relax.Expr) -> relax.Expr:
    return relax.op.layout_transform(x, lambda i, j: (i, j // 4, j % 4))


@pytest.mark.parametrize(
    "operators, returns_all, reason",
    [
        ([square, relax.op.permute_dims], False, "only elementwise operators after it"),
        ([total, relax.op.exp], False, "nothing after a reduction"),
        ([square, relax.op.exp], True, "its result is used 2 times"),
        ([in_blocks, relax.op.exp], False, "cannot fuse such a kernel"),
    ],
)
def test_reasons(operators, returns_all, reason):
    [(name, found)] = unfused(fused(*operators, returns_all=returns_all))
    assert name and found.startswith("not fused with ")
    assert reason in found


@pytest.mark.parametrize("operators", [[relax.op.exp, relax.op.tanh], [square, relax.op.exp]])
def test_fused_kernels_are_not_listed(operators):
    assert list(unfused(fused(*operators))) == []


if __name__ == "__main__":
    tvm.testing.main()
