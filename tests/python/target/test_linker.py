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

import importlib.machinery
import importlib.util
import os
import stat
import sys

import pytest
import tvm
import tvm.testing

from tvm_fixes import CompileError
from tvm_fixes import target as targets
from tvm_fixes.target import cuda_libraries
from tvm_fixes.target.linker import Linker, linker_for

HERE = targets.native()
OTHER = "aarch64" if targets.triple_of(HERE).startswith("x86_64") else "x86_64"
FOREIGN = tvm.target.Target({"kind": "llvm", "mtriple": f"{OTHER}-linux-gnu"})


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without compilers or zig; return the only folder on its PATH."""
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    return tmp_path


@pytest.fixture
def zig(bare):
    """An empty package ziglang: linker_for only checks that it exists."""
    package = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("ziglang", None))
    sys.modules["ziglang"] = package


def program(path, text="#!/bin/sh\n"):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_compiler_of_this_machine(bare, zig):
    gcc = program(bare / "gcc")
    assert linker_for(HERE) == Linker((gcc,))


def test_the_cross_compiler(bare, zig):
    program(bare / "g++")
    cross = program(bare / f"{OTHER}-linux-gnu-g++")
    assert linker_for(FOREIGN) == Linker((cross,))


@pytest.mark.parametrize(
    ("triple", "name"),
    [
        ("x86_64-pc-linux-gnu", "x86_64-linux-gnu.2.28"),
        ("arm64-linux-gnu", "aarch64-linux-gnu.2.28"),
        ("aarch64-unknown-linux-musl", "aarch64-linux-musl"),
        ("riscv64-linux-gnu", "riscv64-linux-gnu.2.28"),
    ],
)
def test_zig(triple, name, bare, zig):
    linker = linker_for(tvm.target.Target({"kind": "llvm", "mtriple": triple}))
    command = (sys.executable, "-m", "ziglang", "cc", "-target", name)
    assert linker == Linker(command, ("-lm",))


@pytest.mark.parametrize("home", [None, "/proc"])
def test_zig_without_a_place_for_its_cache(home, bare, zig, monkeypatch):
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
        monkeypatch.setattr("os.access", lambda *_: False)  # as a user who is not root
    monkeypatch.setattr("tempfile.tempdir", str(bare))
    [(name, folder)] = linker_for(HERE).environment
    assert name == "ZIG_GLOBAL_CACHE_DIR"
    assert folder == str(bare / f"tvm-fixes-zig-{os.getuid()}")
    assert os.stat(folder).st_mode & 0o777 == 0o700
    os.chmod(folder, 0o777)
    [(_, other)] = linker_for(HERE).environment
    assert other != folder
    assert os.stat(other).st_mode & 0o777 == 0o700
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(bare / "mine"))
    assert linker_for(HERE).environment == ()


def test_zig_without_an_entry_in_the_password_database(bare, zig, monkeypatch):
    def unknown(_uid):
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(bare))
    [(name, _)] = linker_for(HERE).environment
    assert name == "ZIG_GLOBAL_CACHE_DIR"


def test_zig_with_a_home_that_is_not_a_folder(bare, zig, monkeypatch):
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setattr("tempfile.tempdir", str(bare))
    [(name, _)] = linker_for(HERE).environment
    assert name == "ZIG_GLOBAL_CACHE_DIR"


def test_zig_with_the_home_of_another_user(bare, zig, monkeypatch):
    stat_file = os.stat

    def denied(path, **options):
        if ".cache" in os.fspath(path):
            raise PermissionError
        return stat_file(path, **options)

    monkeypatch.setattr("os.stat", denied)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("tempfile.tempdir", str(bare))
    [(name, _)] = linker_for(HERE).environment
    assert name == "ZIG_GLOBAL_CACHE_DIR"


def test_a_missing_cross_compiler(bare):
    program(bare / "g++")
    with pytest.raises(CompileError) as error:
        linker_for(FOREIGN)
    package = f"g++-{OTHER.replace('_', '-')}-linux-gnu"
    assert str(error.value) == (
        f"no compiler links for {OTHER}-linux-gnu: install {package}, pip install "
        "ziglang, or set CXX"
    )
    (bare / "g++").unlink()
    with pytest.raises(CompileError, match=r": install g\+\+, pip install"):
        linker_for(HERE)


def test_the_environment_comes_first(bare, zig, monkeypatch):
    program(bare / "g++")
    chosen = program(bare / "mine", f"#!/bin/sh\necho {OTHER}-linux-gnu\n")
    monkeypatch.setenv("CXX", chosen)
    assert linker_for(FOREIGN) == Linker((chosen,))
    with pytest.raises(CompileError, match=f"mine links for {OTHER}-linux-gnu and cannot link for"):
        linker_for(HERE)


def test_nvidias_libraries_in_a_wheel_are_linked_with_zig(bare, request, monkeypatch):
    """The functions that call them need the C++ library with which the wheel was built."""
    cublas = tvm.target.Target({"kind": "cuda", "arch": "sm_90", "libs": ["cublas"], "host": HERE})
    gcc = program(bare / "gcc")
    assert linker_for(cublas) == Linker((gcc,))
    archive = bare / "archive.a"
    archive.write_bytes(b"!<arch>\n_ZNSt3__19to_stringEi")
    monkeypatch.setattr(cuda_libraries, "_archive", lambda: archive)
    assert linker_for(HERE) == Linker((gcc,))
    monkeypatch.setenv("CXX", gcc)
    with pytest.raises(CompileError, match=r"pip install ziglang"):
        linker_for(cublas)
    request.getfixturevalue("zig")
    linker = linker_for(cublas)
    assert linker.command[3] == "c++"
    assert "-Wl,-z,nodelete" in linker.libraries


def test_an_error_is_the_first_line_of_the_compiler(tmp_path):
    failing = program(tmp_path / "cc", "#!/bin/sh\necho\necho first\necho second >&2\nexit 3\n")
    with pytest.raises(CompileError, match=r"^first$"):
        Linker((failing,))("out.so", ["in.o"])
    silent = program(tmp_path / "cc", "#!/bin/sh\nexit 3\n")
    with pytest.raises(CompileError, match=r"^exit status 3$"):
        Linker((silent,))("out.so", ["in.o"])


def test_the_command(tmp_path):
    compiler = program(tmp_path / "cc", f'#!/bin/sh\necho "$@" $PLACE >{tmp_path}/arguments\n')
    linker = Linker((compiler, "-target", "t"), ("-lm",), (("PLACE", "here"),))
    linker("out.so", ["a.o", "b.a"], ["-s"])
    said = (tmp_path / "arguments").read_text().strip()
    assert said == "-target t -shared -fPIC -o out.so -s a.o b.a -lm here"


if __name__ == "__main__":
    tvm.testing.main()
