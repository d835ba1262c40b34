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
"""``python -m benchmarks.gpu``: compile cases for a GPU, run them on one, and show the results.

Without --build-only or --run-only, both steps run here.  They can also run on two machines that
share the folder: the first needs no GPU, the second no compiler.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console

from .cases import GPU_CASES, GROUPS, SANITIZERS, VARIANTS, GpuCase

_OUT = Path("build/bench-gpu")
_RESULTS = "results.jsonl"
_TIMED = ("models", "memory", "gemm", "layers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the benchmark."""
    parser.add_argument("--out", type=Path, default=_OUT, help=f"the folder (default: {_OUT})")
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--cases", metavar="REGEX", default="", help="only cases whose names match")
    parser.add_argument(
        "--arch",
        default="sm_90",
        help="the GPU's architecture, or 'native' for the GPU of this machine (default: sm_90)",
    )
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--build-only", action="store_true", help="only compile; needs no GPU")
    parser.add_argument("--run-only", action="store_true", help="run what was compiled before")
    parser.add_argument("--check-only", action="store_true", help="compare outputs, without times")
    parser.add_argument("--no-check", action="store_true", help="only measure times")
    parser.add_argument("--compile", action="store_true", help="time torch.compile too")
    parser.add_argument(
        "--sanitizer",
        choices=SANITIZERS,
        help="only run the libraries, with a tool of compute-sanitizer",
    )
    parser.add_argument("--workers", type=int, default=4, help="checking processes (default: 4)")


def main(argv: list[str] | None = None) -> int:
    """Build, run and report; the exit status is 1 if an output is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    console = Console()
    if not console.file.isatty():
        console.width = 180
    cases = [
        case
        for case in GPU_CASES.values()
        if case.group in arguments.groups and re.search(arguments.cases, case.name)
    ]
    if not arguments.run_only:
        from .build import build

        variants = arguments.variants
        build(cases, variants, arguments.arch, arguments.out, console)
    return 0 if arguments.build_only else _run(arguments, cases, console)


def _run(arguments: argparse.Namespace, cases: list[GpuCase], console: Console) -> int:
    from . import report, run, sanitize

    out: Path = arguments.out
    present = [c for c in cases if any((out / c.library(v)).exists() for v in VARIANTS)]
    rows = [{"peaks": run.peaks(), "device": run.device()}]

    def keep(new: list[dict[str, Any]]) -> None:
        rows.extend(new)
        (out / _RESULTS).write_text("".join(json.dumps(row) + "\n" for row in rows))

    if arguments.sanitizer:
        names = [case.name for case in present]
        for found in sanitize.sanitize(names, out, arguments.sanitizer, arguments.workers):
            keep(found)
        return report.show(rows, console)
    if not arguments.no_check:
        keep(run.check([case.name for case in present], out, arguments.workers))
    if not arguments.check_only:
        for group in _TIMED:
            names = [case.name for case in present if case.group == group]
            keep(run.measure(names, out, arguments.compile and group == "models"))
    return report.show(rows, console)


if __name__ == "__main__":
    raise SystemExit(main())
