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
"""Plots the ratios on a logarithmic axis: one line per row, one marker per runtime."""

from collections.abc import Sequence
from pathlib import Path

from . import report
from .driver import RUNTIME_NAMES

_COLORS = {
    "eager": "#2ca02c",
    "compiled": "#9467bd",
    "ort": "#1f77b4",
    "stock": "#7f7f7f",
    "ours": "#d62728",
    "ort-quantized": "#17becf",
    "stock-quantized": "#bcbd22",
    "ours-quantized": "#ff7f0e",
}
_MARKERS = dict(zip(_COLORS, "v^sDosDo", strict=True))


def draw(rows: Sequence[report.Row], path: Path) -> None:
    """Write the plot of all rows as a PNG file.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    parts = list(report.parts(rows))
    heights = [len(chosen) + 2 for _, chosen in parts]
    figure = Figure(figsize=(11, 0.24 * sum(heights) + 0.8), layout="constrained")
    axes = figure.subplots(
        len(parts), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for axis, (title, chosen) in zip(axes, parts, strict=True):
        _draw_part(axis, title, chosen)
    axes[-1].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes[-1].xaxis.set_minor_formatter(NullFormatter())
    axes[-1].set_xlabel("time relative to PyTorch; quantized: to ONNX Runtime (less is faster)")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(handles))
    FigureCanvasAgg(figure).print_png(path)


def _draw_part(axis, title: str, rows: Sequence[report.Row]) -> None:
    places = range(len(rows))
    for runtime, color in _COLORS.items():
        ratios = [report.ratio(row, runtime) for row in rows]
        axis.plot(
            [float("nan") if value is None else value for value in ratios],
            places,
            linestyle="none",
            marker=_MARKERS[runtime],
            markersize=6,
            color=color,
            label=RUNTIME_NAMES[runtime],
            zorder=3,
        )
    # A cross at the right edge, outside the scale, marks a runtime without a time.
    without = [
        (place, color)
        for place, row in enumerate(rows)
        for runtime, color in _COLORS.items()
        if runtime in row["runtimes"] and row["runtimes"][runtime]["status"] != "ok"
    ]
    axis.scatter(
        [0.99] * len(without),
        [place for place, _ in without],
        c=[color for _, color in without],
        marker="x",
        transform=axis.get_yaxis_transform(),
        label="capped, wrong or failed",
        zorder=3,
    )
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_xscale("log")
    axis.set_yticks(places, [row["case"] for row in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.grid(True, axis="x", linewidth=0.3)
    axis.grid(True, axis="y", linewidth=0.3)
    axis.set_title(title, fontsize=10, loc="left")
