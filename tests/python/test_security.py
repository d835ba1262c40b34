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
"""The claims of docs/security.md about untrusted files."""

import ctypes
import io
import json
import pickle
import threading
import zipfile
from pathlib import Path

import onnx
import pytest
import torch
import tvm
import tvm.testing
from torch import nn

from helpers.compiling import fails
from helpers.grids import few
from helpers.models import conv_net, onnx_model
from tvm_fixes.errors import CompileError, UntrustedError
from tvm_fixes.frontend.torch import ExportedProgramImporter
from tvm_fixes.source import module_file, open_source, pt2
from tvm_fixes.source.module_file import read_module
from tvm_fixes.source.pt2_operators import is_safe

MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
INPUTS = "data/sample_inputs/model.pt"


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        return Path.touch, (self.made,)


class Dynamic(nn.Module):
    """Its export has symbols, guards, expressions, and nested arguments and results."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x, ids, *, options):
        y = x + self.embedding(ids) + self.offset
        y = y.reshape(-1, 2)[: x.shape[0] // 2 + 1]
        if x.shape[0] % 6 == 0:
            y = y + options["bias"]
        y = nn.functional.interpolate(y[None, None], scale_factor=1.5)
        found = torch.nonzero(ids)
        return {"y": y, "rest": (found + 1, x[: max(2, x.shape[0] // 3)])}


@pytest.fixture(scope="module")
def dynamic():
    auto = torch.export.Dim.AUTO
    program = torch.export.export(
        Dynamic().eval(),
        (torch.randn(12, 4), torch.arange(12) % 10),
        {"options": {"bias": torch.ones(1)}},
        dynamic_shapes={"x": {0: auto}, "ids": {0: auto}, "options": {"bias": {}}},
    )
    data = io.BytesIO()
    torch.export.save(program, data)
    return data.getvalue()


class Layers(nn.Module):
    """Layers whose operators differ before and after they are decomposed."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Hardswish(inplace=True),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Upsample(scale_factor=2, mode="nearest-exact"),
            nn.AdaptiveAvgPool2d(3),
            nn.GroupNorm(2, 8),
            nn.AdaptiveMaxPool2d(2),
            nn.PixelShuffle(2),
            nn.Flatten(2),
        )
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.lstm = nn.LSTM(16, 16, bidirectional=True)
        self.gru = nn.GRU(32, 8)

    def forward(self, x):
        y = self.image(x)
        y = self.attention(y, y, y)[0] + self.encoder(y)
        y = self.gru(self.lstm(y)[0])[0]
        y = y.unfold(-1, 2, 1).movedim(1, 0).swapaxes(0, 1).masked_fill(y[..., None, :2] > 0, 0.5)
        mask = torch.ones(3, 3, dtype=torch.bool).tril()
        y[..., 0] = torch.einsum("...ij->...i", y)
        return torch.erfinv(torch.tanh(y)), x.to(torch.float64).cumsum(1).topk(2, 1)[0], mask


def rewrite(data, path, change=(), remove=()):
    """Write the archive `data` to `path`; `change` has new bytes or a JSON edit per member."""
    change = dict(change)
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(path, "w") as target:
        root = source.namelist()[0].partition("/")[0]
        for entry in source.namelist():
            name = entry.partition("/")[2]
            content = source.read(entry)
            edit = change.pop(name, None)
            if callable(edit):
                document = json.loads(content)
                edit(document)
                content = json.dumps(document).encode()
            elif edit is not None:
                content = edit
            if name not in remove:
                target.writestr(entry, content)
        for name, content in change.items():
            target.writestr(f"{root}/{name}", content)
    return path


def pickled(value, how=torch.save):
    data = io.BytesIO()
    how(value, data)
    return data.getvalue()


def payload_weight(document, **fields):
    next(iter(document["config"].values())).update(fields)


def graph_of(document):
    return document["graph_module"]["graph"]


def replace(text, by):
    """Return an edit that replaces `text` with `by` in the JSON."""

    def edit(document):
        changed = json.loads(json.dumps(document).replace(json.dumps(text), json.dumps(by)))
        document.clear()
        document.update(changed)

    return edit


def code(made):
    return f"__import__('pathlib').Path({str(made)!r}).touch()"


def with_expression(made):
    def edit(document):
        for value in graph_of(document)["tensor_values"].values():
            for size in value["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["expr_str"] = made
                    return

    return edit


def with_structure(node):
    def edit(document):
        for entry in document["graph_module"]["module_call_graph"]:
            if entry["signature"]:
                entry["signature"]["out_spec"] = json.dumps([1, node])

    return edit


def with_target(target):
    def edit(document):
        graph_of(document)["nodes"][0]["target"] = target

    return edit


def with_guard(guard):
    def edit(document):
        document["guards_code"].append(guard)

    return edit


def container(kind, context):
    leaf = {"type": None, "context": None, "children_spec": []}
    return {"type": kind, "context": context, "children_spec": [leaf]}


ENUM = '{"__enum__": true, "fqn": "antigravity:x", "name": "y"}'
INJECTED = "x = None\n    {}\n    y"

HOSTILE_PT2 = {
    "pickled example inputs": lambda made: {INPUTS: pickled(((Payload(made),), {}))},
    "pickled weight": lambda made: {
        WEIGHTS: lambda d: payload_weight(d, use_pickle=True),
        "data/weights/weight_0": pickled(Payload(made)),
    },
    "pickled constant": lambda made: {
        CONSTANTS: lambda d: d["config"].update(
            c={"path_name": "tensor_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        ),
        "data/constants/tensor_0": pickled(Payload(made)),
    },
    "opaque object": lambda made: {
        CONSTANTS: lambda d: d["config"].update(
            c={
                "path_name": "opaque_obj_0",
                "is_param": False,
                "use_pickle": True,
                "tensor_meta": None,
            }
        ),
        "data/constants/opaque_obj_0": pickle.dumps(Payload(made)),
    },
    "weights of an old format": lambda made: {
        "data/weights/model.pt": pickled({"w": Payload(made)})
    },
    "expression": lambda made: {MODEL: with_expression(code(made))},
    "attribute in an expression": lambda made: {
        MODEL: with_expression("Symbol.__init__.__globals__")
    },
    "guard": lambda made: {MODEL: with_guard(code(made))},
    "guard by an attribute": lambda made: {
        MODEL: with_guard("L['x'].__class__.__init__.__globals__")
    },
    "guard by a quote": lambda made: {MODEL: with_guard(f"L['\\' + {code(made)} + \\''] == 1")},
    "name of a node": lambda made: {MODEL: replace("add", INJECTED.format(code(made)))},
    "name of an input": lambda made: {MODEL: replace("x", f"x={code(made)}")},
    "name of a weight": lambda made: {
        MODEL: replace("offset", f'offset") + {code(made)} + ("'),
        WEIGHTS: replace("offset", f'offset") + {code(made)} + ("'),
    },
    "operator": lambda made: {MODEL: with_target("torch.os.system")},
    "operator that reads files": lambda made: {
        MODEL: with_target("torch.ops.aten.from_file.default")
    },
    **{
        f"operator {name}": lambda made, name=name: {MODEL: with_target(f"torch.ops.{name}")}
        for name in (
            "aten._reshape_alias.default",
            "aten._sparse_coo_tensor_unsafe.default",
            "aten._to_dense.default",
            "aten._nested_view_from_buffer.default",
            "aten._embedding_bag.default",
            "aten.as_strided_.default",
            "aten.embedding_dense_backward.default",
            "aten.resize_.default",
            "aten.set_.source_Storage_storage_offset",
            "aten.add.out",
            "aten.native_batch_norm.default",
            "aten._native_batch_norm_legit.default",
            "aten.sort.values",
            "aten.lstm.data",
            "prims.resize.default",
            "quantized_decomposed.embedding_byte.default",
            "torchvision.roi_align.default",
        )
    },
    "operator of another library": lambda made: {MODEL: with_target("#inductor:x")},
    "enum in a structure": lambda made: {MODEL: with_structure(container("builtins.dict", ENUM))},
    "defaultdict": lambda made: {
        MODEL: with_structure(
            container(
                "collections.defaultdict",
                json.dumps(
                    {
                        "default_factory_module": "antigravity",
                        "default_factory_name": "x",
                        "dict_context": [],
                    }
                ),
            )
        )
    },
    "compiled code": lambda made: {"data/aotinductor/model/model.so": b"\x7fELF"},
}


class TestProgramsOfPyTorch:
    @pytest.mark.parametrize("name", HOSTILE_PT2)
    @pytest.mark.parametrize("read", [open_source, read_module])
    def test_code_is_rejected(self, dynamic, tmp_path, name, read):
        path = rewrite(dynamic, tmp_path / "model.pt2", HOSTILE_PT2[name](tmp_path / "made"))
        with pytest.raises(
            UntrustedError, match=r"rejected: it may run code \(.*\)\. If you trust .*--trust"
        ):
            read(path)
        assert not (tmp_path / "made").exists()

    @pytest.mark.parametrize("name", ["pickled example inputs", "pickled weight", "expression"])
    def test_it_runs_with_trust(self, dynamic, tmp_path, name):
        """Check that the payloads do run code."""
        path = rewrite(dynamic, tmp_path / "model.pt2", HOSTILE_PT2[name](tmp_path / "made"))
        fails(path, trust=True, compare=False)
        assert (tmp_path / "made").exists()

    def test_an_expression_is_a_text(self, dynamic, tmp_path):
        edit = with_expression([code(tmp_path / "made")])
        message = fails(rewrite(dynamic, tmp_path / "model.pt2", {MODEL: edit}))
        assert "does not fit PyTorch's schema" in message
        assert not (tmp_path / "made").exists()

    def test_the_old_format_is_rejected(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "model.pt2", "w") as archive:
            archive.writestr("version", "8.2")
            archive.writestr("serialized_state_dict.pt", pickled(Payload(tmp_path / "made")))
        assert "old format" in fails(tmp_path / "model.pt2", UntrustedError)

    def test_harmless_files_load_as_in_pytorch(self, dynamic, tmp_path):
        path = tmp_path / "model.pt2"
        path.write_bytes(dynamic)
        ours, theirs = open_source(path), open_source(path, trust=True)
        assert str(ours._program) == str(theirs._program)
        assert ours.inputs == theirs.inputs
        assert ours._program._guards_code == theirs._program._guards_code != []
        inputs = (torch.randn(12, 4), torch.arange(12) % 10)
        options = {"bias": torch.ones(1)}
        tvm.testing.assert_allclose(
            ours._program.module()(*inputs, options=options)["y"].detach().numpy(),
            theirs._program.module()(*inputs, options=options)["y"].detach().numpy(),
            rtol=0,
        )

    def test_convolutions_load(self, tmp_path):
        module, inputs = conv_net()
        torch.export.save(torch.export.export(module, inputs), tmp_path / "model.pt2")
        source = open_source(tmp_path / "model.pt2")
        assert source._program.example_inputs[0][0].equal(inputs[0])
        for name, value in module.state_dict().items():
            assert source._program.state_dict[name].equal(value)

    @pytest.mark.parametrize(
        "expression",
        [
            "Pow(Integer(9), Pow(Integer(9), Integer(9)))",
            "Pow(Pow(Pow(Integer(9), Integer(64)), Integer(64)), Integer(64))",
            "LShift(Integer(1), Add(Integer(10000000000), Integer(1)))",
            "Float('1e999999999')",
            "Integer(" * 100 + "1" + ")" * 100,
            "(" * 5000 + "s0" + ")" * 5000,
        ],
    )
    def test_expressions_stay_small(self, dynamic, tmp_path, expression):
        path = rewrite(dynamic, tmp_path / "model.pt2", {MODEL: with_expression(expression)})
        fails(path, UntrustedError)

    def test_guards_stay_small(self, dynamic, tmp_path):
        guard = f"L['x'].size()[0] > {'(' * 4}9{'**64)' * 4}"
        path = rewrite(dynamic, tmp_path / "model.pt2", {MODEL: with_guard(guard)})
        assert "may become too large" in fails(path, UntrustedError)
        guard = "1 in L['x'].size()"
        path = rewrite(dynamic, tmp_path / "model.pt2", {MODEL: with_guard(guard)})
        assert "comparison operator 'in' is not allowed" in fails(path, UntrustedError)

    def test_untrusted_expressions_are_named(self, dynamic, tmp_path):
        edit = with_expression("Symbol('s0', commutative=True)")
        path = rewrite(dynamic, tmp_path / "model.pt2", {MODEL: edit})
        message = fails(path, UntrustedError)
        assert "symbol s0 has assumptions that are not allowed" in message
        path = rewrite(dynamic, tmp_path / "model.pt2", {MODEL: b'{"a": 1, "a": 2}'})
        assert f"{MODEL}: duplicate key" in fails(path)

    def test_a_file_is_opened_once(self, dynamic, tmp_path, monkeypatch):
        """A file that replaces it in the meantime is not read."""
        path = tmp_path / "model.pt2"
        path.write_bytes(dynamic)
        check = pt2._check_format

        def replaced(file):
            (tmp_path / "other").write_bytes(b"")
            (tmp_path / "other").replace(path)
            check(file)

        monkeypatch.setattr(pt2, "_check_format", replaced)
        assert "embedding.weight" in pt2.load_checked(path).state_dict

    def test_operators_of_the_importer_are_allowed(self):
        pairs = [name.split(".") for name in ExportedProgramImporter().operators if "." in name]
        aten = [
            (name, overload)
            for name, overload in pairs
            if hasattr(getattr(torch.ops.aten, name, None), overload)
        ]
        assert len(aten) > 250
        refused = {".".join(pair) for pair in aten if not is_safe(*pair)}
        # These use non-dense layouts, or write to statistics of unchecked length.
        assert refused == {
            "_native_batch_norm_legit_functional.default",
            "_sparse_addmm.default",
            "_sparse_mm.default",
            "to_sparse.default",
            # Not known to check the batch sizes of packed sequences.
            "gru.data",
            "lstm.data",
            "rnn_relu.data",
            "rnn_tanh.data",
            # Do not check sizes or places; PyTorch writes them only into decomposed programs.
            "_conj_physical.default",
            "_fft_c2c.default",
            "_fft_c2r.default",
            "_fft_r2c.default",
            "_linalg_check_errors.default",
            "geqrf.default",
            "linalg_householder_product.default",
            "lu_unpack.default",
            # Not known to check the sizes of scales; a file that PT2E wrote does not contain them.
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
            "_grouped_mm.default",  # nor of groups
            "_int_mm.default",
            "_weight_int8pack_mm.default",
            "fake_quantize_per_channel_affine.default",
            "fake_quantize_per_channel_affine_cachemask.default",
            "fake_quantize_per_tensor_affine.default",
            "fake_quantize_per_tensor_affine.tensor_qparams",
            "fake_quantize_per_tensor_affine_cachemask.default",
            "quantize_per_tensor.default",
            "quantize_per_channel.default",
        }

    @few(1)
    @pytest.mark.parametrize("decomposed", [False, True])
    def test_layers_load(self, tmp_path, decomposed):
        path = tmp_path / "model.pt2"
        program = torch.export.export(Layers().eval(), (torch.randn(2, 3, 8, 8),))
        if decomposed:
            program = program.run_decompositions()
        torch.export.save(program, path)
        found = open_source(path)._program
        assert [str(node.target) for node in found.graph.nodes if node.op == "call_function"] == [
            str(node.target)
            for node in torch.export.load(path).graph.nodes
            if node.op == "call_function"
        ]

    def test_tensors_stay_as_large_as_the_file(self, dynamic, tmp_path):
        def edit(document):
            meta = next(iter(document["config"].values()))["tensor_meta"]
            meta["sizes"] = [{"as_int": 1 << 40}]
            meta["strides"] = [{"as_int": 0}]

        path = rewrite(dynamic, tmp_path / "model.pt2", {WEIGHTS: edit})
        assert "elements in" in fails(path)


def onnx_with_weight(folder, location, elements=4):
    """A model whose weight is stored in the file `location`."""
    weight = onnx.TensorProto(name="w", data_type=1, dims=[elements])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=str(location))
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    model = onnx_model([node], [("x", 1, [elements])], [("y", 1, [elements])])
    model.graph.initializer.append(weight)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


class TestOnnx:
    @pytest.mark.parametrize("elements", [4, 1 << 15])
    def test_weights_lie_in_the_folder(self, tmp_path, elements):
        (tmp_path / "secret").write_bytes(bytes(4 * elements))
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "link").symlink_to(tmp_path / "secret")
        for location in ("../secret", tmp_path / "secret", "link"):
            message = fails(onnx_with_weight(folder, location, elements), compare=False)
            assert "initializer 'w'" in message and "is not in the model's folder" in message

    @pytest.mark.parametrize("elements", [4, 1 << 15])
    def test_a_missing_file_is_named(self, tmp_path, elements):
        message = fails(onnx_with_weight(tmp_path, "weights.bin", elements), compare=False)
        assert "'w': its file 'weights.bin' is missing" in message

    @pytest.mark.parametrize("elements", [4, 1 << 15])
    def test_a_model_in_memory_has_no_folder(self, tmp_path, elements):
        model = onnx.load(
            onnx_with_weight(tmp_path, "weights.bin", elements), load_external_data=False
        )
        message = fails(model, compare=False)
        assert "'w': its elements are in the file 'weights.bin', but a ModelProto has no" in message

    def test_names_do_not_reach_the_terminal(self):
        node = onnx.helper.make_node("Re\x1b[31mlu", ["x"], ["y"])
        message = fails(onnx_model([node], [("x", 1, [4])], [("y", 1, [4])]))
        assert "Re\\x1b[31mlu" in message and message.isprintable()


SCRIPT = """\
from tvm.script import ir as I, relax as R
import pathlib
pathlib.Path({made!r}).touch()
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.add(x, R.const(1.0))
            R.output(y)
        return y
"""


class TestModules:
    def test_a_script_runs(self, tmp_path):
        (tmp_path / "module.py").write_text(SCRIPT.format(made=str(tmp_path / "made")))
        read_module(tmp_path / "module.py")
        assert (tmp_path / "made").exists()

    @pytest.fixture
    def document(self, tmp_path):
        (tmp_path / "module.py").write_text(SCRIPT.format(made=str(tmp_path / "made")))
        return json.loads(tvm.ir.save_json(read_module(tmp_path / "module.py")))

    def read(self, tmp_path, document):
        path = tmp_path / "module.json"
        path.write_text(json.dumps(document))
        with pytest.raises(CompileError) as raised:
            read_module(path)
        assert "\n" not in raised.value.message
        return raised.value.message

    def test_json_that_crashes_the_reader_is_one_error(self, tmp_path, document, monkeypatch):
        monkeypatch.setattr(module_file, "_try_json", lambda text: ctypes.string_at(0))
        message = self.read(tmp_path, document)
        assert message.endswith("incompatible TVM version: SIGSEGV: crashed")

    def test_json_that_takes_memory_is_one_error(self, tmp_path, document, monkeypatch):
        monkeypatch.setattr(module_file, "_READ_BYTES", 1 << 20)
        monkeypatch.setattr(tvm.ir, "load_json", lambda text: bytearray(1 << 33))
        assert "MemoryError" in self.read(tmp_path, document)

    def test_json_that_takes_time_is_one_error(self, tmp_path, document, monkeypatch):
        monkeypatch.setattr(module_file, "_READ_SECONDS", 0.2)
        monkeypatch.setattr(module_file, "_try_json", lambda text: threading.Event().wait())
        assert "timed out after" in self.read(tmp_path, document)

    @pytest.mark.parametrize("kind", ["ffi.Module", "ffi.Function", 3])
    def test_json_has_no_functions_and_libraries(self, tmp_path, document, kind):
        document["nodes"].append({"type": kind, "data": ""})
        assert f"unexpected node of type {kind!r}" in self.read(tmp_path, document)

    def test_malformed_json(self, tmp_path, document):
        expected = "expected a list 'nodes' and an integer 'root_index'"
        assert expected in self.read(tmp_path, [])
        assert expected in self.read(tmp_path, {"root_index": 0})
        document["root_index"] = 1 << 40
        self.read(tmp_path, document)
        (tmp_path / "module.json").write_text("[" * 100_000)
        with pytest.raises(CompileError, match="not valid TVM JSON"):
            read_module(tmp_path / "module.json")


if __name__ == "__main__":
    tvm.testing.main()
