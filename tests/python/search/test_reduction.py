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
"""``reduce`` ends with the operators of a planted fault, and with a script that reproduces it."""

import itertools
import json
import os
import runpy
import signal
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import few, from_tier, is_full
from helpers.planted_faults import model, plant, plant_wrong_softmax
from helpers.preparation import prepare_forks
from tvm_fixes.errors import CompileError
from tvm_fixes.frontend.torch.ops import shapes
from tvm_fixes.search import reduction
from tvm_fixes.search.problem import Degree, Kind, Measure, Observed, Problem, cause_of
from tvm_fixes.search.reduction import reduce
from tvm_fixes.search.torch_parts import TorchParts
from tvm_fixes.search.trial import Settings, Subject
from tvm_fixes.support.isolate import OutcomeKind, run_forked


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    prepare_forks()


def test_a_wrong_operator_of_an_onnx_model(monkeypatch, tmp_path):
    plant_wrong_softmax(monkeypatch)
    trials = []
    found = reduce(model(), output=tmp_path, progress=trials.append)
    assert found.operators == ["Softmax"] and found.before == 7
    assert found.what.startswith("s: 32 of 32 elements differ")
    assert len(trials) == found.trials + 1
    small = onnx.load(found.model)
    assert [node.op_type for node in small.graph.node] == ["Softmax"]
    done = run_script(found.script)
    assert (done.name, "Not equal to tolerance" in done.message) == ("AssertionError", True)
    monkeypatch.undo()
    assert run_script(found.script).kind is OutcomeKind.VALUE
    assert "np.random.default_rng(0).standard_normal((4, 8))" in open(found.script).read()
    assert json.loads(found.to_json())["operators"] == ["Softmax"]


# With given tolerances, a trial does not measure the error of rounding, which takes longest.
SETTINGS = Settings() if is_full() else Settings(rtol=1e-3, atol=1e-3)


def run_script(path):
    return run_forked(lambda: bool(runpy.run_path(path)), timeout=100)


def faked(monkeypatch, shows):
    """Let `shows` decide from the names of the operators, instead of a trial."""
    seen = []

    def observe(_problem, subject, _settings):
        names = [node.op_type for node in subject.open()._model.graph.node]
        seen.append(names)
        return Observed(shows(names), "as told")

    monkeypatch.setattr(reduction, "observe", observe)
    return seen


@few(1)
@pytest.mark.parametrize("wanted", [["Exp"], ["Softmax", "Sub"], ["Transpose", "MatMul", "Relu"]])
def test_the_operators_of_the_fault_are_left(monkeypatch, tmp_path, wanted):
    faked(monkeypatch, lambda names: set(wanted) <= set(names))
    assert reduce(model(), output=tmp_path).operators == wanted


def test_values_at_a_cut_are_those_of_the_run(monkeypatch, tmp_path):
    checked = []

    def observe(_problem, subject, _settings):
        source = subject.open()
        _, run = source.reference()
        checked.append(run(subject.inputs)[-1])
        return Observed(len(source._model.graph.node) > 2, "as told")

    monkeypatch.setattr(reduction, "observe", observe)
    reduce(model(), output=tmp_path)
    # The last operator is never cut off, so its result does not change until values are drawn.
    assert len(checked) > 3
    for value in checked[:2]:
        np.testing.assert_allclose(value, checked[0], rtol=1e-5)


def test_an_interrupted_search_resumes(monkeypatch, tmp_path):
    seen = faked(monkeypatch, lambda names: {"Exp", "Softmax"} <= set(names))
    whole = reduce(model(), output=tmp_path / "whole")
    number = len(seen)

    def interrupt(trial):
        if len(seen) == 5:
            raise KeyboardInterrupt

    seen.clear()
    part = reduce(model(), output=tmp_path / "part", progress=interrupt)
    assert part.interrupted and {"Exp", "Softmax"} <= set(part.operators)
    assert [node.op_type for node in onnx.load(part.model).graph.node] == part.operators
    with (tmp_path / "part" / "journal.jsonl").open("a") as file:
        file.write('{"label": "oper')  # as a killed process leaves it
    again = reduce(model(), output=tmp_path / "part")
    assert again.operators == whole.operators and not again.interrupted
    # The whole model is tried again.
    assert len(seen) == number + 1 and again.trials == whole.trials - 4


def test_a_journal_of_another_search_is_replaced(monkeypatch, tmp_path):
    faked(monkeypatch, lambda names: "Exp" in names)
    first = reduce(model(), output=tmp_path)
    second = reduce(model(), Problem(Kind.CRASHES), output=tmp_path)
    assert first.trials == second.trials > 1


@from_tier("ci")
def test_a_model_without_the_problem_is_rejected(tmp_path):
    with pytest.raises(CompileError, match="expected: not equal to the reference; found: equal"):
        reduce(model(), output=tmp_path)


@from_tier("ci")
def test_a_check_gets_the_path_of_the_model(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    code = "import onnx, sys; 'Exp' in str(onnx.load(sys.argv[1])) or sys.exit(1)"
    problem = Problem(Kind.CHECK, command=f'{sys.executable} -c "{code}"')
    found = reduce(path, problem, output=tmp_path / "out")
    assert found.operators == ["Exp"]


def test_a_pass_that_fails(monkeypatch, tmp_path):
    @tvm.transform.module_pass(opt_level=0, name="Fail")
    def fail(mod, _context):
        if "R.subtract" in mod.script():
            raise ValueError(f"cannot subtract {len(mod.script())} numbers")
        return mod

    plant(monkeypatch, operators=fail)
    found = reduce(model(), Problem(Kind.FAILS), output=tmp_path)
    assert found.operators == ["Sub"]
    assert "cannot subtract" in found.what


class Torch(torch.nn.Module):
    """With parameters, a tuple and a number of the shape."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 8)

    def forward(self, x):
        a, b = self.linear(x).split(4, 1)
        c = torch.relu(a) + b.mul(2)
        d = torch.softmax(c, 1).reshape(c.shape[1], c.shape[0])
        return torch.tanh(d) - 1


@from_tier("ci")
def test_a_wrong_operator_of_a_pytorch_program(monkeypatch, tmp_path):
    prepare_forks(exports=True)
    plant_wrong_softmax(monkeypatch)
    torch.manual_seed(0)
    program = torch.export.export(Torch().eval(), (torch.randn(3, 6),))
    found = reduce(program, output=tmp_path, settings=SETTINGS)
    assert found.operators == ["softmax.int"]
    assert found.before >= 7
    small = torch.export.load(found.model)
    assert "softmax" in small.graph_module.code
    done = run_script(found.script)
    assert (done.name, "Not equal to tolerance" in done.message) == ("AssertionError", True)
    if is_full():
        monkeypatch.undo()
        assert run_script(found.script).kind is OutcomeKind.VALUE


@few(1)
@pytest.mark.parametrize("wanted", [["linear"], ["split.Tensor", "mul.Tensor", "tanh"]])
def test_the_operators_of_a_pytorch_program_are_left(monkeypatch, tmp_path, wanted):
    def observe(_problem, subject, _settings):
        source = subject.open()
        _, run = source.reference()
        run(subject.inputs)
        nodes = source.program.module().graph.nodes
        names = {str(getattr(n.target, "__name__", "")).removesuffix(".default") for n in nodes}
        return Observed(set(wanted) <= names, "as told")

    monkeypatch.setattr(reduction, "observe", observe)
    program = torch.export.export(Torch().eval(), (torch.randn(3, 6),))
    assert reduce(program, output=tmp_path).operators == wanted


class Rows(torch.nn.Module):
    """With sizes that are computed from the number of rows."""

    def forward(self, x):
        a = torch.tanh(x)
        b = torch.cat([a, x]).reshape(x.shape[0], 2 * x.shape[1])
        c = torch.relu(b).expand(2, *b.shape).reshape(2 * x.shape[0], -1)
        return c.var(0) + c[x.shape[0] - 1]


def with_rows(rows=3):
    dims = ({0: torch.export.Dim("rows", max=64)},)
    program = torch.export.export(Rows(), (torch.randn(3, 6),), dynamic_shapes=dims)
    return program, [np.random.default_rng(0).standard_normal((rows, 6)).astype("float32")]


def plant_var_without_correction(monkeypatch):
    """Import a variance over symbolic axes as if the correction were 0."""
    planted = SimpleNamespace(**vars(relax))
    planted.const = lambda _, dtype: relax.const(0, dtype)
    monkeypatch.setattr(shapes, "relax", planted)


@from_tier("ci")
def test_a_fault_of_symbolic_dims(monkeypatch, tmp_path):
    prepare_forks(exports=True)
    plant_var_without_correction(monkeypatch)
    found = reduce(with_rows()[0], output=tmp_path, settings=Settings(rtol=1e-3, atol=1e-3))
    assert found.operators == ["var.dim"]
    assert torch.export.load(found.model).range_constraints
    done = run_script(found.script)
    assert (done.name, "Not equal to tolerance" in done.message) == ("AssertionError", True)
    monkeypatch.undo()
    assert run_script(found.script).kind is OutcomeKind.VALUE


def test_parts_between_complex_values():
    """Inputs and outputs of a part are real: views of complex numbers are no operators of it."""

    class Spectrum(torch.nn.Module):
        def forward(self, x):
            return (torch.fft.rfft(x).conj() * 2).abs()

    x = torch.randn(2, 8)
    parts = TorchParts(torch.export.export(Spectrum(), (x,)), [x.numpy()])
    assert parts.operators == ["fft_rfft", "_conj", "mul.Tensor", "abs"]
    expected = torch.view_as_real((torch.fft.rfft(x).conj() * 2).resolve_conj())
    part = parts.cut([1, 2])
    assert part.operators == ["_conj", "mul.Tensor"]
    [(name, spectrum)] = part.inputs.items()
    assert name == "fft_rfft"
    np.testing.assert_array_equal(spectrum, torch.view_as_real(torch.fft.rfft(x)))
    module, tensors = part.model()
    torch.testing.assert_close(module(*tensors)[0], expected)
    compiled = Settings().build(Settings().open((module, tensors)))
    np.testing.assert_allclose(compiled.run(*tensors), expected, rtol=1e-5)


@few(1)
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_each_operator_keeps_its_symbolic_dims(rows):
    program, inputs = with_rows(rows)
    parts = TorchParts(program, inputs)
    expected = Rows()(torch.tensor(inputs[0]))
    whole = parts.cut(range(len(parts.operators)))
    torch.testing.assert_close(whole.model()[0](torch.tensor(inputs[0]))[-1], expected)
    for place, name in enumerate(parts.operators):
        part = parts.cut([place])
        assert part.operators == [name]
        source = Settings().open(part.model())
        assert bool(part.symbolic) == (name != "add.Tensor")
        assert Subject(None, None, [], None, symbolic=part.symbolic).lost_dims(source) == ""
        _, run = source.reference()
        assert run(list(part.inputs.values()))


@from_tier("ci")
def test_a_part_that_cannot_keep_its_symbolic_dims(monkeypatch, tmp_path):
    class Pairs(torch.nn.Module):
        def forward(self, x, n):
            return x.reshape(n, 12).var(0)

    prepare_forks(exports=True)
    plant_var_without_correction(monkeypatch)
    auto = torch.export.Dim.AUTO
    program = torch.export.export(
        Pairs(), (torch.randn(6, 6), 3), dynamic_shapes={"x": {0: auto}, "n": auto}
    )
    with pytest.raises(CompileError) as caught:
        reduce(program, output=tmp_path, settings=Settings(rtol=1e-3, atol=1e-3))
    assert "operators 0-1: PyTorch makes axis 0 of 'x' static in this part" in str(caught.value)


def relax_module():
    builder = relax.BlockBuilder()
    rows = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([rows, 8], "float32"))
    y = relax.Var("y", relax.TensorType([8, 6], "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(relax.op.tanh(x), y))
            halves = builder.emit(relax.op.split(relax.op.nn.softmax(product), 2, 1))
            total = builder.emit(relax.op.add(halves[0], halves[1]))
            results = builder.emit_output((relax.op.exp(total), product))
        builder.emit_func_output(results)
    return builder.finalize()


@from_tier("ci")
def test_a_wrong_operator_of_a_relax_module(monkeypatch, tmp_path):
    plant_wrong_softmax(monkeypatch)
    found = reduce(relax_module(), output=tmp_path, settings=SETTINGS)
    assert found.operators == ["nn.softmax"]
    assert found.before >= 7
    done = run_script(found.script)
    assert (done.name, "Not equal to tolerance" in done.message) == ("AssertionError", True)
    small = tvm.ir.load_json(open(found.model).read())
    assert [int(one) for one in small["main"].params[0].ty.shape] == [1, 1]


def test_a_pass_that_crashes(monkeypatch, tmp_path):
    @tvm.transform.module_pass(opt_level=0, name="Crash")
    def crash(mod, _context):
        if "R.subtract" in mod.script():
            os.kill(os.getpid(), signal.SIGSEGV)
        return mod

    plant(monkeypatch, operators=crash)
    found = reduce(model(), Problem(Kind.CRASHES), output=tmp_path)
    assert found.operators == ["Sub"]
    assert found.what == "SIGSEGV: crashed"
    with pytest.raises(CompileError, match="not equal to the reference; found: SIGSEGV"):
        reduce(model(), output=tmp_path)


@from_tier("ci")
def test_a_crash_of_stock_tvm(tmp_path):
    """An integer divided by zero crashes the reference, too."""
    text = """
        <ir_version: 9, opset_import: ["" : 18]> m (int32[4] a, int32[4] b) => (int32[4] q)
        { c = Abs (a) d = Mul (c, a) e = Sub (b, b) q = Mod (d, e) }
    """
    settings = Settings(stock=True)
    proto = onnx.parser.parse_model(text)
    found = reduce(proto, Problem(Kind.CRASHES), output=tmp_path, settings=settings)
    assert found.operators == ["Mod"] and found.what == "SIGFPE: crashed"
    script = open(found.script).read()
    assert "from tvm.relax.frontend.onnx import from_onnx" in script
    assert "tvm_fixes" not in script
    assert run_script(found.script).name == "SIGFPE"


def test_values_that_matter_are_kept(monkeypatch, tmp_path):
    """Large ones are stored in a file."""

    def observe(_problem, subject, _settings):
        kept = [one for one in subject.inputs if one.flat[0] == 7]
        return Observed(bool(kept), "as told")

    monkeypatch.setattr(reduction, "observe", observe)
    text = '<ir_version: 9, opset_import: ["" : 18]> m (float[99] x, float[99] y) => (float[99] z) '
    proto = onnx.parser.parse_model(text + "{ z = Add (x, y) }")
    x = np.full(99, 7, "float32")
    y = np.random.default_rng(0).standard_normal(99).astype("float32")
    found = reduce(proto, output=tmp_path, settings=Settings(inputs={"x": x, "y": y}))
    script = open(found.script).read()
    assert "np.load(Path(__file__).with_name('values.npz'))['array0']" in script
    assert "np.random.default_rng(0).standard_normal((99,))" in script
    np.testing.assert_array_equal(np.load(tmp_path / "values.npz")["array0"], x)
    assert run_script(found.script).kind is OutcomeKind.VALUE


def test_latencies_near_the_limit_are_measured_again(monkeypatch, tmp_path):
    """A part whose noise includes the limit does not show that it is slow."""
    trials = []

    def observe(problem, subject, settings):
        number = len(subject.open().whole_model().graph.node)
        trials.append(number)
        ratio, noise = (3.0, 0.1) if number == 7 else (2.05, 0.5)
        degree = Degree(Measure.LATENCY, ratio, ratio - noise, ratio + noise)
        return Observed(ratio > 2, f"{ratio} x the reference", degrees=(degree,))

    monkeypatch.setattr(reduction, "observe", observe)
    monkeypatch.setattr(reduction, "write_script", lambda *_: tmp_path / "reproduce.py")
    found = reduce(model(), Problem(Kind.SLOWER, 2.0), output=tmp_path)
    assert len(found.operators) == 7 and found.unstable == ""
    assert any(one == two < 7 for one, two in itertools.pairwise(trials))
    near = Degree(Measure.LATENCY, 2.2, 1.9, 2.5)
    monkeypatch.setattr(reduction, "observe", lambda *_: Observed(True, "2.2 x", degrees=(near,)))
    with pytest.raises(CompileError, match=r"the limit of 2 is within the noise of 2\.2 x"):
        reduce(model(), Problem(Kind.SLOWER, 2.0), output=tmp_path / "near")


def test_causes_have_neither_names_nor_numbers():
    first = cause_of("Legalize: 'conv1' has 3 inputs [1, 2] of (a, b)")
    assert first == cause_of("Legalize: 'x' has 17 inputs [] of ()") != cause_of("import: no")


if __name__ == "__main__":
    tvm.testing.main()
