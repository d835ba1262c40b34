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
"""tvm_fixes.compile: comparison, targets, errors and cleanup."""

import ctypes
import errno
import os
import re
import resource
import shutil
import signal
import tempfile
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from onnx import TensorProto, helper
from torch import nn
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.compiling import fails
from helpers.linking import without_linker
from helpers.models import (
    FLOAT,
    INT64,
    conv_net,
    onnx_conv,
    onnx_model,
    special_functions,
)
from helpers.onnx_graphs import program as onnx_program
from helpers.relax_modules import build, integers, tensor
from tvm_fixes import target, verifier
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.compiler import steps
from tvm_fixes.compiler.progress import Run
from tvm_fixes.errors import (
    ArtifactError,
    CompileError,
    UnsupportedOperatorError,
    UsageError,
    VerifyError,
)
from tvm_fixes.relax.analysis import activation_transforms
from tvm_fixes.runtime import CompiledModel
from tvm_fixes.source import base, open_source
from tvm_fixes.source.onnx import OnnxSource
from tvm_fixes.source.torch import TorchSource


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A separate directory for temporary files."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def left_in(directory) -> list[str]:
    """The files that a compilation left behind, except PyTorch's cache."""
    return [name for name in os.listdir(directory) if name.startswith("tvm-fixes-")]


class TestComparison:
    def test_reference_that_fails(self, monkeypatch, tmp_path):
        def reject(_values):
            raise RuntimeError("no")

        monkeypatch.setattr(
            "tvm_fixes.source.torch.TorchSource.reference", lambda self: ("one", reject)
        )
        model = compile_model(conv_net(), output=tmp_path / "out")
        report = model.report
        assert report.equal is None and report.verdict == "not compared"
        assert report.comparison.startswith(
            "not compared: ConvNet: the reference fails with inputs"
        )
        assert report.not_compared.endswith("no") and (tmp_path / "out").is_dir()
        _, inputs = conv_net()
        names = [spec.name for spec in model.inputs]
        given = dict(zip(names, [value.numpy() for value in inputs], strict=True))
        message = fails(conv_net(), inputs=given)
        assert "the reference fails with inputs" in message and message.endswith("no")

    def test_inputs_that_only_the_reference_accepts(self, tmp_path):
        """Six poolings of 32 elements: ONNX Runtime makes one element of the last one."""
        pools = [
            helper.make_node("MaxPool", [f"x{i}"], [f"x{i + 1}"], kernel_shape=[2], strides=[2])
            for i in range(6)
        ]
        dims = ("n", 3, "length")
        model = onnx_model(pools, [("x0", FLOAT, dims)], [("x6", FLOAT, ("n", 3, None))])
        report = compile_model(model, output=tmp_path / "out").report
        assert report.equal and report.sizes["length"] > 32
        [warning] = [text for text in report.warnings if text.startswith("rejects inputs that")]
        assert "x0 (2, 3, 32)" in warning and "MaxPool" in warning
        given = {"x0": np.zeros((1, 3, 32), "float32")}
        with pytest.raises(Exception, match="expected at least"):
            compile_model(model, inputs=given)

    def test_not_equal(self, monkeypatch, tmp_path):
        module, inputs = conv_net()
        real = open_source((module, inputs)).reference()[1]
        monkeypatch.setattr(
            "tvm_fixes.source.torch.TorchSource.reference",
            lambda self: ("a wrong one", lambda values: [out + 1 for out in real(values)]),
        )
        monkeypatch.setattr(
            "tvm_fixes.source.torch.TorchSource._run_in_float64", lambda self, values: None
        )
        model = compile_model((module, inputs), output=tmp_path / "out")
        report = model.report
        assert report.equal is False
        assert report.outputs[0].max_abs_error == pytest.approx(1, abs=1e-4)
        assert "elements differ" in report.outputs[0].problem
        assert os.listdir(tmp_path) == []

    def test_tolerances(self):
        model = compile_model(conv_net(), rtol=0, atol=0)
        assert model.report.outputs[0].max_abs_error > 0
        assert model.report.equal is False
        assert compile_model(conv_net(), rtol=0, atol=1.0).report.equal
        for value in (-1.0, float("nan"), float("inf")):
            assert "rtol must be >= 0 and finite" in fails(conv_net(), UsageError, rtol=value)

    def test_without(self, tmp_path):
        model = compile_model(conv_net(), compare=False, output=tmp_path / "out")
        report = model.report
        assert (report.equal, report.reference, report.latency_ms) == (None, None, None)
        assert CompiledModel.load(tmp_path / "out").report == report

    def test_report(self):
        steps = []
        report = compile_model(conv_net(), layout="NHWC", progress=steps.append).report
        names = ["load", "import", "verify", "reference"]
        names += ["DynamicToStatic", "DecomposeEinsum", "BroadcastFreeMatmul", "FoldPadIntoConv"]
        names += ["TrimConvKernel"]
        names += ["FoldPermuteIntoScatter", "FuseDequantizeMatmul", "FuseQuantized"]
        names += ["Layout"]
        names += ["SplitDataflow", "CheckIndices", "Legalize", "UpdateInPlace", "verify kernels"]
        names += ["InlineElementwise", "ViewReshapes"]
        names += ["ScheduleReductions", "ScheduleElementwise", "GuardFloatCasts"]
        names += ["DecomposeReduction", "LowerElementaryFunctions"]
        names += ["MergeEqualConstants", "Lower"]
        names += ["GuardFloatArithmetic", "GuardIntegerDivision"]
        names += ["GuardIntegerOverflow", "GuardLongLoops", "GuardShapeBounds"]
        names += ["GuardSplitIndices", "HoistSelectLoads", "LowerAlignment", "KeepTilesOnStack"]
        names += ["CheckLowered"]
        names += ["build", "export", "compare"]
        assert list(report.seconds) == names
        assert [step.name for step in steps] == [name for name in names for _ in range(2)]
        assert [step.seconds is None for step in steps] == [True, False] * len(names)
        assert report.layout == "NHWC"
        assert report.artifact_bytes > report.parameter_bytes > 0
        assert report.size_ratio == report.artifact_bytes / report.parameter_bytes
        assert report.latency_ms > 0
        assert report.reference_latency_ms > 0
        assert "conv-transpose-infer-layout" in report.fixes
        assert type(report).from_dict(report.to_dict()) == report

    @pytest.mark.parametrize("layout, left", [(None, 1), ("NCHW16c", 1), ("NCHW", 0)])
    def test_transforms_are_counted_after_the_layout_is_chosen(self, layout, left):
        """The two inner permutes are removed; packed channels rearrange the input."""

        def emit(builder, x):
            kernel = relax.const(integers(16, 16, 3, 3))
            y = builder.emit(relax.op.nn.conv2d(x, kernel))
            y = builder.emit(relax.op.nn.relu(relax.op.permute_dims(y, [0, 2, 3, 1])))
            return relax.op.nn.conv2d(relax.op.permute_dims(y, [0, 3, 1, 2]), kernel)

        mod = build({"x": tensor(1, 16, 8, 8)}, emit)
        assert len(activation_transforms(mod)) == 2
        avx512 = {"kind": "llvm", "mcpu": "skylake-avx512", "mtriple": "x86_64-linux-gnu"}
        report = compile_model(mod, target=avx512, layout=layout, compare=False).report
        assert report.activation_transforms == left

    def test_what_the_importer_warns_of(self):
        model = onnx_model(
            [helper.make_node("Relu", ["1x"], ["y"])], [("1x", 1, [2])], [("y", 1, [2])]
        )
        report = compile_model(model).report
        assert any("Renaming name 1x" in warning for warning in report.warnings)
        assert compile_model(model).inputs[0].name == "1x"

    def test_a_fix_that_is_switched_off_takes_no_part(self, monkeypatch):
        assert "conv-transpose-legalize" in compile_model(conv_net()).report.fixes
        monkeypatch.setenv("TVM_FIXES_DISABLE", "conv-transpose-legalize")
        report = compile_model(conv_net()).report
        assert report.equal
        assert "conv-transpose-legalize" not in report.fixes

    def test_wrong_use_is_known_before_the_work(self, monkeypatch):
        steps = []
        message = fails(conv_net(), UsageError, seed=-1, progress=steps.append)
        assert message == "seed must be >= 0, got -1"
        monkeypatch.setenv("TVM_FIXES_DISABLE", "nonsense")
        message = fails("no.onnx", UsageError, progress=steps.append)
        assert "unknown fix 'nonsense'; known fixes: " in message
        assert {step.name for step in steps} == {"load"}


class TestVerify:
    @staticmethod
    def module(is_right: bool) -> tvm.IRModule:
        """y is bound to x, or to a weight of another length."""
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                y = builder.emit(relax.op.nn.relu(x), "y")
                z = builder.emit_output(relax.op.add(y, x))
            builder.emit_func_output(z)
        if is_right:
            return builder.get()
        return wrong(builder.get())

    @staticmethod
    def passes(monkeypatch) -> None:
        """Make one of the passes of Legalize break the module."""
        broken = tvm.transform.module_pass(lambda mod, _: wrong(mod), opt_level=0, name="Broken")
        real = steps.stages

        def stages(**options):
            lowering = real(**options)
            stage = tvm.transform.Sequential([broken], name="Layout")
            return replace(lowering, operators=(stage, *lowering.operators))

        monkeypatch.setattr(steps, "stages", stages)

    def test_the_import_is_wrong(self):
        with pytest.raises(VerifyError) as caught:
            compile_model(self.module(False), compare=False)
        assert caught.value.stage == "verify"
        assert caught.value.message.startswith("error[type.binding]: main: `y` cannot hold its")

    @pytest.mark.parametrize("how", ["argument", "switch"])
    def test_switched_off(self, monkeypatch, how):
        """Without the verifier, the module builds as usual."""
        options = {"verify": False} if how == "argument" else {}
        if how == "switch":
            monkeypatch.setenv("TVM_FIXES_DISABLE", "verifier")
        called = []
        monkeypatch.setattr(verifier, "verify", called.append)
        report = compile_model(self.module(True), compare=False, **options).report
        assert called == [] and report.unproved is None
        assert ("verify" in report.seconds) == (how == "switch")

    def test_warnings_are_counted(self):
        n = tvm.tirx.Var("n", "int64")
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((n,), "float32"))
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
        mod = builder.get()
        assert compile_model(mod, compare=False).report.unproved == 0
        main = mod["main"]
        stated = relax.Function([x], main.body, relax.TensorType((4,), "float32"))
        mod[mod.get_global_var("main")] = stated.with_attr("global_symbol", "main")
        assert compile_model(mod, compare=False).report.unproved > 0

    def test_each_pass(self, monkeypatch):
        self.passes(monkeypatch)
        with pytest.raises(VerifyError) as caught:
            compile_model(self.module(True), compare=False, verify_each=True)
        assert caught.value.stage == "Layout"
        assert "introduced by the pass Broken" in caught.value.message
        assert tvm.transform.PassContext.current().instruments == []

    def test_each_pass_of_a_model_is_right(self):
        model = compile_model(conv_net(), layout="NHWC", compare=False, verify_each=True)
        assert model.report.unproved == 0

    def test_the_instruments_of_the_caller_are_kept(self):
        seen = []

        @tvm.ir.instrument.pass_instrument
        class Names:
            def run_before_pass(self, mod, info):
                seen.append(info.name)

        with tvm.transform.PassContext(opt_level=3, instruments=[Names()]):
            compile_model(self.module(True), compare=False, verify_each=True)
        assert "LegalizeOps" in seen


def wrong(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with y bound to a value of five elements."""
    function = mod["main"]
    block = function.body.blocks[0]
    five = relax.const(np.zeros(5, "float32"))
    bindings = [relax.VarBinding(block.bindings[0].var, five), *block.bindings[1:]]
    body = relax.BlockBuilder().normalize(
        relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body)
    )
    broken = relax.Function(function.params, body, function.ret_ty)
    result = mod.clone()
    result[mod.get_global_var("main")] = broken.with_attr("global_symbol", "main")
    return result


class TestTarget:
    def test_wrong_target(self):
        message = fails(conv_net(), UsageError, target={"kind": "llvm", "mcpu": "zork"})
        assert "LLVM does not know mcpu 'zork' for" in message

    def test_another_machine(self, monkeypatch, tmp_path):
        """Its code cannot be run for comparison, and a cross compiler links it."""
        other = "aarch64" if target.triple_of(target.native()).startswith("x86_64") else "x86_64"
        foreign = {"kind": "llvm", "mtriple": f"{other}-linux-gnu"}
        message = fails(conv_net(), UsageError, target=foreign)
        assert f"it is for {other}, but this machine is" in message
        assert message.endswith("; pass compare=False (--no-compare)")
        with monkeypatch.context() as bare:
            bare.setenv("PATH", "/nonexistent")
            message = fails(conv_net(), target=foreign, compare=False)
        assert message.startswith(f"no compiler links for {other}-linux-gnu: ")
        linker = tmp_path / "linker"
        linker.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; cp "$3" "$2"\n')
        linker.chmod(0o755)
        monkeypatch.setenv("CXX", str(linker))
        model = compile_model(conv_net(), target=foreign, compare=False, output=tmp_path / "out")
        with pytest.raises(ArtifactError, match=f"cannot run here: it is for {other}"):
            model.run(np.zeros((1, 3, 8, 8), "float32"))
        with pytest.raises(ArtifactError, match=f"cannot run here: it is for {other}"):
            CompiledModel.load(tmp_path / "out")


class TestUnsupported:
    def test_onnx_operator(self):
        model = onnx_model(
            [
                helper.make_node("Relu", ["x"], ["a"]),
                helper.make_node("RegexFullMatch", ["a"], ["y"], name="d0"),
            ],
            [("x", 1, [2, 2])],
            [("y", 1, [])],
        )
        message = fails(model, UnsupportedOperatorError)
        assert message == "graph: unsupported operator RegexFullMatch at node 'd0'"

    def test_onnx_input_of_4_bits(self):
        node = helper.make_node("Cast", ["x"], ["y"], to=1)
        int4 = TensorProto.INT4
        message = fails(
            onnx_model([node], [("x", int4, [2])], [("y", 1, [2])], opset=21),
            UnsupportedOperatorError,
        )
        assert "input 'x'" in message
        assert "tensors of int4 are not supported; from_onnx imports them" in message

    def test_onnx_operator_without_a_name_of_another_domain(self):
        node = helper.make_node("Frob", ["x"], ["y"], domain="my.domain")
        model = onnx_model([node], [("x", 1, [2])], [("y", 1, [2])])
        message = fails(model, UnsupportedOperatorError)
        assert message.endswith("unsupported operator my.domain.Frob at the node with output 'y'")

    def test_onnx_attribute_or_input(self, capfd):
        node = helper.make_node("Pad", ["x", "pads"], ["y"], name="pad0", mode="mirror")
        model = onnx_model([node], [("x", 1, [4]), ("pads", INT64, [2])], [("y", 1, ["m"])])
        message = fails(model, UnsupportedOperatorError)
        assert message.startswith("graph: cannot import Pad at node 'pad0': ")
        assert capfd.readouterr().out == ""

    def test_onnx_input_that_is_not_a_tensor(self):
        model = onnx_conv()
        sequence = helper.make_tensor_sequence_value_info("s", FLOAT, [1])
        model.graph.input.append(sequence)
        message = fails(model, UnsupportedOperatorError)
        assert message == "input 's' of graph: expected a tensor, got sequence"

    def test_torch_operator(self):
        message = fails(special_functions(), UnsupportedOperatorError)
        assert "unsupported operator aten.igamma.default at node 'igamma' (File " in message
        assert "aten.special_airy_ai.default at node 'special_airy_ai'" in message
        assert "torch.special.airy_ai(torch.igamma(x, x))" in message

    def test_torch_dtype(self):
        module = nn.Identity().eval()
        message = fails((module, (torch.ones(2, dtype=torch.complex64),)), UnsupportedOperatorError)
        assert "at node 'input'" in message
        assert "complex64" in message

    def test_ill_formed_module(self):
        @I.ir_module(check_well_formed=False)
        class Module:
            @R.function
            def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                with R.dataflow():
                    y = R.exp(x)
                    R.output(y)
                return y

        var = tvm.relax.Var("unbound", tvm.relax.TensorType((2,), "float32"))
        function = Module["main"]
        body = tvm.relax.SeqExpr(function.body.blocks, var)
        Module["main"] = tvm.relax.Function(function.params, body, function.ret_ty)
        with pytest.raises(CompileError, match="unbound") as error:
            compile_model(Module, compare=False)
        assert error.value.stage == "verify"


class TestNothingHalfWritten:
    def test_full_disk(self, tmp_path, temporary):
        """LLVM exits the process if it cannot write an object file."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            with without_linker():
                message = fails(conv_net(), output=tmp_path / "out")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert message.startswith("cannot write the library: LLVM ERROR: IO failure")
        assert not (tmp_path / "out").exists()
        assert left_in(temporary) == []

    def test_full_disk_is_said(self, monkeypatch, tmp_path):
        compiler = tmp_path / "c++"
        compiler.write_text("#!/bin/sh\nexit 1\n")
        compiler.chmod(0o755)
        usage = shutil.disk_usage(".")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
        monkeypatch.setenv("CXX", str(compiler))
        message = fails(conv_net())
        assert str(compiler) in message
        assert "no space left in" in message

    def test_full_disk_while_saving(self, tmp_path, temporary, monkeypatch):
        def fail(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(shutil, "copyfile", fail)
        message = fails(conv_net(), ArtifactError, output=tmp_path / "out")
        assert message == f"{tmp_path / 'out'}: cannot write: No space left on device"
        assert os.listdir(tmp_path) == ["temporary"]

    def test_wrong_destination_is_known_before_the_work(self, tmp_path):
        (tmp_path / "notes.txt").touch()
        with pytest.raises(UsageError, match="contains files that are not an artifact") as error:
            compile_model(conv_net(), output=tmp_path)
        assert error.value.stage == "load"

    def test_no_compiler(self, monkeypatch):
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("PATH", "/nonexistent")
        assert fails(conv_net()).startswith("no compiler links for ")

    def test_a_linker_that_does_not_run(self, tmp_path, monkeypatch):
        steps = []
        for name in ("nothing", "notes.txt"):
            (tmp_path / "notes.txt").touch()
            monkeypatch.setenv("CXX", str(tmp_path / name))
            assert "to link the library: " in fails(conv_net(), progress=steps.append)
        assert {step.name for step in steps} == {"load"}

    def test_a_linker_for_another_cpu(self, tmp_path, monkeypatch):
        steps = []
        compiler = tmp_path / "c++"
        compiler.write_text("#!/bin/sh\necho aarch64-linux-gnu\n")
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))
        message = fails(conv_net(), progress=steps.append)
        assert re.match(r".*/c\+\+ links for aarch64-linux-gnu and cannot link for x86_64", message)
        assert {step.name for step in steps} == {"load"}

    @pytest.mark.parametrize("at", ["import", "Legalize", "export", "compare"])
    def test_interrupt_between_steps(self, tmp_path, temporary, at):
        def interrupt(step):
            if step.name == at and step.seconds is None:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            compile_model(conv_net(), output=tmp_path / "out", progress=interrupt)
        assert os.listdir(tmp_path) == ["temporary"]
        assert left_in(temporary) == []

    def test_interrupt_below_native_code(self, temporary):
        @tvm.ir.instrument.pass_instrument
        class Interrupt:
            def run_before_pass(self, _mod, info):
                if info.name == "FuseOps":
                    signal.raise_signal(signal.SIGINT)

        context = tvm.transform.PassContext(instruments=[Interrupt()])
        with pytest.raises(KeyboardInterrupt), context:
            compile_model(conv_net())
        assert left_in(temporary) == []

    def test_a_model_without_operators(self, temporary):
        model = compile_model(conv_net(), compare=False)
        assert len(left_in(temporary)) == 1
        del model
        assert left_in(temporary) == []


class Cancelling(torch.nn.Module):
    """A normalization of nearly equal large numbers, which loses digits in float32."""

    def __init__(self, subtracted=1e5):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.subtracted = subtracted

    def forward(self, x):
        y = (self.linear(x) + 1e5).to(torch.float32)
        y = torch.nn.functional.layer_norm(y - self.subtracted, (64,))
        return y + torch.zeros(64, dtype=torch.float32)


def test_pytorch_in_float64():
    """Including float32 casts and constants in the program."""
    torch.manual_seed(0)
    x = torch.randn(4, 64)
    model = Cancelling().eval()
    program = torch.export.export(model, (x,))
    source = TorchSource(program, "m")
    inputs = [x.numpy()]
    [exact] = source.float64_outputs(inputs)
    assert exact.dtype == np.float64
    far = model.linear.double()(x.double()) + 1e5 - 1e5
    expected = torch.nn.functional.layer_norm(far, (64,)).detach().numpy()
    np.testing.assert_allclose(exact, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("static", [False, True])
def test_an_extent_of_zero_is_compared(static):
    model = onnx_program({"y": ("Relu", ["x"])}, {"x": ("float32", ("n", 3))})
    shapes = {"x": (0, 3)}
    assert compile_model(model, shapes=shapes, static=static).report.outputs[0].shape == [0, 3]
    module = nn.Softmax(1).eval()
    report = compile_model((module, (torch.ones(3, 0),)), static=static).report
    assert report.equal and report.outputs[0].shape == [3, 0]


@pytest.mark.parametrize("seed", range(3))
def test_rounding_in_front_of_a_normalization_is_accepted(seed):
    """PyTorch is further from float64 than our result, though not in every element."""
    torch.manual_seed(seed)
    module = Cancelling(subtracted=0.0).eval()
    report = compile_model((module, (torch.randn(4, 64),))).report
    assert report.accepted
    [output] = report.outputs
    assert 1e-3 < output.float64_error < output.reference_float64_error


def onnx_cancelling():
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")
    nodes = {
        "h": ("MatMul", ["x", "w"]),
        "far": ("Add", ["h", "c"]),
        "cast": ("Cast", ["far"], {"to": 1}),
        "y": ("Sub", ["cast", "c"]),
    }
    constants = {"w": weight, "c": np.array(1e5, "float32")}
    return weight, onnx_program(nodes, {"x": ("float32", (2, 8))}, constants)


def test_onnx_in_float64():
    weight, model = onnx_cancelling()
    x = np.random.default_rng(1).standard_normal((2, 8)).astype("float32")
    [exact] = OnnxSource(model, "m").float64_outputs([x])
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, x.astype("float64") @ weight.astype("float64"), atol=1e-9)


@pytest.mark.parametrize("end", ["crash", "time"])
def test_float64_in_a_child(monkeypatch, end):
    """A crash or a hang gives no verdict."""

    def run(self, values):
        return ctypes.string_at(0) if end == "crash" else threading.Event().wait()

    monkeypatch.setattr(OnnxSource, "_run_in_float64", run)
    monkeypatch.setattr(base, "_MAX_FLOAT64_SECONDS", 0.2 if end == "time" else 60)
    source = OnnxSource(onnx_cancelling()[1], "m")
    assert source.float64_outputs([np.zeros((2, 8), "float32")]) is None


def test_a_result_that_is_closer_than_the_reference_is_accepted(monkeypatch):
    """The reference loses digits here; a wrong result is still rejected."""
    _, model = onnx_cancelling()
    right = OnnxSource.reference

    def off(self):
        name, run = right(self)
        return name, lambda inputs: [out + np.float32(0.1) for out in run(inputs)]

    monkeypatch.setattr(OnnxSource, "reference", off)
    report = compile_model(model).report
    assert report.accepted
    [output] = report.outputs
    assert output.float64_error < 0.05 < output.reference_float64_error
    run = CompiledModel.run
    monkeypatch.setattr(CompiledModel, "run", lambda self, *args: run(self, *args) + np.float32(1))
    report = compile_model(model).report
    assert not report.accepted
    assert report.outputs[0].float64_error > 0.5


@pytest.mark.parametrize("error", (MemoryError(), RuntimeError("std::bad_alloc")))
def test_a_step_that_exhausts_memory(error):
    with pytest.raises(CompileError, match=r"^out of memory; smaller extents") as raised:
        with Run(None).step("Build"):
            raise error
    assert raised.value.stage == "Build"


if __name__ == "__main__":
    tvm.testing.main()
