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
"""Tests of the guard around VMShapeLower."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.relax_modules import build, cpu, integers, tensor
from tvm_fixes import pipeline, transform
from tvm_fixes.errors import UsageError
from tvm_fixes.support import switches
from tvm_fixes.support.isolate import OutcomeKind, run_forked


@I.ir_module
class UnknownWeights:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor(dtype="float32", ndim=2),
        pair: R.Tuple(R.Tensor(("m",), "float32"), R.Tensor(dtype="int64")),
    ) -> R.Tuple(
        R.Tensor(("n", 4), "float32"), R.Tensor(dtype="float32", ndim=2), R.Tensor(dtype="int64")
    ):
        R.func_attr({"num_input": 1})
        n = T.int64()
        doubled: R.Tensor((n, 4), "float32") = R.add(x, x)
        second = pair[1]
        return (doubled, w, second)


@I.ir_module
class KnownWeights:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor(
        ("n", 4), "float32"
    ):
        R.func_attr({"num_input": 1})
        n = T.int64()
        return R.call_packed("tests.same", x, w, ty_args=[R.Tensor((n, 4), "float32")])


def test_weights_of_unknown_shape_are_checked_as_inputs_are():
    vm = relax.VirtualMachine(
        relax.build(UnknownWeights, cpu(), relax_pipeline=pipeline()), tvm.cpu()
    )
    x, w, u, v = integers(3, 4), integers(2, 5), integers(7), np.arange(3)
    tensors = [tvm.runtime.tensor(value) for value in (x, w, u, v)]
    got = vm["main"](*tensors[:2], tensors[2:])
    for one, expected in zip(got, (x + x, w, v), strict=True):
        np.testing.assert_array_equal(one.numpy(), expected)
    with pytest.raises(Exception, match="pair"):
        vm["main"](*tensors[:2], [tensors[0], tensors[3]])


def test_num_input_is_kept():
    after = transform.VMShapeLower()(UnknownWeights)
    assert after["main"].attrs["num_input"] == 1
    bare = tvm.IRModule({"main": UnknownWeights["main"].without_attr("num_input")})
    expected = relax.transform.VMShapeLower()(bare)
    tvm.ir.assert_structural_equal(
        after["main"].without_attr("num_input"), expected["main"], map_free_vars=True
    )


def test_tensors_that_are_not_lowered_to_memory_are_rejected():
    """TVM's LowerAllocTensor fails if it finds a variable instead of the shape."""
    steps = [relax.transform.LegalizeOps(), relax.transform.CallTIRRewrite()]
    mod = tvm.transform.Sequential(steps)(
        build({"x": tensor(tirx.Var("n", "int64"), 4)}, lambda bb, x: relax.op.exp(x))
    )
    expected = (
        r"'main' allocates 'alloc' of the symbolic shape \[n, .*run it after LowerAllocTensor"
    )
    with pytest.raises(UsageError, match=expected):
        transform.VMShapeLower()(mod)


def test_other_functions_use_stock():
    expected = relax.transform.VMShapeLower()(KnownWeights)
    tvm.ir.assert_structural_equal(transform.VMShapeLower()(KnownWeights), expected)


def test_the_switch(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "vm-shape-lower-weights")
    outcome = run_forked(lambda: transform.VMShapeLower()(UnknownWeights) and None, timeout=60)
    assert outcome.kind is OutcomeKind.SIGNAL


if __name__ == "__main__":
    tvm.testing.main()
