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
"""Language models, encoder-decoders and detection transformers equal PyTorch.

Small configurations with random weights, of static and dynamic batch and length, with padding.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from torch.utils import _pytree as pytree
from tvm import relax

from examples._random import seeded
from helpers.coverage_tables import CoverageTables
from helpers.grids import is_full, sample
from helpers.relax_modules import cpu
from tvm_fixes.frontend.torch import from_exported_program

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

VOCABULARY, HEAD = 50, 16
# PyTorch's export and decomposition take most of a test's time, in proportion to the layers.
LAYERS = 2 if is_full() else 1
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 2 * HEAD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
GROUPED = SMALL | {"num_key_value_heads": 1, "max_position_embeddings": 64}


def of_transformers(name: str, model: str, attention: str, **options: Any) -> nn.Module:
    config = getattr(transformers, f"{name}Config")(**options)
    config._attn_implementation = attention
    return getattr(transformers, f"{name}{model}")(config)


DECODERS: dict[str, Callable[[str], nn.Module]] = {
    "gpt2": lambda attention: of_transformers(
        "GPT2",
        "LMHeadModel",
        attention,
        vocab_size=VOCABULARY,
        n_embd=2 * HEAD,
        n_layer=LAYERS,
        n_head=2,
        n_positions=64,
    ),
    "llama": lambda attention: of_transformers("Llama", "ForCausalLM", attention, **GROUPED),
    "mistral": lambda attention: of_transformers(
        "Mistral", "ForCausalLM", attention, sliding_window=8, **GROUPED
    ),
    "qwen2": lambda attention: of_transformers("Qwen2", "ForCausalLM", attention, **GROUPED),
}


class Logits(nn.Module):
    """The first output of a model, whose inputs have `names`."""

    def __init__(self, model: nn.Module, *names: str, **options: Any) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        named = dict(zip(self.names, inputs, strict=True))
        return self.model(**named, return_dict=False, **self.options)[0]


class Step(nn.Module):
    """A decoding step: past keys and values are inputs, updated ones outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        ids, mask, past = inputs
        cache = transformers.DynamicCache([tuple(pair) for pair in past])
        out = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        layers = out.past_key_values.layers
        return out.logits, *(x for layer in layers for x in (layer.keys, layer.values))


class Boxes(nn.Module):
    """Classes and boxes of a detection transformer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.model(pixel_values=inputs[0])
        return out.logits, out.pred_boxes


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (batch, length))


def padding(batch: int, length: int) -> torch.Tensor:
    """All rows but the first begin with two tokens of padding."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[1:, :2] = 0
    return mask


def text(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return tokens(batch, length), padding(batch, length)


def pictures(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 32, 32),)


def cached(heads: int) -> Callable[[int, int], tuple[Any, ...]]:
    def inputs(batch: int, length: int) -> tuple[Any, ...]:
        past = [[torch.randn(batch, heads, length, HEAD) for _ in "kv"] for _ in range(LAYERS)]
        return tokens(batch, 1), padding(batch, length + 1), past

    return inputs


@dataclass(frozen=True)
class Model:
    """A model of random weights.

    Attributes
    ----------
    make : callable
        Makes the module for the name of an implementation of attention.
    inputs : callable
        Makes its inputs for a batch and a length.
    dynamic : tuple
        The dynamic dims of each input, by axis.
    attentions : tuple of str
        The supported implementations of attention.
    """

    make: Callable[[str], nn.Module]
    inputs: Callable[[int, int], tuple[Any, ...]]
    dynamic: tuple[Any, ...]
    attentions: tuple[str, ...] = ("eager", "sdpa")


TEXT = {0: "batch", 1: "length"}
PICTURES = ({0: "batch"},)
PAST = ({0: "batch"}, {0: "batch", 1: "more"}, [[{0: "batch", 2: "length"}] * 2] * LAYERS)


def decoders() -> Iterator[tuple[str, Model]]:
    for name, make in DECODERS.items():
        yield (
            name,
            Model(
                lambda attention, make=make: Logits(
                    make(attention), "input_ids", "attention_mask", use_cache=False
                ),
                text,
                (TEXT, TEXT),
            ),
        )
        yield (
            f"{name}, a step",
            Model(
                lambda attention, make=make: Step(make(attention)),
                cached(2 if name == "gpt2" else 1),
                PAST,
            ),
        )


def detr(attention: str) -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    layers = {
        f"{part}_{what}": number
        for part in ("encoder", "decoder")
        for what, number in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 48))
    }
    return Boxes(
        of_transformers(
            "Detr",
            "ForObjectDetection",
            attention,
            use_timm_backbone=False,
            backbone_config=backbone,
            backbone=None,
            use_pretrained_backbone=False,
            d_model=32,
            num_queries=5,
            num_labels=7,
            **layers,
        )
    )


MODELS = dict(decoders()) | {
    "bert": Model(
        lambda attention: Logits(
            of_transformers("Bert", "Model", attention, **SMALL), "input_ids", "attention_mask"
        ),
        text,
        (TEXT, TEXT),
    ),
    "t5": Model(
        lambda attention: Logits(
            of_transformers(
                "T5",
                "ForConditionalGeneration",
                attention,
                vocab_size=VOCABULARY,
                d_model=32,
                d_kv=16,
                d_ff=48,
                num_layers=LAYERS,
                num_heads=2,
            ),
            "input_ids",
            "decoder_input_ids",
            use_cache=False,
        ),
        lambda batch, length: (tokens(batch, length), tokens(batch, length // 2 + 2)),
        (TEXT, {0: "batch", 1: "other"}),
    ),
    "detr": Model(detr, pictures, PICTURES, ("eager",)),
    "yolos": Model(
        lambda attention: Boxes(
            of_transformers(
                "Yolos",
                "ForObjectDetection",
                attention,
                image_size=[32, 32],
                patch_size=8,
                num_detection_tokens=5,
                **{key: value for key, value in SMALL.items() if key != "vocab_size"},
            )
        ),
        pictures,
        PICTURES,
    ),
}

CASES = [
    (name, attention, shapes)
    for name, model in MODELS.items()
    for attention, shapes in itertools.product(model.attentions, ("static", "dynamic"))
]


def dims(spec: Any) -> Any:
    batch = torch.export.Dim("batch", min=1, max=16)
    length, other = (torch.export.Dim(name, min=2, max=48) for name in ("length", "other"))
    by_name = {"batch": batch, "length": length, "more": length + 1, "other": other}
    return pytree.tree_map(by_name.__getitem__, spec)


@pytest.mark.parametrize("name, attention, shapes", sample(CASES, 2, seed=11))
@torch.no_grad()
def test_model(name: str, attention: str, shapes: str, coverage_table: CoverageTables) -> None:
    model = MODELS[name]
    with seeded(0):
        module = model.make(attention).eval()
        sizes = [(2, 7)] if shapes == "static" else [(2, 7), (1, 11), (3, 4)]
        inputs = [model.inputs(*size) for size in sizes]
    table = coverage_table("torch_language_models")
    with table.case(model=name, attention=attention, shapes=shapes, sizes=len(sizes)):
        dynamic = None if shapes == "static" else (dims(model.dynamic),)
        program = torch.export.export(module, (inputs[0],), dynamic_shapes=dynamic)
        mod = from_exported_program(program)
        executable = relax.build(mod, cpu(), relax_pipeline="tvm_fixes")
        vm = relax.VirtualMachine(executable, tvm.cpu())
        for values in inputs:
            expected = pytree.tree_leaves(module(values))
            flat = [tvm.runtime.from_dlpack(x.contiguous()) for x in pytree.tree_leaves(values)]
            got = [torch.from_dlpack(x) for x in vm["main"](*flat)]
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
