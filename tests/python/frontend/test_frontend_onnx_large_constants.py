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
"""Transposed and dequantized weights keep the size that they have in the model."""

from itertools import pairwise

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import numpy_helper
from tvm import relax

from helpers.growth import assert_grows_linearly
from helpers.onnx_graphs import normal, onnx_runtime, program
from helpers.relax_modules import call
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.analysis import bindings
from tvm_fixes.relax.ir import leaves, tensor_of
from tvm_fixes.support.tensors import nbytes_of
from tvm_fixes.target import resolve

pytestmark = pytest.mark.filterwarnings("ignore:.*")

ROWS, WIDTH = 3000, 64
TOKENS = np.array([[0, 7, ROWS - 1]])


def optimized(model: onnx.ModelProto) -> tvm.IRModule:
    with resolve("llvm"):
        return pipeline()(from_onnx(model))


def constant_bytes(mod: tvm.IRModule) -> int:
    tensors = {
        leaf: tensor_of(leaf)
        for _, function in mod.functions_items()
        if isinstance(function, relax.Function)
        for binding in bindings(function)
        for leaf in leaves(binding.value)
    }
    return sum(nbytes_of(t.shape, str(t.dtype)) for t in tensors.values() if t is not None)


def weight_bytes(model: onnx.ModelProto) -> int:
    return sum(numpy_helper.to_array(tensor).nbytes for tensor in model.graph.initializer)


def assert_as_onnx_runtime(model: onnx.ModelProto, *inputs: np.ndarray) -> None:
    executable = relax.build(from_onnx(model), resolve("llvm"), relax_pipeline=pipeline())
    got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", *inputs)
    [expected] = onnx_runtime(model, *inputs)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def tied() -> onnx.ModelProto:
    """An embedding that is also the weight of the last layer."""
    nodes = {
        "rows": ("Gather", ["w", "tokens"]),
        "t": ("Transpose", ["w"], {"perm": [1, 0]}),
        "y": ("MatMul", ["rows", "t"]),
    }
    return program(nodes, {"tokens": ("int64", (1, 3))}, {"w": normal(ROWS, WIDTH)})


def dequantized() -> onnx.ModelProto:
    """An embedding and a weight of 8 bits, which Cast and Mul dequantize."""
    rng = np.random.default_rng(0)
    weights = {name: rng.integers(-127, 128, (ROWS, WIDTH)).astype("int8") for name in ("e", "w")}
    constants = weights | {"w": weights["w"].T.copy()}
    constants |= {"se": np.abs(normal(ROWS, 1)) / 99, "sw": np.abs(normal(1, ROWS)) / 99}
    nodes = {
        "ec": ("Cast", ["e"], {"to": 1}),
        "em": ("Mul", ["ec", "se"]),
        "rows": ("Gather", ["em", "tokens"]),
        "wc": ("Cast", ["w"], {"to": 1}),
        "wm": ("Mul", ["wc", "sw"]),
        "y": ("MatMul", ["rows", "wm"]),
    }
    return program(nodes, {"tokens": ("int64", (1, "n"))}, constants)


@pytest.mark.parametrize("make", (tied, dequantized))
def test_weights_do_not_grow(make) -> None:
    model = make()
    assert constant_bytes(optimized(model)) < 1.1 * weight_bytes(model)
    assert_as_onnx_runtime(model, TOKENS)


def test_only_rows_are_dequantized() -> None:
    mod = from_onnx(dequantized())
    taken = [b for b in bindings(mod["main"]) if "relax.take" in str(getattr(b.value, "op", ""))]
    assert sorted(str(b.value.args[0].ty.dtype) for b in taken) == ["float32", "int8"]


def test_an_operand_with_as_many_rows_but_fewer_axes_is_broadcast() -> None:
    """Its first axis is the second one of the table."""
    nodes = {
        "float": ("Cast", ["scale"], {"to": 1}),
        "table": ("Mul", ["w", "float"]),
        "y": ("Gather", ["table", "tokens"]),
    }
    constants = {"w": normal(4, 4, 8192), "scale": normal(4, 8192).astype("float16")}
    model = program(nodes, {"tokens": ("int64", (4,))}, constants)
    assert_as_onnx_runtime(model, np.array([3, 0, 0, 1]))


def test_rows_of_a_long_chain_take_linear_time() -> None:
    """The operands of a table are not searched along all paths to the inputs."""

    def make(blocks: int) -> tvm.IRModule:
        names = ["x", *(f"x{i}" for i in range(5 * blocks))]
        nodes = {new: ("Add", [old, old]) for old, new in pairwise(names)}
        nodes["y"] = ("Gather", [names[-1], "tokens"])
        return from_onnx(program(nodes, {"x": ("float32", (8, 4))}, {"tokens": np.array([1, 5])}))

    assert_grows_linearly(make)


def test_small_constants_are_computed() -> None:
    nodes = {"t": ("Transpose", ["w"]), "y": ("MatMul", ["x", "t"])}
    model = program(nodes, {"x": ("float32", (2, 8))}, {"w": normal(4, 8)})
    assert [str(b.value.op.name) for b in bindings(from_onnx(model)["main"])] == ["relax.matmul"]


if __name__ == "__main__":
    tvm.testing.main()
