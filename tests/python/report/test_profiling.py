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
"""tvm_fixes.debug.profile: times of kernels, with the nodes that they compute."""

import json
import statistics
from dataclasses import replace
from io import StringIO
from itertools import pairwise

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import parser
from rich.console import Console

import tvm_fixes
from helpers.architectures import ARCHITECTURES
from helpers.grids import is_full, sample
from helpers.onnx_graphs import branches
from tvm_fixes.debug import profile
from tvm_fixes.errors import ArtifactError, UsageError
from tvm_fixes.relax.source_nodes import SourceNode
from tvm_fixes.report.events import Recorder, own_times
from tvm_fixes.report.profiling import KernelTime, Limits, Profile
from tvm_fixes_cli.console import render_profile


def network(rows: str = "64") -> onnx.ModelProto:
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        network (float[{rows}, 256] x) => (float[{rows}, 256] y) {{
            m = MatMul(x, w)
            t = Tanh(m)
            n = MatMul(t, w)
            y = Softmax(n)
        }}"""
    )
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype("float32")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


@pytest.fixture(scope="module")
def compiled():
    return tvm_fixes.compile(network(), compare=False)


def test_kernels_have_times_nodes_bytes_and_operations(compiled):
    found = profile(compiled, seconds=0.2)
    assert found.is_exact and found.attributed == 1 and found.runs >= 3
    assert [kernel.call for kernel in found.kernels] == list(range(len(found.kernels)))
    products = [k for k in found.kernels if any(n.operator == "MatMul" for n in k.nodes)]
    assert {node.name for kernel in products for node in kernel.nodes} >= {"m", "n"}
    flops = 2 * 64 * 256 * 256
    assert all(kernel.flops >= flops for kernel in products)
    assert all(kernel.nbytes >= 4 * (2 * 64 * 256 + 256 * 256) for kernel in products)
    assert 0 < found.kernel_seconds <= 2 * found.run_seconds
    assert found.reference is None and found.no_reference == "the original model is not given"
    assert found.slowest[0].seconds == max(kernel.seconds for kernel in found.kernels)
    assert found.limits.flops > 1e8 and found.limits.bandwidth > 1e8


def test_the_instrument_is_removed(compiled):
    calls = []
    with pytest.raises(ZeroDivisionError), compiled.instrumented(lambda *args: calls.append(args)):
        raise ZeroDivisionError
    compiled.run(np.zeros((64, 256), "float32"))
    assert calls == []
    recorder = Recorder()
    with compiled.instrumented(recorder.time):
        compiled.run(np.zeros((64, 256), "float32"))
    assert len(recorder.take()) >= 2 * 4, "each call begins and ends"
    compiled.run(np.zeros((64, 256), "float32"))
    assert recorder.take() == []


def test_an_artifact_and_its_inputs(compiled, tmp_path):
    compiled.save(tmp_path / "out")
    found = profile(tmp_path / "out", seconds=0, inputs={"x": np.ones((64, 256), "float32")})
    assert found.attributed == 1
    with pytest.raises(UsageError, match="expected the inputs x"):
        profile(tmp_path / "out", inputs={"z": np.ones((64, 256), "float32")})
    with pytest.raises(ArtifactError):
        profile(tmp_path)


def test_symbolic_dims_need_a_size():
    model = tvm_fixes.compile(network("rows"), compare=False)
    with pytest.raises(UsageError, match="give the size of its dims"):
        profile(model)
    found = profile(model, shapes={"x": (8, 256)}, seconds=0)
    assert found.attributed == 1
    assert any(kernel.flops is None for kernel in found.kernels)
    wide = profile(model, shapes={"x": (16, 256)}, seconds=0)
    assert sum(k.nbytes for k in wide.kernels) > sum(k.nbytes for k in found.kernels)


def test_after_a_branch_a_kernel_has_the_nodes_of_all_its_calls():
    compiled = tvm_fixes.compile(branches(), compare=False)
    found = profile(compiled, seconds=0)
    assert not found.is_exact
    assert found.kernels and all(kernel.nodes for kernel in found.kernels)
    calls = compiled.manifest.kernels.calls
    for kernel in found.kernels:
        possible = [place for place, call in enumerate(calls) if call.kernel == kernel.kernel]
        assert kernel.call == (possible[0] if len(possible) == 1 else None)


def test_a_model_for_a_gpu_is_rejected(compiled, monkeypatch):
    monkeypatch.setitem(compiled.manifest.target, "kind", "cuda")
    with pytest.raises(UsageError, match="CPU"):
        profile(compiled)


def test_times_are_without_those_of_inner_calls():
    #        outer  inner       end      end of outer
    marks = [-1000, -2000, 2000 + 5000, 1000 + 10000]
    outer, inner = own_times([marks, marks, [-1, -2, 3, 4]])
    assert (outer, inner) == pytest.approx((5e-6, 5e-6))


def test_the_sizes_of_tensors_are_counted():
    recorder = Recorder()
    tensor = tvm.runtime.tensor(np.zeros(4, "float32"))
    for name, arguments in (("outer", ()), ("inner", (tensor, tensor, 3))):
        recorder.count(None, name, True, None, *arguments)
        recorder.count(None, name, False, None, *arguments)
    assert (recorder.names, recorder.sizes) == (["outer", "inner"], [0, 32])


def rendered(found):
    text = StringIO()
    render_profile(found, Console(file=text, width=200))
    return text.getvalue()


def test_the_source_names_each_module_once():
    nodes = tuple(SourceNode(name, f"aten.{name}", "layer.0") for name in ("mul", "add"))
    kernel = KernelTime("k", (*nodes, SourceNode("relu", "Relu")), 1e-3, 8_000_000, 4e6)
    assert kernel.source == "layer.0: aten.mul, aten.add; relu: Relu"
    found = Profile("m", 2e-3, [kernel], {"alloc_tensor": 1e-3}, 3, True, Limits(8e9, 16e9))
    assert found.share_of_limits(kernel) == pytest.approx(0.5)
    assert " 50% " in rendered(found) and ">100%" not in rendered(found)
    cached = replace(found, limits=Limits(1e9, 1e9))
    assert " >100% " in rendered(cached) and "800%" not in rendered(cached)
    assert ">100% of limit: data in the caches, or instructions faster than" in rendered(cached)
    assert found.accounted == pytest.approx(1.0)


def test_json_and_trace(compiled):
    found = profile(compiled, seconds=0)
    document = json.loads(found.to_json())
    assert document["attributed"] == 1 and len(document["kernels"]) == len(found.kernels)
    assert document["kernels"][0]["nodes"][0]["operator"] == "MatMul"
    trace = json.loads(found.trace())["traceEvents"]
    assert len(trace) == len(found.kernels)
    assert sum(event["dur"] for event in trace) == pytest.approx(1e6 * found.kernel_seconds)
    assert "MatMul" in trace[0]["name"]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(trace))


MODELS = ["bert", "gpt2", "llama", "vit", "t5_encoder", "whisper_encoder", "convnext", "segformer"]
MODELS += ["mobilenet_v2", "resnet", "unet2d", "vae"]

# Their runs take about 20 µs for 150 calls, to each of which the instrument adds 0.02 µs.
TINY = ("llama", "t5_encoder")


def compiled_architecture(name):
    module, inputs = ARCHITECTURES[name].make()
    with torch.no_grad():
        return tvm_fixes.compile((module.eval(), inputs), compare=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sample(MODELS, 1, seed=5))
def test_models_of_transformers_and_diffusers(name):
    model = compiled_architecture(name)
    found = profile(model, seconds=0)
    assert found.is_exact and found.attributed >= 0.95
    if not is_full() or name in TINY:
        return  # a sum of times needs a quiet machine
    # Runs without instruments and the instrument's times are measured independently.
    accounted = [profile(model, seconds=1).accounted for _ in range(3)]
    assert statistics.median(accounted) == pytest.approx(1, abs=0.05)


if __name__ == "__main__":
    tvm.testing.main()
