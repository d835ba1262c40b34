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
"""``generate`` of transformers with a static cache under ``torch.compile``, against PyTorch."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
import tvm.testing

from helpers.grids import few, is_full
from helpers.torch_partitions import made
from tvm_fixes.torch.partition import Partition

pytest.importorskip("transformers")

import transformers

from examples import generate as example

__all__ = ["made"]

pytestmark = pytest.mark.filterwarnings("ignore")

COUNT = 12
# Below the full tier, models of one layer: a full cache, and one of a sliding window.
QUICK: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 1},
    "mistral": {"num_hidden_layers": 1},
}
NAMES = list(example.MODELS) if is_full() else list(QUICK)


@pytest.fixture(autouse=True)
def without_graphs() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def generate(model: Any, prompt: torch.Tensor, inputs: torch.Tensor, **options: Any) -> list[int]:
    return example.expected(model, prompt, inputs, COUNT, **options)[0].tolist()


@few(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_compiled_and_updates_its_cache_in_place(
    name: str, made: list[Partition]
) -> None:
    model = example.make(name, **({} if is_full() else QUICK[name]))
    prompt, inputs = example.example_inputs(name)
    expected = generate(model, prompt, inputs)
    assert len(set(expected)) > 2
    config = transformers.CompileConfig(backend="tvm_fixes", fullgraph=True)
    config._compile_all_devices = True  # also on a CPU
    options = {"cache_implementation": "static", "compile_config": config}
    for _ in range(2):
        assert generate(model, prompt, inputs, **options) == expected
    # A window is written to until it is full. From then on, all of it moves.
    is_sliding = bool(getattr(model.config, "sliding_window", None))
    assert len(made) == (3 if is_sliding else 1)
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    sliding = model.config.layer_types.count("sliding_attention") if name == "gemma2" else layers
    for partition in made:
        is_full_window = is_sliding and partition is made[-1]
        count = layers - sliding if is_full_window else layers
        assert len(partition._updates) == 2 * count


@pytest.mark.skipif(not is_full(), reason="the quick tier compiles the step of the same model")
def test_a_compiled_forward_generates_for_prompts_of_several_lengths() -> None:
    model = example.make("llama")
    reference = example.make("llama")
    model.forward = torch.compile(model.forward, backend="tvm_fixes")
    for length in (5, 7, 9):
        prompt = torch.randint(1, 96, (1, length))
        expected = generate(reference, prompt, torch.empty(0))
        options = {"cache_implementation": "static"}
        assert generate(model, prompt, torch.empty(0), **options) == expected


if __name__ == "__main__":
    tvm.testing.main()
