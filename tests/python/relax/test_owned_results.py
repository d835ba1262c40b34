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
"""Results that share no memory with anything that lives longer."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.grids import few
from helpers.onnx_graphs import program
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.owned_results import owned_results, results_in_parameters
from tvm_fixes.relax.updates import with_updates

CONSTANTS = {"c": np.ones((2, 2), "float32"), "rows": np.array([-1, 2])}


def owned(mod: tvm.IRModule) -> tuple[int, ...]:
    with tvm.target.Target("llvm"):
        return owned_results(pipeline()(mod), "main")


@few(3)
@pytest.mark.parametrize(
    "nodes, expected",
    [
        ({"y": ("Neg", ["x"])}, (0,)),
        ({"h": ("Neg", ["x"]), "y": ("Exp", ["h"])}, (0,)),
        # Its last step is a view of the product.
        ({"h": ("MatMul", ["x", "x"]), "y": ("Reshape", ["h", "rows"])}, (0,)),
        ({"y": ("Identity", ["x"])}, ()),
        ({"y": ("Identity", ["c"]), "z": ("Neg", ["x"])}, (1,)),
        ({"y": ("Neg", ["x"]), "z": ("Identity", ["y"])}, (0,)),
        ({"y,z": ("Split", ["x"], {"axis": 0})}, (0, 1)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_results_of_models(nodes, expected):
    outputs = [name for name in ",".join(nodes).split(",") if name in "yz"]
    used = {operand for node in nodes.values() for operand in node[1]}
    model = program(
        nodes,
        {"x": ("float32", (4, 4))},
        {name: value for name, value in CONSTANTS.items() if name in used},
        outputs=outputs,
    )
    assert owned(from_onnx(model)) == expected


def test_results_in_parameters():
    """An updated parameter, a view of one, and results of their own."""
    nodes = {
        "y": ("ScatterND", ["x", "at", "row"]),
        "z": ("Neg", ["y"]),
        "v": ("Identity", ["w"]),
    }
    inputs = {name: ("float32", (4, 4)) for name in "xw"} | {"row": ("float32", (1, 4))}
    model = program(nodes, inputs, {"at": np.array([[2]])}, outputs=["y", "z", "v"])
    mod = from_onnx(model)
    with tvm.target.Target("llvm"):
        copying, updating = (pipeline()(m) for m in (mod, with_updates(mod, {"x": 0})))
    assert results_in_parameters(copying, "main") == {2: 1}
    assert results_in_parameters(updating, "main") == {0: 0, 2: 1}


def test_two_views_of_one_result():
    """The first one keeps the memory."""

    @I.ir_module
    class Views:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.exp(x)
            z = R.cumsum(y, axis=1)
            return R.reshape(z, (6,)), z, R.reshape(z, (3, 2))

    assert len(owned(Views)) >= 1
    with tvm.target.Target("llvm"):
        lowered = pipeline()(Views)
    machine = relax.VirtualMachine(relax.build(lowered, "llvm", relax_pipeline=None), tvm.cpu())
    results = machine["main"](tvm.runtime.tensor(np.ones((2, 3), "float32")))
    places = [results[index].data_ptr() for index in owned_results(lowered, "main")]
    assert len(set(places)) == len(places)


def test_a_tensor_that_a_callee_keeps():
    @I.ir_module
    class Kept:
        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.exp(x)
            _ = R.call_packed("a.function.that.keeps", y, ty_args=[R.Any])
            z = R.negative(x)
            return y, z

    assert owned(Kept) == (1,)


def test_a_result_of_a_branch():
    @I.ir_module
    class Branches:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")):
            y = R.exp(x)
            if c:
                z = R.negative(x)
            else:
                z = y
            return y, z

    assert owned(Branches) == (0,)


def test_a_result_of_another_function():
    @I.ir_module
    class Called:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            cls = Called
            y = cls.same(x)
            return y

        @R.function
        def same(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return x

    assert owned(Called) == ()


if __name__ == "__main__":
    tvm.testing.main()
