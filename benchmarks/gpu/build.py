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
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tvm
from rich.console import Console

import tvm_fixes
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes.support.switches import ENVIRONMENT_VARIABLE, FIX_IDS
from tvm_fixes.target import cuda, resolve

from .cases import GpuCase

VARIANTS = {
    "ours": "tvm-fixes",
    "libraries": "tvm-fixes with cuBLAS and cuDNN",
    "stock": "TVM",
}
"""The compilers of a case, and their names in tables."""

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

    def one(job: tuple[GpuCase, str]) -> dict[str, Any]:
        case, variant = job
        start = time.monotonic()
        failure = _in_a_child(partial(_build, case, variant, arch, folder))
        row: dict[str, Any] = {"case": case.name, "variant": variant}
        row["seconds"] = round(time.monotonic() - start, 1)
        if failure is not None:
            return row | {"failure": failure}
        return row | {"bytes": (folder / library_name(case, variant)).stat().st_size}

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, index.open("a") as rows:
        for number, row in enumerate(pool.map(one, todo), 1):
            rows.write(json.dumps(row) + "\n")
            rows.flush()
            said = row.get("failure", f"{row['seconds']} s")
            console.print(
                f"[{number}/{len(todo)}] {row['case']}: {row['variant']}: {said}", markup=False
            )


def _in_a_child(build: Callable[[], None]) -> str | None:
    """Build in a forked child, since a crash is a result too; return the failure, if any."""
    outcome = run_forked(build, timeout=1800)
    return None if outcome.kind is OutcomeKind.VALUE else str(outcome).splitlines()[-1]


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of the index of `folder`."""
    index = folder / INDEX
    return [json.loads(line) for line in index.read_text().splitlines()] if index.exists() else []


def library_name(case: GpuCase, variant: str) -> str:
    return f"{case.file}.{variant}.so"


def _build_stock(case: GpuCase, arch: str, library: Path) -> None:
    """Build with TVM's own pipeline; TVM's importer rejects a linear layer of 16 bits."""
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
    library = folder / library_name(case, variant)
    if variant == "stock":
        _build_stock(case, arch, library)
    else:
        _build_ours(case, variant, arch, library)
