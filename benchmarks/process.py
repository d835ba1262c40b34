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
"""The driver's side of a worker process: start it, send requests, end it."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Command = Callable[[str, Sequence[int]], list[str]]

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
"""The environment variables that keep PyTorch's kernels to AVX2."""


class Failure(Exception):
    """A request failed; the message is the reason."""


class Capped(Failure):
    """A request exceeded its time limit."""


def worker_command(role: str, cores: Sequence[int]) -> list[str]:
    """Return the command line of a worker."""
    return [sys.executable, "-m", "benchmarks.worker", role, ",".join(map(str, cores))]


class Worker:
    """A process that answers requests.

    Parameters
    ----------
    role : str
        The builder or runtime that it runs.
    cores : sequence of int
        The cores that it may use, one thread on each.
    log : Path
        The file for the output of its libraries.
    command : callable
        Returns the command line for a role and cores.
    environment : mapping, optional
        Environment variables.
    """

    def __init__(
        self,
        role: str,
        cores: Sequence[int],
        log: Path,
        command: Command = worker_command,
        environment: Mapping[str, str] | None = None,
    ):
        self.role = role
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command(role, cores),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | _threads(cores) | dict(environment or {}),
                start_new_session=True,  # so that `end` also kills compilers that it starts
            )
        self._pending = b""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], cap: float) -> dict[str, Any]:
        """Send a request, and wait at most `cap` seconds for the reply.

        Raises
        ------
        Capped
            If no reply arrives in time; the worker is killed.
        Failure
            If the worker reports a failure, or died.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        reply = json.loads(self._read_line(cap))
        if "failure" in reply:
            raise Failure(reply["failure"])
        return reply

    def _read_line(self, cap: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + cap
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.end()
                    raise Capped(f"not done within {cap:g} s")
                read = os.read(self._process.stdout.fileno(), 1 << 16)
                if not read:
                    raise self._death()
                self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _death(self) -> Failure:
        status = self._process.wait()
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return Failure(f"the process ended with {how}" + (f": {lines[-1]}" if lines else ""))

    def memory(self) -> int:
        """Return the resident memory of the process in bytes, or 0 if it is unknown."""
        try:
            pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """End the process and those that it started."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass  # the worker did not read the last request


class Workers:
    """The workers of a run, which start on demand, and again after one has ended.

    Parameters
    ----------
    logs : Path
        The folder for their logs.
    command : callable
        Returns the command line for a role and cores.
    environment : mapping, optional
        Environment variables of all workers.
    """

    def __init__(
        self,
        logs: Path,
        command: Command = worker_command,
        environment: Mapping[str, str] | None = None,
    ):
        self._logs, self._command, self._environment = logs, command, environment
        self._workers: dict[tuple[str, tuple[int, ...]], Worker] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def get(self, role: str, cores: Sequence[int]) -> Worker:
        """Return the worker of a role on these cores."""
        key = role, tuple(cores)
        if key not in self._workers or not self._workers[key].alive:
            log = self._logs / f"{role}-{len(cores)}.log"
            self._workers[key] = Worker(role, cores, log, self._command, self._environment)
        return self._workers[key]

    def trim(self, limit: int) -> None:
        """End the workers that hold more than `limit` bytes, which libraries do not release."""
        for worker in self._workers.values():
            if worker.memory() > limit:
                worker.end()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()


def _threads(cores: Sequence[int]) -> dict[str, str]:
    """Return the environment variables for one thread on each core."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")
    variables = dict.fromkeys(names, str(len(cores)))
    if len(cores) == 1:
        # Otherwise, TVM would bind its thread to a core of its choice.
        return variables | {"TVM_BIND_THREADS": "0"}
    return variables | {
        "OMP_PROC_BIND": "true",
        "OMP_PLACES": ",".join(f"{{{core}}}" for core in cores),
    }
