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
"""Fuzzer: random models, programs, modules and files against independent oracles.

Results are in build/fuzz, one file per campaign; the next run continues with new seeds.
"""

import argparse
import os
import secrets
import sys
import time
import warnings
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tvm_fixes.support.isolate import OutcomeKind, run_all_forked, run_forked

from . import report
from .campaign import CAMPAIGNS, FAULTS, Campaign, judge
from .journal import Journal
from .targets import KNOWN, use_only

_FOLDER = Path("build/fuzz")
_CHUNK = 24
_REPRODUCE_SECONDS = 600.0


def main(argv: list[str] | None = None) -> int:
    """Run the campaigns in `argv`; return 1 if a fault was found."""
    arguments = _parse(argv)
    warnings.simplefilter("ignore")
    os.environ["TVM_FIXES_CACHE"] = "0"  # each case compiles
    # TVM's idle threads spin before they sleep, which takes time from the other cases.
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    if arguments.target is not None:
        use_only(arguments.target)
    console = Console(soft_wrap=True)
    console.width = max(console.width, 100)
    names = arguments.names or [campaign.name for campaign in CAMPAIGNS]
    chosen = [campaign for campaign in CAMPAIGNS if campaign.name in names]
    if arguments.seed is not None:
        return max(_repeat(campaign, arguments.seed) for campaign in chosen)
    journals = {c.name: Journal(arguments.folder / f"{c.name}.jsonl") for c in chosen}
    if not arguments.show:
        end = time.monotonic() + arguments.minutes * 60
        for index, campaign in enumerate(chosen):
            # Time that one campaign does not use goes to the next ones.
            share = (end - time.monotonic()) / (len(chosen) - index)
            _run(campaign, journals[campaign.name], arguments, time.monotonic() + share, console)
    results = {name: journal.results for name, journal in journals.items()}
    for name, found in results.items():
        report.show_faults(console, name, found)
        if arguments.refusals:
            report.show_rejections(console, name, found)
    console.print(report.summary(results))
    return int(any(result.verdict in FAULTS for found in results.values() for result in found))


def _parse(argv: list[str] | None) -> argparse.Namespace:
    lines = "\n".join(f"  {campaign.name:<10}{campaign.summary}" for campaign in CAMPAIGNS)
    parser = argparse.ArgumentParser(
        prog="make fuzz",
        description=__doc__,
        epilog=f"campaigns:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [campaign.name for campaign in CAMPAIGNS]
    parser.add_argument("names", nargs="*", metavar="campaign", help="default: all", type=str)
    parser.add_argument("--minutes", type=float, default=10.0, help="total time (default: 10)")
    parser.add_argument("--cases", type=int, help="stop a campaign after this many new cases")
    parser.add_argument("--jobs", type=int, default=2, help="parallel cases (default: 2)")
    parser.add_argument("--base", type=int, help="first seed of a new campaign (default: random)")
    parser.add_argument("--seed", type=int, help="rerun one case, reduce it, and print a test")
    parser.add_argument(
        "--target", choices=KNOWN, help="compile ONNX graphs and PyTorch programs only for this one"
    )
    parser.add_argument("--show", action="store_true", help="print earlier results and exit")
    parser.add_argument("--refusals", action="store_true", help="print why inputs were rejected")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="results (build/fuzz)")
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.names).difference(known))
    if unknown:
        parser.error(f"unknown campaign {', '.join(unknown)}; expected {', '.join(known)}")
    return arguments


def _run(
    campaign: Campaign,
    journal: Journal,
    arguments: argparse.Namespace,
    end: float,
    console: Console,
) -> None:
    """Run new cases of `campaign` until `end`, or until ``--cases`` are done."""
    base = secrets.randbits(40) if arguments.base is None else arguments.base
    seed = journal.next_seed(base)
    faults = 0
    campaign.prepare()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(campaign.name, total=arguments.cases)
        done = 0
        while time.monotonic() < end and (arguments.cases is None or done < arguments.cases):
            count = min(_CHUNK, (arguments.cases or sys.maxsize) - done)
            seeds = range(seed, seed + count)
            cases = [campaign.case(each) for each in seeds]
            outcomes = run_all_forked(cases, timeout=campaign.timeout, jobs=arguments.jobs)
            for each, outcome in zip(seeds, outcomes, strict=True):
                result = judge(each, outcome)
                journal.add(result)
                faults += result.verdict in FAULTS
            seed, done = seed + count, done + count
            progress.update(
                task, completed=done, description=f"{campaign.name}: {done} cases, {faults} faults"
            )


def _repeat(campaign: Campaign, seed: int) -> int:
    """Run the case of `seed` again and print its result; return 1 for a fault."""
    [outcome] = run_all_forked([campaign.case(seed)], timeout=campaign.timeout, jobs=1)
    result = judge(seed, outcome)
    print(f"{campaign.name} {seed}: {result.verdict}")
    print(result.message)
    if result.verdict not in FAULTS:
        return 0
    reproduce = campaign.function("reproduce")
    if reproduce is not None:
        reduced = run_forked(lambda: reproduce(seed), timeout=_REPRODUCE_SECONDS)
        text = reduced.value if reduced.kind is OutcomeKind.VALUE else f"not reduced: {reduced}"
        print(text)
    return 1


if __name__ == "__main__":
    sys.exit(main())
