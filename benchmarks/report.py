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
"""Evaluates rows: medians, ratios, shares of the machine's limits, geometric means."""

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
    """Select CPU time, which other processes disturb least, for one thread; else wall time."""
    return CPU if row["threads"] == 1 else WALL


def time_of(row: Row, way: str, which: int | None = None) -> float | None:
    """Return the median time of a run in seconds, or None without a measurement."""
    entry = row["ways"].get(way)
    if entry is None or entry["status"] != "ok":
        return None
    return median(turn[metric(row) if which is None else which] for turn in entry["turns"])


def ratio(row: Row, way: str, to: str = REFERENCE) -> float | None:
    """Return the median ratio of two ways' times in the same turn, or None if one is missing."""
    entries = [row["ways"].get(name) for name in (way, to)]
    if any(entry is None or entry["status"] != "ok" for entry in entries):
        return None
    which = metric(row)
    pairs = zip(*(entry["turns"] for entry in entries), strict=False)
    return median(mine[which] / other[which] for mine, other in pairs)


def limit_of(row: Row, limit: str) -> float | None:
    """Return a limit of the machine, measured in the turns of the row, in FLOP/s or bytes/s."""
    seconds = time_of(row, limit)
    return None if seconds is None else row["ways"][limit]["facts"]["amount"] / seconds


def share(row: Row, way: str) -> float | None:
    """Return the share of the machine's limit that a way reaches, or None without a limit.

    The limit is the FMA peak for cases with matrix products or convolutions, and the memory
    bandwidth for the group ``memory``.
    """
    if row["facts"].get("flops"):
        amount, limit = row["facts"]["flops"], "fma"
    elif row["group"] == "memory" and "bytes" in row["facts"]:
        amount, limit = row["facts"]["bytes"], "triad"
    else:
        return None
    seconds, rate = time_of(row, way), limit_of(row, limit)
    return None if seconds is None or rate is None else amount / seconds / rate


@dataclass(frozen=True)
class Mean:
    """A geometric mean of ratios, and the rows without a ratio.

    Attributes
    ----------
    value : float or None
        The mean; None without ratios.
    rows : int
        The number of ratios.
    left_out : dict of str to int
        The number of rows with another status than ``ok``, by status.
    """

    value: float | None
    rows: int
    left_out: dict[str, int]


def mean(rows: Sequence[Row], way: str, of: Callable[[Row, str], float | None] = ratio) -> Mean:
    """Return the geometric mean of a ratio over the rows that have one."""
    ratios = [found for row in rows if (found := of(row, way)) is not None]
    entries = (row["ways"][way] for row in rows if way in row["ways"])
    left_out = Counter(entry["status"] for entry in entries if entry["status"] != "ok")
    return Mean(geometric_mean(ratios) if ratios else None, len(ratios), dict(left_out))


def build_ratios(rows: Sequence[Row]) -> list[float]:
    """Return the CPU time of our build divided by that of TVM's, for each case."""
    found = {}
    for row in rows:
        times = [
            row["ways"].get(way, {}).get("facts", {}).get("build") for way in ("ours", "stock")
        ]
        if None not in times:
            found[row["case"]] = times[0] / times[1]
    return list(found.values())


def to_better(row: Row, way: str) -> float | None:
    """Return the ratio to the faster of PyTorch and ONNX Runtime, or None without one."""
    ratios = [found for to in ("eager", "ort") if (found := ratio(row, way, to)) is not None]
    return max(ratios, default=None)


def parts(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each group and number of threads, with a title."""
    for threads in sorted({row["threads"] for row in rows}):
        for group in dict.fromkeys(row["group"] for row in rows):
            chosen = [r for r in rows if (r["group"], r["threads"]) == (group, threads)]
            if chosen:
                times = "CPU time" if metric(chosen[0]) == CPU else "wall time"
                yield f"{group}, {threads_text(threads)}: {times}", chosen


def ways_of(rows: Sequence[Row]) -> list[str]:
    """Return the ways that occur in these rows."""
    return [way for way in WAYS if any(way in row["ways"] for row in rows)]


def threads_text(count: int) -> str:
    """Format a number of threads as a number of cores, because each thread has its own core."""
    return "one core" if count == 1 else f"{count} cores"


def summary(rows: Sequence[Row], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measurement's identity and results as plain values.

    Returns
    -------
    summary : dict
        ``how``: the identity; ``rows``: for each row and way, the status, the medians ``cpu`` and
        ``wall`` (s), ``ratio`` and ``share``; ``means``: for each part and way.
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
