# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""LiftTransformParams for functions that return lifted values."""

import numpy as np

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.transform import LiftTransformParams
from tvm.script import ir as I
from tvm.script import relax as R


def run(mod, x, w):
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    weights = [tvm.runtime.tensor(w)]
    if "main_transform_params" in [var.name_hint for var in mod.get_global_vars()]:
        weights = vm["main_transform_params"](weights)
    return [value.numpy() for value in vm["main"](tvm.runtime.tensor(x), *weights)]


def test_binding():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((2, 4), "float32")) -> R.Tuple(
            R.Tensor((2, 4), "float32"), R.Tensor((4, 2), "float32")
        ):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                total = R.add(x, x)
                transposed = R.permute_dims(w)
                R.output(total, transposed)
            return (total, transposed)

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float32"), transposed: R.Tensor((4, 2), "float32")
        ) -> R.Tuple(R.Tensor((2, 4), "float32"), R.Tensor((4, 2), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                total = R.add(x, x)
                R.output(total)
            gv = (total, transposed)
            return gv

        @R.function
        def main_transform_params(
            params: R.Tuple(R.Tensor((2, 4), "float32")),
        ) -> R.Tuple(R.Tensor((4, 2), "float32")):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = params[0]
                transposed = R.permute_dims(w)
                output = (transposed,)
                R.output(output)
            return output

    after = LiftTransformParams()(Before)
    relax.analysis.well_formed(after)
    for name in ("main", "main_transform_params"):
        tvm.ir.assert_structural_equal(after[name].body, Expected[name].body, map_free_vars=True)

    x, w = np.arange(16, dtype="float32").reshape(2, 2, 4)
    for got, expected in zip(run(after, x, w), run(Before, x, w)):
        np.testing.assert_array_equal(got, expected)


def test_parameter():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tuple(
            R.Tensor((4,), "float32"), R.Tensor((4,), "float32")
        ):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                total = R.add(x, x)
                R.output(total)
            return (total, w)

    after = LiftTransformParams()(Before)
    relax.analysis.well_formed(after)
    x, w = np.arange(8, dtype="float32").reshape(2, 4)
    for got, expected in zip(run(after, x, w), run(Before, x, w)):
        np.testing.assert_array_equal(got, expected)


if __name__ == "__main__":
    tvm.testing.main()
