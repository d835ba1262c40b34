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
"""Options, profiles and fixtures that all tests share."""

import compileall
import functools
import gc
import inspect
import linecache
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

from helpers import grids, huge_pages
from helpers.coverage_tables import CoverageTables
from helpers.durations import Durations
from helpers.kept_results import KeptResults

_TABLES = pytest.StashKey[CoverageTables]()
_WRITES_BYTECODE = pytest.StashKey[bool]()

# The files with the longest tests, of 10 s and more.
_LONGEST = (
    "test_probes.py",
    "test_pull_requests.py",
    "test_frontend_onnx_nodes.py",
    "test_frontend_growth.py",
    "test_frontend_transformers_models.py",
    "test_examples.py",
    "test_docs.py",
    "test_convert_models.py",
    "test_readme.py",
    "test_cli.py",
    "test_weights.py",
)

# Otherwise, a test could get what another version of the code compiled in the user's cache.
os.environ.setdefault("TVM_FIXES_CACHE", "0")

# Deterministic examples, like every other random choice of the suite.
_PROFILE = hypothesis.settings(
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("quick", _PROFILE, max_examples=8)
hypothesis.settings.register_profile("ci", _PROFILE, max_examples=25)
hypothesis.settings.register_profile("full", _PROFILE, max_examples=500)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tvm-fixes")
    group.addoption(
        "--tier",
        choices=grids.TIERS,
        default=grids.TIERS[0],
        help="quick: small samples of the large grids, without the longest tests; ci: larger "
        "samples, every test; full: every case",
    )
    group.addoption(
        "--tables",
        type=Path,
        metavar="DIR",
        help="write the coverage tables of this run into DIR",
    )
    group.addoption(
        "--results",
        type=Path,
        metavar="DIR",
        help="keep the results of long tests in DIR, and do not compute those that are there again",
    )


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Return ``inspect.stack`` without the slow search for the source of each frame.

    Every TVMScript decorator calls ``inspect.stack``, and the stack is deep under pytest.
    """
    return [
        inspect.FrameInfo(
            frame,
            frame.f_code.co_filename,
            line,
            frame.f_code.co_name,
            [linecache.getline(frame.f_code.co_filename, line)],
            0,
        )
        for frame, line in traceback.walk_stack(sys._getframe(1))
    ]


def pytest_configure(config: pytest.Config) -> None:
    inspect.stack = _stack
    # Background jobs of a script ignore SIGINT, which some tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # TVM's idle threads spin before they sleep, which takes time from the other processes.
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    # PyTorch's idle threads do so, too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Imports fill the memory with objects that stay, which a collection would visit again and
    # again.  Rewritten assertions are kept for the next run.
    gc.disable()
    config.stash[_WRITES_BYTECODE] = not sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    tier = config.getoption("tier")
    grids.use_tier(tier)
    hypothesis.settings.load_profile(tier)
    config.stash[_TABLES] = CoverageTables()
    config.pluginmanager.register(Durations(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    grids.deselect(config, items)
    for item in items:
        if item.path.name.startswith(("test_relay_", "test_frontend_relay_")):
            item.add_marker("relay")
    # Start long tests first, so that none runs alone at the end.
    items.sort(key=lambda item: item.path.name not in _LONGEST)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not grids.is_full():
        # Imports TVM, which a process that only distributes the tests does not need.
        from helpers import linking, quick_decompositions, quick_kernels

        linking.use_linker()
        quick_kernels.use()
        quick_decompositions.use()
    # Loaded modules stay alive, so exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    # A compilation makes many objects, few of them in cycles.
    gc.set_threshold(10_000, 20, 20)
    gc.enable()
    # A collection in a forked child would copy the pages of all objects.
    os.register_at_fork(after_in_child=gc.freeze)
    huge_pages.use()
    # Without files of bytecode, each process that a test starts would compile the package.
    compileall.compile_dir(str(session.config.rootpath / "python"), quiet=2)
    sys.dont_write_bytecode = not session.config.stash[_WRITES_BYTECODE]


def pytest_report_header(config: pytest.Config) -> str:
    return f"tier: {config.getoption('tier')}"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    folder = session.config.getoption("tables")
    # An interrupted run has counted only a part of the cases.
    if folder is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.config.stash[_TABLES].write(folder)


@pytest.fixture(autouse=True)
def nothing_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable every fix, whatever the caller's environment says."""
    monkeypatch.delenv("TVM_FIXES_DISABLE", raising=False)


@pytest.fixture(scope="session")
def coverage_table(pytestconfig: pytest.Config) -> CoverageTables:
    """Return a coverage table by name; see :class:`coverage_tables.CoverageTable`."""
    return pytestconfig.stash[_TABLES]


@pytest.fixture(scope="session")
def kept_results(pytestconfig: pytest.Config) -> Callable[[str], KeptResults]:
    """Return the results of earlier runs by name; see :class:`kept_results.KeptResults`."""
    return functools.cache(functools.partial(KeptResults, pytestconfig.getoption("results")))
