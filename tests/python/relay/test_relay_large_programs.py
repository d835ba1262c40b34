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
"""The memory for reading large Relay programs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm.testing

from benchmarks.relay_reading import documents
from helpers.grids import is_full
from tvm_fixes import relay
from tvm_fixes.support.isolate import run_forked

# What a first call loads, whatever it reads.
FIXED = 16_000_000

SIZE = 100_000_000


def memory(field: str) -> int:
    """Return an entry of the status of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def growth(read: Callable[[str], object], text: str) -> int:
    """Return the peak growth of a process's memory, in bytes, while it reads a text."""

    def run() -> int:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = memory("VmRSS")
        read(text)
        return memory("VmHWM") - before

    outcome = run_forked(run, timeout=300)
    assert isinstance(outcome.value, int), outcome
    return outcome.value


@pytest.mark.skipif(not is_full(), reason="reads 300 MB")
def test_reading_takes_at_most_twice_the_memory_of_json() -> None:
    text, saved = documents(SIZE)
    allowed = 2 * growth(json.loads, saved) + FIXED
    assert allowed > SIZE
    assert growth(relay.parse, text) < allowed
    assert growth(relay.load_json, saved) < allowed


if __name__ == "__main__":
    tvm.testing.main()
