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
"""The doctor's report on probes that pass, fail, crash and hang, and on the installation."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tvm
import tvm.testing
import tvm_ffi
from rich.console import Console

from tvm_fixes import doctor
from tvm_fixes._ffi import NativeStatus
from tvm_fixes.doctor import State
from tvm_fixes.fixes import FIXES, Kind
from tvm_fixes.probes import Probe
from tvm_fixes.support import switches

PROBED = next(fix for fix in FIXES if fix.kind is not Kind.ENVIRONMENT)
ENVIRONMENT = next(fix for fix in FIXES if fix.kind is Kind.ENVIRONMENT)


def passes():
    return None


def fails():
    raise TypeError("wrong dtype")


def examine(stock, fixed, symptom="TypeError: wrong dtype", modules=(), timeout=30.0):
    probe = Probe(stock, fixed, re.compile(symptom), modules)
    [row] = doctor.examine([PROBED], {PROBED.id: probe}, timeout=timeout)
    return row


def test_needed():
    row = examine(fails, passes)
    assert (row.state, row.note, row.ok) == (State.NEEDED, "", True)
    assert (row.stock.passes, row.stock.failure) == (False, "TypeError: wrong dtype")
    assert (row.fixed.passes, row.fixed.failure) == (True, None)


def test_stock_runs_with_every_fix_off_and_fixed_with_every_fix_on(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-dtype")

    def tell():
        every = switches.disabled() == set(switches.FIX_IDS)
        raise TypeError(f"off: {'every fix' if every else sorted(switches.disabled())}")

    row = examine(tell, tell)
    assert row.stock.failure == "TypeError: off: every fix"
    assert row.fixed.failure == "TypeError: off: []"


def test_no_longer_needed():
    row = examine(passes, passes)
    assert row.state is State.EXPIRED
    assert row.note == f"no longer needed on this TVM: delete fix {PROBED.id}"
    assert row.ok


def test_not_for_this_version_of_tvm(monkeypatch):
    monkeypatch.setattr(tvm, "__version__", "0.26.0")
    row = examine(passes, passes)
    assert row.state is State.EXPIRED
    assert row.note == f"not needed: it is for TVM {PROBED.versions}"


def test_fixed_way_fails():
    row = examine(fails, fails)
    assert (row.state, row.ok) == (State.BROKEN, False)
    assert row.note == "fails with the fix on: TypeError: wrong dtype"
    assert examine(passes, fails).state is State.BROKEN


def test_stock_fails_in_another_way_than_recorded():
    row = examine(fails, passes, symptom="InternalError")
    assert (row.state, row.ok) == (State.UNCLEAR, False)
    assert "expected /InternalError/, got TypeError: wrong dtype" in row.note


def test_crash_is_an_answer():
    row = examine(os.abort, passes, symptom="SIGABRT")
    assert (row.state, row.stock.failure) == (State.NEEDED, "SIGABRT: crashed")
    row = examine(fails, os.abort)
    assert (row.state, row.fixed.failure) == (State.BROKEN, "SIGABRT: crashed")


def test_hang_is_an_answer():
    row = examine(signal.pause, passes, symptom="timed out after", timeout=5)
    assert (row.state, row.stock.failure) == (State.NEEDED, "timed out after 5 s")
    row = examine(fails, signal.pause, timeout=5)
    assert (row.state, row.fixed.failure) == (State.BROKEN, "timed out after 5 s")


def test_a_failure_is_one_line():
    def fail():
        raise TypeError(f"\nnot equal:\n{'x ' * 1000}")

    failure = examine(fail, passes, symptom="not equal").stock.failure
    assert failure.startswith("TypeError: not equal: x x")
    assert failure.endswith("x …")
    assert len(failure) <= 400


def test_a_module_that_is_missing():
    row = examine(fails, fails, modules=("json", "no_such_module"))
    assert (row.state, row.ok) == (State.UNAVAILABLE, True)
    assert row.note == "no_such_module is not installed: not probed"
    assert row.stock is None


@pytest.mark.parametrize(
    "version, state",
    [
        ("0.1.13.post2", State.VIOLATED),
        ("0.1.14", State.VIOLATED),
        ("0.1.14.post0", State.MET),
        ("0.1.14.post3", State.MET),
        ("0.1.15", State.MET),
        ("0.1.15.post2", State.MET),
        ("0.2.0", State.MET),
        (None, State.UNAVAILABLE),
    ],
)
def test_environment(monkeypatch, version, state):
    monkeypatch.setattr(doctor, "_installed_version", {"apache-tvm-ffi": version}.__getitem__)
    [row] = doctor.examine([ENVIRONMENT], {}, timeout=1)
    assert row.state is state
    assert row.ok is (state is not State.VIOLATED)
    if state is State.VIOLATED:
        assert row.note.startswith(f"apache-tvm-ffi {version} is not >=0.1.14.post0: ")
        assert "the hash and equality of data types" in row.note


def test_rows_keep_the_order_asked_for():
    probe = Probe(fails, passes, re.compile("TypeError"))
    fixes = list(reversed(FIXES[-8:]))
    rows = doctor.examine(fixes, {fix.id: probe for fix in fixes}, timeout=30)
    assert [row.id for row in rows] == list(reversed(switches.FIX_IDS[-8:]))


def test_report_of_this_installation():
    report = doctor.run([ENVIRONMENT.id])
    assert report.ok
    assert report.problems == report.warnings == []
    assert report.tvm.version == tvm.__version__
    assert report.tvm.tested
    assert report.native.ok
    assert report.native.checked_types > 0
    assert [row.id for row in report.rows] == [ENVIRONMENT.id]
    assert report.versions["apache-tvm-ffi"] == tvm_ffi.__version__


def test_unknown_ids_are_rejected(monkeypatch):
    known = f"known fixes: {', '.join(switches.FIX_IDS)}"
    with pytest.raises(ValueError, match="unknown fix 'torch_dtype'; did you mean torch-dtype"):
        doctor.run(["torch_dtype", "torch-dtype"])
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "everything")
    with pytest.raises(ValueError, match=re.escape(f"unknown fix 'everything'; {known}")):
        doctor.run([])


def test_disabled_fixes_are_a_warning(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-dtype,prepare-layout")
    report = doctor.run([])
    assert report.ok
    assert report.disabled == ("prepare-layout", "torch-dtype")
    [warning] = report.warnings
    assert "turns off prepare-layout, torch-dtype" in warning


def test_an_untested_tvm_is_a_warning(monkeypatch):
    monkeypatch.setattr(tvm, "__version__", "0.99.dev3")
    report = doctor.run([])
    assert report.ok
    assert report.warnings == [
        "TVM 0.99.dev3 is untested: this release was tested with <=0.27.0.post1,>=0.27.0"
    ]


def test_a_native_library_that_does_not_fit_is_a_problem(monkeypatch):
    status = NativeStatus("/x/libtvm_fixes.so", problem="ir.Call has no field args")
    monkeypatch.setattr(doctor._ffi, "native_status", lambda: status)
    report = doctor.run()
    assert not report.ok
    assert report.problems == ["native library: ir.Call has no field args"]
    assert report.warnings == []
    states = {row.id: row.state for row in report.rows}
    assert states.pop(ENVIRONMENT.id) is State.MET
    assert set(states.values()) == {State.UNAVAILABLE}
    assert [row.fix for row in report.rows] == list(FIXES)


def test_a_missing_library_of_relay_is_a_warning(monkeypatch):
    status = NativeStatus("/x/libtvm_fixes.so", 1, 1, relay_problem="it is missing")
    monkeypatch.setattr(doctor._ffi, "native_status", lambda: status)
    report = doctor.run([])
    assert report.ok
    assert report.warnings == ["Relay programs: it is missing"]


def place_tvm(monkeypatch, tmp_path):
    package = tmp_path / "python" / "tvm"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(tvm, "__file__", str(package / "__init__.py"))
    return package


def install(monkeypatch, place, direct_url=None):
    distribution = SimpleNamespace(
        version="0.27.0.post1",
        locate_file=lambda name: place / name,
        read_text={"direct_url.json": direct_url}.__getitem__,
    )
    monkeypatch.setattr(doctor.importlib.metadata, "distribution", lambda name: distribution)


def test_origin_of_an_installed_wheel(monkeypatch, tmp_path):
    package = place_tvm(monkeypatch, tmp_path)
    install(monkeypatch, package.parent)
    found = doctor.run([]).tvm
    assert (found.path, found.origin) == (str(package), "wheel")


def test_origin_of_an_editable_install(monkeypatch, tmp_path):
    place_tvm(monkeypatch, tmp_path)
    direct_url = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    install(monkeypatch, tmp_path / "site-packages", json.dumps(direct_url))
    assert doctor.run([]).tvm.origin == "editable install"


@pytest.mark.parametrize("direct_url", [None, '{"url": "file:///elsewhere", "dir_info": {}}'])
def test_origin_on_the_search_path(monkeypatch, tmp_path, direct_url):
    place_tvm(monkeypatch, tmp_path)
    install(monkeypatch, tmp_path / "site-packages", direct_url)
    assert doctor.run([]).tvm.origin == "PYTHONPATH"


def test_commit_of_a_checkout(monkeypatch, tmp_path):
    place_tvm(monkeypatch, tmp_path)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert doctor.run([]).tvm.commit == head.stdout.strip()


def test_commit_recorded_by_the_build(monkeypatch, tmp_path):
    place_tvm(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "tvm._version", SimpleNamespace(commit_id="g0123abc"))
    assert doctor.run([]).tvm.commit == "0123abc"
    monkeypatch.setitem(sys.modules, "tvm._version", None)
    assert doctor.run([]).tvm.commit is None


def make_report(*rows):
    return replace(doctor.run([]), rows=rows)


def test_json():
    [environment] = doctor.examine([ENVIRONMENT], {}, timeout=1)
    text = make_report(examine(fails, passes), examine(passes, fails), environment).to_json()
    report = json.loads(text)
    assert set(report) == {
        "ok",
        "tvm",
        "versions",
        "native",
        "disabled",
        "fixes",
        "problems",
        "warnings",
    }
    assert report["ok"] is False
    assert set(report["tvm"]) == {"version", "path", "origin", "commit", "tested"}
    assert set(report["native"]) == {
        "path",
        "ok",
        "checked_types",
        "checked_fields",
        "problem",
        "relay_problem",
    }
    assert report["problems"] == [f"{PROBED.id}: fails with the fix on: TypeError: wrong dtype"]
    assert {row["id"]: row["kind"] for row in report["fixes"]} == {
        PROBED.id: "operator attribute",
        ENVIRONMENT.id: "environment",
    }
    for row in report["fixes"]:
        assert set(row) == {
            "id",
            "family",
            "kind",
            "summary",
            "upstream",
            "versions",
            "state",
            "ok",
            "note",
            "stock",
            "fixed",
        }
    needed, broken, met = report["fixes"]
    assert [row["state"] for row in report["fixes"]] == ["needed", "broken", "met"]
    assert needed["stock"].keys() == {"passes", "failure", "seconds"}
    assert needed["stock"]["failure"] == "TypeError: wrong dtype"
    assert (needed["fixed"]["passes"], needed["fixed"]["failure"]) == (True, None)
    assert broken["ok"] is False
    assert met["stock"] is met["fixed"] is None


@pytest.mark.parametrize("width", [80, 200])
def test_render(width):
    [environment] = doctor.examine([ENVIRONMENT], {}, timeout=1)

    def fails_with_markup():
        raise TypeError("wrong dtype [/red] of [1, 2]")

    report = make_report(examine(fails, passes), examine(passes, fails_with_markup), environment)
    file = io.StringIO()
    doctor.render(report, Console(file=file, width=width))
    text = file.getvalue()
    assert PROBED.id in text
    assert "needed" in text
    assert "broken" in text
    assert tvm.__version__ in text
    assert "fit this TVM" in text
    assert " ".join(PROBED.summary.split()[:2]) in text
    problem = (
        f"problem: {PROBED.id}: fails with the fix on: TypeError: wrong dtype [/red] of [1, 2]"
    )
    assert problem in " ".join(text.split())
    assert "\x1b" not in text


def test_the_version_that_is_loaded_counts(monkeypatch):
    """A directory on PYTHONPATH may have a different version than the installed one."""
    monkeypatch.setattr("tvm_ffi.__version__", "0.1.13")
    [row] = doctor.run(["ffi-0.1.15"]).rows
    assert row.state is State.VIOLATED
    assert row.note.startswith("apache-tvm-ffi 0.1.13 is not ")


if __name__ == "__main__":
    tvm.testing.main()
