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
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.relax_modules import build, count, integers, run, tensor
from tvm_fixes import pipeline, transform
from tvm_fixes.support import switches


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
    """The module as StaticPlanBlockMemory receives it."""
    steps = [
        relax.transform.LegalizeOps(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]
    return tvm.transform.Sequential(steps)(mod)


def planned_by_tvm(mod: tvm.IRModule) -> tvm.IRModule:
    """The result of TVM's own pass; TVM's Python function of its name returns ours."""
    return tvm_ffi.get_global_func("relax.transform.StaticPlanBlockMemory")()(mod)


def shared_transpose(twice: bool) -> tvm.IRModule:
    """A transposed operand that another matmul or another operator also reads."""

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
def test_functions_that_stock_rejects_are_unchanged(mod, monkeypatch):
    assert transform.FuseTransposeMatmul()(mod).same_as(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "fuse-transpose-matmul")
    with pytest.raises((IndexError, TypeError, AttributeError)):
        transform.FuseTransposeMatmul()(mod)


def test_transposed_operand_is_read_in_place():
    after = transform.FuseTransposeMatmul()(TransposedOperand)
    after = relax.transform.DeadCodeElimination()(after)
    assert count(after, "relax.permute_dims") == 0
    x, y = integers(2, 3, 4), integers(2, 5, 4, seed=1)
    np.testing.assert_array_equal(run(after, x, y), x @ y.swapaxes(1, 2))


@I.ir_module
class ScratchInBranches:
    """Each branch frees a tensor that its result does not need."""

    @R.function
    def main(cond: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")) -> R.Tensor(
        (2, 4), "float32"
    ):
        if cond:
            result = R.exp(R.negative(x))
        else:
            result = R.tanh(R.abs(x))
        return result


@I.ir_module
class ScratchBeforeBranches:
    """The first branch reuses storage that is allocated before the If."""

    @R.function
    def main(cond: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")) -> R.Tensor(
        (2, 4), "float32"
    ):
        y = R.exp(R.negative(R.exp(x)))
        if cond:
            result = R.exp(R.negative(y))
        else:
            result = R.tanh(y)
        return result


def test_storage_of_one_branch_is_not_used_in_the_other(monkeypatch):
    before = lowered(ScratchInBranches)
    tvm.ir.assert_structural_equal(transform.StaticPlanBlockMemory()(before), before)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "plan-memory-if")
    expected = planned_by_tvm(before)
    tvm.ir.assert_structural_equal(transform.StaticPlanBlockMemory()(before), expected)


@pytest.mark.parametrize("mod", [Branches, ScratchBeforeBranches])
def test_branches_that_share_no_storage_are_planned(mod):
    before = lowered(mod)
    expected = planned_by_tvm(before)
    tvm.ir.assert_structural_equal(transform.StaticPlanBlockMemory()(before), expected)
    if mod is ScratchBeforeBranches:
        assert count(expected, "relax.memory.alloc_storage") == 2


@pytest.mark.parametrize("mod", [ScratchInBranches, ScratchBeforeBranches])
def test_branches_in_both_pipelines(mod):
    x = integers(2, 4).astype("float32") / 8
    y = np.exp(-np.exp(x)) if mod is ScratchBeforeBranches else x
    others = np.tanh(y if mod is ScratchBeforeBranches else np.abs(y))
    for condition, expected in ((True, np.exp(-y)), (False, others)):
        for lowering in ("default", pipeline()):
            got = run(mod, np.array(condition), x, pipeline=lowering)
            np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_memory_is_planned_where_there_is_no_branch():
    before = lowered(TransposedOperand)
    after = transform.StaticPlanBlockMemory()(before)
    tvm.ir.assert_structural_equal(after, planned_by_tvm(before))
    assert count(after, "relax.memory.alloc_storage") == 1


@I.ir_module
class Kept:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        first = R.exp(x)
        same = first
        _ = R.call_packed("tests.keep", same, ty_args=[R.Any])
        second = R.negative(x)
        _ = R.call_packed("tests.keep_pair", (second, x), ty_args=[R.Any])
        third = R.multiply(x, x)
        _ = R.call_packed("tests.keep", third, ty_args=[R.Any])
        fourth = R.add(x, x)
        return R.add(fourth, fourth)

    @R.function
    def pure(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        return R.exp(R.negative(R.exp(R.negative(x))))


def test_values_passed_to_impure_calls_keep_their_memory(monkeypatch):
    kept = []
    tvm.register_global_func("tests.keep", kept.append, override=True)
    tvm.register_global_func("tests.keep_pair", kept.extend, override=True)
    x = integers(2, 4)
    result = run(Kept, x, pipeline=pipeline())
    for got, expected in zip(kept, (np.exp(x), -x, x, x * x), strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(result, 4 * x)
    before = lowered(Kept)
    after = transform.StaticPlanBlockMemory()(before)
    planned = planned_by_tvm(before)
    tvm.ir.assert_structural_equal(after["main"], before["main"])
    tvm.ir.assert_structural_equal(after["pure"], planned["pure"])
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "plan-memory-escape")
    tvm.ir.assert_structural_equal(transform.StaticPlanBlockMemory()(before), planned)


@I.ir_module
class Printed:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        _ = R.assert_op(R.const(True), format="")
        return R.exp(R.negative(R.exp(R.negative(x))))


def test_memory_is_planned_around_calls_that_keep_nothing():
    before = lowered(Printed)
    planned = planned_by_tvm(before)
    tvm.ir.assert_structural_equal(transform.StaticPlanBlockMemory()(before), planned)


@I.ir_module
class KeptByAnother:
    @R.function(pure=False)
    def keep(x: R.Tensor((2, 4), "float32")) -> R.Any:
        return R.call_packed("tests.keep", x, ty_args=[R.Any])

    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = KeptByAnother
        first = R.exp(x)
        _ = cls.keep(first)
        second = R.negative(x)
        return R.multiply(second, second)


def test_arguments_of_impure_functions_keep_their_memory():
    """The function may keep a reference."""
    kept = []
    tvm.register_global_func("tests.keep", kept.append, override=True)
    x = integers(2, 4)
    np.testing.assert_array_equal(run(KeptByAnother, x, pipeline=pipeline()), x * x)
    np.testing.assert_allclose(kept[0].numpy(), np.exp(x), rtol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
