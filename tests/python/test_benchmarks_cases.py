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
"""The cases of the speed benchmarks: how they are made, quantized and built."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import onnx
import pytest
import tvm.testing

pytest.importorskip("torch")

import torch

from benchmarks import decoding, layers, models
from benchmarks.builders import BUILDERS
from benchmarks.cases import CASES, GROUPS
from benchmarks.process import AVX2, Workers
from benchmarks.protocol import QUANTIZED_GROUPS, Job
from benchmarks.runtimes import RUNTIMES
from benchmarks.worker import Runner, largest_error
from tvm_fixes.target import resolve, to_json

TARGET = to_json(resolve("native"))
LINEAR = partial(layers.linear, 3, 64, 96)
QUANTIZED = ("onnx-quantized", "ours-quantized-library")


def run(
    name: str, folder, monkeypatch: pytest.MonkeyPatch, factory, *builders: str
) -> tuple[float, dict[str, dict]]:
    """Build a case with another factory; return its error, and the facts from each builder."""
    monkeypatch.setitem(CASES, name, replace(CASES[name], factory=factory))
    job = Job(name, folder, 1, TARGET)
    facts = {builder: BUILDERS[builder](job) for builder in ("data", *builders)}
    runner = Runner(RUNTIMES[builders[-1].removesuffix("-library")]())
    runner.answer(job.request())
    return runner.answer({"do": "check", "seconds": 0.001})["error"], facts


def test_cases_are_the_same_in_each_process():
    for name in ("layernorm 197x768", "ConvNeXt block 512"):
        outputs = [module(*inputs) for module, inputs in (CASES[name].make() for _ in range(2))]
        assert outputs[0].equal(outputs[1])
    assert {case.group for case in CASES.values()} == set(GROUPS)
    for case in CASES.values():
        kind = "dynamic" if "dynamic" in case.name else "static"
        if case.group != "int8":
            kind = case.name.removesuffix(" weights")[-1] if "weights" in case.name else ""
        assert case.quantization == kind
        assert bool(kind) == (case.group in QUANTIZED_GROUPS)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    # A dynamic model does not quantize its output.
    [("int8", 0.005, 0.03), ("dynamic int8", 0.001, 0.001)],
)
def test_a_quantized_case_is_built_and_run(tmp_path, monkeypatch, kind, low, high):
    pytest.importorskip("onnxruntime")
    name = f"linear 3072->768, batch 1, {kind}"
    factory = partial(layers.linear, 3, 64, 32)
    error, facts = run(name, tmp_path, monkeypatch, factory, *QUANTIZED)
    quantized, built = (facts[builder] for builder in QUANTIZED)
    assert quantized["build"] > 0
    assert low <= quantized["tolerance"] <= high
    operators = {node.op_type for node in onnx.load(tmp_path / "model-quantized.onnx").graph.node}
    assert ("MatMulInteger" in operators) == (kind == "dynamic int8")
    assert built["size"] > 0
    assert error <= quantized["tolerance"]
    # The float32 model has another output: that of the quantized model is what counts.
    expected = np.load(tmp_path / "expected.npy")
    assert 0.002 < largest_error(np.load(tmp_path / "expected-quantized.npy"), expected) < 0.1


@pytest.mark.parametrize("bits", ["4", "8"])
def test_weights_are_quantized_in_blocks(tmp_path, monkeypatch, bits):
    pytest.importorskip("onnxruntime")
    name = f"linear 768->3072, batch 4, int{bits} weights"
    error, _ = run(name, tmp_path, monkeypatch, partial(LINEAR, 1), *QUANTIZED)
    assert error < 1e-5
    operators = {node.op_type for node in onnx.load(tmp_path / "model-quantized.onnx").graph.node}
    assert "MatMulNBits" in operators and "MatMul" not in operators


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("gelu 197x3072, float16", torch.float16),
        ("linear 768->3072, batch 1, bfloat16", torch.bfloat16),
    ],
)
def test_sixteen_bits(tmp_path, monkeypatch, name, dtype):
    factory = partial(layers.in_16_bits, LINEAR, dtype)
    error, _ = run(name, tmp_path, monkeypatch, factory, "ours-library")
    assert error <= CASES[name].max_error
    module, inputs = factory()
    exact = module.float().module(*inputs)
    assert largest_error(np.load(tmp_path / "expected.npy"), exact.detach().numpy()) > 1e-4


def conv_as_model():
    """A convolution with the parameters of a model."""
    module, inputs = layers.conv(3, 8, 3, 1, 1, 10)
    return models.OneTensor(module, lambda output: output), inputs


@pytest.mark.parametrize("factory", [partial(layers.conv, 3, 8, 3, 1, 1, 10), conv_as_model])
def test_a_case_of_any_size(tmp_path, monkeypatch, factory):
    """The library takes an image whose size is not the case's."""
    name = "conv 64->64, 3x3 s1, 56x56, any size"
    error, _ = run(name, tmp_path, monkeypatch, factory, "ours-library")
    assert error < 1e-5
    library = tvm.runtime.load_module(str(tmp_path / "ours.so"))
    image = tvm.runtime.tensor(np.zeros((1, 3, 5, 7), "float32"))
    assert tvm.relax.VirtualMachine(library, tvm.cpu())["main"](image).shape == (1, 8, 5, 7)


@pytest.mark.parametrize("is_rotary", [False, True])
def test_attention_to_earlier_tokens(is_rotary):
    """A cache with the keys and values of a sequence continues it."""
    attention = decoding._Attention(16, 4, 2, is_rotary=is_rotary).eval()
    earlier, x = torch.randn(1, decoding.PAST, 16), torch.randn(1, 1, 16)
    keys, values = (
        part(earlier).reshape(1, decoding.PAST, 2, 4).transpose(1, 2)
        for part in (attention.key, attention.value)
    )
    got = attention(x, keys, values)
    query, key, value = (
        part(x).reshape(1, 1, -1, 4).transpose(1, 2)
        for part in (attention.query, attention.key, attention.value)
    )
    query, key = attention._rotated(query), attention._rotated(key)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, torch.cat((keys, key), 2), torch.cat((values, value), 2), enable_gqa=True
    )
    expected = attention.project(expected.transpose(1, 2).reshape(1, 1, 16))
    torch.testing.assert_close(got, expected)


def test_workers_have_their_environment(tmp_path):
    program = """
import json, os
input()
print(json.dumps({"isa": os.environ["ATEN_CPU_CAPABILITY"]}))
"""
    with Workers(tmp_path, lambda *_: [sys.executable, "-c", program], AVX2) as workers:
        assert workers.get("eager", [0]).ask({}, 30) == {"isa": "avx2"}


if __name__ == "__main__":
    tvm.testing.main()
