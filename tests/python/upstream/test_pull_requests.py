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
"""The tests of each pull request fail on stock TVM and pass with its fix."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import tvm.testing

from helpers import grids, upstream_runs
from upstream import tool as upstream
from upstream.tool import FILES

STAGING = upstream.default_staging()
NAMES = upstream.read_series(STAGING)


def outcomes(report: Path) -> dict[str, dict[str, str]]:
    """The outcome of each test of each pull request: passed, failure, error or skipped."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        outcomes = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        name = case.attrib["classname"].partition(".")[0]
        found[name][case.attrib["name"]] = outcomes[0] if outcomes else "passed"
    return found


def test_every_test_fails_on_stock_tvm_and_passes_with_its_fix(tmp_path):
    # One test, so that the pull requests share the imports.
    chosen = grids.sample(NAMES, 2)
    requests = (upstream.read_pull_request(STAGING, name) for name in chosen)
    tests = [str(STAGING / r.name / FILES / path) for r in requests for path in r.tests]
    done = subprocess.run(
        [sys.executable, "-m", upstream_runs.__name__, str(tmp_path), str(STAGING), *tests],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    without, with_fixes = (
        outcomes(tmp_path / report) for report in (upstream_runs.WITHOUT, upstream_runs.WITH)
    )
    assert set(without) == set(chosen)
    assert without == {name: dict.fromkeys(tests, "failure") for name, tests in without.items()}
    assert with_fixes == {name: dict.fromkeys(tests, "passed") for name, tests in without.items()}


if __name__ == "__main__":
    tvm.testing.main()
