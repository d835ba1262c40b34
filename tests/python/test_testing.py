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
"""tvm_fixes.testing.assert_same_results."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.relax_modules import integers, tensor
from tvm_fixes import transform
from tvm_fixes.errors import UsageError
from tvm_fixes.testing import assert_same_results

pytestmark = pytest.mark.native

op = relax.op
Sequential = tvm.transform.Sequential
MATRIX = tensor(4, 4)
VALUES = [integers(4, 4, seed=seed) for seed in range(3)]


def module():
    """Two outputs; and a function that calls main."""
    builder = relax.BlockBuilder()
    x, w, u = (relax.Var(name, MATRIX) for name in "xwu")
    with builder.function("main", [x, w, u], attrs={"num_input": 1}):
        with builder.dataflow():
            transposed = builder.emit(op.permute_dims(w))
            first = builder.emit_output(op.add(x, x))
            second = builder.emit_output(op.add(op.matmul(x, transposed), u))
        main = builder.emit_func_output(relax.Tuple([first, second]))
    params = [relax.Var(name, MATRIX) for name in "xwu"]
    with builder.function("caller", params):
        builder.emit_func_output(builder.emit(relax.Call(main, params)))
    return builder.get()


def alone():
    mod = module()
    return tvm.IRModule({mod.get_global_var("main"): mod["main"]})


PASSES = {
    "lift": lambda: transform.LiftTransformParams(),
    "stock lift": lambda: relax.transform.LiftTransformParams(),
    "shared": lambda: transform.LiftTransformParams(True),
    "bundle": lambda: transform.BundleModelParams(),
    "lift, bundle": lambda: Sequential(
        [transform.LiftTransformParams(), transform.BundleModelParams()]
    ),
    "bundle, stock lift": lambda: Sequential(
        [relax.transform.BundleModelParams(), relax.transform.LiftTransformParams()]
    ),
    "stock lift, bundle": lambda: Sequential(
        [relax.transform.LiftTransformParams(), relax.transform.BundleModelParams()]
    ),
    "lift, ask": lambda: Sequential([transform.LiftTransformParams(), transform.LazyGetInput()]),
    "lift, ask, hand out": lambda: Sequential(
        [transform.LiftTransformParams(), transform.LazyGetInput(), transform.LazySetOutput()]
    ),
    "hand out": lambda: transform.LazySetOutput(),
    "bind": lambda: relax.transform.BindParams("main", {"w": VALUES[1]}),
    "legalize": lambda: relax.transform.LegalizeOps(),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes_that_change_nothing_else(name):
    assert_same_results(alone(), PASSES[name](), VALUES)


def test_a_tuple_of_weights():
    bundled = relax.transform.BundleModelParams()(alone())
    for make in (transform.LiftTransformParams, relax.transform.LegalizeOps):
        assert_same_results(bundled, make(), [VALUES[0], VALUES[1:]])


def wrong_second(mod, _context):
    """The second output plus one."""
    builder = relax.BlockBuilder()
    x, w, u = (relax.Var(name, MATRIX) for name in "xwu")
    with builder.function("main", [x, w, u]):
        second = op.add(op.matmul(x, op.permute_dims(w)), op.add(u, relax.const(np.float32(1))))
        outputs = [builder.emit(op.add(x, x)), builder.emit(second)]
        builder.emit_func_output(relax.Tuple(outputs))
    return builder.get()


def test_the_first_output_that_differs_is_named():
    wrong = tvm.transform.module_pass(wrong_second, opt_level=0, name="Wrong")
    with pytest.raises(AssertionError, match=r"^Wrong: main: output 1 of 2 differs: 16 of 16"):
        assert_same_results(alone(), wrong, VALUES)
    assert_same_results(alone(), wrong, VALUES, atol=1)


def test_a_caller_that_tvms_pass_leaves_behind():
    mod = module()
    with pytest.raises(AssertionError, match=r"^LiftTransformParams: caller: output 1 of 2 diff"):
        assert_same_results(mod, relax.transform.LiftTransformParams(), VALUES, function="caller")
    assert_same_results(mod, transform.LiftTransformParams(), VALUES, function="caller")


def test_wrong_use():
    with pytest.raises(UsageError, match=r"^main: expected 3 inputs \(x, w, u\), got 2"):
        assert_same_results(alone(), transform.LiftTransformParams(), VALUES[:2])

    def other(_mod, _context):
        builder = relax.BlockBuilder()
        params = [relax.Var(name, MATRIX) for name in "xwuv"]
        with builder.function("main", params):
            builder.emit_func_output(builder.emit(op.add(*params[:2])))
        return builder.get()

    more = tvm.transform.module_pass(other, opt_level=0, name="More")
    with pytest.raises(UsageError, match=r"^main: unsupported signature: expected 2 weights"):
        assert_same_results(alone(), more, VALUES)


if __name__ == "__main__":
    tvm.testing.main()
