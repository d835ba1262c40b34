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
"""Constants of main become its parameters."""

import numpy as np
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.relax_modules import cpu
from tvm_fixes.relax.transform import ConstantsToParams

LEAST = 32


def module(large: np.ndarray, small: np.ndarray) -> tvm.IRModule:
    """``concat(x * large, large) + small``, and a function that adds `large` as well."""
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    y = relax.Var("y", relax.TensorType((2, 4), "float32"))
    constant = relax.const(large)
    builder = relax.BlockBuilder()
    with builder.function("other", [y]):
        builder.emit_func_output(builder.emit(relax.op.add(y, constant)))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.multiply(x, constant))
            both = builder.emit(relax.op.concat([product, constant], axis=0))
            out = builder.emit_output(relax.op.add(both, relax.const(small)))
        builder.emit_func_output(out)
    return builder.get()


def test_large_constants_become_parameters():
    large = np.arange(8, dtype="float32").reshape(2, 4)
    small = np.arange(4, dtype="float32")
    mod = module(large, small)
    collected = {}
    after = ConstantsToParams(LEAST, collected)(mod)

    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    weight = relax.Var("weight0", relax.TensorType((2, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, weight]):
        with builder.dataflow():
            product = builder.emit(relax.op.multiply(x, weight))
            both = builder.emit(relax.op.concat([product, weight], axis=0))
            out = builder.emit_output(relax.op.add(both, relax.const(small)))
        builder.emit_func_output(out)
    tvm.ir.assert_structural_equal(after["main"], builder.get()["main"])
    tvm.ir.assert_structural_equal(after["other"], mod["other"])
    [tensor] = collected
    np.testing.assert_array_equal(tensor.numpy(), large)

    executable = relax.build(after, cpu())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    value = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    got = vm["main"](tvm.runtime.tensor(value), *collected)
    expected = np.concatenate([value * large, large]) + small
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_nothing_to_move():
    mod = module(np.ones((2, 4), "float32"), np.ones(4, "float32"))
    collected = {}
    assert ConstantsToParams(LEAST + 1, collected)(mod).same_as(mod)
    assert collected == {}


def test_the_names_of_parameters_stay_apart():
    @I.ir_module
    class Before:
        @R.function
        def main(weight0: R.Tensor((2, 4), "float32")):
            out = R.add(weight0, R.const(np.ones((2, 4), "float32")))
            return out

    collected = {}
    after = ConstantsToParams(LEAST, collected)(Before)
    assert [param.name for param in after["main"].params] == ["weight0", "weight_0"]


if __name__ == "__main__":
    tvm.testing.main()
