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

import os
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


def load_without_package(sizes: dict[str, int]) -> str:
    """Load the native library without the package; return what it registered and set."""
    package = str(Path(_ffi.__file__).parent)
    program = LOAD_ALONE.format(package=package, attributes=ATTRIBUTES, sizes=sizes)
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return run.stdout


def test_load_sets_the_attributes():
    assert load_without_package({}).splitlines() == [
        "registered: True",
        f"set: {[True] * len(ATTRIBUTES)}",
    ]


def test_layout_mismatch_is_rejected_and_registers_nothing():
    output = load_without_package({"ir.Call.args": 4, "relax.expr.If.cond": 16})
    assert f"the layout of apache-tvm {tvm.__version__} does not match" in output
    assert "ir.Call.args: expected 8 bytes, got 4" in output
    assert "relax.expr.If.cond: expected 8 bytes, got 16" in output
    assert "registered: False" in output
    assert f"set: {[False] * len(ATTRIBUTES)}" in output


def test_a_tvm_of_another_release_is_rejected_in_one_sentence():
    fields = [f"{key}.{field}" for key, field, _, _ in _ffi.layout()]
    output = load_without_package(dict.fromkeys(fields[:20], 3)).splitlines()
    assert output[0] == (
        "tvm-fixes needs the classes of apache-tvm 0.27.0 or newer, but 20 classes and fields of "
        f"the loaded {tvm.__version__} differ, such as {fields[0]}: "
        f"expected {_ffi.layout()[0][3]} bytes, got 3"
    )
    assert output[1] == "registered: False"


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


def load_relay(folder, names):
    """Compile a Relay program with copies of these libraries; return what happened."""
    (folder / "x.relay").write_text("def @main( {")
    environment = os.environ | {_ffi.LIBRARY_VARIABLE: copy_libraries(folder, names)}
    command = [sys.executable, "-c", WITH_RELAY]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, env=environment
    )
    return run.stdout.splitlines()


def test_relay_loads_with_its_first_program(tmp_path):
    before, problem, after = load_relay(tmp_path, [_ffi.LIBRARY_NAME, _ffi.RELAY_LIBRARY_NAME])
    assert before == "False False"
    assert problem.startswith("x.relay: ")
    assert after == "True"


def test_a_missing_library_of_relay_is_an_error_of_relay_programs(tmp_path):
    assert load_relay(tmp_path, [_ffi.LIBRARY_NAME]) == [
        "False False",
        f"the native library of Relay is missing: expected {tmp_path / _ffi.RELAY_LIBRARY_NAME}; "
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
