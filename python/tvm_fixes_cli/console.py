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
"""Console output: progress of a compilation, and tables of its results."""

import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from tvm_fixes.compiler import Step
from tvm_fixes.frontend.operators import Operator
from tvm_fixes.report.layer_comparison import LayerComparison, ValueComparison
from tvm_fixes.report.profiling import Profile
from tvm_fixes.report.reference_times import Match
from tvm_fixes.report.reporting import ModelReport
from tvm_fixes.runtime.explanation import Explanation
from tvm_fixes.runtime.inspection import Constant, Inspection
from tvm_fixes.runtime.report import (
    DIFFERENT,
    EQUAL,
    REFERENCE_OFF,
    REFERENCE_VARIES,
    WITHIN,
    FurtherComparison,
    OutputComparison,
    PassTime,
    Report,
    describe_compared,
    describe_off,
    describe_rounds,
    describe_sizes,
    describe_varying,
    worst_verdict,
)
from tvm_fixes.source.preflight import Preflight
from tvm_fixes.support import activity
from tvm_fixes.verifier import Diagnostics

from .terminal import command_text, size_text

if TYPE_CHECKING:
    from tvm_fixes.frontend.relay import ProgramDescription

COLORS = {
    EQUAL: "green",
    WITHIN: "green",
    REFERENCE_OFF: "yellow",
    REFERENCE_VARIES: "yellow",
    DIFFERENT: "red",
}
"""The color of each verdict."""

# The maximum number of rows in a table of an inspection without --all.
_MAX_ROWS = 20

# The maximum number of places shown for an unsupported operator.
_MAX_PLACES = 3


# The maximum length of the reason why a size was not compared.
_MAX_REASON = 120


class StepPrinter:
    """Prints the steps of a compilation, with a live status on a terminal.

    Parameters
    ----------
    console : rich.console.Console
        The console to print to.

    Notes
    -----
    A context manager, which removes the live status when it exits.
    """

    def __init__(self, console: Console):
        self._console = console
        self._status: Status | None = None
        self._name = ""
        self._listening = ExitStack()

    def __enter__(self) -> "StepPrinter":
        if self._console.file.isatty():
            self._listening.enter_context(activity.heard_by(self._show))
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        self._stop()

    def _show(self, what: str) -> None:
        if self._status is not None:
            detail = f": {what}" if what not in ("", self._name) else ""
            self._status.update(escape(f"{self._name}{detail} …"))

    def __call__(self, step: Step) -> None:
        """Show that `step` has begun or ended."""
        self._stop()
        if step.seconds is not None:
            self._console.print(f"{step.name:<13}{step.seconds:8.2f} s", highlight=False)
        elif self._console.file.isatty():  # unlike `is_terminal`, not affected by FORCE_COLOR
            self._name = step.name
            self._status = self._console.status(f"{step.name} …")
            self._status.start()

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def render(
    report: Report,
    console: Console,
    *,
    output: str | None = None,
    quiet: bool = False,
    compare: str = "",
) -> None:
    """Print `report` and the directory of the artifact as a table; if `quiet`, no warnings.

    `compare` is the command that finds the first value that differs.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for label, value in _rows(report, output):
        table.add_row(label, value)
    console.print(table, highlight=False)
    if report.accepted is False and compare:
        print_command(console, "next", compare, "finds the first value that differs")
    if report.reference and (len(report.outputs) > 1 or not report.equal):
        console.print(_outputs(report), highlight=False)
    if report.explanation is not None:
        render_explanation(report.explanation, console)
    if report.passes:
        console.print(_pass_times(report.passes), highlight=False)
        left = len(report.passes) - _MAX_ROWS
        if left > 0:
            console.print(f"{left} faster passes not shown (--json has all)", highlight=False)
    for warning in () if quiet else report.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False)


def print_command(console: Console, label: str, command: str, purpose: str) -> None:
    """Print a command, which is not wrapped, and its purpose."""
    text = command_text(label, command, purpose)
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _pass_times(passes: Sequence[PassTime]) -> Table:
    rows = Table()
    for title in ("own time", "share", "with inner", "calls"):
        rows.add_column(title, justify="right")
    rows.add_column("pass", overflow="fold")
    whole = sum(each.own_seconds for each in passes) or 1.0
    for each in passes[:_MAX_ROWS]:
        times = (_time(each.own_seconds), f"{each.own_seconds / whole:.1%}", _time(each.seconds))
        rows.add_row(*times, str(each.calls), escape(each.name))
    return rows


def render_explanation(found: Explanation, console: Console) -> None:
    """Print what each fix did, and which optimizations were not made."""
    rows = Table("fix", "times", "nodes", "plain TVM", show_lines=True)
    for one in found.fixes:
        plain = "\n".join(f"{symptom}: {text}" for symptom, text in one.plain_tvm.items())
        nodes = one.nodes[:_MAX_PLACES] or ["-"]
        left = len(one.nodes) - _MAX_PLACES
        nodes += [f"and {left} more"] if left > 0 else []
        cells = (one.fix, str(one.times), "\n".join(nodes), plain)
        rows.add_row(*map(escape, cells))
    console.print(rows, highlight=False)
    if found.not_done:
        left_out = Table("not done", "where", "reason")
        for part in found.not_done:
            left_out.add_row(*map(escape, (part.what, part.where or "the model", part.reason)))
        console.print(left_out, highlight=False)


def render_diagnostics(found: Diagnostics, console: Console) -> None:
    """Print the findings of the verifier, with colored severities."""
    colors = {"error": "red", "warning": "yellow", "note": "cyan"}
    for line in found.text().splitlines():
        severity, bracket, rest = line.partition("[")
        if bracket and severity in colors:
            line = f"[{colors[severity]}]{severity}[/]{escape(bracket + rest)}"
        else:
            line = escape(line)
        console.print(line, highlight=False, soft_wrap=True)


def render_inspection(found: Inspection, console: Console, *, show_all: bool = False) -> None:
    """Print the sizes of the parts of an artifact; if `show_all`, all constants, and sections."""
    limit = None if show_all else _MAX_ROWS
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_row("artifact", escape(found.path))
    for name, size in found.files.items():
        table.add_row("file", f"{escape(name)}, {size_text(size)}")
    for module in found.modules:
        table.add_row("TVM module", f"{escape(module.kind)}, {size_text(module.nbytes)}")
    table.add_row("parameters", _times(found.parameter_bytes, None))
    table.add_row("constants", _times(found.constant_bytes, found.constant_ratio))
    table.add_row("duplicates", size_text(found.duplicate_bytes))
    table.add_row("code", size_text(found.code_bytes))
    table.add_row("debug information", size_text(found.debug_bytes))
    table.add_row("all files", _times(found.nbytes, found.size_ratio))
    console.print(table, highlight=False)
    tensors = sorted(
        (c for c in found.constants if c.kind == "tensor"), key=lambda constant: -constant.nbytes
    )
    rows = Table("constant", "type", "size", "parameter")
    for constant in tensors[:limit]:
        index = str(constant.index)
        rows.add_row(index, str(constant), size_text(constant.nbytes), escape(_origin(constant)))
    console.print(rows, highlight=False)
    left = len(tensors[limit:] if limit else [])
    if left:
        console.print(f"{left} smaller constants not shown (use --all)", highlight=False)
    if show_all:
        console.print(_sections(found), highlight=False)


def _sections(found: Inspection) -> Table:
    rows = Table("section", "offset", "size")
    for section in sorted(found.sections, key=lambda section: -section.nbytes):
        if section.name:
            rows.add_row(escape(section.name), str(section.offset), size_text(section.nbytes))
    return rows


def render_program(found: "ProgramDescription", console: Console) -> None:
    """Print what a Relay program needs and holds, unsupported operators first."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_row("program", escape(found.name))
    table.add_row("functions", escape(", ".join(found.functions)))
    for name, ty in found.inputs.items():
        table.add_row("input", escape(f"{name}: {ty}"))
    table.add_row("parameters", f"{len(found.parameters)}, {size_text(found.parameter_bytes)}")
    table.add_row("constants", size_text(found.constant_bytes))
    table.add_row("result", escape(found.result))
    if found.type_error:
        table.add_row("[red]type error[/]", escape(found.type_error))
    console.print(table, highlight=False)
    console.print(_operator_table(found.operators), highlight=False)


def render_preflight(found: Preflight, console: Console) -> None:
    """Print the operators of a model, unsupported ones first, and whether it can be imported."""
    if found.operators:
        console.print(_operator_table(found.operators), highlight=False)
    verdict = f"{escape(found.name)}: [green]can be imported[/]"
    if found.unsupported:
        calls = sum(operator.calls for operator in found.unsupported)
        verdict = (
            f"{escape(found.name)}: [red]cannot be imported[/]: "
            f"unsupported operators: {len(found.unsupported)}, in calls: {calls}"
        )
    elif found.problem:
        verdict = f"[red]error[/]: {escape(found.problem)}"
    console.print(verdict, highlight=False, soft_wrap=True)


def render_comparison(found: LayerComparison, console: Console, *, show_all: bool = False) -> None:
    """Print where a compiled model first differs from the original, and how the error grows."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for label, value in _comparison_rows(found):
        table.add_row(label, value)
    console.print(table, highlight=False)
    off = [*found.varying, *found.reference_off]
    off = [value for value in off if value not in found.growth]
    listed = found.values if show_all else [*off, *found.growth]
    shown = listed if show_all else listed[:_MAX_ROWS]
    if shown:
        console.print(_values(shown), highlight=False)
    left = len(listed) - len(shown)
    if left:
        console.print(f"{left} more values not shown (use --all)", highlight=False)


def _comparison_rows(found: LayerComparison) -> list[tuple[str, str]]:
    rows = [("model", escape(found.source)), ("reference", escape(found.reference) or "-")]
    if found.problem:
        rows.append(("the model fails", escape(found.problem)))
    else:
        rows.append(("outputs", _equal_of(found.outputs, found.reference)))
    rows += _input_rows(found.first_inputs, found.further)
    rows.append(("values", _equal_of([value.result for value in found.values], found.reference)))
    for name, sentence in list(found.unstable.items())[:_MAX_PLACES]:
        rows.append(("not deterministic", f"[red]{escape(f'{name}: {sentence}')}[/]"))
    if found.first_unstable is not None:
        rows.append(("", f"first at {_place(found.first_unstable)}"))
    for name, sentence in list(found.runtime.items())[:_MAX_PLACES]:
        rows.append(("runtime", f"[red]{escape(f'{name}: {sentence}')}[/]"))
    for name, sentence in list(found.unwritten.items())[:_MAX_PLACES]:
        rows.append(("unwritten memory", f"[red]{escape(f'{name} {sentence}')}[/]"))
    if varies := describe_varying(found.reference, found.first_inputs):
        rows.append(("reference varies", f"[yellow]{escape(varies)}[/]"))
    if found.varying:
        label = "" if varies else "reference varies"
        rows.append((label, f"[yellow]first at {_place(found.varying[0])}[/]"))
        if not varies:
            rows.append(("", escape(found.varying[0].result.variation)))
    if found.reference_off:
        rows.append(("reference off", f"[yellow]first at {_place(found.reference_off[0])}[/]"))
    if found.failure is not None:
        place = f"{found.failure.node} (value {found.failure.name})"
        rows.append(("first failure", f"[red]{escape(place)}[/]"))
        rows.append(("", escape(found.failure.problem)))
    rounded = next((value for value in found.values if value.result.rounds), None)
    if rounded is not None:
        rows.append(("rounding", escape(describe_rounds(found.reference, rounded.result))))
        rows.append(("", f"first seen at {_place(rounded)}"))
    if found.first is not None:
        node, problem = found.first.node, found.first.result.problem
        problem += f", with {found.first_inputs.where}" if found.first_inputs.where else ""
        name = f", node {escape(node.name)}" if node.path else ""
        rows.append(("first difference", f"[red]{escape(str(node))}[/]{name}"))
        rows.append(("", escape(problem)))
        if found.skipped_before:
            names = ", ".join(found.skipped_before[:_MAX_PLACES])
            rows.append(("", escape(f"or before it, at what is not compared: {names}")))
    elif (off := [one for one in found.outputs if not one.accepted]) and not found.runtime:
        rows.append(("first difference", "none: the outputs differ only if nothing else is one"))
        rows.append(("", escape(f"{off[0].name}: {off[0].problem}")))
    if found.is_hidden and found.first is not None:
        rows.append(("", "only if no other value is an output: a fused kernel, or a pass"))
    if found.fixes:
        fixes = (f"{fix} ({', '.join(by)})" if by else fix for fix, by in found.fixes.items())
        rows.append(("fixes there", escape(", ".join(fixes))))
    for counted, label in (("nans", "first NaN"), ("infinities", "first infinity")):
        ours, theirs = found.first_with(counted), found.first_with(f"reference_{counted}")
        if ours is not None or theirs is not None:
            rows.append((label, f"{_place(ours)}; in the reference: {_place(theirs)}"))
    if found.stock_outputs:
        stock = _equal_of(found.stock_outputs, found.reference, whose="plain TVM")
        rows.append(("plain TVM", stock))
    if found.first_stock is not None:
        rows.append(("", f"first differs at {_place(found.first_stock)}"))
    rows += [("plain TVM fails", escape(problem)) for problem in found.stock_problems]
    rows += [("not compared", escape(f"{k}: {why}")) for k, why in found.skipped.items()]
    return rows


def _equal_of(
    results: Sequence[OutputComparison], reference: str | None, *, whose: str = "ours"
) -> str:
    """The number of equal results, and of those that differ because the reference is off."""
    text = f"{sum(result.equal for result in results)} of {len(results)} equal"
    off = [result for result in results if result.verdict == REFERENCE_OFF]
    if off:
        verb = "differs" if len(off) == 1 else "differ"
        text += f"; {len(off)} {describe_off(reference, off, verb=verb, whose=whose)}"
    varying = sum(result.verdict == REFERENCE_VARIES for result in results)
    if varying:
        text += f"; {varying} not comparable"
    return f"[{COLORS[worst_verdict(results)]}]{escape(text)}[/]"


def _place(value: ValueComparison | None) -> str:
    return "none" if value is None else escape(f"{value.node} (value {value.name})")


def _values(values: Sequence[ValueComparison]) -> Table:
    has_stock = any(value.stock for value in values)
    rows = Table("value", "operator", "module or node", "shape", "relative error", "")
    if has_stock:
        rows.add_column("plain TVM")
    for value in values:
        result = value.result
        cells = [escape(result.name), escape(value.node.operator)]
        cells += [escape(value.node.path or value.node.name)]
        cells += [f"({', '.join(map(str, result.shape))})", _error(result.max_rel_error)]
        cells.append(_verdict(result))
        if has_stock:
            cells.append(_stock_verdict(value.stock))
        rows.add_row(*cells)
    return rows


def _stock_verdict(result: OutputComparison | None) -> str:
    if result is None:
        return "-"
    if result.accepted:
        return "[green]equal[/]" if result.equal else "[yellow]differs; float64 agrees[/]"
    return f"[red]off by {_error(result.max_rel_error)}[/]"


def render_profile(found: Profile, console: Console, *, show_all: bool = False) -> None:
    """Print the time of a model's kernels, the slowest first."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    others = sorted(found.other_seconds.items(), key=lambda other: -other[1])
    names = ", ".join(name for name, _ in others[:_MAX_PLACES])
    table.add_row("model", escape(found.model))
    if found.sizes:
        table.add_row("sizes", escape(describe_sizes(found.sizes)))
    table.add_row("one run", f"{_time(found.run_seconds)} (median, without instruments)")
    table.add_row("kernels", f"{_time(found.kernel_seconds)} in {len(found.kernels)} calls")
    table.add_row("other calls", f"{_time(sum(found.other_seconds.values()))} ({escape(names)})")
    table.add_row("attributed", f"{found.attributed:.0%} of the time of kernels")
    limits = found.limits
    table.add_row(
        "limits", f"{limits.flops / 1e9:.3g} GFLOP/s, {limits.bandwidth / 1e9:.3g} GB/s (NumPy)"
    )
    if not found.is_exact:
        table.add_row("", "the model has branches or loops: kernels list the nodes of all calls")
    for label, text in _reference_rows(found):
        table.add_row(label, escape(text))
    console.print(table, highlight=False)
    shown = found.order if show_all else found.order[:_MAX_ROWS]
    rows = Table()
    titles = ["time", "share", "GFLOP/s", "GB/s", "of limit"]
    if found.reference is not None:
        titles.insert(1, found.reference.name.rpartition(" ")[0])
    for title in titles:
        rows.add_column(title, justify="right")
    rows.add_column("computes", overflow="fold")
    rows.add_column("kernel", overflow="fold")
    matches = found.matches
    for place in shown:
        kernel = found.kernels[place]
        rate = 1e-9 / kernel.seconds if kernel.seconds else 0.0
        share, limit = kernel.seconds / (found.kernel_seconds or 1), found.share_of_limits(kernel)
        rows.add_row(
            _time(kernel.seconds),
            *([] if found.reference is None else [_match_text(matches[place])]),
            f"{share:.1%}",
            "-" if kernel.flops is None else f"{kernel.flops * rate:.3g}",
            f"{kernel.nbytes * rate:.3g}",
            "-" if limit is None else f"{limit:.0%}" if limit <= 1 else ">100%",
            escape(kernel.source or "-"),
            escape(kernel.kernel),
        )
    console.print(rows, highlight=False)
    if any((found.share_of_limits(found.kernels[place]) or 0) > 1 for place in shown):
        console.print(
            ">100% of limit: data in the caches, or instructions faster than NumPy's",
            highlight=False,
        )
    left = len(found.kernels) - len(shown)
    if left:
        console.print(f"{left} faster calls not shown (use --all)", highlight=False)


def _reference_rows(found: Profile) -> Iterator[tuple[str, str]]:
    """The figures of the reference, with labels."""
    reference = found.reference
    if reference is None:
        yield "reference", f"not measured: {found.no_reference}"
        return
    ratio = found.run_seconds / reference.run_seconds if reference.run_seconds else 0.0
    yield (
        "reference",
        f"{_time(reference.run_seconds)} ({reference.name}): ours takes {ratio:.3g} x",
    )
    if not found.is_exact:
        yield "", "its nodes are not matched with kernels"
        return
    others = sorted(reference.unmatched, key=lambda node: -node.seconds)
    names = list(dict.fromkeys(node.runs for node in others))
    more = f", … ({len(names)} kinds)" if len(names) > _MAX_PLACES else ""
    left = f"; not matched: {', '.join(names[:_MAX_PLACES])}{more}" if names else ""
    yield "matched", f"{reference.matched:.0%} of the time of its nodes{left}"


def _match_text(match: Match | None) -> str:
    """The reference's time, with the number of kernels that share it."""
    if match is None:
        return "-"
    count = len(match.kernels)
    return _time(match.seconds) + (f", {count} kernels" if count > 1 else "")


def render_page(found: ModelReport, path: str, console: Console) -> None:
    """Print the path of a report's page, and its main figures."""
    table = Table.grid(padding=(0, 2))
    table.add_row("model", escape(found.name))
    table.add_row("page", escape(f"{path} ({size_text(os.stat(path).st_size)})"))
    table.add_row("kernels", f"{len(found.graph)} calls")
    measured = f"not measured: {found.no_profile}"
    if found.profile is not None:
        measured = f"{_time(found.profile.run_seconds)} (median, without instruments)"
    table.add_row("one run", escape(measured))
    if found.comparison is not None:
        results = [value.result for value in found.comparison.values]
        table.add_row("values", _equal_of(results, found.comparison.reference))
    console.print(table, highlight=False)


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def _operator_table(operators: Sequence[Operator]) -> Table:
    rows = Table("operator", "calls", "supported")
    for operator in operators:
        verdict = "yes"
        if operator.problem:
            places = ", ".join(operator.places[:_MAX_PLACES])
            more = ", …" if len(operator.places) > _MAX_PLACES else ""
            verdict = f"[red]no[/]: {escape(operator.problem)} (at {escape(places)}{more})"
        rows.add_row(escape(operator.name), str(operator.calls), verdict)
    return rows


def _times(count: int | None, ratio: float | None) -> str:
    if count is None:
        return "unknown (no manifest)"
    times = "" if ratio is None else f", {ratio:.2f} x parameters"
    return f"{size_text(count)}{times}"


def _origin(constant: Constant) -> str:
    parts = [", ".join(constant.parameters)]
    if constant.made_by:
        parts.append(f"made by {constant.made_by}")
    if constant.duplicate_of is not None:
        parts.append(f"duplicate of {constant.duplicate_of}")
    return "; ".join(part for part in parts if part) or "-"


def _rows(report: Report, output: str | None) -> list[tuple[str, str]]:
    layout = f" in {report.layout}" if report.layout else ""
    rows = [("model", escape(report.source) + layout)]
    verdict = escape(report.comparison)
    if report.equal is not None:
        verdict = f"[{COLORS[report.verdict]}]{verdict}[/]"
    rows.append(("outputs", verdict))
    rows += _input_rows(report.first_inputs, report.further)
    ratio = report.size_ratio
    parameters = (
        "no parameters"
        if ratio is None
        else f"{ratio:.2f} x parameters ({size_text(report.parameter_bytes)})"
    )
    rows.append(("size", f"{size_text(report.artifact_bytes)}, {parameters}"))
    if report.latency_ms is not None and report.reference_latency_ms is not None:
        ratio_text = ""
        if report.latency_ratio is not None:
            middle, low, high = report.latency_ratio
            ratio_text = f": {middle:.2f} x (quartiles {low:.2f} to {high:.2f})"
        rows.append(
            (
                "latency",
                f"{report.latency_ms:.3g} ms, {report.reference} "
                f"{report.reference_latency_ms:.3g} ms{ratio_text}",
            )
        )
    if report.activation_transforms is not None:
        rows.append(("layout transforms left", str(report.activation_transforms)))
    if report.unproved:
        rows.append(("unproved checks", f"{report.unproved} (tvm-fixes verify lists them)"))
    rows += _first_lines("not folded", report.unfolded)
    quantized = report.integer_products + len(report.float_products)
    if quantized:
        rows.append(("products in integers", f"{report.integer_products} of {quantized}"))
    rows += _first_lines("in float", report.float_products)
    rows += [("schedule", escape(line)) for line in report.fallbacks]
    for name, changed in report.user_passes.items():
        rows.append(("pass of yours", escape(f"{name}: {'' if changed else 'nothing '}changed")))
    if report.cached:
        rows.append(("library", "from the cache"))
    rows.append(("fixes applied", ", ".join(report.fixes) or "none"))
    if output is not None and report.accepted is not False:
        rows.append(("saved to", escape(output)))
    elif output is not None:
        rows.append(("not saved", f"outputs differ ({escape(output)} is not written)"))
    return rows


def _input_rows(
    first: FurtherComparison, further: Sequence[FurtherComparison]
) -> Iterator[tuple[str, str]]:
    """Rows for the inputs of a comparison, and for those left out."""
    if compared := describe_compared(first, further):
        yield "compared with", escape(compared)
    for each in further:
        if each.skipped:
            reason = textwrap.shorten(each.skipped, _MAX_REASON, placeholder=" …")
            yield "not compared with", escape(f"{each.where}: {reason}")


def _first_lines(label: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Rows for the first lines, and one for the number of the others."""
    for line in lines[:_MAX_PLACES]:
        yield label, escape(line)
    if len(lines) > _MAX_PLACES:
        yield "", f"and {len(lines) - _MAX_PLACES} more (--json lists them)"


def _outputs(report: Report) -> Table:
    table = Table()
    table.add_column("output")
    table.add_column("shape")
    table.add_column("dtype")
    table.add_column("absolute error", justify="right")
    table.add_column("relative error", justify="right")
    table.add_column("")
    for output in report.decisive.outputs:
        table.add_row(
            escape(output.name),
            f"({', '.join(map(str, output.shape))})",
            output.dtype,
            _error(output.max_abs_error),
            _error(output.max_rel_error),
            _verdict(output),
        )
    return table


def _verdict(output: OutputComparison) -> str:
    text = output.verdict if output.accepted else output.problem
    text = f"[{COLORS[output.verdict]}]{escape(text)}[/]"
    if output.float64_error is None or output.reference_float64_error is None:
        return text
    return (
        f"{text} (float64 error {output.float64_error:.2g}, reference "
        f"{output.reference_float64_error:.2g})"
    )


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
