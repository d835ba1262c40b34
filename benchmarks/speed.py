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
"""Compares the speed of compiled models with PyTorch, ONNX Runtime and TVM: ``make bench``."""

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tvm_fixes.errors import UsageError

from . import plot, report, tables
from .cases import CASES, GROUPS, Case
from .driver import RUNTIME_NAMES, Bench, Settings, measured
from .process import AVX2, Workers
from .results import Store, identity

_OUT = Path("build/bench")
_AVX2_TARGET = {"kind": "llvm", "mcpu": "haswell"}
_QUICK = Settings(turns=5, turn_seconds=0.02, cap=3.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    group = parser.add_argument_group("speed")
    group.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: see python -m benchmarks.gpu",
    )
    group.add_argument("--quick", action="store_true", help="only layers, one core, few turns")
    group.add_argument("--out", type=Path, help=f"folder for the results (default: {_OUT})")
    group.add_argument(
        "--fresh", action="store_true", help="discard earlier results instead of resuming"
    )
    group.add_argument("--report", action="store_true", help="show the last run without measuring")
    group.add_argument("--table", type=Path, help="a Markdown file for the tables: docs/tables/...")
    group.add_argument("--cases", metavar="TEXT", default="", help="only cases with TEXT in a name")
    group.add_argument("--groups", nargs="+", choices=list(GROUPS), help="only these groups")
    group.add_argument(
        "--runtimes",
        nargs="+",
        choices=list(RUNTIME_NAMES),
        default=list(RUNTIME_NAMES),
        help="only these runtimes",
    )
    group.add_argument(
        "--threads",
        choices=("one", "all", "both"),
        help="number of threads (default: both one and all)",
    )
    group.add_argument("--turns", type=int, help="turns of each runtime (default: 15)")
    group.add_argument(
        "--cap", type=float, help="time limit in s per runtime and case (default: 60)"
    )


def main(arguments: argparse.Namespace, console: Console) -> None:
    """Measure the selected cases, and write and show the results."""
    if arguments.device == "cuda":
        _measure_on_gpu(arguments)
        return
    settings = _settings(arguments)
    out = arguments.out or (_OUT / "quick" if arguments.quick else _OUT)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "results.jsonl"
    if arguments.fresh:
        path.unlink(missing_ok=True)
    if arguments.report:
        store = Store(path)
    else:
        target = _native_target()
        store = Store(path, identity({**asdict(settings), "runtimes": arguments.runtimes}, target))
    if store.others:
        console.print(f"ignored {store.others} rows in {path} with other settings or sources")
    if not arguments.report:
        _measure(arguments, settings, store, out, target, console)
    _show(store.rows, store.run_identity, out, arguments.table, console)


def _measure_on_gpu(arguments: argparse.Namespace) -> None:
    from .gpu.__main__ import main as measure

    out = ["--out", str(arguments.out)] if arguments.out else []
    measure(["--arch", "native", "--compile", "--cases", arguments.cases, *out])


def _settings(arguments: argparse.Namespace) -> Settings:
    settings = _QUICK if arguments.quick else Settings()
    changes = {"turns": arguments.turns, "cap": arguments.cap}
    return replace(settings, **{name: v for name, v in changes.items() if v is not None})


def _native_target() -> dict[str, Any]:
    from tvm_fixes.target import resolve, to_json

    return to_json(resolve("native"))


def _cores(arguments: argparse.Namespace) -> list[list[int]]:
    """Return the sets of cores to measure on: the last core, all cores, or both sets."""
    cores = sorted(os.sched_getaffinity(0))
    threads = arguments.threads or ("one" if arguments.quick else "both")
    sets = {"one": [cores[-1:]], "all": [cores], "both": [cores[-1:], cores]}[threads]
    return sets[:1] if len(cores) == 1 else sets


def _cases(arguments: argparse.Namespace) -> list[Case]:
    groups = arguments.groups or (["layers"] if arguments.quick else list(GROUPS))
    text = arguments.cases.lower()
    cases = [c for c in CASES.values() if c.group in groups and text in c.name.lower()]
    if not cases:
        raise UsageError(f"no case of {', '.join(groups)} has {arguments.cases!r} in its name")
    return cases


def _measure(
    arguments: argparse.Namespace,
    settings: Settings,
    store: Store,
    out: Path,
    target: dict[str, Any],
    console: Console,
) -> None:
    cases = _cases(arguments)
    cores = _cores(arguments)
    scratch = out / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # a killed run leaves it
    scratch.mkdir()
    with (
        Workers(out / "logs") as workers,
        Workers(out / "logs-avx2", environment=AVX2) as narrow,
        console.status("") as status,
    ):
        bench = Bench(workers, settings, arguments.runtimes, target, scratch, status.update)
        for number, case in enumerate(cases, 1):
            missing = [some for some in cores if not store.has(case.name, len(some))]
            if len(missing) < len(cores):
                console.print(f"{case.name}: {len(cores) - len(missing)} row(s) measured before")
            if not missing:
                continue
            chosen = replace(bench, runtimes=measured(case.group, bench.runtimes))
            if case.group == "avx2":
                chosen = replace(chosen, workers=narrow, target=_AVX2_TARGET)
            for row in chosen.rows(case.name, case.group, missing):
                store.add(row)
                console.print(f"[{number}/{len(cases)}] {_line(row)}", markup=False)
                console.file.flush()  # otherwise a pipe buffers the line
    shutil.rmtree(scratch)


def _line(row: report.Row) -> str:
    """Format a row for the progress output."""
    reference = report.reference(row)
    ratios = (
        f"{text} {tables.number(report.ratio(row, name)) or tables.status(row, name)}"
        for name, text in RUNTIME_NAMES.items()
        if name in row["runtimes"] and name != reference
    )
    seconds = report.time_of(row, reference)
    base = "no time" if seconds is None else f"{seconds * 1e3:.3g} ms"
    start = f"{row['case']}, {row['threads']} thread(s): {RUNTIME_NAMES[reference]} {base}; "
    return start + ", ".join(ratios)


def _show(
    rows: Sequence[report.Row],
    run_identity: dict[str, Any],
    out: Path,
    table: Path | None,
    console: Console,
) -> None:
    for shown in tables.tables(rows):
        console.print(shown)
    for line in (*tables.peaks(rows), *tables.remarks(rows)):
        console.print(line, markup=False, highlight=False)
    text = describe(run_identity)
    console.print(text, markup=False)
    (out / "summary.json").write_text(
        json.dumps(report.summary(rows, run_identity), indent=1) + "\n"
    )
    written = [out / "results.jsonl", out / "summary.json", table or out / "summary.md"]
    written[-1].write_text(tables.markdown(rows, text))
    if rows:
        try:
            plot.draw(rows, out / "plot.png")
            written.append(out / "plot.png")
        except ImportError as error:
            console.print(f"No plot: {error}", markup=False)
    console.print("Written: " + ", ".join(map(str, written)), markup=False)


def describe(run_identity: dict[str, Any]) -> str:
    """Return a paragraph about how the results were measured."""
    settings, versions = run_identity["settings"], run_identity["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    mcpu = run_identity["target"].get("mcpu", "generic")
    return (
        f"Measured on {run_identity['cpu']} (TVM's target: {mcpu}) with {named}. "
        f"Each runtime has its own process; the processes take {settings['turns']} turns of about "
        f"{settings['turn_seconds'] * 1e3:g} ms, every other turn in reverse order. On one core, "
        "the process is pinned to it, and times are CPU times; on several cores, each thread is "
        "pinned to a core, and times are wall times. A ratio is a runtime's time divided by "
        "PyTorch's in the same turn, or ONNX Runtime's for quantized models; the tables show the "
        f"median over the turns. A runtime without a result within {settings['cap']:g} s is capped "
        "and excluded from the means. Every output was compared with PyTorch's; that of a "
        "quantized model, with the output of exact kernels of ONNX Runtime."
    )
