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
"""The inputs and sizes that models are compared with."""

import itertools
import re

import numpy as np
import pytest
import torch
import tvm.testing
from onnx import TensorProto, helper
from torch import nn

from helpers.models import onnx_model
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.debug import compare
from tvm_fixes.debug import profile as profile_model
from tvm_fixes.errors import InputError, UsageError
from tvm_fixes.runtime.manifest import TensorSpec
from tvm_fixes.source import open_source
from tvm_fixes.source.examples import Example, candidates

F = TensorProto.FLOAT


def shrinking():
    """Five convolutions that halve an image, which must leave at least one element."""
    weights = {"w": np.random.default_rng(0).standard_normal((1, 1, 3, 3)).astype("float32")}
    names = ["image", "c0", "c1", "c2", "c3", "c4"]
    nodes = [
        helper.make_node("Conv", [before, "w"], [after], strides=[2, 2])
        for before, after in itertools.pairwise(names)
    ]
    nodes.append(helper.make_node("ReduceMean", ["c4"], ["y"], axes=[2, 3], keepdims=0))
    image = ("image", F, ["N", 1, "h", "w"])
    return onnx_model(nodes, [image], [("y", F, ["N", 1])], weights)


def embedding(rows=5):
    """Rows of a table for ids, without those that a mask excludes."""
    table = np.random.default_rng(0).standard_normal((rows, 4)).astype("float32")
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "wide"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axis"], ["y"], keepdims=0),
    ]
    weights = {"table": table, "axis": np.array([1])}
    ids = ("ids", TensorProto.INT32, ["N", "seq"])
    return onnx_model(nodes, [ids], [("y", F, ["N", 4])], weights)


def test_sizes_that_the_reference_accepts():
    report = compile_model(shrinking()).report
    assert report.equal and report.sizes == {"N": 1, "h": 64, "w": 64}
    assert str(report.sizes["h"]) in report.to_json()
    report = compile_model(embedding()).report
    assert report.equal and report.sizes == {"N": 2, "seq": 32}


def test_values_that_the_reference_accepts():
    """A logarithm of negative numbers is NaN."""
    model = onnx_model(
        [helper.make_node("Log", ["x"], ["y"])], [("x", F, [3, 4])], [("y", F, [3, 4])]
    )
    [output] = compile_model(model).report.outputs
    assert output.equal and output.max_abs_error < 1e-6
    source = open_source(model)
    rng = np.random.default_rng(0)
    assert np.all(source.example_inputs(rng, Example(values="positive"))[0] >= 0)


def test_indices_are_from_all_rows():
    source = open_source(embedding(1000))
    [ids] = source.example_inputs(np.random.default_rng(0))
    assert ids.shape == (2, 32) and ids.dtype == np.int32
    assert 900 < ids.max() < 1000 and ids.min() >= 0
    assert compile_model(embedding()).report.equal


def test_given_sizes_and_inputs(tmp_path):
    model = embedding()
    compiled = compile_model(model, sizes={"seq": 7})
    assert compiled.report.sizes == {"N": 2, "seq": 7}
    assert compiled.inputs[0].shape == ("N", "seq")
    ids = np.full((3, 11), 4, "int32")
    np.savez(tmp_path / "ids.npz", ids=ids)
    for inputs in ({"ids": ids}, tmp_path / "ids.npz"):
        compiled = compile_model(model, inputs=inputs)
        assert compiled.report.equal and compiled.report.sizes == {"N": 3, "seq": 11}
    assert compare(model, sizes={"seq": 3, "N": 1}).outputs[0].shape == [1, 4]
    assert profile_model(compiled, sizes={"N": 1, "seq": 4}, seconds=0.01).kernels


def test_given_sizes_of_a_pytorch_program():
    module = (nn.Linear(4, 2).eval(), (torch.zeros(2, 4),))
    report = compile_model(module, shapes={"input": ("rows", 4)}, sizes={"rows": 9}).report
    assert report.sizes == {"rows": 9} and report.outputs[0].shape == [9, 2]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sizes": {"M": 4}}, "size given for unknown dim 'M'; symbolic dims of .*: N, seq"),
        ({"sizes": {"N": -1}}, "dim 'N' of .*: expected a size, got -1"),
        ({"inputs": {"x": np.zeros(2)}}, "expected the inputs ids, got x: missing ids, unknown x"),
        (
            {"inputs": {"ids": np.zeros((2, 3))}},
            r"input 'ids': expected int32 \(N, seq\), got float64 \(2, 3\)",
        ),
        (
            {"inputs": {"ids": np.zeros(2, "int32")}},
            r"input 'ids': expected int32 \(N, seq\), got int32 \(2\)",
        ),
        ({"inputs": {"ids": np.full((1, 1), 9, "int32")}}, "the reference fails with inputs ids"),
    ],
)
def test_options_that_do_not_fit_the_model(options, message):
    with pytest.raises(Exception, match=message):
        compile_model(embedding(), **options)


def test_inputs_that_contradict_each_other():
    model = onnx_model(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        [("a", F, ["n", 2]), ("b", F, ["n", 2])],
        [("y", F, ["n", 2])],
    )
    inputs = {"a": np.zeros((3, 2), "f4"), "b": np.zeros((4, 2), "f4")}
    message = (
        "input 'b': n is 3 on axis 0 of input 'a' and 4 on axis 0 of input 'b'; expected equal "
        "sizes, or compile with other names of the dims (--shape for each of the inputs)"
    )
    with pytest.raises(UsageError, match=re.escape(message)):
        compile_model(model, inputs=inputs)


def test_dims_of_one_name_and_two_sizes_get_two_names():
    model = onnx_model(
        [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Abs", ["b"], ["z"])],
        [("a", F, ["n", 2]), ("b", F, ["n", 2])],
        [("y", F, ["n", 2]), ("z", F, ["n", 2])],
    )
    inputs = {"a": np.ones((3, 2), "f4"), "b": np.ones((4, 2), "f4")}
    with pytest.raises(InputError, match="n is 3 on axis 0 of input 'a' and 4 on axis 0 of input"):
        compile_model(model, compare=False).run(**inputs)
    compiled = compile_model(model, shapes={"a": ("n", 2), "b": ("m", 2)}, inputs=inputs)
    assert [array.shape for array in compiled.run(**inputs)] == [(3, 2), (4, 2)]


def test_candidates():
    image = TensorSpec("x", ("N", 3, "h", "w"), "float32")
    tried = list(candidates([image]))
    assert tried[0] == Example() and tried[1].batch == 1
    assert [each.image for each in tried[2:6]] == [64, 224, 320, 640]
    assert {each.extent for each in tried} == {32}
    last = TensorSpec("x", ("N", "h", "w", 3), "float32")
    assert [Example(image=5).size_of(last, axis) for axis in (0, 1, 2)] == [2, 5, 5]
    tokens = TensorSpec("lengths", ("N",), "int64")
    assert [each.values for each in candidates([tokens])] == ["usual"] * 2 + ["ones"] * 2 + [
        "zeros"
    ] * 2
    rng = np.random.default_rng(0)
    assert Example(extent=9, values="ones").draw(rng, tokens, (2,)).tolist() == [9, 9]
    assert Example().draw(rng, TensorSpec("p", None, "uint8"), (9, 9, 3)).max() > 200
    assert len(list(candidates([TensorSpec("x", (3,), "float32")]))) == 2


if __name__ == "__main__":
    tvm.testing.main()
