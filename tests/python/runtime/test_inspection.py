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

"""Inspection of artifacts, of other files, and of hostile ones."""

import json
import os
import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from tvm_fixes import _ffi, lift
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import ArtifactError, UsageError
from tvm_fixes.runtime.inspection import inspect
from tvm_fixes.runtime.manifest import LIBRARY, MANIFEST, WEIGHTS

pytestmark = pytest.mark.native

SYMBOL = b"__tvm_ffi__library_bin"


def values() -> dict[str, np.ndarray]:
    """A row, and a table stored twice under two names."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((5, 8)).astype("float32")
    return {
        "table": table,
        "again": table.copy(),
        "row": rng.standard_normal(8).astype("float32"),
    }


def module() -> tvm.IRModule:
    """``relu((x + table) * row) + again``, without anything to fold."""
    x = relax.Var("x", relax.TensorType((5, 8), "float32"))
    builder = relax.BlockBuilder()
    constant = {name: relax.const(value) for name, value in values().items()}
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(x, constant["table"]))
            y = builder.emit(relax.op.multiply(y, constant["row"]))
            y = builder.emit(relax.op.nn.relu(y))
            out = builder.emit_output(relax.op.add(y, constant["again"]))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """A shared artifact, which tests must not modify."""
    path = tmp_path_factory.mktemp("inspection") / "artifact"
    compile_model(module(), compare=False, output=path)
    return path


def read(path) -> tuple:
    return _ffi.artifact_extension().read_library(str(path))


@contextmanager
def changed(file: BinaryIO, where: int, data: bytes) -> Iterator[None]:
    """The file holds `data` at `where` within the ``with`` block."""
    before = os.pread(file.fileno(), len(data), where)
    os.pwrite(file.fileno(), data, where)
    try:
        yield
    finally:
        os.pwrite(file.fileno(), before, where)


class TestInspect:
    def test_tensors_are_those_of_the_module(self, artifact):
        inspection = inspect(artifact / LIBRARY)
        data = (artifact / LIBRARY).read_bytes()
        tensors = [c for c in inspection.constants if c.kind == "tensor"]
        held = [
            np.frombuffer(data, c.dtype, int(np.prod(c.shape)), c.offset).reshape(c.shape)
            for c in tensors
        ]
        for value in values().values():
            assert any(array.shape == value.shape and (array == value).all() for array in held)
        assert all(c.nbytes == array.nbytes for c, array in zip(tensors, held, strict=True))
        assert inspection.constant_bytes == sum(array.nbytes for array in held)
        assert inspection.files == {LIBRARY: len(data)}

    def test_sections_and_modules_lie_in_the_file(self, artifact):
        inspection = inspect(artifact)
        names = [section.name for section in inspection.sections]
        assert {".text", ".rodata", ".dynsym"} <= set(names)
        size = inspection.files[LIBRARY]
        assert all(s.offset + s.nbytes <= size for s in inspection.sections)
        # Sections without space in the file are not counted.
        assert inspection.sections[names.index(".bss")].nbytes == 0
        kinds = {part.kind: part for part in inspection.modules}
        assert set(kinds) == {"relax.VMExecutable", "_lib"}
        vm = kinds["relax.VMExecutable"]
        assert all(
            vm.offset <= c.offset and c.offset + c.nbytes <= vm.offset + vm.nbytes
            for c in inspection.constants
        )

    def test_ratios(self, artifact):
        inspection = inspect(artifact)
        parameters = sum(value.nbytes for value in values().values())
        assert inspection.parameter_bytes == parameters
        assert inspection.size_ratio == inspection.nbytes / parameters > 1
        assert inspection.constant_ratio == inspection.constant_bytes / parameters
        alone = inspect(artifact / LIBRARY)
        assert alone.parameter_bytes is alone.size_ratio is alone.constant_ratio is None

    def test_duplicates(self, tmp_path):
        """Two tensors with equal contents, which the VM stores twice."""
        x = relax.Var("x", relax.TensorType((64, 64), "float32"))
        one = np.arange(64 * 64, dtype="float32").reshape(64, 64)
        other = one.view("int32").copy()
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                y = builder.emit(relax.op.add(x, relax.const(one)))
                z = builder.emit(relax.op.add(relax.const(other), relax.op.astype(x, "int32")))
                z = builder.emit(relax.op.astype(z, "float32"))
                out = builder.emit_output(relax.op.add(y, z))
            builder.emit_func_output(out)
        executable = relax.build(builder.get(), "llvm")
        executable.export_library(str(tmp_path / LIBRARY))
        inspection = inspect(tmp_path / LIBRARY)
        tensors = [c for c in inspection.constants if c.nbytes == one.nbytes]
        assert [c.dtype for c in tensors] == ["float32", "int32"]
        assert [c.duplicate_of for c in tensors] == [None, tensors[0].index]
        assert inspection.duplicate_bytes == one.nbytes

    def test_a_lifted_model(self, tmp_path):
        a, b = (relax.Var(name, relax.TensorType((64, 64), "float32")) for name in "ab")
        builder = relax.BlockBuilder()
        with builder.function("main", [a, b], attrs={"num_input": 1}):
            with builder.dataflow():
                total = builder.emit(relax.op.add(b, relax.const(1, "float32")))
                out = builder.emit_output(relax.op.multiply(a, total))
            builder.emit_func_output(out)
        weight = np.ones((64, 64), "float32")
        model = lift(builder.get(), {"b": weight})
        model.run(weight)
        model.save(tmp_path / "lifted")
        inspection = inspect(tmp_path / "lifted")
        [prepared] = [c for c in inspection.constants if c.file == WEIGHTS]
        assert (prepared.dtype, prepared.shape) == ("float32", (64, 64))
        assert inspection.parameter_bytes == weight.nbytes
        assert set(inspection.files) == {LIBRARY, WEIGHTS}
        data = (tmp_path / "lifted" / WEIGHTS).read_bytes()
        held = np.frombuffer(data, "float32", weight.size, prepared.offset)
        np.testing.assert_array_equal(held, weight.ravel() + 1)

    def test_json(self, artifact):
        inspection = inspect(artifact)
        document = json.loads(inspection.to_json())
        assert document["constant_bytes"] == inspection.constant_bytes
        assert len(document["constants"]) == len(inspection.constants)
        assert document["size_ratio"] == inspection.size_ratio
        assert document["code_bytes"] == inspection.code_bytes > 0

    def test_the_native_library_holds_no_python(self):
        assert "PyObject_" not in imported_symbols(_ffi.library_path())
        assert "PyObject_" in imported_symbols(_ffi.artifact_extension().__file__)


def imported_symbols(library) -> str:
    """The undefined symbols of ``library``, one per line."""
    command = ["nm", "--dynamic", "--undefined-only", str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def fails(path) -> str:
    with pytest.raises((ArtifactError, UsageError)) as raised:
        inspect(path)
    assert isinstance(raised.value, UsageError) == (not os.path.lexists(path))
    assert "\n" not in raised.value.message
    return raised.value.message


class TestErrors:
    def test_not_an_artifact(self, tmp_path):
        (tmp_path / "text.so").write_text("text")
        (tmp_path / "empty.so").touch()
        os.mkfifo(tmp_path / "pipe.so")
        assert fails(tmp_path / "text.so") == f"{tmp_path}/text.so: not an ELF file"
        assert fails(tmp_path / "empty.so") == f"{tmp_path}/empty.so: empty"
        assert fails(tmp_path / "pipe.so") == f"{tmp_path}/pipe.so: not a regular file"
        assert fails(tmp_path / "no.so") == f"{tmp_path}/no.so: no such file or directory"
        assert "not an artifact" in fails(tmp_path)

    def test_a_library_that_is_not_tvms(self):
        path = _ffi.library_path()
        assert (
            fails(path)
            == f"{path}: not a library exported by TVM: missing symbol {SYMBOL.decode()}"
        )

    @pytest.mark.parametrize(
        "offset, value, message",
        [
            (4, 1, "expected a 64-bit ELF file, got a 32-bit one"),
            (5, 2, "expected a little-endian ELF file, got a big-endian one"),
            (4, 7, "ELF file of unknown class 7 or byte order 1"),
            (1, 0, "not an ELF file"),
            (58, 63, "ELF header: expected section headers of 64 bytes, got 63"),
        ],
    )
    def test_an_elf_file_of_another_kind(self, artifact, tmp_path, offset, value, message):
        data = bytearray((artifact / LIBRARY).read_bytes())
        data[offset] = value
        (tmp_path / "x.so").write_bytes(data)
        assert fails(tmp_path / "x.so") == f"{tmp_path}/x.so: {message}"

    def test_sizes_that_overflow(self, artifact, tmp_path):
        """Each 8-byte number of the packed modules, replaced by one that is too large."""
        inspection = inspect(artifact / LIBRARY)
        path = tmp_path / "x.so"
        shutil.copy(artifact / LIBRARY, path)
        messages = set()
        with open(path, "r+b") as file:
            for at in range(inspection.modules[0].offset - 64, inspection.constants[-1].offset):
                for value in (2**64 - 1, 2**63, 2**61 + 1, 2**40):
                    with changed(file, at, struct.pack("<Q", value)):
                        try:
                            read(path)
                        except ValueError as error:
                            messages.add(str(error).partition(" at offset")[0])
        assert any("elements of a tensor" in m or "bytes by its shape" in m for m in messages)
        assert any("import tree" in m for m in messages)
        assert any("name of a function" in m for m in messages)

    def test_truncated(self, artifact, tmp_path):
        data = (artifact / LIBRARY).read_bytes()
        path = tmp_path / "x.so"
        for size in np.random.default_rng(0).integers(1, len(data), 200):
            path.write_bytes(data[:size])
            with pytest.raises(ValueError):
                read(path)

    def test_changed_bytes(self, artifact, tmp_path):
        """Any bytes are either read or rejected; the sanitizers check for memory errors."""
        data = np.frombuffer((artifact / LIBRARY).read_bytes(), "uint8")
        inspection = inspect(artifact / LIBRARY)
        sections = {section.name: section for section in inspection.sections}
        headers = int.from_bytes(data[40:48].tobytes(), "little")
        parts = [
            (0, 64),
            (headers, len(data)),
            *(
                (sections[n].offset, sections[n].offset + sections[n].nbytes)
                for n in (".dynsym", ".dynstr")
            ),
            (
                inspection.modules[0].offset - 100,
                inspection.modules[0].offset + inspection.modules[0].nbytes,
            ),
        ]
        rng = np.random.default_rng(1)
        path = tmp_path / "x.so"
        shutil.copy(artifact / LIBRARY, path)
        refused = 0
        with open(path, "r+b") as file:
            for _ in range(3000):
                begin, end = parts[rng.integers(len(parts))]
                length = rng.choice([1, 2, 8])
                values = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256)], length)
                where = min(int(rng.integers(begin, end)), len(data) - int(length))
                with changed(file, where, values.astype("uint8").tobytes()):
                    try:
                        size, _, _, constants = read(path)
                    except ValueError:
                        refused += 1
                        continue
                assert size == len(data)
                assert all(offset + nbytes <= size for *_, offset, nbytes in constants)
        assert 100 < refused < 3000

    def test_another_library_than_the_manifests(self, artifact, tmp_path):
        shutil.copytree(artifact, tmp_path / "copy")
        with open(tmp_path / "copy" / LIBRARY, "ab") as file:
            file.write(b"x")
        assert "not the library of its manifest: expected" in fails(tmp_path / "copy")
        (tmp_path / "copy" / MANIFEST).write_text("{")
        assert "malformed manifest" in fails(tmp_path / "copy")

    def test_missing_extension(self, artifact, tmp_path, monkeypatch):
        shutil.copy(_ffi.library_path(), tmp_path)
        monkeypatch.setenv(_ffi.LIBRARY_VARIABLE, str(tmp_path / _ffi.LIBRARY_NAME))
        _ffi.artifact_extension.cache_clear()
        try:
            message = fails(artifact)
        finally:
            _ffi.artifact_extension.cache_clear()
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        assert f"expects {tmp_path}/_artifact{suffix}" in message
        assert "'make native' builds it" in message


if __name__ == "__main__":
    tvm.testing.main()
