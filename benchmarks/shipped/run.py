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
"""Compiles a model with the command line, in its own process, and runs the result."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .fetch import clear, take_out
from .models import Model

ROOT = Path(__file__).parents[2]

RIGHT, REJECTED = "right", "rejected"
"""The good outcomes: the outputs are right; the model was rejected, and had to be."""
FAILED, NOT_SAVED, WRONG = "failed", "not saved", "wrong"
"""The bad ones: no artifact; `compile` found an error in the outputs; the worker found one."""
ENDED = "ended"
"""Another bad one: out of time, or killed by a signal."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a model.

    Attributes
    ----------
    name, origin, kind : str
        The model.
    outcome : str
        One of the constants of this module.
    message : str
        The error, in one line.
    seconds : float
        The CPU time of the compilation, with that of its children.
    memory_bytes : int
        The most memory that one of its processes used.
    model_bytes, artifact_bytes : int
        The sizes of the model's file and of the artifact.
    ms, reference_ms, ratio : float or None
        The CPU times of one call of the artifact and of ONNX Runtime, and their ratio.
    revision : str
        The revision of this repository.
    """

    name: str
    origin: str
    kind: str
    outcome: str
    message: str
    seconds: float
    memory_bytes: int
    model_bytes: int
    artifact_bytes: int
    revision: str
    ms: float | None = None
    reference_ms: float | None = None
    ratio: float | None = None

    @property
    def key(self) -> str:
        """The name, by which results are kept."""
        return self.name

    @property
    def good(self) -> bool:
        """Whether the model compiles and is right, or is rejected as expected."""
        return self.outcome in (RIGHT, REJECTED)


@dataclass(frozen=True)
class Ended:
    """A process that has ended.

    Attributes
    ----------
    status : int or None
        Its exit status, or minus its signal; None if it was out of time.
    output, errors : str
        What it printed.
    seconds : float
        The CPU time of it and its children.
    memory_bytes : int
        The most memory that one of them used.
    """

    status: int | None
    output: str
    errors: str
    seconds: float
    memory_bytes: int


def run_process(command: list[str], logs: Path, limit: float, **environment: str) -> Ended:
    """Run a command and measure it; kill it and its children after `limit` seconds."""
    paths = str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment
    out, err = (logs.with_name(f"{logs.name}.{kind}") for kind in ("out", "err"))
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, env=variables, start_new_session=True
        )
        deadline, status = time.monotonic() + limit, None
        while True:
            ended, wait_status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                status = os.waitstatus_to_exitcode(wait_status)
                break
            if time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                _, _, usage = os.wait4(process.pid, 0)
                break
            time.sleep(0.05)
        process.returncode = status  # so that Popen does not wait for it again
    return Ended(
        status,
        out.read_text(errors="replace"),
        err.read_text(errors="replace"),
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
    )


def measure(model: Model, cache: Path, revision: str, limit: float) -> Outcome:
    """Take out, compile, run and compare a model."""
    path = take_out(model, cache)
    artifact = clear(cache / "artifacts" / model.name)
    logs = cache / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tvm_fixes", "compile", str(path), "-o", str(artifact)]
    ended = run_process(command, logs / f"{model.name}.compile", limit)
    row: dict[str, Any] = {
        "name": model.name,
        "origin": model.origin,
        "kind": model.kind,
        "seconds": ended.seconds,
        "memory_bytes": ended.memory_bytes,
        "model_bytes": path.stat().st_size,
        "artifact_bytes": size_of(artifact),
        "revision": revision,
    }
    outcome, message = judge_compilation(ended, model.lacks, saved=artifact.exists())
    if outcome == RIGHT:
        command = [sys.executable, "-m", "benchmarks.shipped.worker", model.name]
        command += [str(path), str(artifact)]
        one = dict.fromkeys(("OMP_NUM_THREADS", "TVM_NUM_THREADS"), "1")
        worker = run_process(command, logs / f"{model.name}.run", limit, **one)
        clear(artifact)
        outcome, message, measured = judge_run(worker)
        row |= measured
    return Outcome(outcome=outcome, message=message, **row)


def judge_compilation(ended: Ended, lacks: str, *, saved: bool) -> tuple[str, str]:
    """Return the outcome and the error of a compilation; `right` is preliminary.

    Parameters
    ----------
    ended : Ended
    lacks : str
        For a model that must be rejected, a part of the error.
    saved : bool
        Whether there is an artifact.
    """
    if ended.status is None:
        return ENDED, "compile: out of time"
    if ended.status < 0:
        return ENDED, f"compile: {signal.Signals(-ended.status).name}"
    if ended.status == 0 and saved:
        return (FAILED, f"expected an error that names {lacks}") if lacks else (RIGHT, "")
    message = _difference(ended) or _error(ended)
    if lacks and lacks in message:
        return REJECTED, message
    return (NOT_SAVED if "not saved" in ended.output + ended.errors else FAILED), message


def judge_run(ended: Ended) -> tuple[str, str, dict[str, Any]]:
    """Return the outcome, the error and the times of a run."""
    if ended.status is None:
        return ENDED, "run: out of time", {}
    if ended.status < 0:
        return ENDED, f"run: {signal.Signals(-ended.status).name}", {}
    lines = ended.output.strip().splitlines()
    if ended.status or not lines:
        return WRONG, f"run: {_error(ended)}", {}
    measured = json.loads(lines[-1])
    wrong = measured.pop("wrong")
    return (WRONG, wrong, {}) if wrong else (RIGHT, "", measured)


def size_of(folder: Path) -> int:
    """Return the size of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _difference(ended: Ended) -> str:
    """Return the row of the first output that differs, if the artifact was not saved for that."""
    if "not saved" not in ended.output:
        return ""
    rows = [line.strip("│ ").split("│") for line in ended.output.splitlines() if "│" in line]
    differing = [
        " ".join(cells[0].split() + cells[-1].split()) for cells in rows if cells[-1].strip()
    ]
    return differing[0] if differing else "not saved"


def _error(ended: Ended) -> str:
    """Return the line with the error."""
    lines = [line.strip() for line in (ended.output + "\n" + ended.errors).splitlines()]
    lines = [line for line in lines if line]
    for line in lines:
        if "error:" in line:
            return line.partition("error:")[2].strip()
    return lines[-1] if lines else f"exit status {ended.status}"
