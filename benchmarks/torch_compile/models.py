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

"""The models: usual sizes, random weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..shipped import export_torch
from ..shipped.data import Recipe, full, integers, normal, picture, sound
from ..shipped.exports import T5, WHISPER

SIZES = 3
"""The number of sizes of each model."""

Make = Callable[[int], Mapping[str, Recipe]]


@dataclass(frozen=True)
class Subject:
    """A model.

    Attributes
    ----------
    name, library : str
    build : callable
        Makes the module in eval mode.
    inputs : callable
        Returns the recipes of the inputs by name, for a size from 0 to :data:`SIZES` - 1.
    """

    name: str
    library: str
    build: Callable[[], Any]
    inputs: Make


def _transformers(kind: str, config: str, **options: Any) -> Any:
    import transformers

    made = getattr(transformers, config)(**options)
    return getattr(transformers, kind)(made).eval()


def _diffusers(kind: str, method: str, **options: Any) -> Any:
    import diffusers

    model = getattr(diffusers, kind)(**options).eval()
    if not method:
        return model
    from torch import nn

    class Method(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, sample: Any) -> Any:
            return getattr(self.model, method)(sample)

    return Method().eval()


def _images(size: int = 224, channels: int = 3, name: str = "x") -> Make:
    return lambda k: {name: picture(k + 1, channels, size, size, low=-2.1, high=2.6)}


def _text(length: int = 128, vocabulary: int = 30000, mask: bool = True) -> Make:
    def inputs(k: int) -> Mapping[str, Recipe]:
        size = k + 1, (length, length - 32, length // 2 - 7)[k]
        made = {"input_ids": integers(*size, below=vocabulary, low=1000)}
        return made | ({"attention_mask": full(*size, value=1, dtype="int64")} if mask else {})

    return inputs


def _pair(k: int) -> Mapping[str, Recipe]:
    length, tokens = ((64, 16), (48, 9), (33, 5))[k]
    return {
        "input_ids": integers(k + 1, length, below=30000),
        "decoder_input_ids": integers(k + 1, tokens, below=30000),
    }


def _sound(k: int) -> Mapping[str, Recipe]:
    return {"input_values": sound(k + 1, (16000, 12000, 9000)[k])}


def _spectrum(k: int) -> Mapping[str, Recipe]:
    tokens = integers(k + 1, (8, 5, 3)[k], below=50000)
    return {"input_features": normal(k + 1, 80, 3000, scale=0.5), "decoder_input_ids": tokens}


def _text_and_picture(k: int) -> Mapping[str, Recipe]:
    return {
        "input_ids": integers(k + 2, 32, below=49000),
        "pixel_values": picture(k + 1, 3, 224, 224, low=-2.1, high=2.6),
    }


def _latent(size: int, channels: int = 4, width: int = 0, name: str = "sample") -> Make:
    def inputs(k: int) -> Mapping[str, Recipe]:
        made = {name: normal(k + 1, channels, size, size)}
        made |= {"timestep": full(k + 1, value=500, dtype="int64")}
        return made | ({"encoder_hidden_states": normal(k + 1, 77, width)} if width else {})

    return inputs


def _classes(k: int) -> Mapping[str, Recipe]:
    return {**_latent(32, name="hidden_states")(k), "class_labels": integers(k + 1, below=1000)}


def of_transformers(kind: str, inputs: Make, config: str = "", **options: Any) -> Subject:
    """A model of transformers; the name of its configuration follows from its own by default."""
    family = kind
    for end in ("Model", "LMHead", "ForCausalLM", "ForConditionalGeneration"):
        family = family.replace(end, "")
    name = kind.removesuffix("Model")
    build = partial(_transformers, kind, config or f"{family.partition('For')[0]}Config", **options)
    return Subject(name, "transformers", build, inputs)


def of_torchvision(name: str, size: int = 224, **options: Any) -> Subject:
    """A model of torchvision for pictures."""
    build = partial(export_torch.torchvision, name, **options)
    return Subject(name, "torchvision", build, _images(size))


def of_timm(name: str, size: int = 224) -> Subject:
    """A model of timm for pictures."""
    return Subject(name, "timm", partial(export_torch.timm, name), _images(size))


def of_diffusers(kind: str, inputs: Make, method: str = "", **options: Any) -> Subject:
    """A model of diffusers, or one of its methods."""
    name = f"{kind}.{method}" if method else kind
    return Subject(name, "diffusers", partial(_diffusers, kind, method, **options), inputs)


_SMALL_DECODER = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
    "use_cache": False,
}
_BASE = {"vocab_size": 32000, "use_cache": False}
_PICTURE = _images(name="pixel_values")
_CROSS = {
    "block_out_channels": (128, 256, 256),
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    "cross_attention_dim": 768,
}

_TEXT = (
    of_transformers("BertModel", _text()),
    of_transformers("RobertaModel", _text()),
    of_transformers("DistilBertModel", _text()),
    of_transformers(
        "AlbertModel", _text(), hidden_size=768, intermediate_size=3072, num_attention_heads=12
    ),
    of_transformers("ElectraModel", _text()),
    of_transformers("MPNetModel", _text()),
    of_transformers(
        "DebertaV2Model",
        _text(),
        hidden_size=384,
        num_attention_heads=6,
        intermediate_size=1536,
        relative_attention=True,
        position_buckets=256,
        pos_att_type=["p2c", "c2p"],
    ),
    of_transformers("ModernBertModel", _text(), num_hidden_layers=8),
    of_transformers("GPT2LMHeadModel", _text(64), use_cache=False),
    of_transformers("OPTForCausalLM", _text(64), **_BASE),
    of_transformers("LlamaForCausalLM", _text(64), **_SMALL_DECODER),
    of_transformers("Qwen2ForCausalLM", _text(64), **_SMALL_DECODER),
    of_transformers("Gemma2ForCausalLM", _text(64), **_SMALL_DECODER),
    of_transformers("MistralForCausalLM", _text(64), **_SMALL_DECODER),
    of_transformers("MixtralForCausalLM", _text(64), **_SMALL_DECODER | {"num_hidden_layers": 2}),
    of_transformers(
        "BartModel", _pair, encoder_layers=6, decoder_layers=6, d_model=768, use_cache=False
    ),
    of_transformers("T5ForConditionalGeneration", _pair, use_cache=False, **T5),
)
_SOUND = (
    of_transformers("WhisperForConditionalGeneration", _spectrum, use_cache=False, **WHISPER),
    of_transformers("Wav2Vec2Model", _sound),
    of_transformers("HubertModel", _sound, num_hidden_layers=6),
)
_VISION = (
    of_transformers("ViTModel", _PICTURE),
    of_transformers("BeitModel", _PICTURE, num_hidden_layers=6, use_relative_position_bias=True),
    of_transformers("SegformerModel", _PICTURE),
    of_transformers("ConvNextModel", _PICTURE),
    of_transformers("CLIPModel", _text_and_picture),
)
_TORCHVISION = (
    *map(
        of_torchvision,
        (
            "resnet18",
            "resnet50",
            "mobilenet_v2",
            "mobilenet_v3_large",
            "efficientnet_b0",
            "densenet121",
            "convnext_tiny",
            "swin_t",
            "vit_b_16",
            "regnet_y_400mf",
            "shufflenet_v2_x1_0",
            "squeezenet1_1",
            "mnasnet1_0",
            "vgg11",
        ),
    ),
    of_torchvision("googlenet", init_weights=False),
    of_torchvision("lraspp_mobilenet_v3_large", 320, weights_backbone=None),
)
_TIMM = tuple(
    map(
        of_timm,
        (
            "mobilevit_s",
            "edgenext_small",
            "ghostnet_100",
            "hrnet_w18_small",
            "mixer_s16_224",
            "resmlp_12_224",
            "poolformer_s12",
            "levit_128",
            "repvgg_a0",
            "xcit_nano_12_p16_224",
            "pvt_v2_b0",
            "gmlp_s16_224",
            "convmixer_768_32",
        ),
    )
)
_DIFFUSERS = (
    of_diffusers(
        "UNet2DConditionModel",
        _latent(32, width=768),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        **_CROSS,
    ),
    of_diffusers(
        "ControlNetModel",
        lambda k: {**_latent(32, width=768)(k), "controlnet_cond": picture(k + 1, 3, 256, 256)},
        **_CROSS,
    ),
    of_diffusers(
        "UNet2DModel", _latent(32, 3), sample_size=32, block_out_channels=(64, 128, 256, 256)
    ),
    of_diffusers("AutoencoderTiny", lambda k: {"sample": normal(k + 1, 4, 16, 16)}, "decode"),
    of_diffusers(
        "DiTTransformer2DModel",
        _classes,
        num_attention_heads=6,
        attention_head_dim=64,
        in_channels=4,
        num_layers=6,
        sample_size=32,
    ),
    of_diffusers(
        "AutoencoderKL",
        lambda k: {"sample": normal(k + 1, 4, 16, 16)},
        "decode",
        block_out_channels=(64, 128, 256),
        latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
    ),
)

SUBJECTS = {s.name: s for s in (*_TEXT, *_SOUND, *_VISION, *_TORCHVISION, *_TIMM, *_DIFFUSERS)}
"""Every model by name."""
