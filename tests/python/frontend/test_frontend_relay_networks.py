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
"""Relay networks, read from text and JSON files with a params file.

Their outputs are compared with NumPy and PyTorch.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm.testing
import tvm_ffi

import tvm_fixes
from helpers.grids import few, is_full, sample
from helpers.relay_interpreter import Interpreter
from helpers.relay_networks import NETWORKS, Network
from tvm_fixes import relay, transform
from tvm_fixes.frontend.relay import from_relay
from tvm_fixes.relax.analysis import operator_calls


@cache
def network(name: str) -> tuple[Network, relay.IRModule]:
    net, result = NETWORKS[name]()
    return net, net.module(result)


@cache
def expected(name: str) -> list[np.ndarray]:
    net, mod = network(name)
    values = net.inputs | net.params
    result = Interpreter(mod).run(*(values[var.name] for var in net.variables))
    return list(result) if isinstance(result, tuple) else [result]


@cache
def texts(name: str) -> dict[str, str]:
    mod = network(name)[1]
    return {"relay": mod.astext(), "json": relay.save_json(mod)}


# Below, both files of each network give the same program.
FILES = [(name, suffix) for name in NETWORKS for suffix in ("relay", "json")]
QUICK = [(name, ("relay", "json")[index % 2]) for index, name in enumerate(NETWORKS)]


@few(2)
@pytest.mark.parametrize(("name", "suffix"), FILES if is_full() else sample(QUICK, 4, seed=1))
def test_network(name: str, suffix: str, tmp_path: Path) -> None:
    net, mod = network(name)
    program, params = tmp_path / f"old.{suffix}", tmp_path / "old.params"
    program.write_text(texts(name)[suffix])
    params.write_bytes(relay.save_params(net.params))
    read = relay.parse if suffix == "relay" else relay.load_json
    assert tvm_ffi.structural_equal(read(program.read_text()), mod)
    model = tvm_fixes.compile(program, params=params)
    inputs = [net.inputs[spec.name] for spec in model.inputs]
    assert len(inputs) == len(net.inputs)
    result = model.run(*inputs)
    results = list(result) if isinstance(result, tuple | list) else [result]
    for actual, reference in zip(results, expected(name), strict=True):
        assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
        assert reference.std() > 0.01 * np.abs(reference).max()
        if reference.dtype.kind == "f":
            np.testing.assert_allclose(actual, reference, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(actual, reference)


@few(6)
@pytest.mark.parametrize("name", NETWORKS)
def test_json_and_text_give_the_same_program(name: str) -> None:
    written = texts(name)
    from_text, from_json = relay.parse(written["relay"]), relay.load_json(written["json"])
    assert tvm_ffi.structural_equal(from_text, from_json)
    assert tvm_ffi.structural_equal(relay.load_json(relay.save_json(from_text)), from_text)


@pytest.mark.parametrize("name", ["mobilenet_v2", "keyword_spotting"])
def test_quantized_network_multiplies_bytes(name: str) -> None:
    net, mod = network(name)
    with tvm.target.Target({"kind": "llvm", "mcpu": "icelake-server"}):
        fused = transform.FuseQuantized()(from_relay(mod, net.params))
    found = [binding.value for _, binding in operator_calls(fused)]
    products = [call for call in found if call.op.name in ("relax.nn.conv2d", "relax.matmul")]
    # No instruction multiplies single bytes, as a depthwise convolution (HWOI) does.
    depthwise = [call for call in products if call.args[1].ty.shape[-1] == 1]
    assert len(products) > len(depthwise) > 1
    for call in products:
        wanted = ("float32", "float32") if call in depthwise else ("uint8", "int8")
        assert tuple(str(arg.ty.dtype) for arg in call.args) == wanted
    # A permute would prevent blocked channels.
    assert not [call for call in found if call.op.name == "relax.permute_dims"]


def test_at_least_fifteen_networks() -> None:
    assert len(NETWORKS) >= 15


def weights(net: Network, **names: str) -> dict[str, torch.Tensor]:
    return {theirs: torch.from_numpy(net.params[ours]) for theirs, ours in names.items()}


def compare_with_pytorch(name: str, *results: Any) -> None:
    for reference, result in zip(expected(name), results, strict=True):
        np.testing.assert_allclose(reference, result.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_lstm_matches_pytorch() -> None:
    net = network("lstm")[0]
    layer = torch.nn.LSTM(6, 8)
    layer.load_state_dict(
        weights(net, weight_ih_l0="weight_ih", weight_hh_l0="weight_hh", bias_ih_l0="bias")
        | {"bias_hh_l0": torch.zeros(32)}
    )
    _, (h, c) = layer(torch.from_numpy(net.inputs["x"]))
    compare_with_pytorch("lstm", h[0], c[0])


def test_bert_matches_pytorch() -> None:
    net = network("bert")[0]
    p = {name: torch.from_numpy(value) for name, value in net.params.items()}
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, 0.0, "gelu", batch_first=True)
    parts = {
        "self_attn.in_proj_weight": torch.cat([p[f"{n}.weight"] for n in "qkv"]),
        "self_attn.in_proj_bias": torch.cat([p[f"{n}.bias"] for n in "qkv"]),
        "norm1.weight": p["ln1.gamma"] + 1,
        "norm1.bias": p["ln1.beta"],
        "norm2.weight": p["ln2.gamma"] + 1,
        "norm2.bias": p["ln2.beta"],
    }
    for theirs, ours in {"self_attn.out_proj": "o", "linear1": "up", "linear2": "down"}.items():
        parts |= {f"{theirs}.{kind}": p[f"{ours}.{kind}"] for kind in ("weight", "bias")}
    layer.load_state_dict(parts)
    x = p["word"][torch.from_numpy(net.inputs["input_ids"])] + p["position"]
    x = torch.nn.functional.layer_norm(x, [16], p["ln0.gamma"] + 1, p["ln0.beta"])
    compare_with_pytorch("bert", layer.train()(x))


def test_attention_matches_pytorch() -> None:
    net = network("attention")[0]
    q, k, v = (torch.from_numpy(net.inputs[name]) for name in "qkv")
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    gamma, beta = (torch.from_numpy(net.params[name]) for name in ("gamma", "beta"))
    compare_with_pytorch("attention", torch.nn.functional.layer_norm(y, [8], gamma, beta))


if __name__ == "__main__":
    tvm.testing.main()
