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
"""Run tests with each version of apache-tvm and apache-tvm-ffi, and print a table.

``test_versions.py [TVM/TVM-FFI ...]``; by default, each TVM with the versions of tvm-ffi that it
accepts.  A supported pair must pass; any other must be rejected at import, in one sentence.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from xml.etree import ElementTree

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tvm_fixes import versions

TVM = ("0.26.0", "0.27.0", "0.27.0.post1")
TVM_FFI = (
    "0.1.13.post2",
    "0.1.13.post3",
    "0.1.14.post0",
    "0.1.14.post1",
    "0.1.15.post1",
    "0.1.15.post2",
)

# What depends most on TVM's classes: the layouts of nodes, native passes, importers, compilation.
TESTS = (
    "tests/python/ffi",
    "tests/python/relax/test_op_infer_layout.py",
    "tests/python/relax/test_op_conv_layout.py",
    "tests/python/relax/test_transform_dynamic_to_static.py",
    "tests/python/relax/test_transform_prepare_layout.py",
    "tests/python/relax/test_transform_fold_layout_into_conv.py",
    "tests/python/frontend/test_frontend_onnx.py",
    "tests/python/frontend/test_frontend_torch.py",
    "tests/python/verifier/test_verifier_types.py",
    "tests/python/test_compiler.py",
)

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Result:
    """The result of one pair of versions: a row of the table."""

    tvm: str
    tvm_ffi: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    doctor: str = ""
    problem: str = ""

    def __str__(self) -> str:
        counts = (self.passed, self.failed, self.skipped) if self.passed else ("",) * 3
        cells = (self.tvm, self.tvm_ffi, *counts, self.problem or self.doctor)
        return f"| {' | '.join(map(str, cells))} |".replace("|  ", "| ")


class Environments:
    """Folders with packages, which are installed once and precede those of this Python."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def folder(self, package: str, version: str) -> Path:
        """Install `package` without its dependencies; return its folder."""
        folder = self.scratch / f"{package}-{version}"
        if not folder.is_dir():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--target", str(folder), f"{package}=={version}"], check=True)
        return folder

    def accepts(self, tvm: str, tvm_ffi: str) -> bool:
        """Whether the metadata of `tvm` allows `tvm_ffi`."""
        [found] = distributions(path=[str(self.folder("apache-tvm", tvm))])
        needed = map(Requirement, found.requires or ())
        return all(one.specifier.contains(tvm_ffi) for one in needed if "ffi" in one.name)

    def run(self, tvm: str, tvm_ffi: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run this Python with these versions."""
        folders = [self.folder("apache-tvm-ffi", tvm_ffi), self.folder("apache-tvm", tvm)]
        before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join([*map(str, folders), *filter(None, before)])
        return subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": path},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def is_supported(tvm: str, tvm_ffi: str) -> bool:
    """Whether this release supports the pair."""
    return SpecifierSet(versions.TESTED_TVM).contains(tvm) and SpecifierSet(
        f">={versions.OLDEST_TVM_FFI}"
    ).contains(tvm_ffi)


def examine(environments: Environments, tvm: str, tvm_ffi: str) -> tuple[Result, bool]:
    """Return the row of a pair, and whether it is as expected."""
    imported = environments.run(tvm, tvm_ffi, "-c", "import tvm_fixes")
    if imported.returncode:
        message = imported.stdout.strip().splitlines()[-1]
        is_clear = message.startswith("ImportError: tvm-fixes needs")
        return Result(tvm, tvm_ffi, problem=message), is_clear and not is_supported(tvm, tvm_ffi)
    if not is_supported(tvm, tvm_ffi):
        return Result(tvm, tvm_ffi, problem="is not rejected"), False
    states, is_healthy = diagnose(environments, tvm, tvm_ffi)
    report = environments.scratch / "report.xml"
    tests = environments.run(
        tvm,
        tvm_ffi,
        "-m",
        "pytest",
        "--tier=ci",
        "-q",
        "-n",
        "auto",
        f"--junit-xml={report}",
        *TESTS,
    )
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    if tests.returncode:
        print(tests.stdout, file=sys.stderr)
    result = Result(tvm, tvm_ffi, passed, failed, count["skipped"], states)
    return result, is_healthy and tests.returncode == 0


def diagnose(environments: Environments, tvm: str, tvm_ffi: str) -> tuple[str, bool]:
    """Return how many fixes have each state, and whether ``doctor`` finds no problem."""
    doctor = environments.run(tvm, tvm_ffi, "-m", "tvm_fixes_cli", "doctor", "--json")
    report = json.loads(doctor.stdout[doctor.stdout.index("{") :])
    states = Counter(fix["state"] for fix in report["fixes"])
    for problem in report["problems"]:
        print(f"{tvm}/{tvm_ffi}: {problem}", file=sys.stderr)
    return ", ".join(f"{count} {state}" for state, count in states.most_common()), report["ok"]


def pairs(environments: Environments, chosen: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the chosen pairs, or those that TVM's metadata allows."""
    for pair in chosen:
        tvm, _, tvm_ffi = pair.partition("/")
        yield tvm, tvm_ffi
    if not chosen:
        yield from (
            (tvm, tvm_ffi)
            for tvm in TVM
            for tvm_ffi in TVM_FFI
            if environments.accepts(tvm, tvm_ffi)
        )


def main(chosen: list[str]) -> int:
    """Print the table; return the number of pairs that are not as expected."""
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        environments = Environments(Path(scratch))
        print("| apache-tvm | apache-tvm-ffi | passed | failed | skipped | doctor |")
        print("| --- | --- | --- | --- | --- | --- |")
        for tvm, tvm_ffi in pairs(environments, chosen):
            result, is_expected = examine(environments, tvm, tvm_ffi)
            print(result, flush=True)
            wrong += not is_expected
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
