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
"""Generate tokens with compiled language models of transformers, and compare with ``generate``.

python -m examples.generate llama --sample
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    EncoderDecoderCache,
    StaticLayer,
)

import tvm_fixes
from examples._random import seeded

Tensors = Sequence[torch.Tensor]


class Step(nn.Module):
    """The logits after the last of some tokens, with the keys and values of earlier ones.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A decoder, or an encoder and a decoder.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: torch.Tensor, position: torch.Tensor, cache: Tensors, encoded: Tensors
    ) -> torch.Tensor:
        """Process tokens, and write their keys and values to `cache`.

        Parameters
        ----------
        ids : torch.Tensor
            Tokens, of shape (batch, length).
        position : torch.Tensor
            The number of earlier tokens, a scalar.
        cache : sequence of torch.Tensor
            Keys and values of each layer in turn, of shape (batch, heads, capacity, size).
        encoded : sequence of torch.Tensor
            The result of :class:`Encoder`; empty for a decoder.
        """
        past = Cache(
            layers=list(map(_StaticLayer, cache[::2], cache[1::2], [position] * len(cache)))
        )
        if not encoded:
            return self.model(input_ids=ids, past_key_values=past).logits[:, -1]
        cross = Cache(layers=list(map(_FixedLayer, encoded[::2], encoded[1::2])))
        # All layers read `cross` instead; only the length of the states counts.
        states = encoded[0].new_zeros(len(ids), encoded[0].shape[2], self.model.config.d_model)
        return self.model(
            encoder_outputs=(states,),
            decoder_input_ids=ids,
            past_key_values=EncoderDecoderCache(past, cross),
        ).logits[:, -1]


class Encoder(nn.Module):
    """The keys and values of the encoder's states in each layer of the decoder, in turn."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        states = self.model.get_encoder()(inputs)[0]
        past = EncoderDecoderCache(DynamicCache(), DynamicCache())
        # Of this step of the decoder, only the keys and values of the states are used.
        first = torch.zeros(len(inputs), 1, dtype=torch.int64)
        self.model(encoder_outputs=(states,), decoder_input_ids=first, past_key_values=past)
        return _keys_and_values(past.cross_attention_cache)


class _StaticLayer(StaticLayer):
    """A layer of a static cache in tensors of the caller."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor) -> None:
        super().__init__(keys.shape[2])
        # The layer adds to its length.
        self.keys, self.values, self.cumulative_length = keys, values, position.clone()
        self.device, self.is_initialized = keys.device, True


class _FixedLayer(DynamicLayer):
    """A layer that is only read."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True


def _keys_and_values(cache: Cache) -> tuple[torch.Tensor, ...]:
    layers: list[CacheLayerMixin] = cache.layers
    return tuple(tensor for layer in layers for tensor in (layer.keys, layer.values))


@torch.no_grad()
def empty_cache(model: Any, batch: int, capacity: int, encoded: Tensors = ()) -> Tensors:
    """A cache for `capacity` tokens in each row of a batch."""
    ids = torch.zeros(batch, 1, dtype=torch.int64)
    if encoded:
        states = encoded[0].new_zeros(batch, encoded[0].shape[2], model.config.d_model)
        past = EncoderDecoderCache(DynamicCache(), DynamicCache())
        model(encoder_outputs=(states,), decoder_input_ids=ids, past_key_values=past)
        past = past.self_attention_cache
    else:
        past = model(input_ids=ids, use_cache=True).past_key_values
    shapes = ((one.shape[1], one.shape[3]) for one in _keys_and_values(past))
    return [torch.zeros(batch, heads, capacity, size, dtype=model.dtype) for heads, size in shapes]


@dataclass(frozen=True)
class Compiled:
    """A compiled decoder.

    Attributes
    ----------
    prefill : CompiledModel or None
        The step for a prompt of any length; None if all prompts have one token.
    step : CompiledModel
        The step for one token.
    cache : sequence of torch.Tensor
        The cache, which both update.
    """

    prefill: tvm_fixes.CompiledModel | None
    step: tvm_fixes.CompiledModel
    cache: Tensors


@torch.no_grad()
def compile_decoder(
    model: Any,
    batch: int,
    capacity: int,
    encoded: Tensors = (),
    *,
    has_prompt: bool = True,
    **options: Any,
) -> Compiled:
    """Compile a decoder.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    batch, capacity : int
        The number of rows, and of tokens in each.
    encoded : sequence of torch.Tensor
        The result of the encoder, if there is one.
    has_prompt : bool
        Whether prompts have several tokens.
    **options
        Those of :func:`tvm_fixes.compile`.
    """
    cache, encoded = tuple(empty_cache(model, batch, capacity, encoded)), tuple(encoded)

    def compiled(length: int, lengths: Any) -> tvm_fixes.CompiledModel:
        ids = torch.zeros(batch, length, dtype=torch.int64)
        dynamic = ({1: lengths}, None, (None,) * len(cache), (None,) * len(encoded))
        arguments = (ids, torch.tensor(0), cache, encoded)
        program = torch.export.export(Step(model), arguments, dynamic_shapes=dynamic)
        return tvm_fixes.compile(program, **options)

    lengths = torch.export.Dim("length", min=1, max=capacity)
    return Compiled(compiled(2, lengths) if has_prompt else None, compiled(1, None), cache)


@torch.no_grad()
def compile_encoder(model: Any, inputs: torch.Tensor, **options: Any) -> tvm_fixes.CompiledModel:
    """Compile an encoder for inputs of this shape."""
    return tvm_fixes.compile(torch.export.export(Encoder(model), (inputs,)), **options)


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """Choose the most likely token of each row."""
    return logits.argmax(-1, keepdim=True)


def sampling(
    seed: int, temperature: float = 1.0, top_k: int = 50
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Make a function that draws one of the `top_k` most likely tokens of each row."""
    generator = torch.Generator().manual_seed(seed)

    def draw(logits: torch.Tensor) -> torch.Tensor:
        scores = logits / temperature
        least = scores.topk(min(top_k, scores.shape[-1])).values[:, -1:]
        probabilities = scores.masked_fill(scores < least, float("-inf")).softmax(-1)
        return torch.multinomial(probabilities, 1, generator=generator)

    return draw


def generate(
    decoder: Compiled,
    prompt: torch.Tensor,
    count: int,
    choose: Callable[[torch.Tensor], torch.Tensor] = greedy,
    end: int | None = None,
    encoded: Tensors = (),
) -> torch.Tensor:
    """Return a prompt and up to `count` tokens after it.

    Parameters
    ----------
    decoder : Compiled
    prompt : torch.Tensor
        Tokens, of shape (batch, length).
    count : int
        The cache must have room for one token less than prompt and result.
    choose : callable
        Chooses tokens, of shape (batch, 1), by their logits.
    end : int, optional
        Stop after this token, if it is chosen in all rows.
    encoded : sequence of torch.Tensor
        The result of the encoder, if there is one.
    """
    tokens = new = prompt
    while True:
        model = decoder.step if new.shape[1] == 1 else decoder.prefill
        position = torch.tensor(tokens.shape[1] - new.shape[1])
        new = choose(model.run(new, position, *decoder.cache, *encoded))
        tokens = torch.cat([tokens, new], 1)
        is_full = tokens.shape[1] == prompt.shape[1] + count
        if is_full or (end is not None and bool((new == end).all())):
            return tokens


_SIZES = {"vocab_size": 96, "initializer_range": 0.5, "tie_word_embeddings": False}
_DECODER = _SIZES | {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}
_NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
_WHISPER = {
    f"{part}_{what}": size
    for part in ("encoder", "decoder")
    for what, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 48))
}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        _SIZES | {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    ),
    "llama": ("LlamaForCausalLM", _DECODER),
    "qwen2": ("Qwen2ForCausalLM", _DECODER),
    "gemma2": ("Gemma2ForCausalLM", _DECODER | {"head_dim": 16, "sliding_window": 8}),
    "mistral": ("MistralForCausalLM", _DECODER | {"sliding_window": 8}),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": 96, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2}
        | {"decoder_start_token_id": 0, "initializer_factor": 4.0},
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        _WHISPER
        | {"vocab_size": 96, "d_model": 32, "num_mel_bins": 8, "decoder_start_token_id": 1}
        | {"max_source_positions": 20, "max_target_positions": 64, "init_std": 0.5}
        | {"tie_word_embeddings": False},
    ),
}
"""Classes of transformers and small configurations, by name."""


def make(name: str, seed: int = 0, **changes: Any) -> Any:
    """Make one of :data:`MODELS` with random weights; `changes` replace options in it."""
    kind, options = MODELS[name]
    model_class = getattr(transformers, kind)
    with seeded(seed):
        return model_class(model_class.config_class(**_NO_TOKENS | options | changes)).eval()


def example_inputs(name: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A prompt of one of :data:`MODELS`, and the input of its encoder, empty without one."""
    with seeded(seed):
        if name == "t5":
            return torch.zeros(1, 1, dtype=torch.int64), torch.randint(1, 96, (1, 7))
        if name == "whisper":
            return torch.ones(1, 1, dtype=torch.int64), torch.randn(1, 8, 40)
        return torch.randint(1, 96, (1, 5)), torch.empty(0)


def expected(
    model: Any, prompt: torch.Tensor, inputs: torch.Tensor, count: int, **options: Any
) -> torch.Tensor:
    """The tokens that transformers generates; `options` are those of its ``generate``.

    It samples if they contain a temperature.
    """
    first = {"decoder_input_ids": prompt} if inputs.numel() else {}
    # Whisper's own method handles audio of any length and its special tokens.
    return transformers.GenerationMixin.generate(
        model,
        inputs if inputs.numel() else prompt,
        max_new_tokens=count,
        do_sample="temperature" in options,
        **first,
        **options,
    )


def main() -> None:
    """Generate tokens with a model of random weights."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--sample", action="store_true", help="sample instead of greedy search")
    parser.add_argument("--count", type=int, default=20, help="the number of new tokens")
    given = parser.parse_args()
    model = make(given.model)
    prompt, inputs = example_inputs(given.model)
    encoded = compile_encoder(model, inputs).run(inputs) if inputs.numel() else ()
    capacity, has_prompt = prompt.shape[1] + given.count, prompt.shape[1] > 1
    decoder = compile_decoder(model, 1, capacity, encoded, has_prompt=has_prompt)
    choose = sampling(0, 0.7, 20) if given.sample else greedy
    tokens = generate(decoder, prompt, given.count, choose, encoded=encoded)
    options = {"temperature": 0.7, "top_k": 20} if given.sample else {}
    with seeded(0):
        theirs = expected(model, prompt, inputs, given.count, **options)
    print(f"compiled     {tokens[0].tolist()}")
    print(f"transformers {theirs[0].tolist()}")


if __name__ == "__main__":
    main()
