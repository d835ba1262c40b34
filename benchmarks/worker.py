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

ROLE is one of the builders or runtimes, CORES the comma-separated numbers of the cores that it may
use. It reads one JSON object per line from standard input and replies to each with one.
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

MAX_RUNS = 10_000
"""The maximum number of runs in one turn."""

MAX_REST_S = 2.0
"""The maximum time to wait for threads that still spin, in seconds."""

SLOW_S = 5.0
"""A first run that takes longer is a slow case, not the loading of libraries; in seconds."""

_POLL_S = 0.01


class Builder:
    """Replies to ``open`` with the facts from the builder.

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
    """Handles ``open``, ``check``, ``run``, ``rest`` and ``close`` for one runtime.

    Parameters
    ----------
    runtime : Runtime
        The runtime that runs the cases.
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
        """Run once; return the error, and the number of runs that take about `seconds`."""
        assert self._run is not None and self._job is not None
        start = time.perf_counter()
        output = self._run()
        wall = time.perf_counter() - start
        error = largest_error(self._runtime.to_numpy(output), self._runtime.expected(self._job))
        return {"error": error, "runs": self._runs_in(seconds, wall)}

    def _runs_in(self, seconds: float, first: float) -> int:
        """Return the number of runs in a turn; `first` is the time of the warm-up run."""
        if first > SLOW_S:
            return 1
        runs = 1
        while (wall := self.turn(runs)["wall"]) * runs < seconds / 4 and runs < MAX_RUNS:
            runs *= 4
        return min(max(int(seconds / wall), 1), MAX_RUNS)

    def turn(self, runs: int) -> dict[str, float]:
        """Run `runs` times; return the CPU time of the process and the wall time per run in s."""
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
    """Wait until the threads of this process sleep; return whether they do.

    The threads of a pool spin for up to half a second after a run, to wait for the next one.
    """
    end = time.monotonic() + MAX_REST_S
    while time.monotonic() < end:
        spent = time.process_time()
        time.sleep(_POLL_S)
        if time.process_time() - spent < _POLL_S / 10:
            return True
    return False


@contextmanager
def _same_cores() -> Iterator[set[int]]:
    """Restore the cores of this thread at the end; a library may bind the thread to one core."""
    cores = os.sched_getaffinity(0)
    try:
        yield cores
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def _on_first_core() -> Iterator[None]:
    """Pin this thread to the first of its cores; the threads of libraries use the others.

    On some virtual machines, Linux leaves two threads on one core while another core is idle.
    """
    with _same_cores() as cores:
        os.sched_setaffinity(0, [min(cores)])
        yield


def largest_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest expected magnitude.

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
    """Reply to every request; an exception becomes the reply's ``failure``."""
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
    """Make Linux kill this process when the driver's process ends for any reason."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def main(argv: list[str]) -> None:
    role, cores = argv
    _end_with_driver()
    os.sched_setaffinity(0, map(int, cores.split(",")))
    # Redirect the output of libraries, so that only replies go to the pipe.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(_make(role).answer, sys.stdin, replies)


if __name__ == "__main__":
    main(sys.argv[1:])
