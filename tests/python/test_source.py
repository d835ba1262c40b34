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
"""Sources of tvm_fixes.compile: files, factories, shapes and random inputs."""

import sys
import zipfile

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import helper
from torch import nn
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.compiling import fails
from helpers.grids import is_full
from helpers.models import (
    FLOAT,
    HALF,
    INT64,
    conv_net,
    lookup,
    onnx_conv,
    onnx_model,
    onnx_sum_and_product,
)
from helpers.onnx_graphs import program as onnx_program
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import (
    CompileError,
    UsageError,
)
from tvm_fixes.source import open_source
from tvm_fixes.source.module_file import read_module


@pytest.fixture
def onnx_file(tmp_path):
    onnx.save(onnx_conv(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def pt2_file(tmp_path):
    module, inputs = conv_net()
    torch.export.save(torch.export.export(module, inputs), tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


class TestSources:
    """Results equal the original's, for every source and layout."""

    @pytest.mark.parametrize("layout", [None, "NCHW", "NHWC"] if is_full() else [None, "NHWC"])
    def test_onnx_file(self, onnx_file, layout):
        model = compile_model(onnx_file, layout=layout)
        assert model.report.equal
        assert model.report.reference.startswith("ONNX Runtime")
        assert model.report.source == "model.onnx"
        assert model.report.activation_transforms == (1 if layout == "NHWC" else 0)
        assert model.report.parameter_bytes == 4 * 3 * 3 * 3 * 4

    @pytest.mark.parametrize("layout", [None, "NHWC"] if is_full() else ["NHWC"])
    def test_pt2_file(self, pt2_file, layout):
        model = compile_model(str(pt2_file), layout=layout)
        assert model.report.equal
        assert model.report.reference.startswith("PyTorch")
        assert model.report.activation_transforms == (1 if layout == "NHWC" else 0)

    def test_factory(self):
        model = compile_model("helpers.models:conv_net")
        assert model.report.equal
        module, inputs = conv_net()
        torch.testing.assert_close(model.run(*inputs), module(*inputs), rtol=1e-4, atol=1e-5)

    def test_factory_in_the_working_directory(self, tmp_path, monkeypatch):
        (tmp_path / "of_the_working_directory.py").write_text(
            "import torch\ndef make():\n    return torch.nn.ReLU().eval(), (torch.ones(3),)\n"
        )
        monkeypatch.chdir(tmp_path)
        path = list(sys.path)
        assert compile_model("of_the_working_directory:make").report.equal
        assert sys.path == path

    @pytest.mark.parametrize(
        "made, dims",
        [
            ("module, (x,)", (2, 3)),
            ("module, {'input': x}", (2, 3)),
            ("module, (x,), {}", (2, 3)),
            ("module, (x,), None, ({0: batch},)", (None, 3)),
            ("module, (), {'input': x}, {'input': {0: batch}}", (None, 3)),
            ("torch.export.export(module, (x,))", (2, 3)),
            ("torch.export.export(module, (x,), dynamic_shapes=({0: batch},))", (None, 3)),
        ],
    )
    def test_what_a_factory_in_a_file_returns(self, tmp_path, made, dims):
        (tmp_path / "json.py").write_text(  # the name of a loaded module
            "import torch\n"
            "module, x = torch.nn.Linear(3, 4).eval(), torch.ones(2, 3)\n"
            "batch = torch.export.Dim('batch', min=2, max=64)\n"
            f"def make():\n    return {made}\n"
        )
        [spec] = open_source(f"{tmp_path / 'json.py'}:make").inputs
        assert spec.name == "input"
        assert tuple(dim if isinstance(dim, int) else None for dim in spec.shape) == dims
        module = read_module(f"{tmp_path / 'json.py'}:make")
        assert len(module["main"].params) == 1

    def test_dynamic_shapes_of_a_factory(self):
        module, dim = torch.nn.Linear(3, 4).eval(), torch.export.Dim("batch", max=64)
        made = module, (torch.ones(2, 3),), None, ({0: dim},)
        [name, _] = open_source(made).inputs[0].shape
        model = compile_model(made, sizes={name: 5})
        assert model.report.equal
        assert model.run(np.ones((7, 3), "float32")).shape == (7, 4)

    @pytest.mark.parametrize(
        "made, kinds",
        [
            (lambda x: torch.nn.ReLU().eval(), "ReLU"),
            (lambda x: (torch.nn.ReLU().eval(),), "(ReLU,)"),
            (lambda x: (torch.nn.ReLU().eval(), x), "(ReLU, Tensor)"),
            (lambda x: (torch.nn.ReLU().eval(), (x,), x), "(ReLU, tuple, Tensor)"),
            (lambda x: [torch.nn.ReLU().eval(), (x,)], "list"),
        ],
    )
    def test_what_a_factory_must_not_return(self, monkeypatch, made, kinds):
        monkeypatch.setattr("helpers.models.wrong", lambda: made(torch.ones(3)), raising=False)
        message = fails("helpers.models:wrong", UsageError)
        assert message.startswith("helpers.models:wrong: expected a factory that returns (module, ")
        assert message.endswith(f"; got {kinds}")

    def test_factory_with_keyword_arguments(self, tmp_path, monkeypatch):
        (tmp_path / "of_a_keyword.py").write_text(
            "import torch\ndef make():\n    x = torch.ones(3)\n"
            "    return torch.nn.CosineSimilarity(0).eval(), (x,), {'x2': x}\n"
        )
        monkeypatch.chdir(tmp_path)
        model = compile_model("of_a_keyword:make")  # one tensor for two inputs
        assert model.report.equal
        assert model.run(np.ones(3, "float32"), np.float32([1, 0, 0])) < 0.6
        assert [spec.name for spec in model.inputs] == ["x1", "x2"]

    def test_objects(self):
        module, inputs = conv_net()
        program = torch.export.export(module, inputs)
        for source in (onnx_conv(), program, (module, inputs)):
            assert compile_model(source).report.equal

    def test_relax_module(self):
        @I.ir_module
        class Module:
            @R.function
            def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
                return R.add(x, R.const(np.ones((1, 4), "float32")))

        model = compile_model(Module, compare=False)
        assert model.report.equal is None
        assert model.report.parameter_bytes == 16
        np.testing.assert_array_equal(model.run(np.zeros((2, 4), "float32")), np.ones((2, 4)))
        assert "no reference to compare with" in fails(Module, UsageError)

    def test_several_inputs_and_outputs(self):
        report = compile_model(onnx_sum_and_product()).report
        assert [output.name for output in report.outputs] == ["sum", "mul"]
        assert report.equal
        assert report.size_ratio is None

    def test_half_precision(self):
        report = compile_model(onnx_conv((1, 3, 8, 8), HALF)).report
        assert report.equal
        assert report.outputs[0].dtype == "float16"
        module, (x,) = conv_net()
        model = compile_model((module.half(), (x.half(),)), layout="NHWC")
        assert model.report.equal
        assert "torch-dtype" in model.report.fixes

    def test_weights_beside_the_file(self, tmp_path):
        path = tmp_path / "model.onnx"
        onnx.save(
            onnx_conv(), path, save_as_external_data=True, location="weights", size_threshold=0
        )
        report = compile_model(path).report
        assert report.equal
        assert report.parameter_bytes == 4 * 3 * 3 * 3 * 4
        (tmp_path / "weights").unlink()
        assert "weights" in fails(path)

    def test_shared_weights_count_once(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 8, bias=False)
                self.b = nn.Linear(8, 8, bias=False)
                self.b.weight = self.a.weight

            def forward(self, x):
                return self.b(torch.relu(self.a(x)))

        report = compile_model((Tied().eval(), (torch.ones(2, 8),))).report
        assert report.equal
        assert report.parameter_bytes == 8 * 8 * 4

    def test_mutated_buffers_are_not_outputs(self):
        class Counter(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("count", torch.zeros(()))

            def forward(self, x):
                return x + self.count

        model = compile_model((Counter().eval(), (torch.ones(2),)))
        assert model.report.equal
        assert len(model.outputs) == 1


class TestRandomInputs:
    def test_seed(self):
        source = open_source(conv_net())
        first, again, other = (
            source.example_inputs(np.random.default_rng(seed))[0] for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_integers_come_from_the_example_s_range(self):
        source = open_source(lookup())
        ids, keep, x = source.example_inputs(np.random.default_rng(0))
        low, high = int(lookup()[1][0].min()), int(lookup()[1][0].max())
        assert low <= ids.min() <= ids.max() <= high
        assert (ids.dtype, keep.dtype, x.dtype) == ("int64", "bool", "float32")

    def test_integers_of_onnx_are_safe_indices(self):
        model = onnx_model(
            [helper.make_node("Gather", ["table", "ids"], ["y"])],
            [("ids", INT64, ["n"])],
            [("y", FLOAT, ["n", 3])],
            {"table": np.arange(6, dtype="float32").reshape(2, 3)},
        )
        assert compile_model(model).report.equal


class Counter(torch.nn.Module):
    """Changes a buffer at each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


class TestInputs:
    def test_scalars(self):
        model = onnx_model(
            [helper.make_node("Mul", ["x", "s"], ["y"])],
            [("x", FLOAT, [2, 3]), ("s", FLOAT, [])],
            [("y", FLOAT, [2, 3])],
        )
        compiled = compile_model(model)
        assert compiled.report.equal
        x = np.ones((2, 3), "float32")
        for scalar in (np.float32(2), np.array(2, "float32"), torch.tensor(2.0)):
            np.testing.assert_array_equal(np.asarray(compiled.run(x, scalar)), 2 * x)

    def test_branches(self):
        branches = {
            name: helper.make_graph(
                [
                    helper.make_node(op, ["x"], [f"t_{name}"]),
                    helper.make_node("Exp", [f"t_{name}"], [name]),
                ],
                name,
                [],
                [helper.make_tensor_value_info(name, FLOAT, [2, 3])],
            )
            for name, op in (("then", "Relu"), ("otherwise", "Neg"))
        }
        node = helper.make_node(
            "If",
            ["c"],
            ["y"],
            then_branch=branches["then"],
            else_branch=branches["otherwise"],
        )
        model = onnx_model(
            [node],
            [("c", helper.np_dtype_to_tensor_dtype(np.dtype(bool)), []), ("x", FLOAT, [2, 3])],
            [("y", FLOAT, [2, 3])],
        )
        compiled = compile_model(model)
        assert compiled.report.equal
        assert "onnx-if" in compiled.report.fixes
        x = np.full((2, 3), -1, "float32")
        np.testing.assert_allclose(compiled.run(np.array(True), x), 1)
        np.testing.assert_allclose(compiled.run(np.array(False), x), np.e, rtol=1e-6)

    def test_buffer_that_the_module_changes(self):
        with pytest.raises(CompileError, match="the buffer 'count' and writes to it"):
            compile_model((Counter().eval(), (torch.zeros(2),)))


class TestBadFiles:
    @pytest.mark.parametrize("name", ["no.onnx", "no.pt2", "no", "no/such:thing.onnx"])
    def test_missing(self, tmp_path, name):
        assert fails(tmp_path / name, UsageError) == f"{tmp_path / name}: no such file"

    def test_directory(self, tmp_path):
        (tmp_path / "model.onnx").mkdir()
        assert fails(tmp_path / "model.onnx", UsageError).endswith("model.onnx: not a file")

    def test_unknown_ending(self, tmp_path):
        (tmp_path / "model.bin").touch()
        message = fails(tmp_path / "model.bin", UsageError)
        assert message.endswith(
            "expected a file that ends in .onnx, .pt2, .tflite, .relay, .txt or .json, or a "
            "factory: package.module:name or FILE.py:name"
        )

    @pytest.mark.parametrize("kept", [0.0, 0.2, 0.5, 0.9, 0.99])
    def test_truncated_onnx(self, onnx_file, kept):
        whole = onnx_file.read_bytes()
        onnx_file.write_bytes(whole[: int(kept * len(whole))])
        assert "ONNX" in fails(onnx_file)

    def test_onnx_cut_between_two_fields(self):
        """The truncated file parses as a model of opset 1."""
        whole = onnx_conv()
        model = onnx.ModelProto(ir_version=whole.ir_version)
        model.graph.CopyFrom(whole.graph)
        assert "incomplete ONNX model" in fails(model)

    @pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
    def test_truncated_pt2(self, pt2_file, kept, capfd):
        whole = pt2_file.read_bytes()
        pt2_file.write_bytes(whole[: int(kept * len(whole))])
        message = fails(pt2_file)
        assert "cannot load it as a .pt2 file" in message
        assert "zip" in message.lower()
        assert capfd.readouterr().err == ""

    def test_pt2_of_another_version(self, pt2_file):
        other = pt2_file.with_name("other.pt2")
        with zipfile.ZipFile(pt2_file) as source, zipfile.ZipFile(other, "w") as changed:
            for entry in source.infolist():
                content = source.read(entry)
                if entry.filename.endswith("archive_version"):
                    content = b"99"
                changed.writestr(entry.filename, content)
        assert "archive version 99 does not match" in fails(other)

    def test_another_file_of_torch(self, tmp_path):
        torch.save({"weight": torch.ones(3)}, tmp_path / "model.pt2")
        assert "cannot load it as a .pt2 file" in fails(tmp_path / "model.pt2")

    def test_another_object(self):
        assert "expected a path, " in fails(3, UsageError)
        assert "got (ReLU, Tensor)" in fails((nn.ReLU(), torch.ones(3)), UsageError)


class TestBadFactories:
    @pytest.mark.parametrize(
        "name, error, message",
        [
            (
                "helpers.models:nothing",
                UsageError,
                "'nothing' of helpers.models: no such attribute",
            ),
            (
                "helpers.models:not_callable",
                UsageError,
                "'not_callable' of helpers.models: not callable",
            ),
            ("no_such_module:make", UsageError, "no_such_module: no such module in "),
            ("helpers.models.below:make", UsageError, "helpers.models.below: no such module in "),
            (
                "helpers.models:failing",
                CompileError,
                "the factory failed: LookupError: no weights here (",
            ),
            (
                "helpers.models:not_a_module",
                UsageError,
                "args is a tuple and kwargs a dict; got ReLU",
            ),
            (
                "helpers.models:in_training",
                UsageError,
                "the module is in training mode; call .eval()",
            ),
        ],
    )
    def test_message(self, name, error, message):
        assert message in fails(name, error)

    def test_module_that_fails_to_import(self, tmp_path, monkeypatch):
        (tmp_path / "broken_module.py").write_text("import nothing_of_that_name\n")
        monkeypatch.chdir(tmp_path)
        assert "broken_module: cannot import: ModuleNotFoundError" in fails("broken_module:f")

    def test_program_that_depends_on_data(self, capfd):
        class Branch(nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x

        message = fails((Branch().eval(), (torch.ones(3),)))
        assert "torch.export failed" in message
        assert "test_source.py:" in message
        assert capfd.readouterr() == ("", "")


def test_float8_outputs_of_onnx_runtime(tmp_path):
    """It returns their bytes."""
    model = onnx_program(
        {"y": ("Cast", ["x"], {"to": onnx.TensorProto.FLOAT8E4M3FN})},
        {"x": ("float32", (2, 3))},
        outputs={"y": "float8_e4m3fn"},
        opset=19,
    )
    [output] = compile_model(model, output=tmp_path / "out").report.outputs
    assert output.equal and output.dtype == "float8_e4m3fn"


if __name__ == "__main__":
    tvm.testing.main()
