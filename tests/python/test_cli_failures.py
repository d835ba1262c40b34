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
"""Models that nothing can compile: ``check`` and ``compile --quiet`` say why in one sentence."""

import re

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.grids import few
from helpers.onnx_graphs import program, text_model
from tvm_fixes_cli import main

LOOP = """(float[2,3] x, float[9,9] w, int64 n, bool c) => (float[2,3] y) {
    [loop] y = Loop (n, c, x) <body = b (int64 i, bool c0, float[2,3] s0)
        => (bool c1, float[2,3] s1) { [one] c1 = Identity (c0) [inner] s1 = OPERATOR (s0, w) }> }"""
IF = """(float[2,3] x, float[9,9] w, bool c) => (float[2,9] y) {
    [cond] y = If (c) <
        then_branch = t () => (float[2,9] a) { [inner] a = MatMul (x, w) },
        else_branch = e () => (float[2,9] b) { [other] b = Identity (x) }> }"""
SCAN = """(float[2,3] x, float[3] s) => (float[3] f, float[2,3] y) {
    [scan] f, y = Scan (s, x) <num_scan_inputs = 1, body = b (float[3] a, float[3] e)
        => (float[3] g, float[3] h) { [inner] g = Einsum <equation = "i,i->j"> (a, e)
        [other] h = Identity (e) }> }"""

MODELS = {
    "a body of a Loop": (
        LOOP.replace("OPERATOR", "MatMul"),
        r"MatMul at node 'inner': .*\[3, 9\]; expected",
    ),
    "an operator in a Loop": (
        LOOP.replace("OPERATOR", "StringConcat"),
        "unsupported operator StringConcat at",
    ),
    "a branch": (IF, r"MatMul at node 'inner': extents .* are \[3, 9\]; expected equal"),
    "a body of a Scan": (SCAN, "Einsum at node 'inner': attribute equation is i,i->j; expected"),
    "a label only in the result": (
        '(float[2,3] x) => (float y) { [e] y = Einsum <equation = "ij,ik->jq"> (x, x) }',
        "Einsum at node 'e': attribute equation is ij,ik->jq; expected label 'q'",
    ),
    "a domain that is not imported": (
        "(float[2,3] x) => (float[2,3] y) { [foo] y = com.acme.Foo (x) }",
        "unsupported operator com.acme.Foo at node 'foo'",
    ),
    "strings": (
        "(string[3] x) => (string[3] y) { [a] y = Identity (x) }",
        "input 'x': element type is STRING, .* encode them as numbers",
    ),
    "training": (
        "(float[2,3] x, float r) => (float[2,3] y) <bool t = {1}> { [d] y = Dropout (x, r, t) }",
        "Dropout at node 'd': operand training_mode is True; expected a constant false",
    ),
    "a reshape": (
        "(float[2,3] x) => (float[4,5] y) <int64[2] s = {4, 5}> { [r] y = Reshape (x, s) }",
        r"Reshape at node 'r': operand shape is \[4, 5\]; expected the number of elements of",
    ),
    "a shape of unknown rank": (
        "(float[2,3] x, int64[r] s) => (float y) { [r] y = Reshape (x, s) }",
        "Reshape at node 'r': type of shape is .*; expected a scalar or one dimension of static",
    ),
    "a split": (
        "(float[2,3] x) => (float y, float z) <int64[2] s = {1, 1}> "
        "{ [s] y, z = Split <axis = 1> (x, s) }",
        r"Split at node 's': split is \[1, 1\]; expected a sum of 3",
    ),
    "an index": (
        "(float[2,3] x) => (float[1,3] y) <int64[1] i = {7}> { [g] y = Gather (x, i) }",
        "Gather at node 'g': indices are 7 to 7; expected -2 to 1",
    ),
    "dtypes": (
        "(float[2,3] x, int64[2,3] z) => (float[2,3] y) { [a] y = Add (x, z) }",
        "Add at node 'a': operands 0 and 1 are float32 and int64; expected one dtype",
    ),
    "a convolution": (
        "(float[1,3,2,2] x, float[4,3,3,3] w) => (float y) { [c] y = Conv (x, w) }",
        r"Conv at node 'c': shape of X is \[2, 2\]; expected at least 3 elements",
    ),
    "a cycle": (
        "(float[2] x) => (float[2] y) { [n] a = Add (x, b) [m] b = Add (a, x) [o] y = Relu (b) }",
        "Add at node 'm' depends on its own result",
    ),
    "an operand that no node computes": (
        "(float[2] x) => (float[2] y) { [n] y = Add (x, nope) }",
        r"Add at node 'n': undefined operands \['nope'\]",
    ),
    "a sequence": (
        "(seq(float[2]) x) => (float[4] y) { [n] y = ConcatFromSequence <axis = 0> (x) }",
        "input 'x' of .*: expected a tensor, got sequence",
    ),
}


def message_of(capfd, *arguments):
    assert main([*map(str, arguments)]) == 1
    return capfd.readouterr()


def assert_fails(path, capfd, message):
    """Both commands fail with the same sentence, and ``compile`` prints nothing else."""
    checked = " ".join("".join(message_of(capfd, "check", path)).split())
    compiled = message_of(capfd, "compile", "--quiet", path, "-o", path.parent / "out").err
    assert compiled.count("\n") == 1 and compiled.startswith("tvm-fixes: error: ")
    assert re.search(message, compiled), compiled
    assert compiled.count(" node '") <= 3, compiled
    sentence = compiled.removeprefix("tvm-fixes: error: ")
    sentence = " ".join(sentence.split())
    # The table of operators lists what is unsupported.
    assert sentence in checked or "unsupported operator" in sentence
    assert not (path.parent / "out").exists()


@few(8)
@pytest.mark.parametrize("name", MODELS)
def test_models(name, tmp_path, capfd):
    text, message = MODELS[name]
    onnx.save(text_model(text), tmp_path / "model.onnx")
    assert_fails(tmp_path / "model.onnx", capfd, message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x08\x07garbage\xff\xff", "not a readable ONNX file"),
        (b"\x08\x07", "incomplete ONNX model"),
    ],
)
def test_files(data, message, tmp_path, capfd):
    (tmp_path / "model.onnx").write_bytes(data)
    assert_fails(tmp_path / "model.onnx", capfd, message)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("missing.bin", "initializer 'w': its file 'missing.bin' is missing"),
        ("short.bin", r"initializer 'w': shape \[3, 5\] needs 60 bytes, got 3"),
        ("../../etc/passwd", "initializer 'w': its file .* is not in the model's folder"),
    ],
)
def test_external_data(location, message, tmp_path, capfd):
    (tmp_path / "short.bin").write_bytes(b"abc")
    model = program(
        {"y": ("MatMul", ["x", "w"])},
        {"x": ("float32", (2, 3))},
        {"w": np.ones((3, 5), "float32")},
    )
    [weight] = model.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert_fails(tmp_path / "model.onnx", capfd, message)


if __name__ == "__main__":
    tvm.testing.main()
