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
"""Formats the rows as tables, for a terminal and in Markdown, with remarks."""

from collections.abc import Sequence
from statistics import geometric_mean, median

from rich import box
from rich.table import Table

from . import report
from .driver import PEAKS, RUNTIME_NAMES
from .report import Row

BEHIND = 1.3
"""The remarks list rows whose ratio to the faster of PyTorch and ONNX Runtime exceeds this."""


def header(rows: Sequence[Row]) -> list[str]:
    """Return the column headers of :func:`cells`."""
    runtimes = report.runtimes_of(rows)
    reference, ours = report.reference(rows[0]), report.ours(rows[0])
    heads = ["case", f"{RUNTIME_NAMES[reference]}\nms"]
    heads += [f"{RUNTIME_NAMES[runtime]}\nratio" for runtime in runtimes if runtime != reference]
    heads += [f"{RUNTIME_NAMES[ours]}\nratio to faster"] if ours in runtimes else []
    if _has_peaks(rows):
        heads += [f"{RUNTIME_NAMES[runtime]}\n% of peak" for runtime in runtimes]
    return heads


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return the cells of each row, and of a last line with the geometric means."""
    runtimes = report.runtimes_of(rows)
    reference, ours = report.reference(rows[0]), report.ours(rows[0])
    others = [runtime for runtime in runtimes if runtime != reference]
    lines = []
    for row in rows:
        milliseconds = number(report.time_of(row, reference), 1e3)
        line = [row["case"], milliseconds or status(row, reference)]
        line += [number(report.ratio(row, runtime)) or status(row, runtime) for runtime in others]
        line += [number(report.ratio_to_faster(row, ours)) or "-"] if ours in runtimes else []
        if _has_peaks(rows):
            line += [number(report.peak_fraction(row, runtime), 100) or "-" for runtime in runtimes]
        lines.append(line)
    last = ["geometric mean", "", *(_describe(report.mean(rows, runtime)) for runtime in others)]
    last += [_describe(report.mean(rows, ours, report.ratio_to_faster))] if ours in runtimes else []
    return [*lines, last + [""] * (len(header(rows)) - len(last))]


def _has_peaks(rows: Sequence[Row]) -> bool:
    return any(
        report.peak_fraction(row, runtime) is not None
        for row in rows
        for runtime in report.runtimes_of(rows)
    )


def number(value: float | None, factor: float = 1.0) -> str:
    """Format a value with three digits; None becomes an empty string."""
    return "" if value is None else f"{value * factor:.3g}"


def status(row: Row, runtime: str) -> str:
    """Return why a runtime has no time or no ratio in a row."""
    entry = row["runtimes"].get(runtime)
    if entry is None:
        return "-"
    return "no pair" if entry["status"] == "ok" else entry["status"]


def _describe(mean: report.Mean) -> str:
    if mean.value is None:
        return "-"
    left_out = "".join(f", {count} {status}" for status, count in mean.left_out.items())
    return f"{mean.value:.3g} ({_count(mean.rows, 'row')}{left_out})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def peaks(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each of the machine's peaks: its median over the rows."""
    sentences = []
    for threads in sorted({row["threads"] for row in rows}):
        for name, unit in (("fma", "GFLOP/s"), ("triad", "GB/s")):
            chosen = (report.peak(row, name) for row in rows if row["threads"] == threads)
            rates = [value for value in chosen if value is not None]
            if rates:
                low, high = min(rates) / 1e9, max(rates) / 1e9
                where = f"{PEAKS[name]}, {report.threads_text(threads)}"
                sentences.append(
                    f"{where}: {median(rates) / 1e9:.3g} {unit} ({low:.3g} to {high:.3g} "
                    f"over {_count(len(rates), 'row')})"
                )
    return sentences


def remarks(rows: Sequence[Row]) -> list[str]:
    """Return remarks about build times, slow rows, and rows without a time or inaccurate."""
    sentences = []
    if builds := report.build_ratios(rows):
        sentences.append(
            "Build, CPU time of tvm-fixes divided by TVM's: "
            f"geometric mean {geometric_mean(builds):.3g}, maximum {max(builds):.3g} "
            f"({_count(len(builds), 'case')})"
        )
    for row in rows:
        ours = report.ours(row)
        if (found := report.ratio_to_faster(row, ours)) is not None and found > BEHIND:
            sentences.append(
                f"{_row_name(row)}: {RUNTIME_NAMES[ours]} takes {found:.3g} times as long as the "
                "faster of PyTorch and ONNX Runtime"
            )
    for row in rows:
        for runtime, entry in row["runtimes"].items():
            if entry["reason"]:
                name = (RUNTIME_NAMES | PEAKS)[runtime]
                status = "inaccurate" if entry["status"] == "ok" else entry["status"]
                sentences.append(f"{_row_name(row)}: {name} {status}: {entry['reason']}")
    return sentences


def _row_name(row: Row) -> str:
    return f"{row['case']}, {report.threads_text(row['threads'])}"


def tables(rows: Sequence[Row]) -> list[Table]:
    """Return a table for each of :func:`report.parts`."""
    made = []
    for title, chosen in report.parts(rows):
        table = Table(title=title, box=box.SIMPLE_HEAD)
        for index, name in enumerate(header(chosen)):
            table.add_column(name, justify="right" if index else "left", no_wrap=not index)
        for line in cells(chosen):
            table.add_row(*line)
        made.append(table)
    return made


def markdown(rows: Sequence[Row], description: str) -> str:
    """Return the description, the tables and the remarks as Markdown."""
    text = [description, "", *(f"- {line}" for line in peaks(rows))]
    for title, chosen in report.parts(rows):
        heads = [head.replace("\n", " ") for head in header(chosen)]
        text += ["", f"### {title}", "", _line(heads), _line(["---"] + ["---:"] * (len(heads) - 1))]
        text += [_line(line) for line in cells(chosen)]
    return "\n".join([*text, "", *(f"- {line}" for line in remarks(rows)), ""])


def _line(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"
