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
"""pytest plugin: runs TVM's tests one way, and appends each outcome to a journal.

Stock TVM must stay stock, so this module imports tvm_fixes only for the other ways.
"""

import importlib
import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any

import pytest

WAY_VARIABLE = "TVM_TESTS_WAY"
JOURNAL_VARIABLE = "TVM_TESTS_JOURNAL"
# A file with the ids of the tests that have an outcome.
KNOWN_VARIABLE = "TVM_TESTS_KNOWN"

STOCK, IMPORTED, IMPORTERS = WAYS = ("stock", "imported", "importers")
# Where TVM has the functions that `IMPORTERS` replaces with ours.
_REPLACED = {
    "tvm.relax.frontend.onnx": ("from_onnx",),
    "tvm.relax.frontend.onnx.onnx_frontend": ("from_onnx",),
    "tvm.relax.frontend.torch": (
        "from_fx",
        "from_exported_program",
        "relax_dynamo",
        "dynamo_capture_subgraphs",
    ),
    "tvm.relax.frontend.torch.dynamo": ("relax_dynamo", "dynamo_capture_subgraphs"),
    "tvm.relax.frontend.torch.exported_program_translator": ("from_exported_program",),
    "tvm.relax.frontend.torch.fx_translator": ("from_fx",),
}
_MESSAGE_LENGTH = 400


class Recorder:
    """Appends a line to the journal when a test starts, and one when it has ended."""

    def __init__(self, path: Path, known: Collection[str]) -> None:
        # Lines are written whole: the process may crash at any time.
        self._file: IO[str] = path.open("a", buffering=1)
        self._known = known
        self._report: dict[str, Any] = {}
        self.comparisons: list[str] = []

    def _write(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields) + "\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what has an outcome."""
        items[:] = [item for item in items if item.nodeid not in self._known]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported, or that skips itself."""
        if report.outcome != "passed" and report.nodeid not in self._known:
            self._write(
                test=report.nodeid, outcome=report.outcome, message=_message(report.longrepr)
            )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test that a crash would end."""
        self.comparisons.clear()
        self._report = {"test": nodeid, "outcome": "passed", "message": ""}
        self._write(test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst of setup, call and teardown."""
        if report.outcome != "passed" and self._report["outcome"] == "passed":
            self._report |= {"outcome": report.outcome, "message": _message(report.longrepr)}

    def pytest_runtest_logfinish(self) -> None:
        """Write the outcome."""
        self._write(**self._report, comparisons=list(self.comparisons))

    def compare(self, original: Callable[..., None]) -> Callable[..., None]:
        """Return `original`, except that another IR of the same function is only noted."""
        from .same_function import same_function

        def assert_structural_equal(lhs: Any, rhs: Any, *args: Any, **kwargs: Any) -> None:
            try:
                original(lhs, rhs, *args, **kwargs)
            except ValueError:
                result = same_function(lhs, rhs)
                self.comparisons.append(result)
                if result != "equal":
                    raise

        return assert_structural_equal


def _message(longrepr: object) -> str:
    """Return the first line of an exception, or the last one of any other report."""
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None:
        text, place = crash.message, 0
    else:
        text, place = str(longrepr[-1] if isinstance(longrepr, tuple) else longrepr), -1
    return (text.strip().splitlines() or [""])[place][:_MESSAGE_LENGTH]


def _replace_importers() -> None:
    from tvm_fixes.frontend import onnx, torch

    for name, functions in _REPLACED.items():
        try:
            module = importlib.import_module(name)
        except ImportError:  # another version of TVM
            continue
        ours = onnx if ".onnx" in name else torch
        for function in functions:
            setattr(module, function, getattr(ours, function))


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Prepare TVM for the way, before a test is imported."""
    way = os.environ[WAY_VARIABLE]
    known = set(Path(os.environ[KNOWN_VARIABLE]).read_text().splitlines())
    recorder = Recorder(Path(os.environ[JOURNAL_VARIABLE]), known)
    config.pluginmanager.register(recorder)
    if way == STOCK:
        return
    import tvm.ir.base

    import tvm_fixes  # noqa: F401

    compared = recorder.compare(tvm.ir.base.assert_structural_equal)
    tvm.ir.base.assert_structural_equal = tvm.ir.assert_structural_equal = compared
    if way == IMPORTERS:
        _replace_importers()
