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
"""Runs the libraries of cases under NVIDIA's compute-sanitizer, which finds errors of kernels."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm
from tvm.runtime.vm import VirtualMachine

from .cases import GPU_CASES, VARIANTS
from .run import load_cuda_runtime

_COMMAND = ("compute-sanitizer", "--print-limit", "3", "--tool")
_BATCH = 8
_Library = tuple[str, str]  # a case and one of VARIANTS
_SUMMARY = re.compile(r"SUMMARY: (\d+) (?:error|hazard)")


def sanitize(
    cases: Sequence[str], folder: Path, tool: str, workers: int
) -> Iterator[list[dict[str, Any]]]:
    """Run each library of each case with a tool of :data:`~.cases.SANITIZERS`.

    Yields
    ------
    list of dict
        The rows of a few libraries, with the tool's message if it found an error.
    """
    libraries = [
        (case, variant)
        for case in cases
        for variant in VARIANTS
        if (folder / GPU_CASES[case].library(variant)).exists()
    ]
    parts = [libraries[first : first + _BATCH] for first in range(0, len(libraries), _BATCH)]
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda part: _sanitize(part, folder, tool), parts)


def _sanitize(libraries: list[_Library], folder: Path, tool: str) -> list[dict[str, Any]]:
    """Run libraries in one process, which starts slowly; if it fails, halve them to find which."""
    failure = _failure(libraries, folder, tool)
    if failure is not None and len(libraries) > 1:
        half = len(libraries) // 2
        parts = libraries[:half], libraries[half:]
        return [row for part in parts for row in _sanitize(part, folder, tool)]
    said = {} if failure is None else {"failure": failure}
    return [{"case": case, "variant": variant, "tool": tool} | said for case, variant in libraries]


def _failure(libraries: list[_Library], folder: Path, tool: str) -> str | None:
    """The message of the tool about a run of libraries; None if it finds no error."""
    paths = [(case, str(folder / GPU_CASES[case].library(variant))) for case, variant in libraries]
    worker = [sys.executable, "-m", __name__, json.dumps(paths)]
    try:
        ended = subprocess.run([*_COMMAND, tool, *worker], capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("compute-sanitizer is not on the PATH; it comes with CUDA") from None
    summary = _SUMMARY.search(ended.stdout)
    if summary and summary[1] == "0" and ended.returncode == 0:
        return None
    lines = [line.lstrip("= ") for line in ended.stdout.splitlines() if line.startswith("=")]
    said = [line for line in lines if line and not line.startswith("COMPUTE-SANITIZER")]
    said = said or ended.stderr.strip().splitlines()[-1:] or [f"status {ended.returncode}"]
    return f"{tool}: {' | '.join(said[:4])}"[:600]


def _execute(libraries: list[list[str]]) -> None:
    """Run libraries twice each, without PyTorch on the GPU."""
    load_cuda_runtime()
    device = tvm.cuda()
    for name, library in libraries:
        _, inputs = GPU_CASES[name].make()
        machine = VirtualMachine(tvm.runtime.load_module(library), device)
        arguments = [tvm.runtime.from_dlpack(x.contiguous()).copyto(device) for x in inputs]
        for _ in range(2):
            machine["main"](*arguments)
        device.sync()


if __name__ == "__main__":
    _execute(json.loads(sys.argv[1]))
