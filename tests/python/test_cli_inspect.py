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
"""``tvm-fixes inspect`` of a model: what it is, at once."""

import json
import subprocess
import sys
import time
import zipfile

import numpy as np
import onnx
import pytest
import torch
import tvm.testing
from onnx import TensorProto, defs, helper, numpy_helper

from helpers.growth import assert_linear
from tvm_fixes.frontend.onnx.graph.preflight import operators_of
from tvm_fixes.source import open_source
from tvm_fixes_cli import main, onnx_description, torch_description
from tvm_fixes_cli.terminal import Failure

FLOAT = TensorProto.FLOAT


def onnx_model(nodes=(), functions=()):
    """A model with a branch, weights of three dtypes, and an optional input."""
    inner = helper.make_graph(
        [helper.make_node("Add", ["y", "b"], ["sum"])],
        "inner",
        [],
        [helper.make_tensor_value_info("sum", FLOAT, None)],
        [numpy_helper.from_array(np.ones(4, "float32"), "b")],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["y"], ["same"])],
        "other",
        [],
        [helper.make_tensor_value_info("same", FLOAT, None)],
    )
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=other),
            *nodes,
        ],
        "graph",
        [
            helper.make_tensor_value_info("x", FLOAT, ["batch", 3, None]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_value_info("o", optional),
            helper.make_tensor_value_info("w", FLOAT, [8, 4]),
        ],
        [helper.make_tensor_value_info("z", FLOAT, None)],
        [
            numpy_helper.from_array(np.ones((8, 4), "float32"), "w"),
            helper.make_tensor("q", TensorProto.INT4, [5], b"\0\0\0", raw=True),
            helper.make_tensor("h", TensorProto.BFLOAT16, [3], b"\0" * 6, raw=True),
        ],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.acme", 2)]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    model.producer_name, model.producer_version = "a tool", "1.5"
    return model


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shown(capfd):
    """Run the command; return the words of each line, and the commands to use next."""

    def run(*words, status=0):
        assert main(["inspect", *words]) == status
        out, err = capfd.readouterr()
        if status:
            assert not out
            assert err.startswith("tvm-fixes: error: ") and err.count("\n") == 1
            return err
        assert not err
        lines = [line.split(maxsplit=1) for line in out.splitlines()]
        return [tuple(line) for line in lines]

    return run


@pytest.mark.usefixtures("here")
class TestOnnx:
    def test_for_a_person(self, shown):
        onnx.save(onnx_model(), "m.onnx")
        ir_version = onnx_model().ir_version
        assert shown("m.onnx") == [
            ("model", "m.onnx"),
            ("format", f"ONNX, IR version {ir_version}, opset ai.onnx 18, com.acme 2"),
            ("producer", "a tool 1.5"),
            ("input", "x: float32 (batch, 3, ?)"),
            ("input", "c: bool ()"),
            ("input", "o: optional of float32 (2)"),
            ("output", "z: float32 (unknown rank)"),
            ("nodes", "4: MatMul 1, If 1, Identity 1, Add 1"),
            ("weights", "float32 144 B, bfloat16 6 B, int4 3 B"),
            ("next:", "tvm-fixes compile m.onnx --output out/"),
            ("compile", "it, and compare it with ONNX Runtime"),
            ("next:", "tvm-fixes compare m.onnx"),
            ("if", "the outputs differ: the first node whose result does"),
        ]

    def test_json(self, capfd):
        onnx.save(onnx_model([helper.make_node("Foo", ["z"], [], domain="com.acme")]), "m.onnx")
        assert main(["inspect", "m.onnx", "--json"]) == 0
        document = json.loads(capfd.readouterr().out)
        assert document["inputs"][0] == {
            "name": "x",
            "dtype": "float32",
            "shape": ["batch", 3, "?"],
        }
        assert document["outputs"] == [{"name": "z", "dtype": "float32", "shape": None}]
        assert document["nodes"] == sum(document["operators"].values()) == 5
        assert document["unsupported"] == ["com.acme.Foo"]
        assert document["next"] == ["tvm-fixes check m.onnx"]

    def test_external_weights(self, here, shown):
        model = onnx_model()
        onnx.save(model, "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
        size = (here / "w.bin").stat().st_size
        assert ("external", f"w.bin, {size} B") in shown("m.onnx")
        (here / "w.bin").write_bytes(b"\0" * 20)
        [(_, missing)] = [line for line in shown("m.onnx") if line[0] == "missing"]
        assert missing == f"w.bin: 20 bytes, where the model needs {size}"
        (here / "w.bin").unlink()
        lines = shown("m.onnx")
        assert ("missing", "w.bin: no such file in .; weights in it: 4") in lines
        assert not [line for line in lines if line[0] == "next:"]

    def test_weights_outside_of_the_folder_are_not_looked_at(self, here, shown):
        (here / "inner").mkdir()
        onnx.save(
            onnx_model(), "m.onnx", save_as_external_data=True, location="w", size_threshold=0
        )
        model = onnx.load("m.onnx", load_external_data=False)
        for entry in model.graph.initializer[0].external_data:
            entry.value = "../w" if entry.key == "location" else entry.value
        (here / "inner" / "m.onnx").write_bytes(model.SerializeToString())
        lines = shown("inner/m.onnx")
        assert ("missing", "../w: not in the folder of the model") in lines

    def test_only_operators_without_a_converter_are_unsupported(self):
        """Of all that ONNX defines, and some of ONNX Runtime's; functions of the model count."""
        runtime = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
        known = [*defs.get_all_schemas(), *runtime.get_all_operator_schema()]
        names = sorted({(one.domain, one.name) for one in known} | {("com.acme", "Relu")})
        nodes = [
            helper.make_node(name, [], [f"out{place}"], domain=domain)
            for place, (domain, name) in enumerate(names)
        ]
        outputs = [helper.make_tensor_value_info(n.output[0], FLOAT, None) for n in nodes]
        opsets = [
            helper.make_opsetid(domain, version)
            for domain, version in (("", 23), ("ai.onnx.ml", 3), ("com.microsoft", 1))
        ]
        graph = helper.make_graph(nodes, "graph", [], outputs)
        model = helper.make_model(graph, opset_imports=opsets)
        unsupported = {one.name for one in operators_of(model) if one.problem == "no converter"}
        assert len(names) > 350 and len(unsupported) > 100
        found = set(onnx_description.unsupported(model, nodes))
        assert found <= unsupported
        assert len(unsupported - found) <= 3

    def test_a_function_of_the_model_is_supported(self, shown):
        body = [helper.make_node("Relu", ["a"], ["b"])]
        opsets = [helper.make_opsetid("", 18)]
        function = helper.make_function("com.acme", "Foo", ["a"], ["b"], body, opsets)
        node = helper.make_node("Foo", ["z"], ["f"], domain="com.acme")
        onnx.save(onnx_model([node], [function]), "m.onnx")
        assert not [line for line in shown("m.onnx") if line[0] == "unsupported"]

    def test_time_grows_with_the_number_of_nodes(self):
        seconds = {}
        for count in (1000, 2000, 4000, 8000):
            nodes = [helper.make_node("Relu", ["x"], [f"r{n}"]) for n in range(count)]
            onnx.save(onnx_model(nodes), "m.onnx")
            start = time.process_time()
            assert onnx_description.describe("m.onnx").operators["Relu"] == count
            seconds[count] = time.process_time() - start
        assert_linear(seconds, factor=5, slack=0.5 / 1000)


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 5)
        self.tied = self.linear
        self.register_buffer("halves", torch.ones(3, dtype=torch.bfloat16))

    def forward(self, x, rest, *, scale, flag=True):
        y = self.tied(self.linear(x)[:, :4] * scale) + self.halves.sum()
        return {"y": y, "more": [torch.cat([x, x]), rest["k"][0].nonzero(), 3]}


def nested():
    batch = torch.export.Dim("batch", min=2, max=64)
    return (
        Nested().eval(),
        (torch.ones(3, 4), {"k": [torch.ones(3, 1)]}),
        {"scale": torch.tensor(2.0)},
        ({0: batch}, {"k": [{0: batch}]}, None),
    )


def write_changed(path, old, new):
    """Write ``m.pt2`` with other bytes in its members."""
    with zipfile.ZipFile("m.pt2") as archive, zipfile.ZipFile(path, "w") as changed:
        for name in archive.namelist():
            changed.writestr(name, archive.read(name).replace(old, new))


def same_signature(description, source):
    found = [(value.name, value.dtype, value.shape) for value in description.inputs]
    assert found == [(spec.name, spec.dtype, spec.shape) for spec in source.inputs]
    assert [value.name for value in description.outputs] == list(source.output_names)
    assert sum(description.weights.values()) == source.parameter_bytes


@pytest.mark.usefixtures("here")
class TestTorch:
    @pytest.fixture
    def program(self, here):
        module, args, kwargs, dims = nested()
        program = torch.export.export(module, args, kwargs, dynamic_shapes=dims)
        torch.export.save(program, here / "m.pt2")
        return program

    def test_a_file_and_its_program_have_the_same_signature(self, program):
        source = open_source("m.pt2")
        by_file = torch_description.describe("m.pt2")
        by_program = torch_description.describe_program(source)
        same_signature(by_file, source)
        assert by_program.inputs == by_file.inputs
        assert by_program.weights == by_file.weights == {"float32": 100, "bfloat16": 6}
        assert by_program.dims == by_file.dims
        pairs = zip(by_program.outputs, by_file.outputs, strict=True)
        assert [(a.name, a.dtype) for a, _ in pairs] == [(b.name, b.dtype) for b in by_file.outputs]

    def test_for_a_person(self, program, shown):
        lines = shown("m.pt2")
        batch = open_source("m.pt2").inputs[0].shape[0]
        assert ("input", f"rest.k.0: float32 ({batch}, 1)") in lines
        assert ("output", f"y: float32 ({batch}, 5)") in lines
        assert ("producer", f"PyTorch {torch.__version__}") in lines
        assert [line for key, line in lines if key == "next:"] == [
            "tvm-fixes compile m.pt2 --output out/",
            "tvm-fixes compare m.pt2",
        ]

    def test_the_options_that_a_program_needs(self, program, shown, here):
        """Here, a structure of another package's type takes the place of a dict."""
        write_changed("o.pt2", b"builtins.dict", b"my.types.Dict")
        [compile_, _] = [line for key, line in shown("o.pt2") if key == "next:"]
        assert compile_ == "tvm-fixes compile o.pt2 --output out/ --trust --import my.types"
        (here / "other.py").touch()
        words = ["o.pt2", "--import", "other.py"]
        [_, compare] = [line for key, line in shown(*words) if key == "next:"]
        assert compare == "tvm-fixes compare o.pt2 --trust --import other.py"

    def test_a_context_that_is_not_keys(self, program):
        """Such as that of a cache of transformers: its parts are numbered."""
        write_changed("o.pt2", b'[\\\\\\"k\\\\\\"]', b'[[\\\\\\"k\\\\\\"]]')
        inputs = torch_description.describe("o.pt2").inputs
        assert [value.name for value in inputs] == ["x", "rest.0.0", "scale"]

    def test_a_factory_is_called(self, here, shown):
        (here / "factory.py").write_text(
            "import torch\ndef make():\n    return torch.nn.ReLU().eval(), (torch.ones(2, 3),)\n"
        )
        lines = shown("factory.py:make")
        assert ("input", "input: float32 (2, 3)") in lines
        assert ("nodes", "1: aten.relu.default 1") in lines

    @pytest.mark.parametrize(
        "make, message",
        [
            (lambda: torch.save({"a": torch.ones(2)}, "w.pt2"), "it is a checkpoint (torch.save)"),
            (
                lambda: torch.jit.save(torch.jit.script(torch.nn.ReLU()), "w.pt2"),
                "it is a TorchScript archive",
            ),
        ],
    )
    def test_other_files_of_pytorch(self, make, message, shown):
        make()
        assert message in shown("w.pt2", status=1)

    def test_a_malformed_program(self, program, here, shown):
        write_changed("o.pt2", b'"tensor_values"', b'"values"')
        assert "another format (KeyError: 'tensor_values')" in shown("o.pt2", status=1)
        (here / "o.pt2").write_bytes((here / "m.pt2").read_bytes()[:5000])
        assert "o.pt2: not a file of torch.export.save: truncated" in shown("o.pt2", status=1)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["w.onnx", "w.pt2", "w.bin"])
@pytest.mark.parametrize(
    "head, message",
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a pointer of Git LFS"),
        (b"\x1c\0\0\0TFL3\x14\0\x20\0", "it is a TFLite model"),
        (b"\x89HDF\r\n\x1a\n", "it is an HDF5 file"),
        (b"<!DOCTYPE html>\n", "it is a page of HTML"),
        (b"hello\n", "it is a text file"),
        (b"", "it is empty"),
    ],
)
def test_a_wrong_file_is_named(name, head, message, here, shown, capfd):
    (here / name).write_bytes(head)
    assert message in shown(name, status=1)
    if name == "w.onnx" and message != "it is a text file":
        assert main(["compile", name]) == 1
        assert f"w.onnx: not a readable ONNX file: {message}" in capfd.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_truncated_onnx_file(here, shown):
    (here / "m.onnx").write_bytes(onnx_model().SerializeToString()[:200])
    assert "m.onnx: not a readable ONNX file: truncated" in shown("m.onnx", status=1)
    (here / "m.onnx").write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    assert "no IR version, opset or outputs" in shown("m.onnx", status=1)


def test_nothing_heavy_is_loaded(here):
    onnx.save(onnx_model(), "m.onnx")
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), "m.pt2")
    program = (
        "import sys, tvm_fixes_cli\n"
        "assert tvm_fixes_cli.main(['inspect', 'm.pt2']) == 0\n"
        "assert not {'numpy', 'onnx'} & set(sys.modules)\n"
        "assert tvm_fixes_cli.main(['inspect', 'm.onnx']) == 0\n"
        "assert not {'tvm', 'tvm_ffi', 'torch', 'tvm_fixes', 'rich'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_file_that_is_larger_inside(here):
    """The size of a member is not the size of the file: a small zip file may hold gigabytes."""
    with zipfile.ZipFile("m.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/models/model.json", " " * 1_000_000 + "{}")
    with pytest.raises(Failure, match=r"model\.json is larger than the file"):
        torch_description.describe("m.pt2")


if __name__ == "__main__":
    tvm.testing.main()
