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
"""tvm_fixes.relax.data_flow: the results that a variable's value reads."""

import tvm
import tvm.testing
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_fixes.relax.analysis import bindings
from tvm_fixes.relax.data_flow import data_flow


def flow_of(mod: tvm.IRModule) -> dict[str, list[str]]:
    """The operands of each variable with the name of a kernel, ``k…``."""
    variables = [b.var for _, f in mod.functions_items() for b in bindings(f)]
    kernels = [var for var in variables if var.name.startswith("k")]
    reads = data_flow(mod, kernels)
    return {
        var.name: sorted(kernels[place].name for place in places)
        for var, places in zip(kernels, reads, strict=True)
    }


def test_tuples_and_views_are_looked_through():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                k0 = R.exp(x)
                view = R.reshape(k0, (2, 2))
                k1 = R.split(view, 2)
                pair = (k1[0], x)
                k2 = R.negative(pair[0])
                k3 = R.add(x, x)
                k4 = R.concat((k2, view))
                R.output(k3, k4)
            return (k3, k4)

    assert flow_of(Module) == {"k0": [], "k1": ["k0"], "k2": ["k1"], "k3": [], "k4": ["k0", "k2"]}


def test_the_result_of_a_branch_is_either():
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            k0 = R.exp(x)
            if c:
                k1 = R.negative(k0)
                y = k1
            else:
                y = R.reshape(k0, (4,))
            k2 = R.exp(y)
            return k2

    assert flow_of(Module) == {"k0": [], "k1": ["k0"], "k2": ["k0", "k1"]}


def test_a_function_reads_the_arguments_of_its_calls_and_a_loop_its_own_results():
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def loop(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (4,), "float32"
        ):
            if c:
                k1 = R.negative(x)
                y = Module.loop(k1, c)
            else:
                y = x
            return y

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            k0 = R.exp(x)
            z = Module.loop(k0, c)
            k2 = R.exp(z)
            return k2

    assert flow_of(Module) == {"k1": ["k0", "k1"], "k0": [], "k2": ["k0", "k1"]}


if __name__ == "__main__":
    tvm.testing.main()
