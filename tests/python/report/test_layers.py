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
"""tvm_fixes.debug.compare: planted faults, and what it says about them."""

import io
import json
import re
import subprocess
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import parser
from rich.console import Console
from torch import nn
from tvm import relax, tirx
from tvm_ffi import structural_map

from helpers import planted_faults
from helpers.grids import few, from_tier, is_full
from helpers.planted_faults import (
    Rewrite,
    graph,
    in_kernels,
    large_rows_swapped,
    model,
    plant_wrong_softmax,
    rewriting,
)
from helpers.preparation import prepare_forks
from tvm_fixes.compiler import steps
from tvm_fixes.compiler.reference import Reference
from tvm_fixes.debug import bisect, compare
from tvm_fixes.errors import CompileError, UsageError
from tvm_fixes.frontend.onnx.call import Context
from tvm_fixes.frontend.onnx.graph import external
from tvm_fixes.frontend.torch.ops import fourier, slices
from tvm_fixes.lowering import stages
from tvm_fixes.report import layers, stock
from tvm_fixes.runtime.report import FLOAT64, OURS, ROUNDING
from tvm_fixes.source import open_source
from tvm_fixes.source.examples import MAGNITUDES
from tvm_fixes.source.onnx import OnnxSource
from tvm_fixes_cli.console import render_comparison


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    prepare_forks()


def network(last: str = "y = Softmax(a1)") -> onnx.ModelProto:
    """Two layers, and `last`, which computes ``y`` from ``a1`` of shape (4, 8)."""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        network (float[4, 8] x) => (float[4, 8] y) {{
            m0 = MatMul(x, w)
            t0 = Tanh(m0)
            s0 = Sub(t0, b)
            m1 = MatMul(s0, w)
            a1 = Add(m1, b)
            {last}
        }}"""
    )
    rng = np.random.default_rng(0)
    for name, shape in (("w", (8, 8)), ("b", (8,))):
        array = rng.standard_normal(shape).astype("float32")
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for node in model.graph.node:
        node.name = f"/net/{node.output[0]}"
    return model


def plant(monkeypatch: pytest.MonkeyPatch, fault: Rewrite, *, after_legalize: bool = False) -> None:
    """Run `fault` in each compilation: on operators, or on kernels."""

    def faulty(**options):
        found = stages(**options)
        at = "kernels" if after_legalize else "operators"
        run = tvm.transform.module_pass(lambda mod, _: fault(mod), opt_level=0, name="Fault")
        return replace(found, **{at: (*getattr(found, at), run)})

    monkeypatch.setattr(steps, "stages", faulty)


def without_tanh(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with ``x`` instead of ``tanh(x)``."""

    def change(call: tvm.ir.Call) -> tvm.ir.Expr:
        return call.args[0] if call.op.same_as(tvm.ir.Op.get("tirx.tanh")) else call

    return structural_map(function, (tvm.ir.Call, change))


@pytest.fixture(scope="module")
def plain():
    """The comparison of the plain network."""
    return compare(network())


def test_equal_models_are_equal(plain):
    found = plain
    assert found.equal and not found.is_hidden and not found.skipped
    assert found.first is None and found.growth == []
    assert [value.name for value in found.values] == ["m0", "t0", "s0", "m1", "a1", "y"]
    assert found.values[1].node.operator == "Tanh"
    assert found.values[1].node.name == "/net/t0"
    assert found.reference.startswith("ONNX Runtime")


def test_a_wrong_kernel_is_named(monkeypatch):
    plant(monkeypatch, in_kernels("tanh", without_tanh), after_legalize=True)
    found = compare(network())
    assert not found.equal and not found.is_hidden
    assert (found.first.node.operator, found.first.node.name) == ("Tanh", "/net/t0")
    assert found.growth[0] is found.first
    errors = [value.result.max_rel_error for value in found.growth]
    assert errors == sorted(errors)


def test_a_pass_that_swaps_operands_is_found_at_its_node(monkeypatch):
    def swapped(call):
        return relax.op.subtract(call.args[1], call.args[0])

    plant(monkeypatch, rewriting("relax.subtract", swapped))
    assert compare(network()).first.node.name == "/net/s0"


def test_an_overflow_to_nan_is_found_where_it_appears(monkeypatch):
    def unsafe(call):
        powers = relax.op.exp(relax.op.multiply(call.args[0], relax.const(1e3, "float32")))
        return relax.op.divide(powers, relax.op.sum(powers, axis=[-1], keepdims=True))

    plant(monkeypatch, rewriting("relax.nn.softmax", unsafe))
    found = compare(network("p = Softmax(a1) y = Exp(p)"))
    assert found.first.node.operator == "Softmax"
    assert found.first_with("nans") is found.first
    assert found.first_with("reference_nans") is None
    assert "not finite" in found.first.result.problem


def test_nan_and_infinity_of_the_original_are_no_difference():
    found = compare(network("e = Exp(a1) h = Exp(e) g = Exp(h) z = Sub(g, g) y = Exp(z)"))
    assert found.equal
    for prefix in ("", "reference_"):
        assert found.first_with(f"{prefix}infinities").name in ("h", "g")
        assert found.first_with(f"{prefix}nans").name == "z"


@from_tier("ci")
def test_a_wrong_axis_in_the_importer_is_named(monkeypatch):
    convert = Context.convert

    def faulty(self, call):
        if call.operator == "Softmax":
            call = replace(call, attributes=dict(call.attributes) | {"axis": 0})
        return convert(self, call)

    monkeypatch.setattr(Context, "convert", faulty)
    assert compare(network()).first.node.operator == "Softmax"


@from_tier("ci")
def test_a_fault_of_fused_kernels_is_found_although_outputs_prevent_the_fusion(monkeypatch):
    plant(monkeypatch, in_kernels("fused", without_tanh), after_legalize=True)
    found = compare(network("c = Tanh(a1) d = Mul(c, c) y = Add(d, x)"))
    assert found.is_hidden and not found.equal
    assert found.first is found.values[-1]
    assert found.first.node.name == "/net/t0"


def test_the_first_value_that_fails_is_named_and_those_before_it_are_compared(monkeypatch):
    def fail(call):
        raise ValueError("no subtraction")

    plant(monkeypatch, rewriting("relax.subtract", fail))
    found = compare(network())
    assert not found.equal and found.outputs == []
    assert [value.name for value in found.values] == ["m0", "t0"]
    assert (found.failure.node.name, found.failure.name) == ("/net/s0", "s0")
    assert "no subtraction" in found.failure.problem and "no subtraction" in found.problem
    assert json.loads(found.to_json())["failure"]["name"] == "s0"


def test_the_fixes_at_a_failure_are_named(monkeypatch):
    class Last(nn.Module):
        def forward(self, x):
            return x.relu()[-5:].tanh()

    rows = torch.export.Dim("rows", min=5)
    program = torch.export.export(Last(), (torch.randn(7, 4),), dynamic_shapes=({0: rows},))
    monkeypatch.setattr(slices, "_from_front", lambda call, position, extent: position)
    found = compare(program)
    assert found.failure is not None and "slice" in str(found.failure.node)
    assert found.fixes == {"torch-dynamic-shapes": ["import"]}


@from_tier("ci")
def test_the_fix_that_is_special_to_the_node_is_named_first(monkeypatch):
    """The values of the other nodes with a fix are equal."""
    plant_wrong_softmax(monkeypatch)
    nodes = "a = Relu (x) b = Relu (a) s = Softmax (b) r = Abs (s)"
    found = compare(graph("float[4,8] x", "float[4,8] r", nodes))
    assert found.first.name == "s"
    assert next(iter(found.fixes)) == "softmax-legalize"


class Spectrum(nn.Module):
    """The last operator hides a wrong conjugate, and the first one computes complex numbers."""

    def forward(self, x):
        spectrum = torch.fft.rfft(x, norm="ortho")
        return (spectrum.conj() * 1j).abs()


@from_tier("ci")
def test_complex_values_are_compared(monkeypatch):
    program = torch.export.export(Spectrum(), (torch.randn(2, 8),))
    found = compare(program)
    assert (found.equal, found.skipped) == (True, {})
    shapes = {value.name: tuple(value.result.shape) for value in found.values}
    assert shapes == {"fft_rfft": (2, 5, 2), "_conj": (2, 5, 2), "mul": (2, 5, 2), "abs_1": (2, 5)}
    right = fourier._normalized
    with monkeypatch.context() as patch:
        patch.setattr(fourier, "_normalized", lambda *args: right(*args[:3], 0))
        found = compare(program)
    assert found.first.node.operator == "aten.fft_rfft.default"
    assert "torch-decompositions" in found.fixes
    # A value that is not compared may be at fault instead.
    found = replace(found, skipped={"t": "no output"}, skipped_before=["t"])
    stream = io.StringIO()
    render_comparison(found, Console(file=stream, width=300))
    assert "or before it, at what is not compared: t" in stream.getvalue()


@from_tier("ci")
def test_a_masked_fault_of_complex_numbers(monkeypatch):
    """The magnitude of a conjugate is the same; the tools name the conjugate, and the pass."""
    drop = rewriting("relax.negative", lambda call: call.args[0])
    planted_faults.plant(monkeypatch, operators=planted_faults.as_pass("Drop", drop))
    program = torch.export.export(Spectrum(), (torch.randn(2, 8),))
    found = compare(program)
    assert all(output.equal for output in found.outputs)
    assert found.first.name == "_conj"
    searched = bisect(program, over=["passes"])
    assert searched.value == "_conj"
    assert searched.culprits[0].names == ["Drop"]


@from_tier("ci")
def test_the_size_of_a_difference_is_shown(monkeypatch):
    planted_faults.plant(monkeypatch, schedules=large_rows_swapped)
    found = compare(model(rows="n"))
    stream = io.StringIO()
    render_comparison(found, Console(file=stream, width=200))
    assert found.sizes == {"n": 7}
    assert re.search(r"first difference +Sub d *\n +\d+ of \d+ .*, with n=7", stream.getvalue())


def plant_failure_of_the_whole_model(monkeypatch):
    attempt = layers._Comparing._try
    is_first = iter([True])

    def limited(self, part, *further):
        return "too many kernels" if next(is_first, False) else attempt(self, part, *further)

    monkeypatch.setattr(layers._Comparing, "_try", limited)


def test_a_failure_of_only_the_whole_model_is_an_error(monkeypatch):
    plant_failure_of_the_whole_model(monkeypatch)
    with pytest.raises(CompileError, match="too many kernels"):
        compare(network())


def test_the_failure_of_the_whole_model_is_kept_if_a_value_differs(monkeypatch, capsys):
    plant_failure_of_the_whole_model(monkeypatch)
    plant(monkeypatch, rewriting("relax.tanh", lambda call: relax.op.sin(call.args[0])))
    found = compare(network())
    assert not found.equal and found.failure is None and found.outputs == []
    assert (found.problem, found.first.name) == ("too many kernels", "t0")
    render_comparison(found, Console())
    shown = capsys.readouterr().out
    assert "the model fails" in shown and "too many kernels" in shown and "0 of 0" not in shown


def normed() -> onnx.ModelProto:
    """A norm of values near 50000, whose mean float32 sums cannot hold exactly."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        network (float[4, 8] x) => (float[4, 8] y) { y = LayerNormalization(x, w) }"""
    )
    ones = onnx.numpy_helper.from_array(np.ones(8, "float32"), "w")
    model.graph.initializer.append(ones)
    return model


@few(1)
@pytest.mark.parametrize(
    "kind", ["onnx", "external", "pytorch"] if is_full() else ["external", "pytorch"]
)
def test_a_result_nearer_to_the_exact_one_is_equal(kind, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = (50_000 + rng.standard_normal((4, 8))).astype("float32")
    if kind == "pytorch":
        model = (nn.LayerNorm(8).eval(), (torch.zeros(4, 8),))  # its input is named `input`
        found = compare(model, inputs={"input": x})
    else:
        path = tmp_path / "model.onnx"
        onnx.save(normed(), path, save_as_external_data=kind == "external", size_threshold=0)
        monkeypatch.setattr(external, "_MAX_LOADED_ELEMENTS", 0)  # map all
        found = compare(path, inputs={"x": x})
    (value,) = found.values
    assert found.equal and value.result.max_rel_error > 1e-4
    assert value.result.reason == ROUNDING
    assert value.result.max_abs_error < 2 * value.result.rounding_error


@from_tier("ci")
def test_rounding_to_float16_after_each_node_is_no_fault(monkeypatch):
    """ONNX Runtime keeps float32 from the sum to the difference, which cancels it."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        chain (float16[32, 32] x) => (float16[32, 32] y) {
            a = Mul(x, scale) b = Add(a, shift) d = Sub(b, shift) y = Tanh(d)
        }"""
    )
    for name, value in (("scale", 1.7), ("shift", 300)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float16(value), name))
    found = compare(model)
    assert found.accepted and found.first is None
    assert found.values[2].result.rounds == OURS and found.values[2].result.max_abs_error > 0.05
    plant(monkeypatch, rewriting("relax.tanh", lambda call: call.args[0]))
    assert compare(model).first.node.operator == "Tanh"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return self.norm(scores.softmax(-1) @ x)


@from_tier("ci")
def test_pytorch_nodes_have_the_operators_of_the_original_program(monkeypatch):
    def swapped(call):
        return relax.op.nn.softmax(call.args[0], axis=-2)

    module = torch.export.export(Attention().eval(), (torch.randn(1, 4, 8),))
    found = compare(module)
    assert found.equal
    operators = [value.node.operator for value in found.values]
    assert "aten.layer_norm.default" in operators and "aten.native_layer_norm" not in operators
    plant(monkeypatch, rewriting("relax.nn.softmax", swapped))
    found = compare(module)
    assert found.first.node.operator == "aten.softmax.int"
    assert found.values[-1].node.path == "norm"
    if is_full():
        plant(monkeypatch, rewriting("relax.nn.layer_norm", lambda call: call.args[0]))
        assert compare(module).first.node.path == "norm"


def test_values_are_compared_in_groups_of_limited_size(monkeypatch):
    sizes = []
    attempt = layers._Comparing._try

    def counting(self, part, *further):
        sizes.append(len(part.output_names))
        return attempt(self, part, *further)

    monkeypatch.setattr(layers._Comparing, "_try", counting)
    value = 4 * 8 * 4
    found = compare(network(), max_bytes=4 * value)
    assert sizes == [1, 4, 2]
    assert found.equal and len(found.values) == 6


def test_a_reference_that_is_off_is_not_equal(monkeypatch):
    exact = Reference.outputs
    monkeypatch.setattr(
        Reference, "outputs", lambda self: [value * np.float32(1.01) for value in exact(self)]
    )
    found = compare(network())
    assert found.accepted and not found.equal and found.first is None
    assert found.reference_off == found.values and not found.is_hidden
    for value in found.values:
        assert value.result.reason == FLOAT64
        assert value.result.float64_error < value.result.reference_float64_error / 100
    if is_full():
        monkeypatch.setattr(OnnxSource, "float64_outputs", lambda self, inputs: None)
        assert compare(network()).first.name == "m0"


@from_tier("ci")
def test_inputs_are_saved_and_read(tmp_path):
    path = tmp_path / "inputs.npz"
    first = compare(network(), save_inputs=path, seed=7)
    with np.load(path) as file:
        assert file["x"].shape == (4, 8)
        scaled = {"x": 1e3 * file["x"]}
    again = compare(network(), inputs=path)
    assert again == replace(first, further=[]) and len(first.further) == len(MAGNITUDES)
    if is_full():
        assert compare(network(), inputs=scaled).to_dict() != first.to_dict()


@pytest.mark.parametrize(
    "inputs, problem",
    [
        ({}, "expected the inputs x"),
        ({"z": np.zeros((4, 8), "float32")}, "got z"),
        ({"x": np.zeros((4, 9), "float32")}, r"expected float32 \(4, 8\)"),
        ({"x": np.zeros((4, 8))}, "got float64"),
        ("missing.npz", "no such file"),
        (__file__, "not a readable .npz file"),
    ],
)
def test_inputs_that_do_not_fit_are_rejected(inputs, problem):
    with pytest.raises(UsageError, match=problem):
        compare(network(), inputs=inputs)


def test_a_module_without_reference_is_rejected():
    block = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with block.function("main", [x]):
        block.emit_func_output(block.emit(relax.op.add(x, x)))
    with pytest.raises(UsageError, match="reference"):
        compare(block.get())


@from_tier("ci")
def test_plain_tvm_is_compared_in_its_own_process():
    model = network('r = Reshape(a1, shape) i = Resize<mode = "linear">(r, , scales) y = Relu(i)')
    for name, values in (("shape", np.array([1, 1, 4, 8])), ("scales", np.float32([1, 1, 1, 0.6]))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    found = compare(model, stock=True)
    assert found.equal and not found.stock_problems
    assert found.first_stock.node.operator == "Resize"
    assert not found.stock_outputs[0].equal


def test_the_reason_is_given_if_plain_tvm_does_not_run(monkeypatch):
    monkeypatch.setattr(layers, "run_stock", lambda part, inputs: "Det is not supported")
    found = compare(network(), stock=True)
    assert found.equal
    assert found.stock_problems == ["Det is not supported"]
    assert found.stock_outputs == [] and found.first_stock is None


def test_the_reason_is_not_a_warning_after_the_error(monkeypatch):
    """TVM's builder warns when the error destroys it."""
    warning = "[11:26:46] /src/relax/ir/block_builder.cc:67: Warning: destroyed with blocks!"
    errors = f"Traceback (most recent call last):\nNotImplementedError: no Det\n{warning}\n"

    def run(command, **_):
        return subprocess.CompletedProcess(command, 1, "", errors)

    monkeypatch.setattr(stock.subprocess, "run", run)
    model = network()
    source = open_source(model)
    inputs = source.example_inputs(np.random.default_rng(0))
    assert stock.run_stock(source, inputs) == "NotImplementedError: no Det"


def test_json(plain):
    document = json.loads(plain.to_json())
    assert document["equal"] is True and document["first"] is None
    assert document["values"][0]["node"] == {"name": "/net/m0", "operator": "MatMul", "path": ""}


if __name__ == "__main__":
    tvm.testing.main()
