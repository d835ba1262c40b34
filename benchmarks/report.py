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
"""What rows say: medians, ratios, shares of the limit, geometric means."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from .driver import LIMITS, WAYS

Row = Mapping[str, Any]

REFERENCE = "eager"
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


def mean(rows: Sequence[Row], way: str, of: Callable[[Row, str], float | None] = ratio) -> Mean:
    """The geometric mean of a ratio over the rows that have one."""
    ratios = [found for row in rows if (found := of(row, way)) is not None]
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


def to_better(row: Row, way: str) -> float | None:
    """The ratio to the better of PyTorch and ONNX Runtime; None without one."""
    ratios = [found for to in ("eager", "ort") if (found := ratio(row, way, to)) is not None]
    return max(ratios, default=None)


def parts(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows by group and number of threads, each with a title."""
    for threads in sorted({row["threads"] for row in rows}):
        for group in dict.fromkeys(row["group"] for row in rows):
            chosen = [r for r in rows if (r["group"], r["threads"]) == (group, threads)]
            if chosen:
                times = "CPU time" if metric(chosen[0]) == CPU else "wall time"
                yield f"{group}, {threads_text(threads)}: {times}", chosen


def ways_of(rows: Sequence[Row]) -> list[str]:
    """The ways that these rows have."""
    return [way for way in WAYS if any(way in row["ways"] for row in rows)]


def threads_text(count: int) -> str:
    """A number of threads in words."""
    return "one core" if count == 1 else f"{count} cores"


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
            title: {way: vars(mean(chosen, way)) for way in ways_of(chosen)}
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
        "ratio_to_better": to_better(row, way),
        "share": share(row, way),
        **entry["facts"],
    }
