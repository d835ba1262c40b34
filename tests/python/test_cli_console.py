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
"""Console output of a compilation."""

import io

import pytest
import tvm.testing
from rich.console import Console

from tvm_fixes.compiler import Step
from tvm_fixes.runtime import OutputComparison, Report
from tvm_fixes.support import activity
from tvm_fixes_cli import console
from tvm_fixes_cli.terminal import size_text


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


def print_steps(file):
    with console.StepPrinter(Console(file=file, width=80)) as printer:
        printer(Step("build"))
        printer(Step("build", 1.5))
    return file.getvalue()


def test_a_terminal_shows_what_runs(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = print_steps(Terminal())
    assert "build …" in text
    assert "build            1.50 s" in text


def test_a_terminal_shows_the_activity(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with console.StepPrinter(Console(file=file, width=80)) as printer:
        printer(Step("Legalize"))
        shown = printer._status
        for what in ("FuseOps", "kernel 1 of [2]", "Legalize", ""):
            activity.report(what)
            file.write(f"<{shown.status}>")
    assert not activity.is_heard()
    activity.report("ignored")
    for text in ("Legalize: FuseOps …", "Legalize: kernel 1 of [2] …", "Legalize …"):
        assert f"<{text}>" in file.getvalue()


def test_a_log_does_not_listen():
    with console.StepPrinter(Console(file=io.StringIO())):
        assert not activity.is_heard()


def test_forced_colours_do_not_make_a_log_a_terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert print_steps(io.StringIO()) == "build            1.50 s\n"


def test_a_log_has_plain_lines():
    assert print_steps(io.StringIO()) == "build            1.50 s\n"


def test_table():
    outputs = [
        OutputComparison("[y]", [1, 2], "float32", 1e-6, 1e-7, 1e-4, 1e-5, True),
        OutputComparison("z", [], "int64", None, None, 0, 0, False, "expected shape"),
    ]
    report = Report(
        source="[m].onnx",
        layout="NHWC",
        seconds={},
        artifact_bytes=2_500_000,
        parameter_bytes=2_000_000,
        activation_transforms=2,
        fixes=["a-fix", "b-fix"],
        reference="PyTorch 2",
        outputs=outputs,
        latency_ms=1.234,
        reference_latency_ms=2.0,
        latency_ratio=[0.62, 0.6, 0.75],
        warnings=["[w]"],
        integer_products=2,
        float_products=["main: y, relax.matmul: the data is not quantized"],
        fallbacks=["sum: OneThread instead of Reduction (no [threads])"],
    )
    log = Console(force_terminal=False, width=120)
    with log.capture() as captured:
        console.render(report, log, output="out")
    text = captured.get()
    for part in (
        "[m].onnx in NHWC",
        "not equal to PyTorch 2",
        "2.5 MB, 1.25 x parameters (2 MB)",
        "1.23 ms, PyTorch 2 2 ms: 0.62 x (quartiles 0.60 to 0.75)",
        "products in integers    2 of 3",
        "main: y, relax.matmul: the data is not quantized",
        "sum: OneThread instead of Reduction (no [threads])",
        "a-fix, b-fix",
        "outputs differ (out is not written)",
        "[y]",
        "(1, 2)",
        "1e-06",
        "expected shape",
        "warning: [w]",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    "count, text", [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (3e12, "3e+03 GB")]
)
def test_sizes(count, text):
    assert size_text(count) == text


if __name__ == "__main__":
    tvm.testing.main()
