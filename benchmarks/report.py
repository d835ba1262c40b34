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
"""Evaluates rows: medians, ratios, fractions of the machine's peaks, geometric means."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from .driver import PEAKS, RUNTIME_NAMES
from .protocol import QUANTIZED_GROUPS

Row = Mapping[str, Any]

CPU, WALL = 0, 1
"""The indices of CPU time and wall time in the measurement of a turn."""


def reference(row: Row) -> str:
    """Return the runtime that times are relative to: PyTorch; ONNX Runtime if quantized."""
    return "ort-quantized" if row["group"] in QUANTIZED_GROUPS else "eager"


def ours(row: Row) -> str:
    """Return the runtime that a row is about."""
    return "ours-quantized" if row["group"] in QUANTIZED_GROUPS else "ours"


def metric(row: Row) -> int:
    """Return CPU for one thread, WALL for more; other processes disturb CPU time less."""
    return CPU if row["threads"] == 1 else WALL


def time_of(row: Row, runtime: str, which: int | None = None) -> float | None:
    """Return the median of a runtime's time per run in seconds, or None if it was not measured."""
    entry = row["runtimes"].get(runtime)
    if entry is None or entry["status"] != "ok":
        return None
    return median(turn[metric(row) if which is None else which] for turn in entry["turns"])


def ratio(row: Row, runtime: str, to: str | None = None) -> float | None:
    """Return the median, over all turns, of the ratio of two runtimes' times.

    The second is the :func:`reference` by default.  The result is None if either was not measured.
    """
    entries = [row["runtimes"].get(name) for name in (runtime, to or reference(row))]
    if any(entry is None or entry["status"] != "ok" for entry in entries):
        return None
    which = metric(row)
    pairs = zip(*(entry["turns"] for entry in entries), strict=False)
    return median(mine[which] / other[which] for mine, other in pairs)


def peak(row: Row, name: str) -> float | None:
    """Return the machine's peak (FLOP/s or bytes/s), measured in the same turns as the row."""
    seconds = time_of(row, name)
    return None if seconds is None else row["runtimes"][name]["facts"]["amount"] / seconds


def peak_fraction(row: Row, runtime: str) -> float | None:
    """Return the fraction of the machine's peak that a runtime reaches, or None.

    The peak is the FMA peak for cases with matrix products or convolutions, and the memory
    bandwidth for the group ``memory``; other cases, and quantized ones, have none.
    """
    if row["group"] in QUANTIZED_GROUPS:
        return None
    if row["facts"].get("flops"):
        amount, name = row["facts"]["flops"], "fma"
    elif row["group"] == "memory" and "bytes" in row["facts"]:
        amount, name = row["facts"]["bytes"], "triad"
    else:
        return None
    seconds, rate = time_of(row, runtime), peak(row, name)
    return None if seconds is None or rate is None else amount / seconds / rate


@dataclass(frozen=True)
class Mean:
    """A geometric mean of ratios, and the number of rows whose status is not ``ok``.

    Attributes
    ----------
    value : float or None
        The mean; None if there are no ratios.
    rows : int
        The number of ratios.
    left_out : dict of str to int
        The number of rows whose status is not ``ok``, by status.
    """

    value: float | None
    rows: int
    left_out: dict[str, int]


def mean(rows: Sequence[Row], runtime: str, of: Callable[[Row, str], float | None] = ratio) -> Mean:
    """Return the geometric mean of a ratio over the rows that have it."""
    ratios = [found for row in rows if (found := of(row, runtime)) is not None]
    entries = (row["runtimes"][runtime] for row in rows if runtime in row["runtimes"])
    left_out = Counter(entry["status"] for entry in entries if entry["status"] != "ok")
    return Mean(geometric_mean(ratios) if ratios else None, len(ratios), dict(left_out))


def build_ratios(rows: Sequence[Row]) -> list[float]:
    """Return the CPU time of our build divided by that of TVM's, for each case."""
    ratios = {}
    for row in rows:
        times = [
            row["runtimes"].get(runtime, {}).get("facts", {}).get("build")
            for runtime in ("ours", "stock")
        ]
        if None not in times:
            ratios[row["case"]] = times[0] / times[1]
    return list(ratios.values())


def ratio_to_faster(row: Row, runtime: str) -> float | None:
    """Return the ratio to the faster of PyTorch and ONNX Runtime.

    The result is None if neither was measured.
    """
    ratios = [ratio(row, runtime, to) for to in ("eager", "ort", "ort-quantized")]
    return max((found for found in ratios if found is not None), default=None)


def parts(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield a title and the rows of each group and thread count."""
    for threads in sorted({row["threads"] for row in rows}):
        for group in dict.fromkeys(row["group"] for row in rows):
            chosen = [r for r in rows if (r["group"], r["threads"]) == (group, threads)]
            if chosen:
                times = "CPU time" if metric(chosen[0]) == CPU else "wall time"
                yield f"{group}, {threads_text(threads)}: {times}", chosen


def runtimes_of(rows: Sequence[Row]) -> list[str]:
    """Return the runtimes in these rows, in the order of :data:`.RUNTIME_NAMES`."""
    return [name for name in RUNTIME_NAMES if any(name in row["runtimes"] for row in rows)]


def threads_text(count: int) -> str:
    """Format a thread count as a number of cores, because each thread has its own core."""
    return "one core" if count == 1 else f"{count} cores"


def summary(rows: Sequence[Row], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity and the results of a run as plain values.

    Returns
    -------
    summary : dict
        ``identity``: that of the run; ``rows``: for each row, ``peaks``, and for each runtime the
        status, the medians ``cpu`` and ``wall`` (s), ``ratio``, ``ratio_to_faster`` and
        ``peak_fraction``; ``means``: for each title of :func:`parts` and each runtime, the fields
        of :class:`Mean`.
    """
    return {
        "identity": dict(identity),
        "rows": [
            {
                "case": row["case"],
                "threads": row["threads"],
                "peaks": {name: peak(row, name) for name in PEAKS},
                "runtimes": {
                    name: _summary(row, name) for name in row["runtimes"] if name in RUNTIME_NAMES
                },
            }
            for row in rows
        ],
        "means": {
            title: {runtime: vars(mean(chosen, runtime)) for runtime in runtimes_of(chosen)}
            for title, chosen in parts(rows)
        },
    }


def _summary(row: Row, runtime: str) -> dict[str, Any]:
    entry = row["runtimes"][runtime]
    return {
        "status": entry["status"],
        "reason": entry["reason"],
        "cpu": time_of(row, runtime, CPU),
        "wall": time_of(row, runtime, WALL),
        "ratio": ratio(row, runtime),
        "ratio_to_faster": ratio_to_faster(row, runtime),
        "peak_fraction": peak_fraction(row, runtime),
        **entry["facts"],
    }
