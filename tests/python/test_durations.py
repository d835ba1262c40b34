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

"""The table of the CPU time of tests."""

import pytest
import tvm.testing

from helpers.durations import FILE, read

_CONFTEST = """
import helpers.durations
from helpers.durations import Durations

helpers.durations.BUDGET = BUDGET

def pytest_addoption(parser):
    parser.addoption("--tier", default="ci")

def pytest_configure(config):
    config.pluginmanager.register(Durations(config))
"""

_BUSY = """
import subprocess, sys, time

BUSY = "import time\\nwhile time.process_time() < 0.3: pass"

def test_busy():
    start = time.process_time()
    while time.process_time() < start + 0.2: pass

def test_waits():
    time.sleep(0.2)

def test_starts_a_process():
    subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)
"""


@pytest.fixture
def seconds(pytester: pytest.Pytester):
    pytester.makeconftest(_CONFTEST.replace("= BUDGET", "= 0"))
    pytester.makepyfile(test_busy=_BUSY, test_quick="def test_one(): pass")

    def run(*arguments):
        pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
        return read(pytester.path / FILE)

    return run


def test_time_of_the_cpu_and_of_other_processes(seconds):
    measured = seconds()
    assert measured["test_busy.py::test_busy"] >= 0.2
    assert measured["test_busy.py::test_starts_a_process"] >= 0.3
    assert measured["test_busy.py::test_waits"] < 0.1


def test_workers_send_their_times(seconds):
    assert seconds("-n", "2")["test_busy.py::test_busy"] >= 0.2


def test_a_run_of_one_file_keeps_the_others(seconds, pytester):
    every = seconds().keys()
    assert seconds("test_quick.py").keys() == every
    pytester.path.joinpath("test_busy.py").unlink()
    assert seconds("test_quick.py").keys() == {"test_quick.py::test_one"}


@pytest.mark.parametrize("arguments", [["-k", "waits"], ["test_busy.py::test_waits"]])
def test_a_part_of_a_file_replaces_nothing(seconds, arguments):
    every = seconds()
    assert seconds(*arguments) == every


def test_files_before_tests_and_slow_before_quick(seconds, pytester):
    seconds()
    lines = (pytester.path / FILE).read_text().splitlines()
    names = [line.split(" ", 1)[1] for line in lines]
    assert names[:3] == ["test_busy.py", "test_quick.py", "test_busy.py::test_starts_a_process"]
    assert float(lines[0].split()[0]) == pytest.approx(
        sum(value for name, value in read(pytester.path / FILE).items() if "busy.py" in name),
        abs=0.05,
    )


def test_the_quick_tier_keeps_the_times_of_tests_that_it_leaves_out(seconds, pytester):
    every = seconds().keys()
    pytester.makepyfile(test_busy="def test_waits(): pass")
    left = seconds("--tier", "quick")
    assert left.keys() == every
    assert left["test_busy.py::test_busy"] >= 0.2
    assert left["test_busy.py::test_waits"] < 0.1
    assert len(seconds()) == 2


def test_the_quick_tier_has_a_budget(pytester, seconds):
    pytester.makeini("[pytest]\ntestpaths = .\n")
    run = ("-p", "no:cacheprovider", "--tier", "quick")
    whole = pytester.runpytest_inprocess(*run, "-n", "2")
    (line,) = [line for line in whole.outlines if line.startswith("quick tier: ")]
    assert line.endswith("CPU s of at most 0")
    # Of the tests, and of the start of the workers.
    assert 0.6 <= float(line.split()[2].replace(",", "")) < 60
    part = pytester.runpytest_inprocess(*run, "test_busy.py")
    part.stdout.no_fnmatch_line("quick tier: *")


if __name__ == "__main__":
    tvm.testing.main()
