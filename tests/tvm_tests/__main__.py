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
"""Runs apache/tvm's own tests with stock TVM and with tvm-fixes: ``python -m tests.tvm_tests``.

Three runs: stock TVM, tvm-fixes imported, and its importers in place of TVM's.  A test that passes
with stock TVM must pass in the others, or ``reasons.toml`` must say why not.  An interrupted run
resumes.  The exit status is 1 if a difference has no reason, or a reason no difference.
"""

import argparse
import re
import sys
from importlib import metadata
from pathlib import Path

from benchmarks.shipped.table import revision

from .differences import Comparison, compare, markdown, read_reasons, unused
from .plugin import IMPORTED, IMPORTERS, STOCK
from .runs import ROOT, Result, files_of, run

# What an import of tvm_fixes can change, and what calls an importer.
PATHS = {
    IMPORTED: ("relax", "tirx*", "s_tir", "te", "arith", "ir", "runtime"),
    IMPORTERS: (
        "relax/test_frontend_onnx*.py",
        "relax/test_frontend_from_*.py",
        "relax/test_frontend_dynamo.py",
    ),
}
_TABLE = ROOT / "docs" / "tables" / "upstream_tests.md"


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make upstream-tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tvm", type=Path, required=True, help="a checkout of apache/tvm")
    parser.add_argument(
        "--ways", nargs="+", choices=tuple(PATHS), default=tuple(PATHS), help="default: both"
    )
    parser.add_argument(
        "--only", metavar="REGEX", default="", help="only files that match; writes no table"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "tvm-tests", help="for the outcomes"
    )
    arguments = parser.parse_args(argv)
    if not (arguments.tvm / "tests" / "python").is_dir():
        parser.error(f"--tvm {arguments.tvm}: no folder tests/python there")
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Run the tests as `argv` says; return the exit status."""
    arguments = _parse(argv)
    tests = (arguments.tvm / "tests" / "python").resolve()
    current = revision()
    stock_folder = arguments.folder / f"stock-{metadata.version('apache-tvm')}"
    reasons = read_reasons()
    comparisons = []
    for way in arguments.ways:
        files = [f for f in files_of(tests, PATHS[way]) if re.search(arguments.only, f)]
        stock = run(tests, files, STOCK, stock_folder, arguments.jobs)
        for result in stock.values():
            if result.outcome == "crashed":
                print(f"stock TVM crashes: {result.test}: {result.message}")
        ours = run(tests, files, way, arguments.folder / current, arguments.jobs)
        comparison = compare(way, _in(files, stock), ours, reasons)
        _print(comparison)
        comparisons.append(comparison)
    stale = [] if arguments.only else unused(comparisons, reasons)
    for reason in stale:
        print(f"explains nothing: {reason.text}")
    if not arguments.only and len(comparisons) == len(PATHS):
        versions = f"apache-tvm {metadata.version('apache-tvm')}; tvm-fixes {current}."
        _TABLE.write_text(markdown(comparisons, versions))
        print(_TABLE.relative_to(ROOT))
    return int(bool(stale) or any(each.unexplained for each in comparisons))


def _in(files: list[str], results: dict[str, Result]) -> dict[str, Result]:
    return {test: result for test, result in results.items() if test.split("::")[0] in files}


def _print(comparison: Comparison) -> None:
    same, other = len(comparison.same), len(comparison.same_function)
    print(
        f"{comparison.way}: {same} the same, {other} another IR of the same function, "
        f"{len(comparison.explained)} on purpose, {len(comparison.unexplained)} unexplained, "
        f"{len(comparison.gained)} pass only with tvm-fixes"
    )
    for result in comparison.unexplained:
        print(f"  {result.outcome} {result.test}: {result.message}")
        for text in result.comparisons:
            print(f"    {text}")


if __name__ == "__main__":
    sys.exit(main())
