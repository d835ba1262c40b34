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
"""TVM's passes with a guard: FuseTransposeMatmul and StaticPlanBlockMemory."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relax_helpers import build, count, integers, run, tensor
from tvm_fixes import switches, transform


@I.ir_module
class OwnTranspose:
    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32")) -> R.Tensor((2, 3, 3), "float32"):
        with R.dataflow():
            transposed = R.permute_dims(x, [0, 2, 1])
            out = R.matmul(x, transposed)
            R.output(out)
        return out


@I.ir_module
class ReverseOfAllAxes:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((2, 4, 5), "float32")) -> R.Tensor(
        (5, 3, 2), "float32"
    ):
        with R.dataflow():
            reverse = R.permute_dims(y)
            out = R.matmul(x, reverse)
            R.output(out)
        return out


@I.ir_module
class TransposedOperand:
    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32"), y: R.Tensor((2, 5, 4), "float32")) -> R.Tensor(
        (2, 3, 5), "float32"
    ):
        with R.dataflow():
            transposed = R.permute_dims(y, [0, 2, 1])
            out = R.matmul(x, transposed)
            R.output(out)
        return out


@I.ir_module
class Branches:
    @R.function
    def main(cond: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")) -> R.Tensor(
        (2, 4), "float32"
    ):
        if cond:
            result = R.exp(x)
        else:
            result = R.tanh(x)
        return result


def lowered(mod: tvm.IRModule) -> tvm.IRModule:
    """The module as it comes to StaticPlanBlockMemory."""
    steps = [
        relax.transform.LegalizeOps(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]
    return tvm.transform.Sequential(steps)(mod)


def shared_transpose(twice: bool) -> tvm.IRModule:
    """A transposed operand that another matmul, or another operator, reads too."""

    def emit(bb: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        transposed = bb.emit(relax.op.permute_dims(w, [1, 0]))
        product = bb.emit(relax.op.matmul(x, transposed))
        if twice:
            other = bb.emit(relax.op.matmul(bb.emit(relax.op.nn.relu(x)), transposed))
        else:
            other = bb.emit(relax.op.nn.relu(transposed))
        return bb.emit(relax.Tuple([product, other]))

    return build({"x": tensor(3, 4), "w": tensor(5, 4)}, emit)


@pytest.mark.parametrize(
    "mod", [OwnTranspose, ReverseOfAllAxes, shared_transpose(True), shared_transpose(False)]
)
def test_what_stock_raises_on_stays(mod, monkeypatch):
    assert transform.FuseTransposeMatmul()(mod).same_as(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "fuse-transpose-matmul")
    with pytest.raises((IndexError, TypeError, AttributeError)):
        transform.FuseTransposeMatmul()(mod)


def test_transposed_operand_is_read_as_it_lies():
    after = transform.FuseTransposeMatmul()(TransposedOperand)
    after = relax.transform.DeadCodeElimination()(after)
    assert count(after, "relax.permute_dims") == 0
    x, y = integers(2, 3, 4), integers(2, 5, 4, seed=1)
    np.testing.assert_array_equal(run(after, x, y), x @ y.swapaxes(1, 2))


def test_memory_of_branches_is_not_planned(monkeypatch):
    before = lowered(Branches)
    assert transform.StaticPlanBlockMemory()(before).same_as(before)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "plan-memory-if")
    expected = relax.transform.StaticPlanBlockMemory()(before)
    tvm.ir.assert_structural_equal(transform.StaticPlanBlockMemory()(before), expected)


def test_memory_is_planned_where_there_is_no_branch():
    before = lowered(TransposedOperand)
    after = transform.StaticPlanBlockMemory()(before)
    tvm.ir.assert_structural_equal(after, relax.transform.StaticPlanBlockMemory()(before))
    assert count(after, "relax.memory.alloc_storage") == 1


if __name__ == "__main__":
    tvm.testing.main()
