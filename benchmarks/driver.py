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
"""Measures cases: builds the files that each runtime needs, and runs the runtimes in turn."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .process import Capped, Failure, Worker, Workers
from .protocol import MAX_ERROR, QUANTIZED_GROUPS, QUANTIZED_RUNTIMES, Job

RUNTIME_NAMES = {
    "eager": "PyTorch",
    "compiled": "torch.compile",
    "ort": "ONNX Runtime",
    "stock": "TVM",
    "ours": "tvm-fixes",
    "ort-quantized": "ONNX Runtime quantized",
    "stock-quantized": "TVM quantized",
    "ours-quantized": "tvm-fixes quantized",
}
"""The runtimes, and their names in tables."""

PEAKS = {"fma": "FMA peak", "triad": "memory bandwidth"}
"""The machine's peaks, measured in the same turns."""

NEEDS: dict[str, tuple[str, ...]] = {
    "ort": ("onnx",),
    "stock": ("stock-library",),
    "ours": ("ours-library",),
    "ort-quantized": ("onnx-quantized",),
    "stock-quantized": ("onnx-quantized", "stock-quantized-library"),
    "ours-quantized": ("onnx-quantized", "ours-quantized-library"),
}
"""The builders that a runtime needs, in order, after ``data``, which all runtimes need."""

SATURATES = "ort-quantized"
"""The runtime whose error may exceed the limit: its kernels saturate on a CPU without VNNI."""

MAX_MEMORY = 2 << 30
"""The maximum memory in bytes that a worker may keep between cases."""

REST = {"do": "rest"}
"""The request to reply once all threads sleep, so that they do not slow down the next worker."""


_LEFT_OUT: dict[str, tuple[str, ...]] = {
    "int8": ("ort", "stock"),
    # TVM does not import blockwise quantized weights.
    "weight-only": ("ort", "stock", "stock-quantized"),
    "decode": ("stock", "stock-quantized"),
    "bf16": ("ort",),
    "dynamic": ("compiled",),
    # Their instruction sets cannot be restricted.
    "avx2": ("compiled", "ort"),
}


def measured(group: str, runtimes: Sequence[str]) -> list[str]:
    """Return those of `runtimes` that a group measures.

    Groups of quantized models also measure PyTorch and tvm-fixes in float32.
    """
    left_out = _LEFT_OUT.get(group, ())
    if group not in QUANTIZED_GROUPS:
        left_out += QUANTIZED_RUNTIMES
    return [runtime for runtime in runtimes if runtime not in left_out]


@dataclass(frozen=True)
class Settings:
    """The settings of a measurement.

    Attributes
    ----------
    turns : int
        The maximum number of turns of each runtime.
    turn_seconds : float
        The approximate time of a turn, in which a fast case runs several times.
    cap : float
        The time limit for one turn, and for all turns of a runtime together: once it is reached,
        the runtime takes no further turn.
    build_cap : float
        The time limit for a build, in seconds.
    """

    turns: int = 15
    turn_seconds: float = 0.05
    cap: float = 60.0
    build_cap: float = 300.0


@dataclass
class Entry:
    """The result of one runtime in a row.

    Attributes
    ----------
    status : str
        ``ok``, ``capped``, ``failed`` or ``wrong``.
    reason : str
        Why the status is not ``ok``, or that the result is inaccurate.
    turns : list of (float, float)
        CPU time and wall time of one run in seconds, turn by turn.
    facts : dict
        ``error``, ``tolerance``, ``runs`` per turn, CPU time of the build (``build``, in s), and
        ``size`` of the library in bytes.
    """

    status: str = "ok"
    reason: str = ""
    turns: list[tuple[float, float]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def fail(self, failure: Failure) -> None:
        """Record why the runtime has no time."""
        self.status = "capped" if isinstance(failure, Capped) else "failed"
        self.reason, self.turns = str(failure), []


@dataclass(frozen=True)
class Bench:
    """The resources and settings of a benchmark run.

    Attributes
    ----------
    workers : Workers
        The processes.
    settings : Settings
        The settings of the measurement.
    runtimes : sequence of str
        The runtimes to measure, a subset of :data:`RUNTIME_NAMES`.
    target : mapping
        The configuration of TVM's target.
    scratch : Path
        The folder for temporary files of a case.
    say : callable
        Shows the progress.
    """

    workers: Workers
    settings: Settings
    runtimes: Sequence[str]
    target: Mapping[str, Any]
    scratch: Path
    say: Callable[[str], None] = lambda text: None

    def rows(
        self, case: str, group: str, cores: Sequence[Sequence[int]]
    ) -> Iterator[dict[str, Any]]:
        """Build a case, and measure it on each of these sets of cores.

        Yields
        ------
        row : dict
            ``case``, ``group``, ``threads``, ``facts`` of the case, and ``runtimes``: the fields of
            an :class:`Entry` by runtime and peak.
        """
        with TemporaryDirectory(dir=self.scratch) as folder:
            everything = sorted({core for some in cores for core in some})
            job = Job(case, Path(folder), len(everything), self.target)
            built = self._build_all(job, everything)
            for some in cores:
                job = Job(case, Path(folder), len(some), self.target)
                entries = self._measure(job, some, built)
                yield {
                    "case": case,
                    "group": group,
                    "threads": len(some),
                    "facts": built["data"].facts,
                    "runtimes": {runtime: vars(entry) for runtime, entry in entries.items()},
                }
        self.workers.trim(MAX_MEMORY)

    def _build_all(self, job: Job, cores: Sequence[int]) -> dict[str, Entry]:
        built: dict[str, Entry] = {}
        needed = (builder for runtime in self.runtimes for builder in NEEDS.get(runtime, ()))
        for builder in dict.fromkeys(("data", *needed)):
            self.say(f"{job.case}: build {builder}")
            entry = built[builder] = Entry()
            try:
                worker = self.workers.get(builder, cores)
                entry.facts = worker.ask(job.request(), self.settings.build_cap)
            except Failure as failure:
                entry.fail(failure)
                if builder == "data":
                    break
        return built

    def _measure(
        self, job: Job, cores: Sequence[int], built: Mapping[str, Entry]
    ) -> dict[str, Entry]:
        entries, ready = {}, {}
        for runtime in (*self.runtimes, *PEAKS):
            self.say(f"{job.case}, {job.threads} thread(s): open {runtime}")
            entries[runtime] = self._entry_of(runtime, built)
            if entries[runtime].status == "ok":
                worker = self.workers.get(runtime, cores)
                if self._open(worker, job, entries[runtime]):
                    ready[runtime] = worker
        self._take_turns(job, entries, ready)
        for worker in ready.values():
            self._close(worker)
        return entries

    def _close(self, worker: Worker) -> None:
        try:
            if worker.alive:
                worker.ask({"do": "close"}, self.settings.cap)
        except Failure:
            worker.end()  # the next case starts a new worker

    def _entry_of(self, runtime: str, built: Mapping[str, Entry]) -> Entry:
        """Return a new entry with the results of the builds."""
        entry = Entry()
        for builder in ("data", *NEEDS.get(runtime, ())):
            if built[builder].status != "ok":
                entry.status = built[builder].status
                entry.reason = f"{builder}: {built[builder].reason}"
                return entry
            if builder != "data":
                entry.facts.update(built[builder].facts)
            elif "tolerance" in built[builder].facts:
                entry.facts["tolerance"] = built[builder].facts["tolerance"]
        return entry

    def _open(self, worker: Worker, job: Job, entry: Entry) -> bool:
        """Open the case and compare its output; return whether it can run."""
        check = {"do": "check", "seconds": self.settings.turn_seconds}
        try:
            entry.facts.update(worker.ask(job.request(), self.settings.build_cap))
            entry.facts.update(worker.ask(check, self.settings.cap))
            worker.ask(REST, self.settings.cap)
        except Failure as failure:
            entry.fail(failure)
            return False
        error, limit = entry.facts["error"], entry.facts.get("tolerance", MAX_ERROR)
        if not error <= limit:  # NaN is wrong, too
            entry.reason = f"error {error:.3g} of the largest value, more than {limit:.3g}"
            if worker.role != SATURATES or not math.isfinite(error):
                entry.status = "wrong"
                del entry.facts["error"]  # JSON has no NaN
                self._close(worker)
        return entry.status == "ok"

    def _take_turns(
        self, job: Job, entries: Mapping[str, Entry], ready: Mapping[str, Worker]
    ) -> None:
        """Run turn by turn, every other turn in reverse order, so that the predecessors change."""
        spent = dict.fromkeys(ready, 0.0)
        for turn in range(self.settings.turns):
            self.say(f"{job.case}, {job.threads} thread(s): turn {turn + 1}")
            for runtime in list(ready)[:: -1 if turn % 2 else 1]:
                entry = entries[runtime]
                if entry.status != "ok" or spent[runtime] >= self.settings.cap:
                    continue
                runs = entry.facts["runs"]
                try:
                    took = ready[runtime].ask({"do": "run", "runs": runs}, self.settings.cap)
                    ready[runtime].ask(REST, self.settings.cap)
                except Failure as failure:
                    entry.fail(failure)
                    continue
                entry.turns.append((took["cpu"], took["wall"]))
                spent[runtime] += took["wall"] * runs
