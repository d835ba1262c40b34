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
"""``tvm_fixes.check`` names all unsupported operators, and what else prevents an import."""

import json

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import TensorProto, helper

import tvm_fixes
from helpers import grids
from tests.fuzz import onnx_models
from tvm_fixes import relay
from tvm_fixes.errors import CompileError, UnsupportedOperatorError, UsageError
from tvm_fixes_cli import main


def onnx_model(*nodes, functions=(), domains=("",)):
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])  # noqa: E731
    graph = helper.make_graph(list(nodes), "g", [value("x")], [value("y")])
    opsets = [helper.make_opsetid(domain, 1 if domain else 20) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def node(operator, *names, **attributes):
    return helper.make_node(operator, [names[0]], [names[1]], name=operator.lower(), **attributes)


def summary(found):
    return [(one.name, one.calls, one.places, bool(one.problem)) for one in found.operators]


def test_all_unsupported_onnx_operators_are_listed():
    """Also those of unknown domains; operators that ONNX defines by others are supported."""
    model = onnx_model(
        node("Relu", "x", "a"),
        node("Foo", "a", "b", domain="unknown"),
        node("ImageDecoder", "b", "c"),
        node("Celu", "c", "d"),
        node("Relu", "d", "y"),
        domains=("", "unknown"),
    )
    found = tvm_fixes.check(model)
    assert summary(found) == [
        ("ImageDecoder", 1, ["node 'imagedecoder'"], True),
        ("unknown.Foo", 1, ["node 'foo'"], True),
        ("Relu", 2, [], False),
        ("Celu", 1, [], False),
    ]
    assert not found.ok


def test_remedies():
    """Both a check and a compilation say how to convert a model of scikit-learn instead."""
    model = onnx_model(
        node("CategoryMapper", "x", "y", domain="ai.onnx.ml", cats_int64s=[0, 1]),
        domains=("", "ai.onnx.ml"),
    )
    [found] = tvm_fixes.check(model).unsupported
    assert found.name == "ai.onnx.ml.CategoryMapper"
    assert "map categories to integers" in found.problem
    with pytest.raises(UnsupportedOperatorError, match=r"node 'categorymapper'.*map categories"):
        tvm_fixes.compile(model)


def test_operators_of_branches_and_functions():
    branch = helper.make_graph(
        [helper.make_node("ImageDecoder", ["x"], ["o"], name="nested")],
        "branch",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, [2, 3])],
    )
    condition = helper.make_node(
        "Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True])
    )
    function = helper.make_function(
        "own", "F", ["i"], ["o"], [node("Gradient", "i", "o")], [helper.make_opsetid("", 20)]
    )
    model = onnx_model(
        condition,
        node("If", "c", "a", then_branch=branch, else_branch=branch),
        node("F", "a", "y", domain="own"),
        functions=[function],
        domains=("", "own"),
    )
    unsupported = tvm_fixes.check(model).unsupported
    assert [(one.name, one.calls) for one in unsupported] == [("ImageDecoder", 2), ("Gradient", 1)]


def test_the_file_needs_no_weights(tmp_path):
    path = tmp_path / "model.onnx"
    model = onnx_model(helper.make_node("Add", ["x", "w"], ["a"]), node("ImageDecoder", "a", "y"))
    weight = np.ones((2, 3), "float32")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert [one.name for one in tvm_fixes.check(path).unsupported] == ["ImageDecoder"]


def test_attributes_are_checked_by_an_import():
    found = tvm_fixes.check(onnx_model(node("Cast", "x", "y", to=TensorProto.STRING)))
    assert not found.unsupported
    assert "Cast" in found.problem
    assert not found.ok
    assert tvm_fixes.check(onnx_model(node("Relu", "x", "y"))).ok


def broken(seed):
    """A random graph, one of whose nodes may have an unsupported operator or attribute."""
    model = onnx_models.make_graph(seed).model()
    rng = np.random.default_rng(seed)
    chosen = model.graph.node[int(rng.integers(len(model.graph.node)))]
    kind = int(rng.integers(4))
    if kind == 0:
        chosen.op_type = "Foo"
    elif kind == 1:
        chosen.domain = "com.acme"
        model.opset_import.append(helper.make_opsetid("com.acme", 1))
    elif kind == 2:
        output = chosen.output[0]
        chosen.CopyFrom(
            helper.make_node("Cast", chosen.input[:1], [output], name="text", to=TensorProto.STRING)
        )
    return model


@pytest.mark.parametrize("seed", grids.sample(range(0, 36), 12))
def test_check_and_compile_agree(seed):
    model = broken(seed)
    found = tvm_fixes.check(model)
    if found.ok:
        tvm_fixes.compile(model, compare=False)
        return
    with pytest.raises(CompileError) as error:
        tvm_fixes.compile(model, compare=False)
    assert error.value.stage in ("load", "import")
    if found.problem:
        assert error.value.message == found.problem
    for operator in found.unsupported:
        assert operator.name in error.value.message


class Decomposition(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eig(x)[0].real + torch.nn.functional.silu(x).sum()


def test_pytorch_operators():
    program = torch.export.export(Decomposition(), (torch.rand(3, 3),))
    found = tvm_fixes.check(program)
    assert "aten.linalg_eig.default" in [one.name for one in found.unsupported]
    assert {"aten.sigmoid.default", "aten.mul.Tensor"} <= {one.name for one in found.operators}
    assert tvm_fixes.check((torch.nn.Linear(3, 2).eval(), (torch.rand(1, 3),))).ok


def test_relay_operators(tmp_path):
    path = tmp_path / "old.relay"
    path.write_text("def @main(%x: Tensor[(2), float32]) { annotation.stop_fusion(nn.relu(%x)) }")
    found = tvm_fixes.check(path)
    assert found.ok and {one.name for one in found.operators} >= {"nn.relu"}
    assert tvm_fixes.check(relay.parse(path.read_text())).ok


def test_command(tmp_path, capsys):
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    onnx.save(onnx_model(node("Relu", "x", "y")), good)
    onnx.save(onnx_model(node("ImageDecoder", "x", "y")), bad)
    assert main(["check", str(good)]) == 0
    assert "can be imported" in capsys.readouterr().out
    assert main(["check", str(bad), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["operators"][0]["places"] == ["node 'imagedecoder'"]
    assert main(["check", str(bad)]) == 1
    assert "unsupported operators: 1, in calls: 1" in " ".join(capsys.readouterr().out.split())
    assert main(["check", str(tmp_path / "none.onnx")]) == 2


def test_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        tvm_fixes.check(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="unknown input"):
        tvm_fixes.check(onnx_model(node("Relu", "x", "y")), {"z": [1]})


if __name__ == "__main__":
    tvm.testing.main()
