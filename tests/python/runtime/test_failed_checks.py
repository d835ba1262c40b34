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
"""Inputs that a check within a compiled model rejects."""

import numpy as np
import pytest
import tvm.testing
from onnx import TensorProto, helper, numpy_helper

import tvm_fixes
from tvm_fixes.errors import InputError


def model():
    """A graph whose nodes need ``2*a`` equal to ``b`` or 1, and ``a`` equal to 3."""
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["twice"], axis=0),
        helper.make_node("Add", ["twice", "y"], ["sum"], name="add1"),
        helper.make_node("Reshape", ["z", "shape"], ["six"], name="reshape1"),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim, 2])
        for name, dim in (("x", "a"), ("y", "b"), ("z", "c"))
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("sum", "six")]
    shape = numpy_helper.from_array(np.array([3, 2], "int64"), "shape")
    graph = helper.make_graph(nodes, "checked", inputs, outputs, [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_the_message_names_the_node_and_what_helps() -> None:
    compiled = tvm_fixes.compile(model(), compare=False)

    def run(*extents: int) -> None:
        compiled.run(*(np.ones((extent, 2), "float32") for extent in extents))

    run(2, 4, 3)
    with pytest.raises(InputError) as error:
        run(2, 3, 3)
    assert str(error.value) == (
        "Add 'add1': shapes of the operands: expected extents that are equal or 1; "
        "the inputs have the shapes x (2, 2), y (3, 2), z (3, 2); other sizes (--size, --inputs) "
        "or a model compiled for them (--shape) may be valid"
    )
    with pytest.raises(InputError, match=r"^Reshape 'reshape1': .*, z \(4, 2\); .*--inputs"):
        run(2, 4, 4)


if __name__ == "__main__":
    tvm.testing.main()
