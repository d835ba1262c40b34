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
"""Decoding steps of PyTorch's ONNX exporter: growing caches, and static ones updated in place."""

import numpy as np
import onnxruntime
import pytest
import torch
import tvm.testing
from torch import nn
from torch.export import Dim

from helpers.grids import is_full, sample
from helpers.relax_modules import cpu
from tvm_fixes.compiler import compile as compile_model

pytest.importorskip("transformers")

from transformers.cache_utils import DynamicCache

from examples import generate
from examples.export import only_errors

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

CAPACITY = 24
ONE_LAYER = {"gpt2": {"n_layer": 1}, "llama": {"num_hidden_layers": 1}}
CASES = [(name, kind) for name in ONE_LAYER for kind in ("growing", "static")]


class Growing(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, cache):
        past = DynamicCache(list(zip(cache[::2], cache[1::2], strict=True)))
        logits = self.model(input_ids=ids, past_key_values=past).logits[:, -1]
        return logits, *(t for layer in past.layers for t in (layer.keys, layer.values))


class Static(nn.Module):
    """Returns the cache, since an ONNX model cannot write to its inputs."""

    def __init__(self, model):
        super().__init__()
        self.step = generate.Step(model)

    def forward(self, ids, position, cache):
        cache = [tensor.clone() for tensor in cache]
        return self.step(ids, position, cache, ()), *cache


def exported(module, arguments, dynamic, inputs, outputs):
    with torch.no_grad(), only_errors():
        program = torch.onnx.export(
            module,
            arguments,
            dynamic_shapes=dynamic,
            dynamo=True,
            input_names=inputs,
            output_names=["logits", *outputs],
            verbose=False,
        )
    return program.model_proto


@pytest.mark.parametrize("name, kind", sample(CASES, 1, seed=3))
@torch.no_grad()
def test_steps(name, kind):
    model = generate.make(name, **({} if is_full() else ONE_LAYER[name]))
    empty = generate.empty_cache(model, 1, CAPACITY)
    old = [f"past_{index}" for index in range(len(empty))]
    new = [f"present_{index}" for index in range(len(empty))]
    ids = torch.ones(1, 3, dtype=torch.int64)
    is_static = kind == "static"
    names = ["ids", *(["position"] if is_static else []), *old]
    if is_static:
        cache, axes = empty, [{}] * len(empty)
        arguments = (ids, torch.tensor(0), cache)
        dynamic = ({1: Dim.DYNAMIC}, None, axes)
    else:
        cache, axes = [tensor[:, :, :5] for tensor in empty], [{2: Dim.DYNAMIC}] * len(empty)
        arguments, dynamic = (ids, cache), ({1: Dim.DYNAMIC}, axes)
    module = Static(model) if is_static else Growing(model)
    proto = exported(module, arguments, dynamic, names, new)
    updates = dict(zip(old, new, strict=True)) if is_static else None
    compiled = compile_model(proto, target=cpu(), compare=False, updated_inputs=updates)
    assert ("update-in-place" in compiled.report.fixes) == is_static
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    ours = [t if is_static else t[:, :, :0].numpy() for t in empty]
    theirs = [tensor.numpy() for tensor in ours] if is_static else ours
    places = [tensor.data_ptr() for tensor in ours] if is_static else None
    position = 0
    for length in (4, 1, 3, 1):
        ids = np.random.default_rng(position).integers(0, 96, (1, length))
        extra = [np.array(position)] if is_static else []
        got, *ours = compiled.run(ids, *extra, *ours)
        inputs = dict(zip(names, [ids, *extra, *theirs], strict=True))
        expected, *theirs = session.run(None, inputs)
        for one, other in zip([got, *ours], [expected, *theirs], strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-4, atol=1e-4)
        position += length
    if is_static:
        assert [tensor.data_ptr() for tensor in ours] == places
    else:
        assert ours[0].shape[2] == position


if __name__ == "__main__":
    tvm.testing.main()
