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
"""Tests of loading the native library, and of error types across the FFI."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tvm
import tvm.testing
import tvm_ffi
from tvm import relax

import tvm_fixes
from helpers.relax_modules import build, tensor
from tvm_fixes import _ffi
from tvm_fixes.support import switches

pytestmark = pytest.mark.native


def registered() -> list[str]:
    names = tvm_ffi.registry.list_global_func_names()
    return sorted(name for name in names if name.startswith("tvm_fixes."))


ATTRIBUTES = [
    ("relax.reshape", "FRelaxInferLayout"),
    ("relax.permute_dims", "FRelaxInferLayout"),
    ("relax.nn.conv2d_transpose", "FRelaxInferLayout"),
    ("relax.nn.conv2d_transpose", "FInferType"),
]

# Importing TVM takes longest, so each case runs in a fork of one process.
IN_FORKS = """
import json, os, sys
import tvm, tvm_ffi

for program, folder, variables in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if not (child := os.fork()):
        os.chdir(folder)
        os.environ.update(variables)
        exec(program, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    print("status", os.waitpid(child, 0)[1], flush=True)
"""
LOAD_ALONE = """
import importlib.util, sys, types
import tvm, tvm_ffi
package = types.ModuleType("tvm_fixes")
package.__path__ = [{package!r}]
sys.modules["tvm_fixes"] = package
from tvm_fixes import _ffi
def attributes():
    return [tvm.ir.Op.get(op).get_attr(key) for op, key in {attributes!r}]

before = attributes()
try:
    _ffi.load({sizes!r})
except ImportError as error:
    print(error)
names = tvm_ffi.registry.list_global_func_names()
print("registered:", any(name.startswith("tvm_fixes.") for name in names))
pairs = zip(before, attributes(), strict=True)
print("set:", [not (old.same_as(new) if old and new else old is new) for old, new in pairs])
"""


Case = tuple[str, str, dict[str, str]]


def outputs_in_forks(cases: list[Case]) -> list[list[str]]:
    """Run programs, each with a working directory and environment variables."""
    run = subprocess.run(
        [sys.executable, "-c", IN_FORKS, json.dumps(cases)],
        capture_output=True,
        text=True,
        check=True,
    )
    outputs = [output.splitlines() for output in run.stdout.split("status 0\n")]
    assert len(outputs) == len(cases) + 1 and outputs.pop() == [], run.stdout + run.stderr
    return outputs


def test_load_without_the_package():
    package = str(Path(_ffi.__file__).parent)
    fields = [f"{key}.{field}" for key, field, _, _ in _ffi.layout()]
    sizes = (
        {},
        {"ir.Call.args": 4, "relax.expr.If.cond": 16},
        dict.fromkeys(fields[:20], 3),
    )
    right, wrong, old = outputs_in_forks(
        [
            (LOAD_ALONE.format(package=package, attributes=ATTRIBUTES, sizes=each), ".", {})
            for each in sizes
        ]
    )
    # It sets the attributes.
    assert right == ["registered: True", f"set: {[True] * len(ATTRIBUTES)}"]
    # A layout that differs is rejected, and registers nothing.
    assert f"the layout of apache-tvm {tvm.__version__} does not match" in wrong[0]
    assert "ir.Call.args: expected 8 bytes, got 4" in "\n".join(wrong)
    assert "relax.expr.If.cond: expected 8 bytes, got 16" in "\n".join(wrong)
    assert wrong[-2:] == ["registered: False", f"set: {[False] * len(ATTRIBUTES)}"]
    # A TVM of another release is rejected in one sentence.
    assert old[:2] == [
        "tvm-fixes needs the classes of apache-tvm 0.27.0 or newer, but 20 classes and fields of "
        f"the loaded {tvm.__version__} differ, such as {fields[0]}: "
        f"expected {_ffi.layout()[0][3]} bytes, got 3",
        "registered: False",
    ]


def test_an_old_tvm_ffi_is_rejected(monkeypatch):
    monkeypatch.delattr(tvm_ffi, "structural_map")
    needed = r"needs apache-tvm-ffi 0\.1\.14\.post0 or newer"
    with pytest.raises(ImportError, match=f"{needed}, but {tvm_ffi.__version__} at .*tvm_ffi is"):
        _ffi.load()


def test_runtime_only_tvm_is_rejected(monkeypatch):
    monkeypatch.setattr(tvm.base, "_RUNTIME_ONLY", True)
    with pytest.raises(ImportError, match=r"needs TVM's compiler.*runtime only"):
        _ffi.load()


def test_missing_library_is_rejected(monkeypatch, tmp_path):
    missing = tmp_path / "missing.so"
    monkeypatch.setenv(_ffi.LIBRARY_VARIABLE, str(missing))
    with pytest.raises(ImportError, match=f"is missing: expected {missing}"):
        _ffi.load()


def copy_libraries(folder, names):
    for name in names:
        shutil.copy(_ffi.library_path().parent / name, folder / name)
    return str(folder / _ffi.LIBRARY_NAME)


def test_loading_twice_is_harmless(monkeypatch, tmp_path):
    _ffi.load_relay()
    before = registered()
    infer_layout = tvm.ir.Op.get("relax.reshape").get_attr("FRelaxInferLayout")
    _ffi.load()
    copy = copy_libraries(tmp_path, [_ffi.LIBRARY_NAME, _ffi.RELAY_LIBRARY_NAME])
    monkeypatch.setenv(_ffi.LIBRARY_VARIABLE, copy)
    assert str(_ffi.load()) == copy
    assert _ffi.load_relay() == tmp_path / _ffi.RELAY_LIBRARY_NAME
    assert registered() == before
    assert tvm.ir.Op.get("relax.reshape").get_attr("FRelaxInferLayout").same_as(infer_layout)


WITH_RELAY = """
import sys
import tvm_ffi
import tvm_fixes
from tvm_fixes.errors import CompileError
def has_relay():
    names = tvm_ffi.registry.list_global_func_names()
    return any(name.startswith("tvm_fixes.relay.") for name in names)

print(has_relay(), "tvm_fixes.relay" in sys.modules)
try:
    tvm_fixes.compile("x.relay")
except CompileError as error:
    print(error.message)
print(has_relay())
"""


def test_relay_loads_with_its_first_program(tmp_path):
    """A missing library of Relay is an error of Relay programs only."""
    cases = []
    for folder, names in (
        (tmp_path / "all", [_ffi.LIBRARY_NAME, _ffi.RELAY_LIBRARY_NAME]),
        (tmp_path / "alone", [_ffi.LIBRARY_NAME]),
    ):
        folder.mkdir()
        (folder / "x.relay").write_text("def @main( {")
        variables = {_ffi.LIBRARY_VARIABLE: copy_libraries(folder, names)}
        cases.append((WITH_RELAY, str(folder), variables))
    (before, problem, after), alone = outputs_in_forks(cases)
    assert before == "False False"
    assert problem.startswith("x.relay: ")
    assert after == "True"
    missing = tmp_path / "alone" / _ffi.RELAY_LIBRARY_NAME
    assert alone == [
        "False False",
        f"the native library of Relay is missing: expected {missing}; "
        "'make native-relay' builds it in a checkout",
        "False",
    ]


def test_layout_describes_every_bound_field():
    rows = {(key, field): (offset, size) for key, field, offset, size in _ffi.layout()}
    call = tvm.ir.Call.__tvm_ffi_type_info__
    for field in call.fields:
        assert rows["ir.Call", field.name] == (field.offset, field.size)
    assert _ffi.native_status().ok


@pytest.fixture
def module() -> tvm.IRModule:
    return build({"x": tensor(2, 3)}, lambda builder, x: relax.op.nn.relu(x))


def test_value_error_keeps_its_type(module, monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "zzz")
    with pytest.raises(ValueError, match="unknown fix 'zzz'; known fixes: conv-"):
        tvm_fixes.transform.PrepareLayout()(module)


def test_error_of_a_python_callback_keeps_its_type(module, monkeypatch):
    def fail() -> frozenset[str]:
        raise KeyError("from the callback")

    monkeypatch.setattr(switches, "disabled", fail)
    with pytest.raises(KeyError, match="from the callback"):
        tvm_fixes.transform.PrepareLayout()(module)


def test_value_error_of_native_code():
    x, w = relax.Var("x", tensor(1, 2, 4, 4)), relax.Var("w", tensor(2, 3, 3, 3))
    call = relax.op.nn.conv2d_transpose(x, w, dilation=2, output_padding=2)
    with pytest.raises(ValueError, match=r"output_padding \[2, 2\] must be less than the larger"):
        relax.BlockBuilder().normalize(call)


@tvm.instrument.pass_instrument
class Names:
    def __init__(self):
        self.seen = []

    def run_before_pass(self, _mod, info):
        self.seen.append(info.name)


def test_passes_are_passes_of_tvm(module):
    prepare = tvm_fixes.transform.PrepareLayout()
    assert isinstance(prepare, tvm.transform.Pass)
    assert prepare.info.name == "PrepareLayout"
    names = Names()
    with tvm.transform.PassContext(instruments=[names]):
        tvm.transform.Sequential([prepare, relax.transform.DeadCodeElimination()])(module)
    assert names.seen[:2] == ["sequential", "PrepareLayout"]
    skipped = Names()
    with tvm.transform.PassContext(instruments=[skipped], disabled_pass=["PrepareLayout"]):
        tvm.transform.Sequential([prepare])(module)
    assert "PrepareLayout" not in skipped.seen


if __name__ == "__main__":
    tvm.testing.main()
