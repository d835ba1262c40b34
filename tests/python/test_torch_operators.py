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
"""PyTorch's own sample inputs of its operators under the backend of ``torch.compile``.

``docs/tables/torch_compile_operators.md`` has one row per operator of which PyTorch runs a part.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from textwrap import shorten
from typing import Any

import pytest
import torch
import tvm.testing

from helpers.coverage_tables import CoverageTables
from helpers.kept_results import KeptResults
from tests.fuzz import opinfo, opinfo_compile
from tvm_fixes.support.isolate import OutcomeKind, run_all_forked

SAMPLES = {torch.float32: 2, torch.int64: 1, torch.bool: 1, torch.bfloat16: 1}
"""The number of sample inputs of each dtype."""

GROUP = 24
"""The number of operators after which an interrupted run continues."""

REASONS = 3
"""The number of reasons in a row."""


def judged(name: str) -> dict[str, Any]:
    """The samples of an operator, all in one program."""
    drawn = [
        opinfo.Case.of(name, dtype, index, random=True)
        for dtype, count in SAMPLES.items()
        for index in range(count)
    ]
    cases = [case for case in drawn if case is not None]
    return asdict(opinfo_compile.judge(cases)) if cases else asdict(opinfo_compile.Judged())


def part_of(result: dict[str, Any]) -> str:
    """How much of an operator is compiled; empty if no graph computes anything."""
    if not result["reasons"]:
        return "all" if result["compiled"] else ""
    return "a part" if result["compiled"] else "nothing"


def row_of(result: dict[str, Any]) -> dict[str, Any]:
    """The cells of an operator that PyTorch runs, or of which it runs a part."""
    counts = Counter(shorten(reason, 120, placeholder=" …") for reason in result["reasons"])
    reasons = [reason for reason, _ in counts.most_common()]
    more = f"; {len(reasons) - REASONS} more" if len(reasons) > REASONS else ""
    return {
        "samples": result["right"] + len(result["problems"]),
        "right": result["right"],
        "compiled": part_of(result),
        "PyTorch_runs": ("; ".join(reasons[:REASONS]) + more).replace("|", "/"),
    }


@pytest.mark.skipif("config.getoption('tier') != 'full'", reason="several thousand are compiled")
def test_every_operator(
    coverage_table: CoverageTables, kept_results: Callable[[str], KeptResults]
) -> None:
    """Each sample equals PyTorch, whoever runs it; most operators are compiled."""
    results, failures = kept_results("torch_compile_operators"), []
    opinfo_compile.judge([case] if (case := opinfo.Case.of("add", torch.float32, 0)) else [])
    names = opinfo_compile.names()
    for first in range(0, len(names), GROUP):
        todo = [name for name in names[first : first + GROUP] if name not in results]
        cases = [lambda name=name: judged(name) for name in todo]
        outcomes = run_all_forked(cases, timeout=1200, jobs=1)
        for name, outcome in zip(todo, outcomes, strict=True):
            if outcome.kind is OutcomeKind.VALUE:
                results.record(name, outcome.value)
            else:
                failures.append(f"{name}: {outcome}")
    found = {name: results[name] for name in names if name in results}
    write(coverage_table, found)
    failures += [problem for result in found.values() for problem in result["problems"]]
    assert not failures, "\n".join(failures)
    parts = Counter(map(part_of, found.values()))
    assert parts["all"] >= 0.75 * (parts.total() - parts[""]), parts


def write(coverage_table: CoverageTables, found: dict[str, dict[str, Any]]) -> None:
    """Write the row of each operator that is not compiled, or not all of it, and a total."""
    table = coverage_table.measurement_table("torch_compile_operators")
    for name, result in found.items():
        if part_of(result) in ("a part", "nothing") or result["problems"]:
            table.add(operator=name, **row_of(result))
    parts = Counter(map(part_of, found.values()))
    wrong = sum(len(result["problems"]) for result in found.values())
    right = sum(result["right"] for result in found.values())
    table.add(
        operator=f"all {len(found)} operators",
        samples=right + wrong,
        right=right,
        compiled=f"all of {parts['all']}, a part of {parts['a part']}",
        PyTorch_runs=f"{parts['nothing']} operators, and a part of {parts['a part']}",
    )


def test_rows_of_operators() -> None:
    row = row_of(judged("linalg.svd"))
    assert row["compiled"] == "nothing" and row["samples"] == row["right"] > 0
    assert row["PyTorch_runs"] == "aten._linalg_svd.default: no converter"
    assert part_of(judged("sinh")) == "all"


if __name__ == "__main__":
    tvm.testing.main()
