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
"""The choice of tests for what changed."""

import subprocess

import pytest
import tvm.testing

from helpers import affected
from helpers.affected import Link, Repository, choose

FILES = {
    "python/tvm_fixes/__init__.py": "",
    "python/tvm_fixes/fixes/__init__.py": "",
    "python/tvm_fixes/fixes/onnx.py": 'PAD = declare(\n    "onnx-pad",\n)\n',
    "python/tvm_fixes/onnx/__init__.py": "",
    "python/tvm_fixes/onnx/pad.py": "from ..fixes.onnx import PAD as FIX_ID\n",
    "python/tvm_fixes/onnx/extents.py": "",
    "python/tvm_fixes/onnx/importer.py": "from . import extents\nfrom .pad import convert\n",
    "python/tvm_fixes/relax/pad.py": "",
    "src/relax/op/pad.cc": '#include "../ir/view.h"\nkFixId = "onnx-pad";\n',
    "src/relax/ir/view.h": "",
    "docs/fixes.md": "",
    "tests/python/conftest.py": "",
    "tests/python/helpers/cases.py": "",
    "tests/python/test_docs.py": 'PAGE = "docs/fixes.md"\n',
    "tests/python/test_structure.py": "",
    "tests/python/test_compiler.py": "from tvm_fixes.onnx.importer import convert\n",
    "tests/python/test_switches.py": 'ID = "onnx-pad"\n',
    "tests/python/onnx/test_onnx.py": "",
    "tests/python/onnx/test_onnx_pad.py": "from helpers.cases import CASES\n",
    "tests/python/probes/test_probes.py": "",
    "tests/python/relax/test_legalize_pad.py": "",
    "tests/python/relax/test_view.py": "",
}
PROBE = (
    "tests/python/probes/test_probes.py"
    "::test_stock_fails_as_recorded_and_the_fix_corrects_it[onnx-pad]"
)


def commit(root, files):
    for path, text in files.items():
        root.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        root.joinpath(path).write_text(text)
    author = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["add", "-A"], [*author, "commit", "-qm", "Change"]):
        subprocess.run(["git", "-C", root, *command], check=True)


@pytest.fixture
def repository(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commit(tmp_path, FILES)
    return Repository(tmp_path)


def distances(repository, *changed):
    links = affected.affected(repository, changed)
    return {test.removeprefix("tests/python/"): link.distance for test, link in links.items()}


def test_a_module_that_one_module_imports(repository):
    assert distances(repository, "python/tvm_fixes/onnx/pad.py") == {
        "onnx/test_onnx_pad.py": 0,
        PROBE.removeprefix("tests/python/"): 1,
        "test_switches.py": 1,
        "test_structure.py": 1,
        "onnx/test_onnx.py": 2,
        "test_compiler.py": 2,
    }


def test_a_module_without_a_test_of_its_own(repository):
    """Packages do not link their modules: that would be everything that imports tvm_fixes."""
    assert distances(repository, "python/tvm_fixes/onnx/extents.py") == {
        "test_structure.py": 1,
        "onnx/test_onnx.py": 2,
        "test_compiler.py": 2,
    }


def test_a_file_of_the_same_name_in_another_folder(repository):
    assert distances(repository, "python/tvm_fixes/relax/pad.py") == {
        "relax/test_legalize_pad.py": 0,
        "test_structure.py": 1,
    }


def test_native_code(repository):
    assert distances(repository, "src/relax/op/pad.cc") == {
        "relax/test_legalize_pad.py": 0,
        PROBE.removeprefix("tests/python/"): 1,
        "test_switches.py": 1,
        "relax/test_view.py": 3,
    }


def test_a_header_and_the_files_that_include_it(repository):
    assert distances(repository, "src/relax/ir/view.h") == {
        "relax/test_view.py": 0,
        "relax/test_legalize_pad.py": 2,
        PROBE.removeprefix("tests/python/"): 2,
        "test_switches.py": 2,
    }


def test_tests_helpers_and_pages(repository):
    assert distances(repository, "tests/python/test_docs.py") == {"test_docs.py": 0}
    assert distances(repository, "docs/fixes.md") == {"test_docs.py": 1}
    helper = distances(repository, "tests/python/helpers/cases.py")
    assert helper["onnx/test_onnx_pad.py"] == 1


def test_a_test_that_is_gone_does_not_run(repository, tmp_path):
    tmp_path.joinpath("tests/python/test_docs.py").unlink()
    assert distances(repository, "tests/python/test_docs.py", "docs/fixes.md") == {}


def test_files_that_commits_often_change_together(repository, tmp_path):
    source = "python/tvm_fixes/onnx/extents.py"
    test = "tests/python/relax/test_view.py"
    for text in ("1\n", "2\n"):
        assert "relax/test_view.py" not in distances(repository, source)
        commit(tmp_path, {source: text, test: text})
    assert distances(repository, source)["relax/test_view.py"] == 2


def test_changed_files(repository, tmp_path):
    head = repository.git("rev-parse", "HEAD").strip()
    commit(tmp_path, {"docs/fixes.md": "text\n"})
    tmp_path.joinpath("src/relax/op/pad.cc").write_text("\n")
    tmp_path.joinpath("new.py").write_text("\n")
    assert repository.changed(head) == ["docs/fixes.md", "new.py", "src/relax/op/pad.cc"]
    assert repository.changed("HEAD") == ["new.py", "src/relax/op/pad.cc"]


def test_the_nearest_run_within_the_limit():
    distances = {"own": 0, "slow": 1, "quick": 1, "far": 2, "farther": 3}
    tests = {name: Link(distance, "") for name, distance in distances.items()}
    seconds = {"own": 50.0, "slow": 30.0, "quick": 5.0, "far": 20.0, "farther": 4.0}
    assert choose(tests, seconds, 60) == (["own", "quick", "farther"], ["slow", "far"])
    assert choose(tests, seconds, 0) == (["own"], ["quick", "slow", "far", "farther"])


def test_the_reasons_are_printed(repository, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(affected, "ROOT", tmp_path)
    for path in ("python/tvm_fixes/onnx/pad.py", "tests/python/conftest.py"):
        tmp_path.joinpath(path).write_text("import os\n")
    assert affected.main(["--base", "HEAD", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "onnx/test_onnx_pad.py: is of python/tvm_fixes/onnx/pad.py" in printed
    assert "tests/python/conftest.py can change every test: make test" in printed


def test_nothing_changed(repository, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(affected, "ROOT", tmp_path)
    assert affected.main(["--base", "HEAD"]) == 0
    assert capsys.readouterr().out == "No test is linked to the changed files: none\n"


if __name__ == "__main__":
    tvm.testing.main()
