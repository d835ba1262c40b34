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
"""The driver's side of a worker: start it, ask it, end it."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Command = Callable[[str, Sequence[int]], list[str]]


class Failure(Exception):
    """What was asked for did not come to be; the message says why."""


class Capped(Failure):
    """It took longer than it may."""


def worker_command(role: str, cores: Sequence[int]) -> list[str]:
    """The command of a worker."""
    return [sys.executable, "-m", "benchmarks.worker", role, ",".join(map(str, cores))]


class Worker:
    """A process that answers requests.

    Parameters
    ----------
    role : str
        What it is to do.
    cores : sequence of int
        The cores that it may use, one thread on each.
    log : Path
        The file for what its libraries print.
    command : callable
        Makes the command line of role and cores.
    """

    def __init__(
        self, role: str, cores: Sequence[int], log: Path, command: Command = worker_command
    ):
        self.role = role
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command(role, cores),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ | _threads(cores),
                start_new_session=True,  # so that compilers that it starts end with it
            )
        self._pending = b""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], cap: float) -> dict[str, Any]:
        """Send a request, and wait for the reply for `cap` seconds at most.

        Raises
        ------
        Capped
            If none came by then; the worker is ended.
        Failure
            If the worker says so, or has died.
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
        said = self._log.read_text(errors="replace").strip().splitlines()
        return Failure(f"the process ended with {how}" + (f": {said[-1]}" if said else ""))

    def memory(self) -> int:
        """The bytes of memory that the process holds; 0 where Linux does not say, or it is gone."""
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
                pass  # of a request that it did not read


class Workers:
    """The workers of a run: started when they are needed, again when one is gone.

    Parameters
    ----------
    logs : Path
        The folder for what they print.
    command : callable
        Makes the command line of role and cores.
    """

    def __init__(self, logs: Path, command: Command = worker_command):
        self._logs, self._command = logs, command
        self._workers: dict[tuple[str, tuple[int, ...]], Worker] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def get(self, role: str, cores: Sequence[int]) -> Worker:
        """The worker of a role on these cores."""
        key = role, tuple(cores)
        if key not in self._workers or not self._workers[key].alive:
            log = self._logs / f"{role}-{len(cores)}.log"
            self._workers[key] = Worker(role, cores, log, self._command)
        return self._workers[key]

    def trim(self, most: int) -> None:
        """End the workers that hold more than `most` bytes: libraries keep what they once had."""
        for worker in self._workers.values():
            if worker.memory() > most:
                worker.end()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()


def _threads(cores: Sequence[int]) -> dict[str, str]:
    """The environment of a process that has a thread on each of its cores."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")
    found = dict.fromkeys(names, str(len(cores)))
    if len(cores) == 1:
        # TVM would choose its core anew, against the affinity that the worker has.
        return found | {"TVM_BIND_THREADS": "0"}
    return found | {
        "OMP_PROC_BIND": "true",
        "OMP_PLACES": ",".join(f"{{{core}}}" for core in cores),
    }
