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
"""Run tests on stock TVM, and again with this project's fixes.

One interpreter runs both, because its imports take as long as the tests. Run it as ``python -m
helpers.upstream_runs REPORTS STAGING TEST...``: importing `tvm_fixes` changes TVM.
"""

import os
import sys
from pathlib import Path

import pytest

WITHOUT, WITH = "without.xml", "with.xml"
"""The reports of the two runs, as JUnit XML."""


def _run(report: Path, staging: str, *arguments: str) -> None:
    settings = ["-c", os.devnull, "--rootdir", staging, "--import-mode", "importlib"]
    output = ["-q", "--tb=line", "-p", "no:cacheprovider", "--junit-xml", str(report)]
    status = pytest.main([*settings, *output, *arguments])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(status)


def _main(folder: Path, staging: str, *tests: str) -> None:
    imported = set(sys.modules)
    _run(folder / WITHOUT, staging, *tests)
    assert "tvm_fixes" not in sys.modules
    # The fixes replace TVM's functions where a test imports them, so import the tests again.
    names = {Path(test).stem for test in tests}
    for module in set(sys.modules) - imported:
        if module.rpartition(".")[2] in names:
            del sys.modules[module]
    _run(folder / WITH, staging, "-p", "helpers.upstream_fixed_tvm", *tests)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), *sys.argv[2:])
