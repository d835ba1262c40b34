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
"""Runs the benchmarks: ``python -m benchmarks [name …]``.

``speed`` compares compiled models with PyTorch, ONNX Runtime and TVM: see docs/performance.md.
The other benchmarks each compare several implementations of one task in one process. In each turn,
every implementation runs once. The tables show the median and the range of the times, and the
median and the quartiles of the ratio to the first implementation in the same turn. A benchmark may
set a limit for the ratio, and fails if the ratio exceeds it.
"""

import argparse
import sys
from importlib import import_module

from rich.console import Console
from rich.table import Table

from tvm_fixes.errors import UsageError

from .measure import Comparison

NAMES = (
    "speed",
    "conv2d",
    "visitor",
    "verifier",
    "runtime_checks",
    "index_checks",
    "decoding_cost",
    "torch_generate",
    "relay_reading",
    "recurrent",
)


def table(comparison: Comparison) -> Table:
    """Return one row per implementation: the times in ms, and the ratio with its quartiles."""
    columns = ("implementation", "median ms", "min to max ms", "ratio", "quartiles")
    result = Table(*columns, title=comparison.title)
    for impl in comparison.implementations:
        low, high = min(impl.seconds), max(impl.seconds)
        lower, upper = comparison.spread(impl)
        result.add_row(
            impl.name,
            f"{impl.median * 1e3:.3g}",
            f"{low * 1e3:.3g} to {high * 1e3:.3g}",
            f"{comparison.ratio(impl):.4g}",
            f"{lower:.4g} to {upper:.4g}",
        )
    return result


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {', '.join(NAMES)}")
    speed = import_module("benchmarks.speed")
    speed.add_arguments(parser)
    arguments = parser.parse_args(argv)
    names = arguments.names or NAMES
    unknown = sorted(set(names).difference(NAMES))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; expected any of {', '.join(NAMES)}")
    console = Console()
    if not console.file.isatty():
        console.width = 180  # rich would otherwise cut tables to 80 columns in a pipe
    for name in names:
        if name == "speed":
            try:
                speed.main(arguments, console)
            except UsageError as error:
                parser.error(str(error))
            continue
        benchmark = import_module(f"benchmarks.{name}")
        for comparison in benchmark.comparisons():
            console.print(table(comparison))
            if hasattr(benchmark, "check"):
                benchmark.check(comparison)
    return 0


if __name__ == "__main__":
    sys.exit(main())
