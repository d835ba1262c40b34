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
"""What rows say: medians, ratios, shares of the limit, geometric means; as tables and as values."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from rich import box
from rich.table import Table

from .driver import LIMITS, WAYS

Row = Mapping[str, Any]

REFERENCE = "eager"
BEHIND = 1.3
"""The ratio to the better of PyTorch and ONNX Runtime from which on a row is listed as behind."""

CPU, WALL = 0, 1
"""The two times of a turn."""


def metric(row: Row) -> int:
    """CPU time on one thread, which other processes disturb least; wall time on several."""
    return CPU if row["threads"] == 1 else WALL


def time_of(row: Row, way: str, which: int | None = None) -> float | None:
    """The median time of a run in seconds; None without one."""
    entry = row["ways"].get(way)
    if entry is None or entry["status"] != "ok":
        return None
    return median(turn[metric(row) if which is None else which] for turn in entry["turns"])


def ratio(row: Row, way: str, to: str = REFERENCE) -> float | None:
    """The median of a way's times over another's of the same turn; None without both."""
    entries = [row["ways"].get(name) for name in (way, to)]
    if any(entry is None or entry["status"] != "ok" for entry in entries):
        return None
    which = metric(row)
    pairs = zip(*(entry["turns"] for entry in entries), strict=False)
    return median(mine[which] / other[which] for mine, other in pairs)


def limit_of(row: Row, limit: str) -> float | None:
    """A limit of the machine as the row's own turns measured it, in FLOP/s or bytes/s."""
    seconds = time_of(row, limit)
    return None if seconds is None else row["ways"][limit]["facts"]["amount"] / seconds


def share(row: Row, way: str) -> float | None:
    """What a way reaches of the limit: of the FMA peak where there are products, of the memory
    bandwidth in the group of large data; None elsewhere."""
    if row["facts"].get("flops"):
        amount, limit = row["facts"]["flops"], "fma"
    elif row["group"] == "memory" and "bytes" in row["facts"]:
        amount, limit = row["facts"]["bytes"], "triad"
    else:
        return None
    seconds, most = time_of(row, way), limit_of(row, limit)
    return None if seconds is None or most is None else amount / seconds / most


@dataclass(frozen=True)
class Mean:
    """A geometric mean of ratios, and what it leaves out.

    Attributes
    ----------
    value : float or None
        None where there is no ratio.
    rows : int
        How many ratios it is of.
    left_out : dict of str to int
        How many rows have another status than ``ok``, by status.
    """

    value: float | None
    rows: int
    left_out: dict[str, int]


def mean(rows: Sequence[Row], way: str, to: str = REFERENCE) -> Mean:
    """The geometric mean of :func:`ratio` over the rows that have one."""
    ratios = [found for row in rows if (found := ratio(row, way, to)) is not None]
    entries = (row["ways"][way] for row in rows if way in row["ways"])
    left_out = Counter(entry["status"] for entry in entries if entry["status"] != "ok")
    return Mean(geometric_mean(ratios) if ratios else None, len(ratios), dict(left_out))


def build_ratios(rows: Sequence[Row]) -> list[float]:
    """The CPU time of our build over that of TVM's, by case."""
    found = {}
    for row in rows:
        times = [
            row["ways"].get(way, {}).get("facts", {}).get("build") for way in ("ours", "stock")
        ]
        if None not in times:
            found[row["case"]] = times[0] / times[1]
    return list(found.values())


def behind(row: Row) -> float | None:
    """Our ratio to the better of PyTorch and ONNX Runtime where it is above :data:`BEHIND`."""
    ratios = [found for to in ("eager", "ort") if (found := ratio(row, "ours", to)) is not None]
    worst = max(ratios, default=0.0)
    return worst if worst > BEHIND else None


def parts(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows by group and number of threads, each with a title."""
    for threads in sorted({row["threads"] for row in rows}):
        for group in dict.fromkeys(row["group"] for row in rows):
            chosen = [r for r in rows if (r["group"], r["threads"]) == (group, threads)]
            if chosen:
                times = "CPU time" if metric(chosen[0]) == CPU else "wall time"
                yield f"{group}, {_threads(threads)}: {times}", chosen


def _threads(count: int) -> str:
    return "one core" if count == 1 else f"{count} cores"


def header(rows: Sequence[Row]) -> list[str]:
    """The heads of the columns of :func:`cells`."""
    ways = _ways(rows)
    heads = ["case", f"{WAYS[REFERENCE]}\nms"]
    heads += [f"{WAYS[way]}\nratio" for way in ways if way != REFERENCE]
    if any(share(row, way) is not None for row in rows for way in ways):
        heads += [f"{WAYS[way]}\n% of limit" for way in ways]
    return heads


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """A line a row, and one of the geometric means."""
    ways = _ways(rows)
    others = [way for way in ways if way != REFERENCE]
    shares = len(header(rows)) > 2 + len(others)
    lines = []
    for row in rows:
        line = [row["case"], number(time_of(row, REFERENCE), 1e3) or status(row, REFERENCE)]
        line += [number(ratio(row, way)) or status(row, way) for way in others]
        if shares:
            line += [number(share(row, way), 100) or "-" for way in ways]
        lines.append(line)
    last = ["geometric mean", ""]
    last += [_describe(mean(rows, way)) for way in others]
    return [*lines, last + [""] * (len(header(rows)) - len(last))]


def _ways(rows: Sequence[Row]) -> list[str]:
    return [way for way in WAYS if any(way in row["ways"] for row in rows)]


def number(value: float | None, factor: float = 1.0) -> str:
    return "" if value is None else f"{value * factor:.3g}"


def status(row: Row, way: str) -> str:
    entry = row["ways"].get(way)
    if entry is None:
        return "-"
    return "no pair" if entry["status"] == "ok" else entry["status"]


def _describe(found: Mean) -> str:
    if found.value is None:
        return "-"
    left_out = "".join(f", {count} {status}" for status, count in found.left_out.items())
    return f"{found.value:.3g} ({found.rows} rows{left_out})"


def limits(rows: Sequence[Row]) -> list[str]:
    """The limits of the machine, the median over the rows, in a sentence each."""
    said = []
    for threads in sorted({row["threads"] for row in rows}):
        for limit, unit in (("fma", "GFLOP/s"), ("triad", "GB/s")):
            chosen = (limit_of(row, limit) for row in rows if row["threads"] == threads)
            found = [value for value in chosen if value is not None]
            if found:
                low, high = min(found) / 1e9, max(found) / 1e9
                said.append(
                    f"{LIMITS[limit]}, {_threads(threads)}: {median(found) / 1e9:.3g} {unit} "
                    f"({low:.3g} to {high:.3g} over {len(found)} rows)"
                )
    return said


def remarks(rows: Sequence[Row]) -> list[str]:
    """What is to be said beside the tables: builds, rows that are behind, rows without a time."""
    said = []
    if builds := build_ratios(rows):
        said.append(
            "Build, CPU time of tvm-fixes over TVM's: "
            f"geometric mean {geometric_mean(builds):.3g}, greatest {max(builds):.3g} "
            f"({len(builds)} cases)"
        )
    for row in rows:
        if (found := behind(row)) is not None:
            said.append(
                f"{row['case']}, {_threads(row['threads'])}: tvm-fixes takes {found:.3g} times "
                f"what the better of PyTorch and ONNX Runtime takes"
            )
    for row in rows:
        for way, entry in row["ways"].items():
            if entry["status"] != "ok":
                name = (WAYS | LIMITS)[way]
                said.append(
                    f"{row['case']}, {_threads(row['threads'])}: {name} {entry['status']}: "
                    f"{entry['reason']}"
                )
    return said


def tables(rows: Sequence[Row]) -> list[Table]:
    """A table for each of :func:`parts`."""
    made = []
    for title, chosen in parts(rows):
        table = Table(title=title, box=box.SIMPLE_HEAD)
        for index, name in enumerate(header(chosen)):
            table.add_column(name, justify="right" if index else "left", no_wrap=not index)
        for line in cells(chosen):
            table.add_row(*line)
        made.append(table)
    return made


def markdown(rows: Sequence[Row], how: str) -> str:
    """The tables and the remarks for a page."""
    text = [how, "", *(f"- {line}" for line in limits(rows))]
    for title, chosen in parts(rows):
        heads = [head.replace("\n", " ") for head in header(chosen)]
        text += ["", f"### {title}", "", _line(heads), _line(["---"] + ["---:"] * (len(heads) - 1))]
        text += [_line(line) for line in cells(chosen)]
    return "\n".join([*text, "", *(f"- {line}" for line in remarks(rows)), ""])


def _line(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def summary(rows: Sequence[Row], identity: Mapping[str, Any]) -> dict[str, Any]:
    """How it was measured, and what came of it, as plain values.

    Returns
    -------
    summary : dict
        ``how``: the identity; ``rows``: by row and way the status, medians ``cpu`` and ``wall``
        (s), ``ratio`` and ``share``; ``means``: by part and way.
    """
    return {
        "how": dict(identity),
        "rows": [
            {
                "case": row["case"],
                "threads": row["threads"],
                "limits": {limit: limit_of(row, limit) for limit in LIMITS},
                "ways": {way: _summary(row, way) for way in row["ways"] if way in WAYS},
            }
            for row in rows
        ],
        "means": {
            title: {way: vars(mean(chosen, way)) for way in _ways(chosen)}
            for title, chosen in parts(rows)
        },
    }


def _summary(row: Row, way: str) -> dict[str, Any]:
    entry = row["ways"][way]
    return {
        "status": entry["status"],
        "reason": entry["reason"],
        "cpu": time_of(row, way, CPU),
        "wall": time_of(row, way, WALL),
        "ratio": ratio(row, way),
        "share": share(row, way),
        **entry["facts"],
    }
