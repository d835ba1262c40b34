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
"""Which differences from stock TVM are on purpose, and the table of all of them."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .runs import Result

REASONS = Path(__file__).with_name("reasons.toml")
# What a reason may claim, and the heading of its list.
KINDS = {
    "ir": "Another IR, compared elsewhere",
    "supported": "Stock TVM rejects it, and tvm-fixes computes it",
    "rejected": "Stock TVM accepts it, and tvm-fixes rejects it",
    "message": "The same rejection, in other words",
    "value": "Other numbers: those of PyTorch and ONNX Runtime",
}


@dataclass(frozen=True)
class Reason:
    """Why some tests of TVM end otherwise with tvm-fixes.

    Attributes
    ----------
    tests : tuple of str
        Regular expressions that match whole pytest ids.
    kind : str
        A key of :data:`KINDS`.
    text : str
        The reason, in one sentence.
    ways : tuple of str
        The ways of :data:`~.plugin.WAYS` that it is for.
    shown : str
        The test of this project that shows the numbers; required for ``ir``.
    """

    tests: tuple[str, ...]
    kind: str
    text: str
    ways: tuple[str, ...]
    shown: str = ""

    def explains(self, way: str, test: str) -> bool:
        """Return whether this is the reason of a difference."""
        return way in self.ways and any(re.fullmatch(pattern, test) for pattern in self.tests)


def read_reasons(path: Path = REASONS) -> list[Reason]:
    """Return the reasons in a file.

    Raises
    ------
    ValueError
        If a reason has an unknown kind, no text, or is about IR and names no test.
    """
    reasons = []
    for number, fields in enumerate(tomllib.loads(path.read_text()).get("reason", []), start=1):
        reason = Reason(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
        if reason.kind not in KINDS:
            raise ValueError(f"reason {number}: kind {reason.kind!r}, expected {sorted(KINDS)}")
        if not reason.text or (reason.kind == "ir" and not reason.shown):
            raise ValueError(f"reason {number}: 'text', and 'shown' for IR, must not be empty")
        reasons.append(reason)
    return reasons


@dataclass
class Comparison:
    """How the tests that stock TVM passes end another way.

    Attributes
    ----------
    way : str
        The way.
    same : list of Result
        Passed.
    same_function : list of Result
        Passed, but for an IR that is another one and computes the same.
    explained : list of (Result, Reason)
        Differ on purpose.
    unexplained : list of Result
        Faults.
    gained : list of Result
        Passed, and fail with stock TVM.
    """

    way: str
    same: list[Result] = field(default_factory=list)
    same_function: list[Result] = field(default_factory=list)
    explained: list[tuple[Result, Reason]] = field(default_factory=list)
    unexplained: list[Result] = field(default_factory=list)
    gained: list[Result] = field(default_factory=list)


def compare(
    way: str,
    stock: Mapping[str, Result],
    ours: Mapping[str, Result],
    reasons: Sequence[Reason],
) -> Comparison:
    """Sort the tests by how they end one way and with stock TVM."""
    comparison = Comparison(way)
    for test, before in sorted(stock.items()):
        result = ours.get(test, Result(test, "missing", "no such test this way"))
        reason = next((each for each in reasons if each.explains(way, test)), None)
        if before.outcome != "passed":
            if before.outcome in ("failed", "crashed") and result.outcome == "passed":
                comparison.gained.append(result)
        elif result.outcome == "passed" and not result.comparisons:
            comparison.same.append(result)
        elif result.outcome == "passed":
            comparison.same_function.append(result)
        elif reason is not None:
            comparison.explained.append((result, reason))
        else:
            comparison.unexplained.append(result)
    return comparison


def unused(comparisons: Sequence[Comparison], reasons: Sequence[Reason]) -> list[Reason]:
    """Return the reasons that explain nothing."""
    used = [reason for each in comparisons for _, reason in each.explained]
    ways = {each.way for each in comparisons}
    return [r for r in reasons if r not in used and ways.intersection(r.ways)]


def markdown(comparisons: Sequence[Comparison], versions: str) -> str:
    """Return the table as a page in Markdown."""
    lines = [
        "# apache/tvm's own tests",
        "",
        "`make upstream-tests TVM=path/to/tvm` runs the tests of a checkout of apache/tvm with",
        "stock TVM, with tvm-fixes imported, and with its importers in place of TVM's, and writes",
        "this page. A test that compares IR, and gets another one, counts as the same function if",
        "both give the same numbers for random data.",
        "",
        versions,
        "",
        "| run | stock passes | same | other IR, same function | differs on purpose | unexplained "
        "| passes only with tvm-fixes |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in comparisons:
        counts = [each.same, each.same_function, each.explained, each.unexplained]
        cells = [sum(map(len, counts)), *map(len, counts), len(each.gained)]
        lines.append(f"| {each.way} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    for kind, heading in KINDS.items():
        lines += _section(heading, comparisons, kind)
    if any(each.unexplained for each in comparisons):
        lines += ["", "## Unexplained", ""]
        lines += [f"- {each.way}: `{r.test}`" for each in comparisons for r in each.unexplained]
    return "\n".join(lines) + "\n"


def _section(heading: str, comparisons: Sequence[Comparison], kind: str) -> list[str]:
    counts: dict[Reason, int] = {}
    for each in comparisons:
        for _, reason in each.explained:
            if reason.kind == kind:
                counts[reason] = counts.get(reason, 0) + 1
    if not counts:
        return []
    lines = ["", f"## {heading}", "", "| tests | reason | shown by |", "| ---: | --- | --- |"]
    for reason, count in counts.items():
        shown = f"`{reason.shown}`" if reason.shown else ""
        lines.append(f"| {count} | {reason.text} | {shown} |")
    return lines
