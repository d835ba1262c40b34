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
"""Comparisons at several sizes of symbolic dims, and with inputs of several magnitudes."""

import json

import numpy as np
import onnx
import pytest
import torch
import tvm.testing
from torch import nn
from tvm import relax

from helpers.grids import from_tier
from helpers.planted_faults import (
    graph,
    large_rows_swapped,
    model,
    plant,
    plant_unshifted_softmax,
    rewriting,
)
from helpers.preparation import prepare_forks
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.debug import compare, profile
from tvm_fixes.errors import UsageError
from tvm_fixes.runtime.report import Report
from tvm_fixes.search.bisection import bisect
from tvm_fixes.search.reduction import reduce
from tvm_fixes.source import open_source
from tvm_fixes.source.examples import MAGNITUDES
from tvm_fixes.source.onnx import OnnxSource
from tvm_fixes_cli import main


@pytest.fixture(scope="module", autouse=True)
def prepared():
    prepare_forks()


def compared(report):
    """The sizes that were compared, and those that were not."""
    found = [report.sizes, *(each.sizes for each in report.further if not each.skipped)]
    assert all(each.magnitude == 1 for each in report.further)
    return found, [each.sizes for each in report.further if each.skipped]


def table(rows):
    """Adds a table of `rows` rows to the tokens of a sequence."""
    positions = np.random.default_rng(0).standard_normal((1, rows, 4)).astype("float32")
    return graph(
        "float[N, seq, 4] x",
        "float[N, seq, 4] y",
        """shape = Shape<start = 1, end = 2> (x) some = Slice (positions, zero, shape, one)
           y = Add (x, some)""",
        positions=positions,
        zero=np.array([0]),
        one=np.array([1]),
    )


@pytest.mark.parametrize("nodes, is_free", [("r = MatMul (x, t)", True), ("r = Add (x, y)", False)])
def test_batches_that_may_differ(nodes, is_free):
    columns = "M" if is_free else "4"
    free = graph(
        "float[N,4] x, float[M,4] y", f"float[N,{columns}] r", f"t = Transpose (y) {nodes}"
    )
    found, skipped = compared(compile_model(free).report)
    apart = {"N": 7, "M": 8}
    odd = apart if is_free else {"N": 7, "M": 7}
    assert found == [{"N": 2, "M": 2}, odd, {"N": 1, "M": 1}]
    assert skipped == ([] if is_free else [apart])


@from_tier("ci")
def test_a_fault_that_only_larger_sizes_show(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    plant(monkeypatch, schedules=large_rows_swapped)
    nodes = "t = Transpose (y) d = Sub (t, x) r = Relu (d)"
    onnx.save(graph("float[N,8] x, float[8,N] y", "float[N,8] r", nodes), "model.onnx")
    assert main(["compile", "model.onnx", "-q", "-o", "out"]) == 1
    out = " ".join(capfd.readouterr().out.split())
    assert "not equal to ONNX Runtime" in out and "with N=7, max error" in out
    assert "compared with N=2; N=7" in out and not (tmp_path / "out").exists()
    found = compare("model.onnx", save_inputs="inputs.npz")
    assert found.first.node.operator == "Sub" and found.sizes == {"N": 7}
    assert next((each.sizes, each.accepted) for each in found.further) == ({"N": 2}, True)
    with np.load("inputs.npz") as saved:
        assert saved["x"].shape == (7, 8)
    [culprit] = bisect("model.onnx", over=["kernels"]).culprits
    assert len(culprit.names) == 1 and "subtract" in culprit.names[0]
    reduced = reduce("model.onnx", output=tmp_path / "reduced")
    assert reduced.operators in (["Sub"], ["Transpose", "Sub"])
    # With a size that does not show it, only that size is compared.
    assert compile_model("model.onnx", sizes={"N": 3}).report.equal
    assert main(["compare", "model.onnx", "-q", "--size", "N=6"]) == 1
    assert "compared with     N=6" in capfd.readouterr().out.replace("; N=6, inputs", "")


def test_sizes_are_reported():
    report = compile_model(model(rows="N")).report
    assert compared(report) == ([{"N": 2}, {"N": 7}, {"N": 1}], []) and report.equal
    assert Report.from_dict(report.to_dict()) == report
    assert profile(model(rows="N"), sizes={"N": 4}, seconds=0, compare=False).sizes == {"N": 4}
    assert compile_model(model()).report.further == []
    x, y = np.zeros((3, 8), "float32"), np.zeros((8, 3), "float32")
    report = compile_model(model(rows="N"), inputs={"x": x, "y": y}).report
    assert compared(report) == ([{"N": 3}], [])


def test_sizes_that_the_reference_rejects_are_skipped():
    report = compile_model(table(34)).report
    assert report.equal and not report.warnings
    assert report.sizes == {"N": 2, "seq": 32}
    tried = [(each.sizes, bool(each.skipped)) for each in report.further]
    assert tried == [
        ({"N": 7, "seq": 37}, True),
        ({"N": 7, "seq": 32}, False),
        ({"N": 1, "seq": 128}, True),
        ({"N": 1, "seq": 32}, False),
    ]
    assert "ONNX Runtime" in report.further[0].skipped and "rejects it" in report.further[0].skipped


def test_sizes_that_take_too_long_are_skipped(monkeypatch):
    module = __import__("tvm_fixes.compiler.further_inputs", fromlist=["_MAX_SECONDS"])
    monkeypatch.setattr(module, "_MAX_SECONDS", 0.0)
    report = compile_model(model(rows="N")).report
    assert report.equal and [each.skipped[:19] for each in report.further] == [
        "it would take about"
    ] * len(report.further)


class Doubled(nn.Module):
    def forward(self, x, y):
        return x.repeat_interleave(2, 0) + y


def test_sizes_of_pytorch_programs():
    linear = (nn.Linear(4, 2).eval(), (torch.zeros(3, 4),))
    report = compile_model(linear, shapes={"input": ("rows", 4)}).report
    assert compared(report) == ([{"rows": 3}, {"rows": 7}, {"rows": 1}], []) and report.equal

    rows = torch.export.Dim("rows", min=3, max=5)
    program = torch.export.export(*linear, dynamic_shapes=({0: rows},))
    found, skipped = compared(compile_model(program).report)
    assert [set(each.values()) for each in found] == [{3}, {5}] and skipped == []

    rows = torch.export.Dim("rows", min=2, max=64)
    dims = {"x": {0: rows}, "y": {0: 2 * rows}}
    inputs = (torch.zeros(3, 4), torch.zeros(6, 4))
    program = torch.export.export(Doubled().eval(), inputs, dynamic_shapes=dims)
    found, skipped = compared(compile_model(program).report)
    assert [sorted(each.values()) for each in found] == [[3, 6], [7, 14], [2, 4]] and not skipped


def test_no_further_session_of_the_reference(monkeypatch):
    """The cost of a further size is a run."""
    opened = []
    right = OnnxSource.reference

    def reference(self):
        opened.append(1)
        return right(self)

    source = open_source(model(rows="N"))
    monkeypatch.setattr(OnnxSource, "reference", reference)
    further = source.further_inputs(0)
    assert len(further) == 2 and not opened
    found = compare(source)
    assert len(found.further) == 2 + len(MAGNITUDES)


@from_tier("ci")
def test_an_overflow_that_usual_inputs_do_not_show(monkeypatch, tmp_path, capfd):
    """The printed commands name the magnitude, and show the fault again."""
    monkeypatch.chdir(tmp_path)
    onnx.save(model("float16"), "model.onnx")
    assert compile_model("model.onnx").report.accepted
    plant_unshifted_softmax(monkeypatch)
    assert main(["compile", "model.onnx", "-q", "-o", "out"]) == 1
    out = " ".join(capfd.readouterr().out.split())
    assert "not equal to ONNX Runtime" in out and "with inputs x 64" in out
    assert "compared with usual inputs; inputs x 64; inputs x 1/64" in out
    assert "next: tvm-fixes compare model.onnx --magnitude 64" in out
    found = compare("model.onnx", save_inputs="inputs.npz")
    assert (found.first.node.operator, found.magnitude) == ("Softmax", 64)
    assert [(each.magnitude, each.accepted) for each in found.further] == [(1, True)]
    with np.load("inputs.npz") as saved:
        assert np.abs(saved["x"]).max() > 64
    assert main(["bisect", "model.onnx", "-q", "--json", "--over", "fixes"]) == 0
    found = json.loads(capfd.readouterr().out)
    [culprit] = found["culprits"]
    assert culprit["names"] == ["softmax-legalize"] and found["magnitude"] == 64
    again = "TVM_FIXES_DISABLE=softmax-legalize tvm-fixes compile model.onnx --magnitude 64"
    assert culprit["again"] == again
    assert reduce("model.onnx", output="reduced").operators == ["Softmax"]
    report = compile_model("model.onnx", magnitude=64).report
    assert (report.accepted, report.magnitude, report.further) == (False, 64, [])
    assert compile_model("model.onnx", magnitude=2).report.accepted


class Norm(nn.Module):
    def forward(self, x):
        return x / (x.float() * x.float()).sum(-1, keepdim=True).sqrt().to(x.dtype)


@tvm.transform.module_pass(opt_level=0, name="SumIn16Bits")
def sum_in_16_bits(mod, _context):
    """A pass after which sums are float16."""

    def rounded(call):
        return relax.op.astype(relax.op.astype(call, "float16"), "float32")

    return rewriting("relax.sum", rounded)(mod)


def test_a_sum_of_squares_in_16_bits():
    program = (Norm().half().eval(), (torch.randn(4, 64).half(),))
    assert compile_model(program).report.accepted
    report = compile_model(program, passes=[(sum_in_16_bits, "before=DynamicToStatic")]).report
    assert report.outputs[0].accepted and not report.accepted
    assert report.decisive.magnitude == 64 and "with inputs x 64" in report.comparison


def test_magnitudes_are_for_floats():
    """``compile`` takes them for 16-bit models, ``compare`` for all with floats."""
    assert compile_model(model()).report.further == []
    found = compare(model())
    assert found.accepted and [each.magnitude for each in found.further] == list(MAGNITUDES)
    whole = graph("int64[4] x", "int64[4] y", "y = Add (x, x)")
    assert compare(whole).further == [] and compile_model(whole).report.further == []
    # A model with 16-bit floats only between its inputs and outputs.
    mixed = graph("float[4] x", "float[4] y", "h = Cast<to = 10> (x) y = Cast<to = 1> (h)")
    assert [each.magnitude for each in compile_model(mixed).report.further] == list(MAGNITUDES)
    with pytest.raises(UsageError, match="inputs or a magnitude"):
        compile_model(whole, magnitude=2, inputs={"x": np.zeros(4, "int64")})
    with pytest.raises(UsageError, match="positive"):
        compile_model(whole, magnitude=0)


def test_an_overflow_of_the_reference_is_no_fault():
    """PyTorch squares in float16, and the float64 run agrees with a norm that does not."""
    squares = graph(
        "float16[4, 8] x", "float16[4, 8] y", "a = Mul (x, x) b = Mul (a, a) y = Exp (b)"
    )
    report = compile_model(squares).report
    assert report.accepted and [each.skipped for each in report.further] == ["", ""]


if __name__ == "__main__":
    tvm.testing.main()
