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

import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm
from tvm.runtime.vm import VirtualMachine

from .cases import GPU_CASES, VARIANTS
from .run import load_cuda_runtime

_COMMAND = ("compute-sanitizer", "--print-limit", "3", "--tool")
_SUMMARY = re.compile(r"SUMMARY: (\d+) (?:error|hazard)")


def sanitize(cases: Sequence[str], folder: Path, tool: str, workers: int) -> list[dict[str, Any]]:
    """Run each library of each case with a tool of :data:`~.cases.SANITIZERS`; print its errors."""
    todo = [
        (case, variant)
        for case in cases
        for variant in VARIANTS
        if (folder / GPU_CASES[case].library(variant)).exists()
    ]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda each: _sanitize(*each, folder, tool), todo))


def _sanitize(case: str, variant: str, folder: Path, tool: str) -> dict[str, Any]:
    worker = [sys.executable, "-m", __name__, case, str(folder / GPU_CASES[case].library(variant))]
    try:
        ended = subprocess.run([*_COMMAND, tool, *worker], capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("compute-sanitizer is not on the PATH; it comes with CUDA") from None
    row = {"case": case, "variant": variant, "tool": tool}
    summary = _SUMMARY.search(ended.stdout)
    if summary and summary[1] == "0" and ended.returncode == 0:
        return row
    lines = [line.lstrip("= ") for line in ended.stdout.splitlines() if line.startswith("=")]
    said = [line for line in lines if line and not line.startswith("COMPUTE-SANITIZER")]
    said = said or ended.stderr.strip().splitlines()[-1:] or [f"status {ended.returncode}"]
    return row | {"failure": f"{tool}: {' | '.join(said[:4])}"[:600]}


def _execute(name: str, library: str) -> None:
    """Run a library twice, without PyTorch on the GPU."""
    load_cuda_runtime()
    _, inputs = GPU_CASES[name].make()
    device = tvm.cuda()
    machine = VirtualMachine(tvm.runtime.load_module(library), device)
    arguments = [tvm.runtime.from_dlpack(x.contiguous()).copyto(device) for x in inputs]
    for _ in range(2):
        machine["main"](*arguments)
    device.sync()


if __name__ == "__main__":
    _execute(*sys.argv[1:])
