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
"""Messages of ``ci/toolchain.sh`` on machines that cannot build tvm-fixes."""

import subprocess
import sys
from pathlib import Path

import pytest
import tvm.testing

SCRIPT = Path(__file__).parents[2] / "ci" / "toolchain.sh"
COMPILES = "cat >/dev/null"
"""A fake compiler that accepts every program."""


def program(path: Path, *lines: str) -> Path:
    """A shell script of these lines, to be run as a program."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def said(python: object, cxx: object) -> list[str]:
    command = ["bash", str(SCRIPT), str(python), str(cxx)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.stderr == ""
    return process.stdout.splitlines()


@pytest.fixture
def compiler(tmp_path):
    return program(tmp_path / "compiler", COMPILES)


def test_complete_toolchain_prints_nothing(compiler):
    assert said(sys.executable, compiler) == []


def test_a_missing_python(compiler):
    [line] = said("no-such-python", compiler)
    assert line == (
        "tvm-fixes needs Python 3.11 or newer: no-such-python not found; set PYTHON=..."
    )


def test_an_old_python(tmp_path, compiler):
    python = program(
        tmp_path / "old",
        'case "$2" in',
        "  *print*) echo 3.10.12 ;;",
        "  *) exit 1 ;;",
        "esac",
    )
    [line] = said(python, compiler)
    assert line == (f"tvm-fixes needs Python 3.11 or newer: {python} is 3.10.12; set PYTHON=...")


def test_a_python_that_does_not_run(tmp_path, compiler):
    python = program(tmp_path / "broken", "exit 127")
    [line] = said(python, compiler)
    assert line == (f"tvm-fixes needs Python 3.11 or newer: {python} does not run; set PYTHON=...")


def test_a_python_without_ensurepip(tmp_path, compiler):
    python = program(
        tmp_path / "bare",
        'case "$2" in',
        "  *ensurepip*) echo 'No module named ensurepip' >&2; exit 1 ;;",
        f'  *) exec "{sys.executable}" "$@" ;;',
        "esac",
    )
    [line] = said(python, compiler)
    version = ".".join(map(str, sys.version_info[:3]))
    assert line == (
        f"tvm-fixes needs the modules venv and ensurepip: not found in {python} {version}; "
        "on Debian, install python3-venv"
    )


def test_a_python_without_headers(tmp_path, compiler):
    python = program(
        tmp_path / "bare",
        'case "$2" in',
        "  *sysconfig*) echo /no/such/include ;;",
        f'  *) exec "{sys.executable}" "$@" ;;',
        "esac",
    )
    [line] = said(python, compiler)
    assert line == (
        "tvm-fixes needs the Python headers: /no/such/include/Python.h not found; "
        "on Debian, install python3-dev"
    )


@pytest.mark.parametrize("cxx", ["no-such-compiler", "no-such-compiler -O2"])
def test_a_missing_compiler(cxx):
    [line] = said(sys.executable, cxx)
    assert line == (
        "tvm-fixes needs a C++17 compiler: no-such-compiler not found; install g++ or set CXX=..."
    )


def test_a_compiler_of_an_older_standard(tmp_path):
    cxx = program(tmp_path / "compiler", COMPILES, "echo 'no <optional>' >&2", "exit 1")
    [line] = said(sys.executable, cxx)
    assert line == (f"tvm-fixes needs a C++17 compiler: {cxx} does not compile C++17; set CXX=...")


if __name__ == "__main__":
    tvm.testing.main()
