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
"""tvm_fixes.runtime: compiled models are run, saved and loaded."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from onnx import TensorProto, helper
from torch import nn
from tvm import relax

from helpers.models import conv_net, lookup, onnx_conv, onnx_model, onnx_sum_and_product
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import ArtifactError, CompileError, InputError, UsageError
from tvm_fixes.runtime import CompiledModel, OutputComparison, Report, TensorSpec, library
from tvm_fixes.runtime.inspection import inspect
from tvm_fixes.runtime.manifest import describe_function


@pytest.fixture(scope="module")
def conv() -> CompiledModel:
    """One dynamic input, one output: ``image.0`` (batch, 3, 8, 8)."""
    return compile_model(onnx_conv(), compare=False)


@pytest.fixture(scope="module")
def two() -> CompiledModel:
    """Inputs a and b, outputs sum and mul, all (n, 4)."""
    return compile_model(onnx_sum_and_product(), compare=False)


@pytest.fixture(scope="module")
def with_weights() -> CompiledModel:
    """A model with external weights."""
    return compile_model(conv_net(), compare=False, weights="outside")


@pytest.fixture
def artifact(two, tmp_path):
    """A saved artifact that a test may modify."""
    two.save(tmp_path / "artifact")
    return tmp_path / "artifact"


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


class TestRun:
    def test_specs(self, conv, two):
        assert conv.inputs == (TensorSpec("image.0", ("batch", 3, 8, 8), "float32"),)
        assert conv.outputs == (TensorSpec("out.0", ("batch", 4, 8, 8), "float32"),)
        assert repr(two) == (
            "CompiledModel(a: float32 (n, 4); b: float32 (n, 4) -> "
            "sum: float32 (n, 4); mul: float32 (n, 4))"
        )

    @pytest.mark.parametrize("batch", [1, 5])
    def test_one_output_is_an_array_and_batch_is_dynamic(self, conv, batch):
        out = conv.run(normal(batch, 3, 8, 8))
        assert isinstance(out, np.ndarray)
        assert out.shape == (batch, 4, 8, 8)
        alone = conv.run(normal(batch, 3, 8, 8)[:1])
        np.testing.assert_allclose(out[:1], alone, rtol=1e-5, atol=1e-6)

    def test_several_outputs_are_a_tuple(self, two):
        a, b = normal(2, 4), normal(2, 4, seed=1)
        total, product = two.run(a, b)
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(product, a * b)

    def test_inputs_by_name(self, two, conv):
        a, b = normal(2, 4), normal(2, 4, seed=1)
        for result in (two.run(b=b, a=a), two.run(a, b=b), two(a, b), two(b=b, a=a)):
            np.testing.assert_array_equal(result[0], a + b)
        image = normal(1, 3, 8, 8)
        np.testing.assert_array_equal(conv.run(**{"image.0": image}), conv.run(image))

    def test_torch_in_torch_out(self, two):
        a, b = torch.from_numpy(normal(2, 4)), normal(2, 4, seed=1)
        total, product = two.run(a.requires_grad_(), b)
        assert isinstance(total, torch.Tensor)
        assert isinstance(product, torch.Tensor)
        np.testing.assert_array_equal(total.numpy(), a.detach().numpy() + b)

    @pytest.mark.parametrize("kind", ["numpy", "torch"])
    def test_strided_inputs(self, two, kind):
        base = normal(9, 11)
        views = [
            base[1:3, 1:5],
            base[:4, :2].T,
            base[::-3, ::-3][:2],
            np.broadcast_to(base[0, :4], (2, 4)),
            base.reshape(-1)[1:9].reshape(2, 4),
        ]
        zeros = np.zeros((2, 4), "float32")
        for view in views:
            value = view if kind == "numpy" else torch.from_numpy(np.ascontiguousarray(base))
            if kind == "torch":
                offset = (view.__array_interface__["data"][0] - base.ctypes.data) // 4
                strides = [step // 4 for step in view.strides]
                if min(strides) < 0:
                    continue
                value = torch.as_strided(value, view.shape, strides, offset)
            np.testing.assert_array_equal(np.asarray(two.run(value, zeros)[0]), view)

    def test_foreign_byte_order_and_read_only(self, two):
        a = normal(2, 4)
        a.flags.writeable = False
        swapped = a.astype(a.dtype.newbyteorder())
        np.testing.assert_array_equal(two.run(swapped, np.zeros_like(a))[0], a)

    def test_outputs_are_not_views(self):
        """Neither of an input that is returned nor of a constant of the library."""
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            constant = relax.const(np.ones(4, "float32"))
            builder.emit_func_output(relax.Tuple([x, constant]))
        model = compile_model(builder.get(), compare=False)
        for make in (np.copy, torch.tensor):
            value = make(np.arange(4, dtype="float32"))
            same, one = model.run(value)
            same[:] = 7
            one[:] = 7
            assert value[3] == 3
            assert float(model.run(value)[1][0]) == 1

    @pytest.mark.parametrize("batch", [0, 3])
    def test_empty_batch(self, two, batch):
        assert two.run(normal(batch, 4), normal(batch, 4))[0].shape == (batch, 4)

    def test_no_elements_in_rows(self):
        x = torch.ones(3, 0)
        model = compile_model((nn.ReLU().eval(), (x,)))
        assert model.run(x).shape == model.run(x.numpy()).shape == (3, 0)

    def test_shape_as_an_output(self):
        model = compile_model(
            onnx_model(
                [helper.make_node("Shape", ["x"], ["s"])], [("x", 1, ["n", 3])], [("s", 7, [2])]
            )
        )
        assert model.report.equal
        np.testing.assert_array_equal(model.run(normal(5, 3)), np.array([5, 3], "int64"))
        assert model.run(torch.zeros(5, 3)).dtype == torch.int64

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
    def test_dtypes(self, dtype):
        module = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).to(getattr(torch, dtype)).eval()
        x = torch.from_numpy(normal(2, 4)).to(getattr(torch, dtype))
        model = compile_model((module, (x,)))
        assert model.report.equal
        assert model.inputs[0].dtype == dtype
        out = model.run(x)
        assert out.dtype == x.dtype
        numpy_x = normal(2, 4).astype(getattr(ml_dtypes, dtype, dtype))
        numpy_out = model.run(numpy_x)
        assert numpy_out.dtype == numpy_x.dtype
        np.testing.assert_array_equal(numpy_out.astype("float64"), out.double().detach().numpy())

    def test_threads_share_a_model(self, conv):
        inputs = [normal(2, 3, 8, 8, seed=seed) for seed in range(4)]
        expected = [conv.run(x) for x in inputs]
        right = []

        def work(x, out):
            right.append(all(np.array_equal(conv.run(x), out) for _ in range(500)))

        threads = [
            threading.Thread(target=work, args=pair) for pair in zip(inputs, expected, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert right == [True] * 4


class TestInputErrors:
    @pytest.mark.parametrize(
        "args, named, message",
        [
            ((), {}, "missing inputs 'a', 'b'; the model's inputs: (a, b)"),
            ((normal(2, 4),), {}, "missing input 'b'; the model's inputs: (a, b)"),
            ((normal(2, 4),) * 3, {}, "expected 2 inputs (a, b), got 3"),
            (
                (normal(2, 4),),
                {"a": normal(2, 4)},
                "input 'a' is given twice, by position and by name",
            ),
            ((normal(2, 4),), {"z": normal(2, 4)}, "unknown input 'z'; the model's inputs: (a, b)"),
            (
                (normal(2, 4), normal(2, 5)),
                {},
                "input 'b': expected shape (n, 4), got (2, 5): axis 1",
            ),
            (
                (normal(2, 4), normal(8)),
                {},
                "input 'b': expected shape (n, 4), got (8): different rank",
            ),
            (
                (normal(2, 4), normal(3, 4)),
                {},
                "input 'b': expected shape (n, 4), got (3, 4): n is 2 on axis 0 of input 'a' "
                "and 3 on axis 0 of input 'b'; expected equal sizes, or compile with other names "
                "of the dims (--shape for each of the inputs)",
            ),
            (
                (normal(2, 4), normal(2, 4, dtype="float64")),
                {},
                "input 'b': expected dtype float32, got float64",
            ),
            (
                (normal(2, 4), torch.zeros(2, 4, dtype=torch.int32)),
                {},
                "input 'b': expected dtype float32, got int32",
            ),
            (
                (normal(2, 4), [[1.0] * 4] * 2),
                {},
                "input 'b': expected a NumPy array or a PyTorch tensor, got list",
            ),
            (
                (normal(2, 4), torch.zeros(2, 4, device="meta")),
                {},
                "input 'b': expected a tensor on the CPU, got one on meta",
            ),
        ],
    )
    def test_message(self, two, args, named, message):
        with pytest.raises(InputError) as error:
            two.run(*args, **named)
        assert error.value.message == message
        assert isinstance(error.value, ValueError)

    def test_accepted_inputs_do_not_excuse_others(self, two):
        """Only shapes and dtypes that were checked before skip the check."""
        for rows in (2, 3, 2):
            a, b = normal(rows, 4), normal(rows, 4, seed=1)
            np.testing.assert_array_equal(two.run(a, b)[0], a + b)
        for args in (
            (normal(2, 4), normal(3, 4)),
            (normal(2, 4), normal(2, 4, dtype="float64")),
            (normal(2, 4), [[1.0] * 4] * 2),
            (normal(2, 4),),
        ):
            with pytest.raises(InputError):
                two.run(*args)

    def test_few_accepted_shapes_are_kept(self, two):
        for rows in range(1, 150):
            two.run(normal(rows, 4), normal(rows, 4))
        assert len(two._accepted) <= 64

    def test_bounds_of_a_symbolic_dim(self):
        """TVM plans memory for the largest size: a larger one must not reach the library."""
        batch = torch.export.Dim("batch", min=2, max=16)
        module, (x,) = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)).eval(), (torch.ones(3, 4),)
        program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
        model = compile_model(program)
        assert model.report.equal
        (low, high), *_ = model.manifest.bounds.values()
        assert (low, high) == (2, 16)
        assert model.run(normal(16, 4)).shape == (16, 4)
        for size in (1, 17, 1000):
            with pytest.raises(InputError, match=rf"got \({size}, 4\): .* must be from 2 to 16"):
                model.run(normal(size, 4))

    def test_dims_without_a_name_are_not_the_same(self):
        dims = [tvm.tirx.Var("?", "int64"), tvm.tirx.Var("?", "int64")]
        params = [
            relax.Var(n, relax.TensorType((d,), "float32")) for n, d in zip("ab", dims, strict=True)
        ]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            builder.emit_func_output(builder.emit(relax.op.nn.relu(params[0])))
        inputs, outputs, *_ = describe_function(builder.get()["main"])
        assert [spec.shape for spec in inputs] == [("dim0",), ("dim1",)]
        assert outputs[0].shape == ("dim0",)


class TestSave:
    def test_round_trip(self, two, artifact):
        loaded = CompiledModel.load(artifact)
        assert loaded.manifest == two.manifest
        assert loaded.report == two.report
        a, b = normal(3, 4), normal(3, 4, seed=1)
        np.testing.assert_array_equal(loaded.run(a, b)[1], a * b)
        assert sorted(os.listdir(artifact)) == ["manifest.json", "model.so"]
        assert os.listdir(artifact.parent) == ["artifact"]

    def test_manifest(self, two, artifact):
        manifest = json.loads((artifact / "manifest.json").read_text())
        assert manifest["format"] == "tvm-fixes/1"
        assert manifest["function"] == "main"
        assert manifest["inputs"][1] == {"name": "b", "shape": ["n", 4], "dtype": "float32"}
        assert [spec["name"] for spec in manifest["outputs"]] == ["sum", "mul"]
        assert manifest["target"]["kind"] == "llvm"
        assert manifest["versions"]["apache-tvm"] == tvm.__version__
        assert manifest["size"] == (artifact / "model.so").stat().st_size
        assert len(manifest["sha256"]) == 64
        assert manifest["report"]["fixes"] == two.report.fixes

    def test_parents_are_made_and_an_empty_directory_is_filled(self, two, tmp_path):
        two.save(tmp_path / "a" / "b")
        (tmp_path / "empty").mkdir()
        two.save(tmp_path / "empty")
        for name in ("a/b", "empty"):
            assert CompiledModel.load(tmp_path / name).inputs == two.inputs

    def test_an_earlier_artifact_is_replaced(self, conv, artifact):
        before = CompiledModel.load(artifact)
        conv.save(artifact)
        again = CompiledModel.load(artifact)
        assert again.inputs == conv.inputs
        # The dynamic loader would return the previous library.
        image = normal(1, 3, 8, 8)
        np.testing.assert_array_equal(again.run(image), conv.run(image))
        # A previously loaded model keeps working.
        assert before.run(normal(1, 4), normal(1, 4))[0].shape == (1, 4)
        assert os.listdir(artifact.parent) == ["artifact"]

    @pytest.mark.parametrize("owner, step", [(library.Library, "check_file"), (library, "_load")])
    def test_replaced_while_it_is_loaded(self, conv, artifact, monkeypatch, owner, step):
        """Loading is consistent: never one model's manifest with another's library."""
        read, left = getattr(owner, step), [conv]

        def replace(*arguments):
            while left:
                left.pop().save(artifact)
            return read(*arguments)

        monkeypatch.setattr(owner, step, replace)
        model, image = CompiledModel.load(artifact), normal(1, 3, 8, 8)
        np.testing.assert_array_equal(model.run(image), conv.run(image))

    def test_a_loaded_model_is_saved_over_itself(self, artifact):
        model = CompiledModel.load(artifact)
        model.save(artifact)
        assert CompiledModel.load(artifact).manifest == model.manifest

    @pytest.mark.parametrize("extra", ["notes.txt", "manifest.json"])
    def test_other_directories_are_not_replaced(self, two, tmp_path, extra):
        directory = tmp_path / "mine"
        directory.mkdir()
        (directory / extra).write_text("precious")
        with pytest.raises(UsageError, match="contains files that are not an artifact"):
            two.save(directory)
        assert (directory / extra).read_text() == "precious"

    def test_a_file_added_to_an_artifact_is_kept(self, two, artifact):
        (artifact / "notes.txt").write_text("precious")
        with pytest.raises(UsageError, match="contains files that are not an artifact"):
            two.save(artifact)
        assert (artifact / "notes.txt").read_text() == "precious"

    def test_a_file_in_the_way(self, two, tmp_path):
        (tmp_path / "file").write_text("precious")
        (tmp_path / "link").symlink_to(tmp_path)
        for path in ("file", "link"):
            with pytest.raises(UsageError, match=r"is not a directory|expected a directory"):
                two.save(tmp_path / path)
        with pytest.raises(UsageError, match="file is not a directory"):
            two.save(tmp_path / "file" / "below")
        assert (tmp_path / "file").read_text() == "precious"

    def test_a_model_replaced_after_loading_cannot_be_saved(self, conv, artifact, tmp_path):
        """Never saves the library of another model under this one's manifest."""
        model = CompiledModel.load(artifact)
        conv.save(artifact)
        with pytest.raises(ArtifactError, match=r"model\.so: changed since it was loaded"):
            model.save(tmp_path / "new")
        shutil.rmtree(artifact)
        with pytest.raises(ArtifactError, match=r"model\.so: removed since it was loaded"):
            model.save(tmp_path / "new")
        assert os.listdir(tmp_path) == []


def test_a_directory_without_executables(monkeypatch):
    model = compile_model(onnx_conv(), compare=False)
    (model._library.directory / "model.so").write_bytes(b"")
    flags = type("Flags", (), {"f_flag": os.ST_NOEXEC | os.ST_RDONLY})
    monkeypatch.setattr(os, "statvfs", lambda path: flags)
    with pytest.raises(ArtifactError, match=r"model\.so cannot be loaded: .* noexec; use another"):
        model.run(np.ones((1, 3, 8, 8), "float32"))


class TestForked:
    """A process forked after a parallel kernel has run lacks the worker threads."""

    @pytest.fixture
    def parallel(self):
        module = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).eval()
        return compile_model((module, (torch.ones(256, 512),)), compare=False)

    def in_a_child(self, function) -> int:
        """The exit status of a child: 0 if `function` is true, 14 after a timeout."""
        child = os.fork()
        if not child:
            signal.alarm(60)
            try:
                os._exit(0 if function() else 1)
            except BaseException:
                os._exit(2)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def test_run(self, parallel):
        x = normal(256, 512)
        before = parallel.run(x)

        def again():
            return np.array_equal(parallel.run(x), before)

        assert self.in_a_child(again) == 0
        # A child of the child, and the process itself afterwards.
        assert self.in_a_child(lambda: again() and self.in_a_child(again) == 0) == 0
        assert again()

    def test_while_another_thread_runs_it(self, parallel):
        x = normal(256, 512)
        with parallel._library.lock:
            assert self.in_a_child(lambda: parallel.run(x).shape == (256, 512)) == 0


class TestReport:
    def test_fields_of_a_later_version_are_ignored(self):
        report = compile_model(onnx_conv()).report
        values = report.to_dict() | {"energy_joules": 3}
        values["outputs"] = [output | {"median_error": 0} for output in values["outputs"]]
        assert Report.from_dict(values) == report

    def test_text(self):
        report = Report("m.onnx", "NHWC", {}, artifact_bytes=9, parameter_bytes=4)
        assert str(report) == "m.onnx in NHWC: not compared, 9 bytes, fixes: none"
        output = OutputComparison("y", [1], "float32", 1e-6, 1e-7, 1e-4, 1e-5, True)
        report = replace(
            report,
            layout=None,
            fixes=["a-fix", "b-fix"],
            reference="PyTorch 2",
            outputs=[output],
            latency_ms=1.5,
            reference_latency_ms=2.0,
        )
        assert str(report) == (
            "m.onnx: equal to PyTorch 2, max error 1e-06, 1.5 ms (reference 2 ms), 9 bytes, "
            "fixes: a-fix, b-fix"
        )
        report = replace(report, outputs=[replace(output, equal=False, max_abs_error=None)])
        assert str(report).startswith("m.onnx: not equal to PyTorch 2, 1.5 ms")
        rounded = replace(output, max_abs_error=2e-8, reason="rounding", rounding_error=3e-8)
        report = replace(report, outputs=[rounded, output])
        within = "equal within rounding to PyTorch 2, max error 2e-08 (its own: 3e-08)"
        assert report.comparison == within


class TestLoad:
    @pytest.mark.parametrize("name", ["model.so", "manifest.json"])
    def test_half_an_artifact(self, artifact, name):
        (artifact / name).unlink()
        with pytest.raises(ArtifactError, match=f"not an artifact: .*{name}"):
            CompiledModel.load(artifact)

    def test_no_directory(self, tmp_path):
        with pytest.raises(ArtifactError, match="not an artifact"):
            CompiledModel.load(tmp_path / "nothing")

    def test_another_library(self, artifact):
        with open(artifact / "model.so", "ab") as library:
            library.write(b"x")
        with pytest.raises(ArtifactError, match=r"not the library of manifest.json: expected SHA"):
            CompiledModel.load(artifact)

    @pytest.mark.parametrize(
        "change, message",
        [
            (lambda m: m | {"format": "tvm-fixes/99"}, "format 'tvm-fixes/99'; expected 'tvm-fix"),
            (lambda m: {"a": 1}, "not a manifest of tvm-fixes"),
            (lambda m: [1], "not a manifest of tvm-fixes"),
            (lambda m: {k: v for k, v in m.items() if k != "sha256"}, "malformed manifest"),
            (lambda m: m | {"inputs": 3}, "malformed manifest"),
            (lambda m: m | {"target": {}}, "target: expected a kind, got {}"),
            (lambda m: m | {"target": {"kind": 3}}, "target: expected a kind, got "),
            (lambda m: m | {"target": {"kind": "cuda"}}, "target: expected an architecture"),
            (lambda m: m | {"triple": ["x"]}, "triple: expected str"),
            (lambda m: m | {"cpu_features": "avx"}, "cpu_features: expected list"),
            (lambda m: m | {"size": True}, "size: expected int"),
            (lambda m: m | {"inputs": m["inputs"][:1]}, "main takes 2 tensors, its manifest.json"),
            (lambda m: m | {"bounds": {"n": 3}}, "malformed manifest"),
            (lambda m: m | {"cpu_features": ["avx10.99"]}, "it uses avx10.99, which this CPU does"),
            (lambda m: m | {"triple": "sparc-sun-solaris"}, "it is for sparc, but this machine is"),
        ],
    )
    def test_a_manifest_that_does_not_fit(self, artifact, change, message):
        path = artifact / "manifest.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
        with pytest.raises(ArtifactError, match=message):
            CompiledModel.load(artifact)

    @pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff", b"", b"null", b'{"format": {}}'])
    def test_invalid_manifest(self, artifact, text):
        (artifact / "manifest.json").write_bytes(text)
        for read in (CompiledModel.load, inspect):
            with pytest.raises(ArtifactError, match=r"manifest\.json|not an artifact: 'utf-8'"):
                read(artifact)

    @pytest.mark.parametrize("name", ["model.so", "manifest.json", "weights.safetensors"])
    @pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
    def test_not_a_regular_file(self, with_weights, tmp_path, name, kind):
        """Opening a FIFO or reading a device would never end."""
        with_weights.save(tmp_path / "out")
        path = tmp_path / "out" / name
        path.unlink()
        if kind == "device":
            path.symlink_to("/dev/zero")
        else:
            (os.mkfifo if kind == "fifo" else os.mkdir)(path)
        message = "not a regular file|Is a directory"
        for read in (CompiledModel.load, inspect):
            with pytest.raises(ArtifactError, match=message):
                read(tmp_path / "out")

    def test_without_the_record_of_its_weights(self, with_weights, tmp_path):
        with_weights.save(tmp_path / "out")
        path = tmp_path / "out" / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"weights": None}))
        message = r"model\.so: main takes 2 tensors, its manifest\.json describes 1"
        with pytest.raises(ArtifactError, match=message):
            CompiledModel.load(tmp_path / "out")

    @pytest.mark.parametrize(
        "header, message",
        [
            (b"{", "the header is not JSON"),
            (b"\xff", "the header is not JSON"),
            (b"[]", "no tensor"),
            (b"null", "no tensor"),
        ],
    )
    def test_a_broken_header_of_weights(self, with_weights, tmp_path, header, message):
        with_weights.save(tmp_path / "out")
        path, manifest = (tmp_path / "out" / n for n in ("weights.safetensors", "manifest.json"))
        data = path.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        data = data[:8] + header.ljust(end - 8) + data[end:]
        path.write_bytes(data)
        values = json.loads(manifest.read_text())
        values["weights"]["header_sha256"] = hashlib.sha256(data[:end]).hexdigest()
        manifest.write_text(json.dumps(values))
        for read in (CompiledModel.load, inspect):
            with pytest.raises(ArtifactError, match=f"safetensors: {message}"):
                read(tmp_path / "out")

    def test_truncated_manifest(self, artifact):
        path = artifact / "manifest.json"
        path.write_text(path.read_text()[:100])
        with pytest.raises(ArtifactError, match="malformed manifest"):
            CompiledModel.load(artifact)

    def test_fields_of_a_later_version_are_ignored(self, artifact):
        path = artifact / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"added": 1}))
        assert CompiledModel.load(artifact).inputs[0].name == "a"

    def test_a_process_that_has_only_tvm(self, tmp_path):
        model = compile_model(conv_net(), output=tmp_path / "out")
        assert model.report.equal
        x = normal(1, 3, 8, 8)
        np.save(tmp_path / "x.npy", x)
        script = tmp_path / "run.py"
        script.write_text(
            "import sys\n"
            "sys.modules['tvm_fixes'] = None  # its import fails\n"
            "import numpy as np\n"
            "import tvm\n"
            "from tvm import relax\n"
            "library = tvm.runtime.load_module('out/model.so')\n"
            "main = relax.VirtualMachine(library, tvm.cpu())['main']\n"
            "np.save('y.npy', main(tvm.runtime.tensor(np.load('x.npy'))).numpy())\n"
        )
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, env=environment, check=True, timeout=120
        )
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model.run(x))

    def test_copied_elsewhere(self, artifact, tmp_path):
        shutil.copytree(artifact, tmp_path / "copy")
        shutil.rmtree(artifact)
        loaded = CompiledModel.load(tmp_path / "copy")
        np.testing.assert_array_equal(loaded.run(normal(1, 4), normal(1, 4))[0], 2 * normal(1, 4))


def test_a_run_that_exhausts_memory():
    constant = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    types = [("shape", TensorProto.INT64, [1])], [("y", TensorProto.FLOAT, ["n"])]
    compiled = compile_model(onnx_model([constant], *types), compare=False)
    with pytest.raises(CompileError, match=r"^out of memory for inputs of shapes \(1\);"):
        compiled.run(np.array([2**45]))
    np.testing.assert_array_equal(compiled.run(np.array([3])), np.zeros(3, "float32"))


def test_integers_booleans_and_a_dict_of_outputs():
    module, inputs = lookup()
    model = compile_model((module, inputs))
    assert model.report.equal
    assert [spec.name for spec in model.outputs] == ["found", "more.0", "more.1", "same"]
    found, total, index, same = model.run(*inputs)
    expected = module(*inputs)
    torch.testing.assert_close(found, expected["found"])
    torch.testing.assert_close(total, expected["more"][0])
    torch.testing.assert_close(index, expected["more"][1])
    torch.testing.assert_close(same, inputs[2])


if __name__ == "__main__":
    tvm.testing.main()
