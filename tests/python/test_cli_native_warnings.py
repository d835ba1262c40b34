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
"""Warnings of TVM's C++ code on the command line."""

import os
import subprocess
import sys

import pytest
import torch
import tvm.testing

from tvm_fixes_cli import main, native_warnings
from tvm_fixes_cli.native_warnings import filtered

WARNING = "[12:00:00] /project/src/a.cc:1: Warning: one"


class Powers(torch.nn.Module):
    def forward(self, x):
        return x**3 + torch.pow(x + 1, 5)


@pytest.mark.parametrize("quiet", [False, True])
def test_lines(capfd, quiet):
    with filtered(quiet=quiet) as descriptor:
        os.write(2, f"{WARNING}\nhello\n[12:00:01] /project/src/b.cc:2: Warning: one\n".encode())
        os.write(2, b"[12:00:01] /project/src/b.cc:2: Warning: two\n[1/2] no ")
        os.write(2, b"newline")
        assert os.fstat(descriptor).st_ino
    os.write(2, f"\n{WARNING}".encode())
    two = "[12:00:01] /project/src/b.cc:2: Warning: two\n"
    first, second = ("", "") if quiet else (f"{WARNING}\n", two)
    assert capfd.readouterr().err == f"{first}hello\n{second}[1/2] no newline\n{WARNING}"


def test_a_crash_loses_nothing():
    program = (
        "import os\n"
        "from tvm_fixes_cli.native_warnings import filtered\n"
        "with filtered(quiet=True):\n"
        "    os.write(2, b'the reason')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (-9, b"the reason")


def test_a_child_that_keeps_the_pipe(monkeypatch):
    monkeypatch.setattr(native_warnings, "_WAIT_S", 0.1)
    with filtered(quiet=True):
        child = subprocess.Popen(["sleep", "60"])
    child.kill()
    child.wait()


@pytest.mark.parametrize("options", [[], ["-q"]])
def test_compile(capfd, monkeypatch, options):
    made = Powers().eval(), (torch.full((3,), 0.5),)
    monkeypatch.setattr("helpers.models.powers", lambda: made, raising=False)
    assert main(["compile", "helpers.models:powers", *options]) == 0
    out, err = capfd.readouterr()
    assert "equal to PyTorch" in out
    assert err.count("Detected pow(x, y)") == (0 if options else 1)
    assert ("build " in err) == (not options)


if __name__ == "__main__":
    tvm.testing.main()
