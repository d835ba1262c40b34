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
"""External weights: written, mapped and checked with little memory."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
import tvm
import tvm.testing
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from examples import large_weights
from helpers.compiling import fails
from helpers.grids import from_tier, is_full
from helpers.models import conv_net, onnx_model
from tvm_fixes.compiler import OUTSIDE_FROM
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.compiler.options import are_outside
from tvm_fixes.errors import ArtifactError, CompileError, UsageError
from tvm_fixes.relax.constants.provenance import Weight
from tvm_fixes.runtime import CompiledModel
from tvm_fixes.runtime.inspection import inspect
from tvm_fixes.runtime.manifest import MANIFEST, WEIGHTS
from tvm_fixes.runtime.weights import read_weights, write_weights
from tvm_fixes.support.switches import FIX_IDS
from tvm_fixes.support.tensors import ALIGNMENT, raw_bytes

FLOAT = TensorProto.FLOAT


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tensor(shape: tuple[int, ...], dtype: str) -> tvm.runtime.Tensor:
    """A tensor of random bytes."""
    made = tvm.runtime.empty(shape, dtype)
    data = raw_bytes(made)
    data[:] = np.random.default_rng(len(shape)).integers(0, 256, data.size, dtype="uint8")
    return made


class TestFile:
    SHAPES = (
        ("a", (3, 5), "float32"),
        ("b.weight", (7,), "float16"),
        ("c", (2, 3), "bfloat16"),
        ("d", (65,), "int8"),
        ("e", (), "float64"),
        ("f", (4, 9), "float8_e4m3fn"),
        ("g", (2,), "float8_e5m2"),
        ("h", (5,), "int4"),
        ("i", (3,), "int64"),
        ("j", (2, 2), "float32x4"),
    )

    @pytest.fixture
    def weights(self):
        return {
            name: Weight(tensor(shape, dtype), (name,), "") for name, shape, dtype in self.SHAPES
        }

    @pytest.fixture
    def written(self, weights, tmp_path):
        return tmp_path / WEIGHTS, write_weights(tmp_path / WEIGHTS, weights)

    def test_round_trip(self, weights, written):
        path, record = written
        for check in (False, True):
            mapped = read_weights(path, record, check=check)
            for (name, shape, dtype), found in zip(self.SHAPES, mapped, strict=True):
                assert (tuple(found.shape), str(found.dtype)) == (shape, dtype)
                data = raw_bytes(found)
                np.testing.assert_array_equal(data, raw_bytes(weights[name].tensor))
                assert data.ctypes.data % ALIGNMENT == 0

    def test_a_mapped_tensor_does_not_write_to_the_file(self, written):
        path, record = written
        before = path.read_bytes()
        raw_bytes(read_weights(path, record, check=False)[0])[:] = 0
        assert path.read_bytes() == before

    def test_safetensors_reads_it(self, weights, written):
        path, _ = written
        with safetensors.safe_open(path, "pt") as file:
            names = [name for name in file.keys() if not name.startswith("__padding__")]
            assert sorted(names) == [name for name, *_ in self.SHAPES]
            for name, shape, dtype in self.SHAPES:
                tensor = file.get_tensor(name)
                if dtype in ("int4", "float32x4"):  # which safetensors does not support
                    assert tensor.dtype == torch.uint8
                    shape = (raw_bytes(weights[name].tensor).size,)
                else:
                    assert str(tensor.dtype) == f"torch.{dtype}"
                assert tuple(tensor.shape) == shape
                data = tensor.reshape(-1).view(torch.uint8).numpy()
                np.testing.assert_array_equal(data, raw_bytes(weights[name].tensor))

    def test_damage(self, written):
        path, record = written
        whole = path.read_bytes()

        def message(data: bytes, *, check: bool = False) -> str:
            path.write_bytes(data)
            with pytest.raises(ArtifactError) as raised:
                read_weights(path, record, check=check)
            assert raised.value.message.startswith(f"{path}: ")
            return raised.value.message

        assert f"expected {len(whole)} bytes, got {len(whole) - 1}" in message(whole[:-1])
        assert "the header: expected SHA-256" in message(whole[:9] + b"x" + whole[10:])
        too_long = (len(whole)).to_bytes(8, "little")
        assert "exceeds the file or the limit" in message(too_long + whole[8:])
        assert "exceeds the file or the limit" in message(b"\xff" * 8 + whole[8:])
        changed = whole[:-1] + bytes([whole[-1] ^ 1])
        assert "the file: expected SHA-256" in message(changed, check=True)
        # Elements are read lazily.
        assert len(read_weights(path, record, check=False)) == len(self.SHAPES)
        path.unlink()
        with pytest.raises(ArtifactError, match=r"cannot be read: .*No such file"):
            read_weights(path, record, check=False)


def lookup_net() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """An embedding tied to the last layer, another layer, and a concatenated table."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding = nn.Embedding(100, 32)
            self.layer = nn.Linear(32, 64)
            self.back = nn.Linear(64, 32)
            self.table = nn.Parameter(torch.randn(64, 32))

        def forward(self, tokens):
            x = self.back(torch.relu(self.layer(self.embedding(tokens))))
            return torch.cat([x, self.table]) @ self.embedding.weight.T

    return Net().eval(), (torch.tensor([3, 1, 4]),)


def half() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    module, (x,) = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 40)), (normal(2, 64),)
    return module.to(torch.bfloat16).eval(), (torch.from_numpy(x).to(torch.bfloat16),)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model with external weights, which tests must not modify."""
    path = tmp_path_factory.mktemp("weights") / "a"
    return compile_model(lookup_net(), weights="outside", compare=False, output=path), path


@pytest.fixture
def artifact(made, tmp_path):
    """A copy that a test may modify."""
    return Path(shutil.copytree(made[1], tmp_path / "a"))


class TestModel:
    @pytest.mark.parametrize("layout", [None, "NCHW8c"] if is_full() else ["NCHW8c"])
    def test_convolutions(self, tmp_path, layout):
        self.check(*conv_net(), tmp_path, least=0, layout=layout)

    def test_embedding(self, tmp_path):
        self.check(*lookup_net(), tmp_path, least=4)

    def test_bfloat16(self, tmp_path):
        self.check(*half(), tmp_path, least=1)

    def check(self, module, inputs, directory: Path, *, least: int, **options) -> None:
        """Assert equal results with weights inside and outside, before and after saving."""
        outside = compile_model((module, inputs), weights="outside", **options)
        inside = compile_model((module, inputs), weights="inside", compare=False, **options)
        assert outside.report.equal
        expected = inside.run(*inputs)
        assert torch.equal(outside.run(*inputs), expected)
        outside.save(directory / "out")
        loaded = CompiledModel.load(directory / "out")
        assert torch.equal(loaded.run(*inputs), expected)
        loaded.check_weights()
        weights = outside.manifest.weights
        assert (0 if weights is None else len(weights.tensors)) >= least
        names = ["manifest.json", "model.so", *([WEIGHTS] if weights else [])]
        assert sorted(os.listdir(directory / "out")) == names
        assert inside.manifest.weights is None
        if weights:
            sizes = [(directory / "out" / name).stat().st_size for name in names[1:]]
            assert outside.report.artifact_bytes == sum(sizes)

    def test_names_and_sizes(self, made, artifact):
        model, _ = made
        inspection = inspect(artifact)
        by_file = {
            name: [c for c in inspection.constants if c.file == name] for name in inspection.files
        }
        assert set(inspection.files) == {"model.so", WEIGHTS}
        names = {parameter for c in by_file[WEIGHTS] for parameter in c.parameters}
        assert names == {"embedding.weight", "layer.weight", "back.weight", "table"}
        inside = [c for c in by_file["model.so"] if c.kind == "tensor"]
        assert all(c.nbytes < 4096 for c in inside)
        assert inspection.constant_bytes == model.report.constant_bytes
        data = (artifact / WEIGHTS).read_bytes()
        [table] = [c for c in by_file[WEIGHTS] if c.parameters == ("table",)]
        held = np.frombuffer(data, "float32", 64 * 32, table.offset).reshape(64, 32)
        np.testing.assert_array_equal(held, lookup_net()[0].table.detach().numpy())
        (artifact / WEIGHTS).write_bytes(data[:-1])
        with pytest.raises(ArtifactError, match=f"expected {len(data)} bytes"):
            inspect(artifact)

    def test_saved_over_itself_and_by_one_inside(self, made, artifact):
        x = torch.tensor([3, 1, 4])
        expected = made[0].run(x)
        CompiledModel.load(artifact).save(artifact)
        assert torch.equal(CompiledModel.load(artifact).run(x), expected)
        compile_model(lookup_net(), weights="inside", compare=False, output=artifact)
        assert sorted(os.listdir(artifact)) == ["manifest.json", "model.so"]
        assert torch.equal(CompiledModel.load(artifact).run(x), expected)

    def test_weights_that_are_missing(self, artifact):
        os.unlink(artifact / WEIGHTS)
        with pytest.raises(ArtifactError, match=r"weights\.safetensors: cannot be read"):
            CompiledModel.load(artifact)
        manifest = json.loads((artifact / MANIFEST).read_text())
        manifest["weights"]["tensors"] = [{"name": "x"}]
        (artifact / MANIFEST).write_text(json.dumps(manifest))
        with pytest.raises(ArtifactError, match="malformed manifest"):
            CompiledModel.load(artifact)

    def test_weights_that_differ(self, artifact):
        path = artifact / WEIGHTS
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        loaded = CompiledModel.load(artifact)
        with pytest.raises(ArtifactError, match="the file: expected SHA-256"):
            loaded.check_weights()
        path.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])
        with pytest.raises(ArtifactError, match="the header: expected SHA-256"):
            CompiledModel.load(artifact)

    @pytest.mark.parametrize("size, is_outside", [(OUTSIDE_FROM, True), (OUTSIDE_FROM - 1, False)])
    def test_default_place_of_weights(self, size, is_outside):
        assert are_outside("auto", size) is is_outside
        assert are_outside("outside", 0) and not are_outside("inside", size)

    def test_an_unknown_place(self):
        message = fails(lookup_net(), UsageError, weights="beside")
        assert message == "unknown weights 'beside'; expected one of auto, inside, outside"

    def test_full_disk(self, tmp_path, monkeypatch):
        """Neither the temporary file nor the weights file is left incomplete."""
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
        try:
            message = fails(lookup_net(), CompileError, weights="outside", compare=False)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (
            message
            == f"cannot write large tensors to {tmp_path}: File too large; set TMPDIR to another "
            "directory"
        )

        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("tvm_fixes.compiler.linking.write_weights", fail)
        message = fails(lookup_net(), CompileError, weights="outside", output=tmp_path / "out")
        assert re.fullmatch(r"cannot write the weights to .*: No space left on device", message)
        assert not [name for name in os.listdir(tmp_path) if name.startswith("tvm-fixes-")]
        assert not (tmp_path / "out").exists()


def external(
    directory: Path,
    *,
    offset: int,
    location: str = "data",
    cut: int = 0,
    dtype: int = FLOAT,
) -> Path:
    """``x @ float(w) + b`` with the large w in an external file."""
    w = normal(200, 100).astype(helper.tensor_dtype_to_np_dtype(dtype))
    model = onnx_model(
        [
            helper.make_node("Cast", ["w"], ["wide"], to=FLOAT),
            helper.make_node("MatMul", ["x", "wide" if dtype != FLOAT else "w"], ["y"]),
            helper.make_node("Add", ["y", "b"], ["z"]),
        ],
        [("x", FLOAT, ["n", 200])],
        [("z", FLOAT, ["n", 100])],
        {"b": normal(100, seed=1)},
        opset=21,
    )
    model.ir_version = 10
    tensor = numpy_helper.from_array(w, "w")
    data = b"\0" * offset + tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", len(data) - offset)):
        tensor.external_data.add(key=key, value=str(value))
    model.graph.initializer.append(tensor)
    (directory / "data").write_bytes(data[: len(data) - cut])
    (directory / "model.onnx").write_bytes(model.SerializeToString())
    return directory / "model.onnx"


class TestExternalData:
    @pytest.mark.parametrize(
        "weights, offset",
        [("outside", 64), ("inside", 12)]
        + ([("inside", 64), ("outside", 12)] if is_full() else []),
    )
    def test_external_weights_are_read_at_their_offset(self, tmp_path, offset, weights):
        path = external(tmp_path, offset=offset)
        model = compile_model(path, weights=weights)
        assert model.report.equal
        assert model.report.warnings == []
        x = normal(3, 200, seed=2)
        expected = x @ normal(200, 100) + normal(100, seed=1)
        np.testing.assert_allclose(model.run(x), expected, rtol=1e-4, atol=1e-4)
        assert model.report.parameter_bytes == 4 * (200 * 100 + 100)

    @pytest.mark.parametrize(
        "weights, name",
        [("outside", "FLOAT16"), ("inside", "BFLOAT16")]
        + ([("inside", "FLOAT16"), ("outside", "BFLOAT16")] if is_full() else []),
    )
    def test_dtypes(self, tmp_path, name, weights):
        dtype = TensorProto.DataType.Value(name)
        path = external(tmp_path, offset=64, dtype=dtype)
        model = compile_model(path, weights=weights, compare=False)
        w = normal(200, 100).astype(helper.tensor_dtype_to_np_dtype(dtype)).astype("float32")
        x = normal(3, 200, seed=2)
        expected = x @ w + normal(100, seed=1)
        np.testing.assert_allclose(model.run(x), expected, rtol=1e-4, atol=1e-4)

    def test_by_tvms_importer(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TVM_FIXES_DISABLE", ",".join(i for i in FIX_IDS if i[:4] == "onnx"))
        assert compile_model(external(tmp_path, offset=12)).report.equal

    def test_a_file_that_is_too_short(self, tmp_path):
        message = fails(external(tmp_path, offset=64, cut=1))
        assert "initializer 'w': expected 80000 bytes at offset 64" in message

    @pytest.mark.parametrize("location", ["../data", "/etc/passwd", "missing"])
    def test_a_file_elsewhere(self, tmp_path, location):
        (tmp_path / "model").mkdir()
        (tmp_path / "data").touch()
        message = fails(external(tmp_path / "model", offset=0, location=location))
        assert f"initializer 'w': its file {location!r} is " in message


@from_tier("ci")
def test_little_memory(tmp_path):
    """Memory grows by less than 0.3 of the parameters; the model itself is not in memory."""
    sizes = large_weights.Sizes(layers=10, width=768, rows=4096)
    model = large_weights.write_model(tmp_path, sizes)
    measured = large_weights.in_another_process(
        large_weights.compile_watched, model, tmp_path / "out"
    )
    assert measured["parameters"] == sizes.nbytes
    assert {"Legalize", "build", "export", "save"} <= set(measured["peaks"])
    assert max(measured["peaks"].values()) < 0.3 * sizes.nbytes
    assert measured["artifact"] < 1.01 * sizes.nbytes
    loaded = CompiledModel.load(tmp_path / "out")
    got = loaded.run(large_weights.tokens(sizes))
    expected = large_weights.reference(model, sizes)
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.skipif(not is_full(), reason="another process imports TVM")
def test_the_documented_loader(tmp_path):
    """The program in docs/artifacts.md, in a process with only TVM."""
    text = (Path(__file__).parents[3] / "docs" / "artifacts.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(program.splitlines()) <= 20
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).eval()
    x = torch.ones(1, 64)
    compile_model((module, (x,)), weights="outside", output=tmp_path / "out")
    alone = "import sys\nsys.modules['tvm_fixes'] = sys.modules['safetensors'] = None\n"
    save = "\nnp.save('output.npy', output.numpy())\n"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, "-c", alone + program + save], cwd=tmp_path, env=environment, check=True
    )
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(np.load(tmp_path / "output.npy"), expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
