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
"""The verdict of one architecture in one form."""

import io
import itertools
from collections.abc import Sequence
from enum import StrEnum

import onnx
import onnxruntime
import torch
import tvm
from torch import nn
from tvm import relax

from examples._random import seeded
from helpers import linking
from helpers.relax_modules import UNOPTIMIZED_CPU
from helpers.shape_models import Form
from tests.fuzz.torch_ways import Way, imported, traced
from tvm_fixes.errors import summarize
from tvm_fixes.frontend.onnx import from_onnx

from .entry import Entry

WAYS = {Form.NOT_DECOMPOSED: Way.NOT_DECOMPOSED, Form.TRACED: Way.TRACED}
"""The ways from PyTorch other than the usual one."""


class Verdict(StrEnum):
    """The verdict on a case."""

    RIGHT = "right"
    REJECTED = "rejected"
    """The importer rejected it; the message says why."""
    NOT_EXPORTED = "not exported"
    """PyTorch cannot export or trace it, or ONNX Runtime differs from PyTorch."""


Tensors = tuple[torch.Tensor, ...]


def judge(entry: Entry, form: Form, shapes: str) -> tuple[Verdict, str]:
    """Export, import, compile and run a model twice, and compare it with PyTorch.

    Returns
    -------
    tuple of Verdict and str
        The verdict, and a message in one line unless it is right.

    Raises
    ------
    Exception
        If a program that was imported does not build or run, or if its results are wrong.
    """
    with seeded(0), torch.no_grad():
        module = perturbed(entry.make())
        sizes = entry.sizes if shapes == "dynamic" else (entry.sizes[0],) * 2
        inputs = [tuple(entry.inputs.make(*size).values()) for size in sizes]
        expected = [module(values) for values in inputs]
    assert all(len(values) > 0 for values in expected), "a model without results"
    try:
        model = exported(module, inputs[0], entry, form, shapes == "dynamic")
        trace = traced(Unpacked(module), len(inputs[0])) if form is Form.TRACED else None
        if isinstance(model, onnx.ModelProto):
            # The exporter may fix a length that the file declares as dynamic.
            for given, wanted in zip(inputs, expected, strict=True):
                check(by_onnxruntime(model, given), wanted)
    except Exception as error:
        return Verdict.NOT_EXPORTED, summarize(error)
    try:
        if isinstance(model, onnx.ModelProto):
            mod = from_onnx(model)
        else:
            mod = imported(WAYS.get(form, Way.EXPORTED), model, trace)
    except Exception as error:
        return Verdict.REJECTED, summarize(error)
    executable = relax.build(mod, UNOPTIMIZED_CPU, relax_pipeline="tvm_fixes")
    linking.use_linker()
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for given, wanted in zip(inputs, expected, strict=True):
        result = vm["main"](*(tvm.runtime.from_dlpack(x.contiguous()) for x in given))
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        check([torch.from_dlpack(field) for field in fields], wanted)
    return Verdict.RIGHT, ""


def perturbed(module: nn.Module) -> nn.Module:
    """Add noise to biases and norms, which are zeros and ones at first."""
    for parameter in itertools.chain(module.parameters(), module.buffers()):
        if parameter.ndim == 1 and parameter.is_floating_point() and parameter.numel() > 1:
            if (parameter == parameter[0]).all():
                parameter.mul_(1 + 0.2 * torch.rand_like(parameter))
                parameter.add_(0.1 * torch.rand_like(parameter))
    return module


def exported(
    module: nn.Module, inputs: Tensors, entry: Entry, form: Form, is_dynamic: bool
) -> torch.export.ExportedProgram | onnx.ModelProto:
    """The model in `form`."""
    axes = list(entry.inputs.dynamic.values())
    if form is Form.TORCHSCRIPT:
        return by_torchscript(module, inputs, axes if is_dynamic else [])
    dims = tuple(dict.fromkeys(axis, torch.export.Dim.DYNAMIC) for axis in axes)
    with torch.no_grad():
        program = torch.export.export(
            module, (inputs,), dynamic_shapes=(dims,) if is_dynamic else None
        )
        if form is not Form.DYNAMO:
            return program
        return torch.onnx.export(program, dynamo=True, verbose=False).model_proto


class Unpacked(nn.Module):
    """A model whose inputs are arguments instead of a tuple."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> Tensors:
        return self.model(inputs)


def by_torchscript(
    module: nn.Module, inputs: Tensors, axes: Sequence[tuple[int, ...]]
) -> onnx.ModelProto:
    names = [f"x{index}" for index in range(len(inputs))]
    file = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(
            Unpacked(module),
            inputs,
            file,
            input_names=names,
            dynamic_axes={
                name: {axis: f"{name}_{axis}" if axis else "batch" for axis in each}
                for name, each in zip(names, axes, strict=False)
            },
            opset_version=17,
            dynamo=False,
        )
    return onnx.load_from_string(file.getvalue())


def by_onnxruntime(model: onnx.ModelProto, inputs: Tensors) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [value.name for value in session.get_inputs()]
    feeds = {name: x.numpy() for name, x in zip(names, inputs, strict=False)}
    return [torch.from_numpy(value) for value in session.run(None, feeds)]


def check(got: Sequence[torch.Tensor], expected: Tensors) -> None:
    """Compare results with PyTorch's.

    Raises
    ------
    AssertionError
        If they differ.
    """
    assert len(got) == len(expected), f"{len(got)} results instead of {len(expected)}"
    for index, (ours, its) in enumerate(zip(got, expected, strict=True)):
        assert ours.dtype == its.dtype, f"result {index}: {ours.dtype} instead of {its.dtype}"
        if not its.is_floating_point():
            assert torch.equal(ours, its), f"result {index}: {(ours != its).sum()} elements differ"
            continue
        finite = its[its.isfinite()]
        assert finite.numel() > 0, f"result {index} of PyTorch has no numbers"
        scale = max(1.0, finite.abs().max().item())
        torch.testing.assert_close(
            ours, its, rtol=1e-4, atol=1e-5 * scale, msg=lambda text, i=index: f"result {i}: {text}"
        )
