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
"""Compiles the cases for a GPU; no GPU is needed."""

import json
import os
import tempfile
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tvm
from rich.console import Console

import tvm_fixes
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.support.isolate import Outcome, OutcomeKind, run_all_forked
from tvm_fixes.support.switches import ENVIRONMENT_VARIABLE, FIX_IDS
from tvm_fixes.target import cuda, resolve

from .cases import GpuCase

_BATCH = 4
_TIMEOUT_S = 900

INDEX = "index.jsonl"
"""The file with one line per library: case, variant, seconds, and bytes or the failure."""


def build(
    cases: Iterable[GpuCase], variants: Iterable[str], arch: str, folder: Path, console: Console
) -> None:
    """Compile each case with each of the `variants` into `folder`, which keeps earlier ones."""
    folder.mkdir(parents=True, exist_ok=True)
    if arch == "native":
        arch = str(resolve("cuda").attrs["arch"])
    index = folder / INDEX
    done = {(row["case"], row["variant"]) for row in read(folder)}
    todo = [(c, v) for c in cases for v in variants if (c.name, v) not in done]

    jobs = len(os.sched_getaffinity(0))
    with index.open("a") as rows:
        # In batches, so that an interruption loses only the current one.
        for first in range(0, len(todo), _BATCH * jobs):
            batch = todo[first : first + _BATCH * jobs]
            builds = [partial(_build, case, variant, arch, folder) for case, variant in batch]
            # In forked children, because a crash is a result too.
            outcomes = run_all_forked(builds, timeout=_TIMEOUT_S, jobs=jobs)
            for number, ((case, variant), outcome) in enumerate(
                zip(batch, outcomes, strict=True), first + 1
            ):
                row = _row(case, variant, outcome, folder)
                rows.write(json.dumps(row) + "\n")
                said = row.get("failure", f"{row['seconds']} s")
                line = f"[{number}/{len(todo)}] {case.name}: {variant}: {said}"
                console.print(line, markup=False)
            rows.flush()


def _row(case: GpuCase, variant: str, outcome: Outcome, folder: Path) -> dict[str, Any]:
    row = {"case": case.name, "variant": variant, "seconds": round(outcome.seconds, 1)}
    if outcome.kind is not OutcomeKind.VALUE:
        return row | {"failure": str(outcome).splitlines()[-1]}
    return row | {"bytes": (folder / case.library(variant)).stat().st_size}


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of the index of `folder`."""
    index = folder / INDEX
    return [json.loads(line) for line in index.read_text().splitlines()] if index.exists() else []


def _build_stock(case: GpuCase, arch: str, library: Path) -> None:
    """Build with TVM's own pipeline; TVM's importer rejects a 16-bit linear layer."""
    module, inputs = case.make()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, inputs)
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    os.environ[ENVIRONMENT_VARIABLE] = ",".join(FIX_IDS)
    target = resolve(f"cuda/{arch}")
    config = {"relax.backend.use_cuda_graph": True}
    with tvm.transform.PassContext(config=config):
        executable = cuda.build(mod, target, relax_pipeline="default")
    executable.export_library(str(library))


def _build_ours(case: GpuCase, variant: str, arch: str, library: Path) -> None:
    target = f"cuda/{arch}" + ("+cublas+cudnn" if variant == "libraries" else "")
    with tempfile.TemporaryDirectory() as folder:
        tvm_fixes.compile(
            case.make(), target=target, compare=False, weights="inside", output=f"{folder}/out"
        )
        os.replace(f"{folder}/out/model.so", library)


def _build(case: GpuCase, variant: str, arch: str, folder: Path) -> None:
    library = folder / case.library(variant)
    if variant == "stock":
        _build_stock(case, arch, library)
    else:
        _build_ours(case, variant, arch, library)
