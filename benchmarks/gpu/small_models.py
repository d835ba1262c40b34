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
"""Small models of transformers and diffusers with random weights, to check on a GPU."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from ..models import OneTensor

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]

EXAMPLES = ("dcgan", "unet", "autoencoder_kl", "hifigan", "fcn", "cyclegan", "superres")

_SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
_VISION = {"image_size": 32, "patch_size": 8, "num_labels": 10}


def _example(name: str) -> Made:
    module, inputs = importlib.import_module(f"examples.{name}").factory()
    return module, tuple(inputs)


def _tokens(length: int = 33) -> torch.Tensor:
    return torch.randint(0, 256, (2, length))


def _image() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32)


def _of_transformers(
    name: str,
    config: str,
    inputs: Callable[[], torch.Tensor],
    options: dict[str, Any],
    **arguments: Any,
) -> Made:
    import transformers

    model = getattr(transformers, name)(getattr(transformers, config)(**options))
    return OneTensor(model, lambda output: output[0], **arguments), (inputs(),)


_CAUSAL = {
    "Llama": {"num_key_value_heads": 2},
    "Mistral": {"num_key_value_heads": 2, "sliding_window": 16},
    "Qwen2": {"num_key_value_heads": 2},
    "Gemma": {"num_key_value_heads": 1, "head_dim": 16},
}

MODELS: dict[str, Callable[[], Made]] = {
    **{name: partial(_example, name) for name in EXAMPLES},
    **{
        f"small {name}": partial(
            _of_transformers,
            f"{name}ForCausalLM",
            f"{name}Config",
            _tokens,
            _SIZES | {"pad_token_id": 0} | options,
            use_cache=False,
        )
        for name, options in _CAUSAL.items()
    },
    "small GPT-2": partial(
        _of_transformers,
        "GPT2LMHeadModel",
        "GPT2Config",
        _tokens,
        {"vocab_size": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64},
        use_cache=False,
    ),
    "small BERT": partial(_of_transformers, "BertModel", "BertConfig", _tokens, _SIZES),
    "small ALBERT": partial(
        _of_transformers, "AlbertModel", "AlbertConfig", _tokens, _SIZES | {"embedding_size": 32}
    ),
    "small T5 encoder": partial(
        _of_transformers,
        "T5EncoderModel",
        "T5Config",
        _tokens,
        {
            "vocab_size": 256,
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 128,
            "num_layers": 2,
            "num_heads": 4,
        },
    ),
    "small ViT": partial(
        _of_transformers,
        "ViTForImageClassification",
        "ViTConfig",
        _image,
        {name: _SIZES[name] for name in list(_SIZES)[1:5]} | _VISION,
    ),
    "small Swin": partial(
        _of_transformers,
        "SwinForImageClassification",
        "SwinConfig",
        _image,
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "num_labels": 10,
        },
    ),
    "small MobileNetV2": partial(
        _of_transformers,
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        _image,
        {"image_size": 32, "depth_multiplier": 0.35, "num_labels": 10},
    ),
    "small SegFormer": partial(
        _of_transformers,
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        _image,
        {
            "hidden_sizes": [16, 32, 32, 64],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 32,
            "num_labels": 5,
        },
    ),
}
"""Functions that make a model and its inputs, by name."""


def _unet() -> Made:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
    )
    inputs = (torch.randn(1, 4, 8, 8), torch.tensor([500]), torch.randn(1, 7, 32))
    return OneTensor(model, lambda output: output[0], return_dict=False), inputs


def _diffusion_transformer() -> Made:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        out_channels=8,
        num_layers=2,
        sample_size=8,
        num_embeds_ada_norm=10,
        norm_num_groups=4,
    )

    class Denoise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor, step: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return self.model(x, timestep=step, class_labels=label, return_dict=False)[0]

    return Denoise(), (torch.randn(1, 4, 8, 8), torch.tensor([500]), torch.tensor([3]))


MODELS |= {"small U-Net": _unet, "small diffusion transformer": _diffusion_transformer}
