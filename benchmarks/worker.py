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
"""A process that builds or runs cases on request: ``python -m benchmarks.worker ROLE CORES``.

ROLE is one of the builders or runtimes, CORES the numbers of the cores that it may use, separated
by commas. It reads one JSON object a line from standard input and answers each with one.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import numpy as np

from .protocol import Job

MOST_RUNS = 10_000
"""The most runs of one turn."""

MOST_REST = 2.0
"""The seconds after which threads that still spin are not waited for."""

SLOW = 5.0
"""The seconds of a first run that are those of the case, not of what libraries load in it."""

_A_WHILE = 0.01


class Builder:
    """Answers ``open`` with what the builder found.

    Parameters
    ----------
    build : callable
        One of the builders.
    """

    def __init__(self, build: Callable[[Job], dict[str, Any]]):
        self._build = build

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._build(Job.of(request))


class Runner:
    """Answers ``open``, ``check``, ``run``, ``rest`` and ``close`` for one runtime.

    Parameters
    ----------
    runtime : Runtime
        What runs the cases.
    """

    def __init__(self, runtime: Any):
        self._runtime = runtime
        self._job: Job | None = None
        self._run: Callable[[], Any] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "open":
                self._job = Job.of(request)
                with _same_cores():
                    self._run = self._runtime.open(self._job)
                return dict(self._runtime.facts)
            case "check":
                return self.check(request["seconds"])
            case "run":
                return self.turn(request["runs"])
            case "rest":
                return {"rested": rest()}
            case "close":
                self._run = None
                self._runtime.close()
                return {}
        raise ValueError(f"unknown request {request['do']!r}")

    def check(self, seconds: float) -> dict[str, Any]:
        """Run once; return the error, and how many runs take about `seconds`."""
        assert self._run is not None and self._job is not None
        start = time.perf_counter()
        output = self._run()
        wall = time.perf_counter() - start
        error = largest_error(self._runtime.to_numpy(output), self._runtime.expected(self._job))
        return {"error": error, "runs": self._runs_in(seconds, wall)}

    def _runs_in(self, seconds: float, first: float) -> int:
        """How many runs fill a turn, where the first one, which warmed up, took `first`."""
        if first > SLOW:
            return 1
        runs = 1
        while (wall := self.turn(runs)["wall"]) * runs < seconds / 4 and runs < MOST_RUNS:
            runs *= 4
        return min(max(int(seconds / wall), 1), MOST_RUNS)

    def turn(self, runs: int) -> dict[str, float]:
        """Run `runs` times; the CPU time of the process and the wall time, of one run, in s."""
        run = self._run
        assert run is not None
        with _on_first_core():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(runs):
                run()
            return {
                "cpu": (time.process_time() - cpu) / runs,
                "wall": (time.perf_counter() - wall) / runs,
            }


def rest() -> bool:
    """Wait until the threads of this process sleep; whether they do.

    Those of thread pools spin for up to half a second after a run, in case there is another one.
    """
    end = time.monotonic() + MOST_REST
    while time.monotonic() < end:
        spent = time.process_time()
        time.sleep(_A_WHILE)
        if time.process_time() - spent < _A_WHILE / 10:
            return True
    return False


@contextmanager
def _same_cores() -> Iterator[set[int]]:
    """Let this thread have the cores at the end that it has now; a library may bind it to one."""
    cores = os.sched_getaffinity(0)
    try:
        yield cores
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def _on_first_core() -> Iterator[None]:
    """Keep this thread on the first of the cores that it may use; those of libraries have theirs.

    On some virtual machines Linux leaves two threads on one core, with another one idle.
    """
    with _same_cores() as cores:
        os.sched_setaffinity(0, [min(cores)])
        yield


def largest_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest expected magnitude.

    Raises
    ------
    ValueError
        If the shapes or dtypes differ.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ValueError(
            f"expected {expected.dtype} of shape {expected.shape}, "
            f"got {actual.dtype} of shape {actual.shape}"
        )
    return float(np.max(np.abs(actual - expected)) / np.max(np.abs(expected)))


def serve(
    answer: Callable[[dict[str, Any]], dict[str, Any]], requests: TextIO, replies: TextIO
) -> None:
    """Answer every request; what it raises is the reply's ``failure``."""
    for line in requests:
        try:
            reply = answer(json.loads(line))
        except Exception as error:
            text = (str(error).strip() or "no message").splitlines()[0]
            reply = {"failure": f"{type(error).__name__}: {text}"}
        print(json.dumps(reply), file=replies, flush=True)


def _make(role: str) -> Builder | Runner:
    from .builders import BUILDERS
    from .runtimes import RUNTIMES

    return Builder(BUILDERS[role]) if role in BUILDERS else Runner(RUNTIMES[role]())


def _end_with_driver() -> None:
    """Have Linux end this process when the driver's ends, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def main(argv: list[str]) -> None:
    role, cores = argv
    _end_with_driver()
    os.sched_setaffinity(0, map(int, cores.split(",")))
    # Libraries print what they like; the replies have the pipe to themselves.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(_make(role).answer, sys.stdin, replies)


if __name__ == "__main__":
    main(sys.argv[1:])
