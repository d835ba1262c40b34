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
"""The steps of language models with a static cache under ``torch.compile``, by backend.

The models have random weights, and the sizes of GPT-2 small and of a Llama with 12 layers of width
768.  A step takes one token, after the 32 of a prompt.  Times are CPU times: with one thread
(``TVM_NUM_THREADS=1 OMP_NUM_THREADS=1 python -m benchmarks torch_generate``) these are the times
that a quiet machine takes.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from transformers.cache_utils import StaticCache

from examples._random import seeded

from .measure import Comparison, compare

__all__ = ["comparisons"]

CAPACITIES = {"gpt2": (1024,), "llama": (1024, 4096)}
"""The numbers of tokens that the caches of each model have room for."""

_PROMPT = 32
_RUNS = 15
_BACKENDS = {"Inductor": "inductor", "tvm_fixes": "tvm_fixes"}
_NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}


def model(name: str) -> Any:
    """One of the models."""
    positions = max(CAPACITIES[name])
    with seeded(0):
        if name == "gpt2":
            config = transformers.GPT2Config(n_positions=positions, **_NO_TOKENS)
            return transformers.GPT2LMHeadModel(config).eval()
        config = transformers.LlamaConfig(
            hidden_size=768,
            intermediate_size=2048,
            num_hidden_layers=12,
            num_attention_heads=12,
            max_position_embeddings=positions,
            **_NO_TOKENS,
        )
        return transformers.LlamaForCausalLM(config).eval()


class Decoding:
    """Greedy decoding with a cache of its own; a prompt that is not compiled comes first."""

    def __init__(self, forward: Callable[..., Any], language_model: Any, capacity: int) -> None:
        self._forward = forward
        self._cache = StaticCache(config=language_model.config, max_cache_len=capacity)
        prompt = torch.arange(_PROMPT)[None]
        first = language_model(input_ids=prompt, past_key_values=self._cache)
        self.tokens = [first.logits[:, -1:].argmax(-1)]

    def step(self) -> None:
        """Choose one more token."""
        output = self._forward(input_ids=self.tokens[-1], past_key_values=self._cache)
        self.tokens.append(output.logits[:, -1:].argmax(-1))


def _by_backend(name: str, capacity: int) -> Comparison:
    torch._dynamo.reset()
    language_model = model(name)
    forwards = {"PyTorch": language_model.forward}
    for title, backend in _BACKENDS.items():
        forwards[title] = torch.compile(language_model.forward, backend=backend)
    runs = {
        title: Decoding(forward, language_model, capacity) for title, forward in forwards.items()
    }
    comparison = compare(
        f"a step of {name} with a cache for {capacity} tokens",
        {title: decoding.step for title, decoding in runs.items()},
        runs=_RUNS,
        clock=time.process_time,
    )
    expected = runs["PyTorch"].tokens
    for title, decoding in runs.items():
        if not all(map(torch.equal, decoding.tokens, expected)):
            raise RuntimeError(f"{comparison.title}: the tokens of {title} differ from PyTorch's")
    return comparison


@torch.no_grad()
def comparisons() -> Iterator[Comparison]:
    """Measure a step of each model."""
    for name, capacities in CAPACITIES.items():
        for capacity in capacities:
            yield _by_backend(name, capacity)
