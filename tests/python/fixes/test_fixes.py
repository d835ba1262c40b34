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
"""Each fix has one declaration, code, and a description in docs/fixes.md."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tvm
import tvm.testing
from packaging.specifiers import SpecifierSet

from helpers import fixes_page
from tvm_fixes.fixes import FIXES, Kind, Symptom
from tvm_fixes.fixes.fix import declare
from tvm_fixes.support import switches

ROOT = Path(__file__).parents[3]


def test_each_fix_has_a_switch():
    assert [fix.id for fix in FIXES] == list(switches.FIX_IDS)


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_the_declaration_is_complete(fix):
    assert re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)*", fix.id)
    assert fix.family
    for text in (fix.summary, *fix.symptoms.values()):
        assert text == text.strip()
        assert "\n" not in text
        assert not text.endswith(".")
    assert fix.symptoms.keys() <= set(Symptom)
    assert fix.symptoms
    assert all(isinstance(number, int) and number > 0 for number in fix.upstream)
    assert SpecifierSet(fix.versions).contains(tvm.__version__, prereleases=True)


def test_a_second_declaration_of_an_id_is_rejected():
    with pytest.raises(ValueError, match="fix 'torch-dtype' is declared twice"):
        declare("torch-dtype", family="a", kind=Kind.PASS, summary="a", symptoms={})


def test_a_declaration_has_what_its_kind_asks_for():
    code = next(fix for fix in FIXES if fix.kind is Kind.PASS)
    with pytest.raises(ValueError, match="kind pass and requirement do not match"):
        replace(code, requirement="apache-tvm-ffi<0.1.15")
    with pytest.raises(ValueError, match="kind environment and requirement do not match"):
        replace(code, kind=Kind.ENVIRONMENT)


def test_the_ids_in_native_code_are_those_of_fixes():
    found = set()
    for path in (ROOT / "src").rglob("*.[ch]*"):
        found.update(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', path.read_text()))
    known = set(switches.FIX_IDS)
    assert len(found & known) > 10
    unknown = {text for text in found - known if text.endswith(("-legalize", "-infer-layout"))}
    assert not unknown


HEADS_WITHOUT_A_DECLARATION = {
    # What the importers repair along with the fixes, but no switch turns off.
    "dynamo.py",
    "parameters.py",
    "signature.py",
    # What serves every compilation for a GPU without one.
    "compile_cuda_module.cc",
    "cuda.py",
    "refresh_types.cc",
}
UNDECLARED = re.compile(
    r"^(Upstream|Versions|Symptom)$|^ \* .*\b(TVM: seen|Symptom:)", re.MULTILINE
)


def test_symptoms_and_versions_stand_only_in_declarations():
    """The head of a file has the trigger, the mechanism, and how to remove it."""
    found = {
        path.name
        for folder in ("src", "python/tvm_fixes")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".cc", ".h", ".py") and UNDECLARED.search(path.read_text())
    }
    assert found == HEADS_WITHOUT_A_DECLARATION


def test_every_fix_has_code():
    python = ROOT / "python" / "tvm_fixes"
    ids = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.[ch]*"))
    code = "\n".join(
        path.read_text()
        for path in python.rglob("*.py")
        if path.relative_to(python).parts[0] not in ("fixes", "probes")
    )
    imported = set()
    for module, names in re.findall(r"^from \.+fixes\.(\w+) import (\([^)]*\)|.*)$", code, re.M):
        values = vars(sys.modules[f"tvm_fixes.fixes.{module}"])
        imported.update(
            values[name] for name in re.findall(r"\b[A-Z_0-9]+\b", names) if name in values
        )
    without = {
        fix.id
        for fix in FIXES
        if fix.kind is not Kind.ENVIRONMENT and fix.id not in imported and f'"{fix.id}"' not in ids
    }
    assert not without


def run(program, **variables):
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONPATH": path} | variables
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_every_id_is_known_before_an_importer_is_loaded():
    program = (
        "import sys, tvm_fixes\n"
        "from tvm_fixes.support import switches\n"
        "assert switches.disabled() == set(switches.FIX_IDS)\n"
        "assert 'tvm_fixes.frontend.torch' not in sys.modules\n"
        "assert 'tvm_fixes.frontend.onnx' not in sys.modules\n"
    )
    done = run(program, TVM_FIXES_DISABLE=",".join(switches.FIX_IDS))
    assert done.returncode == 0, done.stderr


def test_the_page_is_up_to_date():
    """``python tests/python/helpers/fixes_page.py > docs/fixes.md`` regenerates it."""
    assert (ROOT / "docs" / "fixes.md").read_text() == fixes_page.page()


if __name__ == "__main__":
    tvm.testing.main()
