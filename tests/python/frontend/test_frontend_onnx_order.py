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
"""Nodes in any order."""

import time

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import helper

import tvm_fixes
from helpers.growth import assert_linear
from helpers.models import onnx_model
from helpers.onnx_graphs import (
    assert_follows_onnx_runtime,
    imported_and_run,
    normal,
    program,
)
from tvm_fixes.debug import compare
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.graph.order import in_order

pytestmark = pytest.mark.filterwarnings("ignore:.*")

INPUTS = {"x": ("float32", ("n", 3))}


def chain(*order: int) -> onnx.ModelProto:
    """Four nodes, each of which reads the one before, in another order."""
    nodes = [("Relu", ["x"]), ("Neg", ["v0"]), ("Exp", ["v1"]), ("Add", ["v2", "v0"])]
    return program({f"v{i}": nodes[i] for i in order}, INPUTS, outputs=("v3",))


@pytest.mark.parametrize("order", ((3, 2, 1, 0), (1, 3, 0, 2)))
def test_nodes_in_any_order(order: tuple[int, ...]) -> None:
    model = chain(*order)
    assert_follows_onnx_runtime(from_onnx, model, [normal(2, 3)], [normal(1, 3)], rtol=1e-6)
    assert [node.name for node in model.graph.node] == [f"v{i}" for i in order]
    assert [node.name for node in in_order(model).graph.node] == ["v0", "v1", "v2", "v3"]


def test_only_nodes_that_are_read_too_early_move() -> None:
    model = chain(0, 1, 2, 3)
    assert in_order(model) is model
    nodes = {
        "a": ("Relu", ["late"]),
        "b": ("Relu", ["x"]),
        "c": ("Add", ["a", "b"]),
        "late": ("Neg", ["x"]),
    }
    ordered = in_order(program(nodes, INPUTS, outputs=("c",)))
    assert [node.name for node in ordered.graph.node] == ["late", "a", "b", "c"]


def model_with_branch(*names: str) -> onnx.ModelProto:
    """A branch with nodes in this order; it reads a value whose node comes after the If."""
    nodes = {"z": ("Add", ["t", "late"]), "t": ("Exp", ["x"])}
    branch = program({name: nodes[name] for name in names}, INPUTS, outputs=("z",))
    other = program({"z": ("Relu", ["x"])}, INPUTS, outputs=("z",))
    for model in (branch, other):
        del model.graph.input[:]
    graphs = {"then_branch": branch.graph, "else_branch": other.graph}
    nodes = {"z": ("If", ["condition"], graphs), "late": ("Neg", ["x"])}
    return program(nodes, INPUTS | {"condition": ("bool", ())}, outputs=("z",))


def test_nested_graphs_and_functions() -> None:
    x = normal(2, 3)
    runs = [[x, np.array(flag)] for flag in (True, False)]
    assert_follows_onnx_runtime(from_onnx, model_with_branch("t", "z"), *runs, rtol=1e-6)
    [got] = imported_and_run(from_onnx, model_with_branch("z", "t"), *runs[0])
    np.testing.assert_allclose(got, np.exp(x) - x, rtol=1e-6)

    body = [helper.make_node("Neg", ["t"], ["r"]), helper.make_node("Exp", ["a"], ["t"])]
    opsets = [helper.make_opsetid("", 17)]
    model = onnx_model(
        [helper.make_node("F", ["x"], ["y"], domain="own")], [("x", 1, ["n"])], [("y", 1, None)]
    )
    model.functions.append(helper.make_function("own", "F", ["a"], ["r"], body, opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    x = normal(3)
    [got] = imported_and_run(from_onnx, model, x)
    np.testing.assert_allclose(got, -np.exp(x), rtol=1e-6)


def test_unordered_nodes_compile_and_compare() -> None:
    model = chain(3, 2, 1, 0)
    assert tvm_fixes.compile(model).report.equal
    assert [value.name for value in compare(model).values] == ["v0", "v1", "v2", "v3"]


def test_cycles() -> None:
    nodes = {"a": ("Add", ["x", "c"]), "b": ("Relu", ["a"]), "c": ("Neg", ["b"])}
    model = program(nodes, INPUTS, outputs=("b",))
    with pytest.raises(ValueError, match=r"'b' depends on its own result, through .*'a', .*'c'"):
        from_onnx(model)
    with pytest.raises(tvm_fixes.CompileError, match="depends on its own result"):
        tvm_fixes.compile(model)
    with pytest.raises(ValueError, match="Relu at node 'a' depends on its own result"):
        from_onnx(program({"a": ("Relu", ["a"])}, INPUTS, outputs=("a",)))


def test_time_grows_linearly() -> None:
    seconds = {}
    for count in (2000, 4000, 8000):
        nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)][::-1]
        model = onnx_model(nodes, [("v0", 1, ["n"])], [(f"v{count}", 1, None)])
        start = time.process_time()
        in_order(model)
        seconds[count] = time.process_time() - start
    assert_linear(seconds, factor=3, slack=1e-4)


if __name__ == "__main__":
    tvm.testing.main()
