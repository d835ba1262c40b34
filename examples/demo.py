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
"""Compile the examples from PyTorch, ONNX and Relay, and print one table.

``python -m examples.demo [MODEL ...] [--layout LAYOUT] [--relay] [--json]``; the exit status is 0
if the outputs of every model equal those of its original, and channels-last, if it is requested,
needs no superfluous layout transforms.
"""

import argparse
import importlib
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import torch
from rich import box
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import nn

import tvm_fixes
from examples import quantize
from examples.export import to_onnx
from tvm_fixes.compiler import Step
from tvm_fixes.errors import CompileError
from tvm_fixes.lowering import LAYOUTS
from tvm_fixes.observe import comparison, latency
from tvm_fixes.runtime.report import Report

SOURCES = ("torch", "onnx", "onnx-int8", "relay")
RARE_SOURCES = {"onnx-int8": ("superres",), "relay": ("dcgan",)}
"""The sources of only some models, with these models."""

MODELS = ("dcgan", "unet", "autoencoder_kl", "hifigan", "fcn", "cyclegan", "superres")
"""The example modules."""

MAX_TRANSFORMS = dict.fromkeys(MODELS, 1) | {"autoencoder_kl": 2, "superres": 3}
"""The layout transforms of activations that each model needs in channels-last: one after a bias or
an activation at its end, one of the keys of an attention, and one for each operator that moves data
in any layout, such as a pixel shuffle between convolutions.
"""


@dataclass(frozen=True)
class Row:
    """One compilation of the demo.

    Attributes
    ----------
    model, source : str
        The example, and the format of the imported model.
    layout : str or None
        The requested layout; None for the default, which the compiler chooses.
    report : Report or None
        The report of the compilation; None if it failed.
    error : str
        Why the compilation failed, in one line.
    """

    model: str
    source: str
    layout: str | None = None
    report: Report | None = None
    error: str = ""

    @property
    def problem(self) -> str:
        """Why the demo rejects this row; empty if it accepts it."""
        if self.report is None:
            return self.error
        if not self.report.accepted:
            return "; ".join(o.problem for o in self.report.outputs if o.problem) or "not compared"
        transforms, limit = self.report.activation_transforms, MAX_TRANSFORMS[self.model]
        if self.layout == "NHWC" and (transforms is None or transforms > limit):
            return f"{transforms} layout transforms left, expected at most {limit}"
        return ""

    @property
    def ratio(self) -> float | None:
        """The time of a call divided by the reference's; both are measured in turns."""
        if self.report is None or not self.report.reference_latency_ms:
            return None
        return (self.report.latency_ms or 0.0) / self.report.reference_latency_ms

    @property
    def compile_seconds(self) -> float | None:
        """The time from import to library, without the comparison."""
        if self.report is None:
            return None
        steps = self.report.seconds.items()
        return sum(seconds for step, seconds in steps if step not in ("reference", "compare"))

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values."""
        return {
            "model": self.model,
            "source": self.source,
            "layout": self.layout,
            "problem": self.problem,
            "ratio": self.ratio,
            "compile_seconds": self.compile_seconds,
            "report": self.report.to_dict() if self.report else None,
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status: 0 if every row is accepted, else 1."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument(
        "models", metavar="MODEL", nargs="*", help=f"any of {', '.join(MODELS)} (default: all)"
    )
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="convert the convolutions to this layout, and count the layout transforms left",
    )
    parser.add_argument(
        "--relay", action="store_true", help="compile a Relay program, too; needs its own library"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON array")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.models if name not in MODELS]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; expected one of {', '.join(MODELS)}")

    chosen = [name for name in MODELS if name in arguments.models or not arguments.models]
    layout, relay = arguments.layout, arguments.relay
    with Watch(sum(len(sources_of(name, relay=relay)) for name in chosen)) as watch:
        rows = [row for name in chosen for row in compile_model(name, watch, layout, relay=relay)]
    if arguments.json:
        print(json.dumps([row.to_dict() for row in rows], indent=2))
    else:
        console = Console()
        if not console.file.isatty():
            console.width = 120  # a pipe has no width, and rich would cut the table to 80 columns
        console.print(render(rows))
    for row in rows:
        if row.problem:
            print(f"{row.model} from {row.source}: {row.problem}", file=sys.stderr)
    return 1 if any(row.problem for row in rows) else 0


class Watch:
    """Shows progress on standard error: a bar on a terminal, otherwise one line per row.

    Parameters
    ----------
    total : int
        The number of expected rows.
    """

    def __init__(self, total: int):
        console = Console(stderr=True)
        self._live = console.file.isatty()  # FORCE_COLOR makes rich assume a terminal
        self._bar = Progress(
            SpinnerColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> "Watch":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Show the current step."""
        self._bar.update(self._task, description=text)

    def finish(self, row: Row) -> None:
        """Count `row` as done."""
        self._bar.advance(self._task)
        if not self._live:
            print(f"{row.model} from {row.source}: {row.problem or 'equal'}", file=sys.stderr)


def sources_of(name: str, *, relay: bool = False) -> list[str]:
    """The formats in which a model exists."""
    sources = [source for source in SOURCES if name in RARE_SOURCES.get(source, MODELS)]
    return [source for source in sources if relay or source != "relay"]


def compile_model(
    name: str, watch: Watch, layout: str | None = None, *, relay: bool = False
) -> Iterator[Row]:
    """Compile the example `name` from each source."""
    watch.say(f"{name}: export")
    module, inputs = importlib.import_module(f"examples.{name}").factory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns about its own internals
        program = torch.export.export(module, inputs)
    models = {"torch": program, "onnx": to_onnx(program)}
    if "onnx-int8" in sources_of(name):
        models["onnx-int8"] = quantize.static(to_onnx(program), *(x.numpy() for x in inputs))
    for source in sources_of(name, relay=relay):
        if source == "relay":
            row = _compile_relay(name, module, inputs, layout, watch)
        else:
            row = _compile(name, source, models[source], layout, watch)
        watch.finish(row)
        yield row


def _compile(
    name: str,
    source: str,
    model: torch.export.ExportedProgram | onnx.ModelProto,
    layout: str | None,
    watch: Watch,
) -> Row:
    def show(step: Step) -> None:
        if step.seconds is None:
            watch.say(f"{name} from {source}: {step.name}")

    try:
        compiled = tvm_fixes.compile(model, layout=layout, progress=show)
    except CompileError as error:
        return Row(name, source, layout, error=str(error))
    return Row(name, source, layout, compiled.report)


def _compile_relay(
    name: str,
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    layout: str | None,
    watch: Watch,
) -> Row:
    """Compile a Relay program from its files, and compare with PyTorch; nothing else runs it."""
    text, params = importlib.import_module(f"examples.relay_{name}").to_relay(module)
    with TemporaryDirectory() as folder:
        program, weights = Path(folder, f"{name}.relay"), Path(folder, f"{name}.params")
        program.write_text(text)
        weights.write_bytes(tvm_fixes.relay.save_params(params))
        watch.say(f"{name} from relay")
        try:
            compiled = tvm_fixes.compile(program, params=weights, layout=layout)
        except CompileError as error:
            return Row(name, "relay", layout, error=str(error))
    arrays = [value.numpy() for value in inputs]
    with torch.no_grad():
        expected = module(*inputs).numpy()

    def run_original() -> None:
        with torch.no_grad():
            module(*inputs)

    ours, theirs = latency.measure(
        [partial(latency.block, call) for call in (partial(compiled.run, *arrays), run_original)]
    )
    output = comparison.compare(compiled.outputs[0].name, compiled.run(*arrays), expected)
    report = replace(
        compiled.report,
        reference=f"PyTorch {torch.__version__}",
        outputs=[output],
        latency_ms=1e3 * ours.seconds,
        reference_latency_ms=1e3 * theirs.seconds,
        latency_ratio=list(ours.ratio(theirs)),
    )
    return Row(name, "relay", layout, report)


def render(rows: Sequence[Row]) -> Table:
    """Return the rows as a table."""
    with_layout = any(row.layout for row in rows)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,  # fits 80 columns
        caption="ms: median of all runs; tvm-fixes and the reference (ONNX Runtime or PyTorch) "
        "take turns",
    )
    for column in ("model", "source", "equal"):
        table.add_column(column)
    for column in (
        "max abs\nerror",
        "size /\nparams",
        *(["layout\ntransforms"] if with_layout else []),
        "tvm-fixes\nms",
        "reference\nms",
        "ratio",
        "compile\ns",
    ):
        table.add_column(column, justify="right")
    previous = None
    for row in rows:
        if row.model != previous and previous is not None:
            table.add_section()
        previous = row.model
        table.add_row(*_cells(row, with_layout))
    return table


def _cells(row: Row, with_layout: bool) -> Iterator[str]:
    report = row.report
    yield from (row.model, row.source)
    if report is None:
        yield from ("[red]error[/]", *["-"] * (6 + with_layout))
        return
    yield "[green]yes[/]" if report.equal else f"[{'yellow' if report.accepted else 'red'}]no[/]"
    yield _number(report.max_abs_error, ".1e")
    yield _number(report.size_ratio, ".2f")
    if with_layout:
        transforms = _number(report.activation_transforms, "d")
        yield f"[red]{transforms}[/]" if report.accepted and row.problem else transforms
    yield _number(report.latency_ms, ".2f")
    yield _number(report.reference_latency_ms, ".2f")
    yield _number(row.ratio, ".2f")
    yield _number(row.compile_seconds, ".1f")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
