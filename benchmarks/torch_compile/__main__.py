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

"""``torch.compile`` with this backend, on models at their usual sizes.

Runs each model under this backend and Inductor, each in a process of its own with one thread, first
with an empty cache and then again.  An interrupted run resumes.  The exit status is 1 if a model
fails or is wrong.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ..shipped.run import ROOT, run_process
from ..shipped.table import Results, revision
from .models import SUBJECTS
from .rows import Row
from .table import markdown, summary
from .worker import LIBRARIES, OURS

_ONE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
_TABLE = ROOT / "docs" / "tables" / "torch_compile.md"
_OUT = ROOT / "build" / "torch_compile"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.torch_compile", description=__doc__)
    made.add_argument("names", nargs="*", metavar="model", help="only these models, again")
    made.add_argument("--backends", nargs="+", default=[OURS, "inductor"], metavar="BACKEND")
    made.add_argument("--limit", type=float, default=900.0, help="seconds per process")
    made.add_argument("--list", action="store_true", help="list the models")
    made.add_argument("--failed", action="store_true", help="only what failed, again")
    made.add_argument(
        "--table", type=Path, default=_TABLE, help="the Markdown file (default: in docs/tables)"
    )
    made.add_argument(
        "--libraries",
        type=Path,
        default=os.environ.get(LIBRARIES),
        help=f"a folder of timm and torchvision (default: ${LIBRARIES})",
    )
    return made


def measure(name: str, backend: str, arguments: argparse.Namespace) -> Row:
    """Run a model with an empty cache, and then its first call again."""
    caches = _OUT / "caches"
    shutil.rmtree(caches, ignore_errors=True)
    environment = dict.fromkeys(_ONE, "1") | {
        "TVM_BIND_THREADS": "0",
        "TVM_FIXES_CACHE": str(caches / OURS),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    if arguments.libraries:
        environment[LIBRARIES] = str(Path(arguments.libraries).absolute())
    command = [sys.executable, "-m", "benchmarks.torch_compile.worker", name, backend]
    logs = _OUT / "logs" / f"{name}.{backend}"
    logs.parent.mkdir(parents=True, exist_ok=True)
    row = Row(name, backend, revision())
    ended = run_process(command, logs, arguments.limit, **environment)
    if ended.status != 0:
        last = [line for line in ended.errors.splitlines() if line.strip()] or ["no message"]
        status = "out of time" if ended.status is None else f"exit status {ended.status}"
        return row.failed(f"{status}: {last[-1][:300]}")
    row = row.measured(json.loads(ended.output.splitlines()[-1]))
    again = run_process(
        [*command, "--first"], logs.with_suffix(".again"), arguments.limit, **environment
    )
    if again.status != 0:
        return row.failed(f"the second start ended with {again.status}")
    return row.started_again(json.loads(again.output.splitlines()[-1]))


def main(argv: Sequence[str] | None = None) -> int:
    made = parser()
    arguments = made.parse_args(argv)
    if arguments.list:
        for subject in SUBJECTS.values():
            print(f"{subject.name}  {subject.library}")
        return 0
    unknown = [name for name in arguments.names if name not in SUBJECTS]
    if unknown:
        made.error(f"unknown model {unknown[0]!r}; --list lists them")
    results = Results(_OUT / "results.jsonl", Row)
    for place, name in enumerate(arguments.names or SUBJECTS, 1):
        for backend in arguments.backends:
            known = results.get((name, backend))
            if known and not arguments.names and not (arguments.failed and known.problem):
                continue
            print(f"[{place}] {name}, {backend} … ", end="", flush=True)
            row = measure(name, backend, arguments)
            results.add(row)
            print(row.line(), flush=True)
    rows = results.all()
    print(summary(rows))
    arguments.table.write_text(markdown(rows, len(SUBJECTS)), encoding="utf-8")
    return 1 if any(row.problem for row in rows if row.backend == OURS) else 0


if __name__ == "__main__":
    sys.exit(main())
