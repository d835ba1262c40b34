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
"""Whole models with the default configurations of their libraries and random weights."""

from collections.abc import Callable

import torch
from torch import nn

from examples._random import settle_batch_norm

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


class OneTensor(nn.Module):
    """A model with one output tensor, which `pick` selects from the original outputs."""

    def __init__(self, model: nn.Module, pick: Callable[..., torch.Tensor], **kwargs: object):
        super().__init__()
        self.model, self._pick, self._kwargs = model, pick, kwargs

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self._pick(self.model(*args, **self._kwargs))


def _image(extent: int = 224) -> torch.Tensor:
    return torch.randn(1, 3, extent, extent)


def dcgan() -> Made:
    """The generator of DCGAN for 64x64 images."""
    from examples.dcgan import Generator

    module = Generator(width=64)
    settle_batch_norm(module, torch.randn(8, 100, 1, 1))
    return module, (torch.randn(1, 100, 1, 1),)


def resnet50() -> Made:
    """ResNet-50 from transformers."""
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    settle_batch_norm(model, torch.randn(4, 3, 224, 224))
    return OneTensor(model, lambda output: output.logits), (_image(),)


def mobilenet_v2() -> Made:
    """MobileNetV2 from transformers."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    model = MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000))
    settle_batch_norm(model, torch.randn(4, 3, 224, 224))
    return OneTensor(model, lambda output: output.logits), (_image(),)


def convnext_base() -> Made:
    """ConvNeXt-base from transformers."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        depths=[3, 3, 27, 3],
        hidden_sizes=[128, 256, 512, 1024],
        layer_scale_init_value=0.1,  # the default, 1e-6, would hide the errors of a block
        num_labels=1000,
    )
    model = ConvNextForImageClassification(config)
    return OneTensor(model, lambda output: output.logits), (_image(),)


def vit_base() -> Made:
    """ViT-B/16 from transformers."""
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_labels=1000))
    return OneTensor(model, lambda output: output.logits), (_image(),)


def bert_base() -> Made:
    """BERT-base from transformers."""
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig())
    tokens = torch.randint(0, model.config.vocab_size, (1, 128))
    return OneTensor(model, lambda output: output.last_hidden_state), (tokens,)


def gpt2_small() -> Made:
    """GPT-2 small from transformers with its head, without a cache of keys and values."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    tokens = torch.randint(0, model.config.vocab_size, (1, 128))
    return OneTensor(model, lambda output: output.logits, use_cache=False), (tokens,)


def unet() -> Made:
    """The conditional U-Net from diffusers, with 0.4 times the channels of Stable Diffusion."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(128, 256, 512, 512),
        cross_attention_dim=512,
        attention_head_dim=8,
    )
    inputs = (torch.randn(1, 4, 32, 32), torch.tensor([500]), torch.randn(1, 77, 512))
    return OneTensor(model, lambda output: output[0], return_dict=False), inputs


def vae_decoder() -> Made:
    """The decoder of Stable Diffusion's autoencoder, for a 128x128 image."""
    from diffusers import AutoencoderKL

    from examples.autoencoder_kl import LatentDecoder

    autoencoder = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(128, 256, 512, 512),
        layers_per_block=2,
    )
    return LatentDecoder(autoencoder), (torch.randn(1, 4, 16, 16),)


def hifigan() -> Made:
    """The vocoder of SpeechT5 from transformers, on 32 frames."""
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    config = SpeechT5HifiGanConfig(initializer_range=0.02)  # with 0.01, the signal vanishes
    model = SpeechT5HifiGan(config)
    for layer in model.modules():
        if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
            nn.init.normal_(layer.bias, std=0.1)
    return model, (torch.randn(1, 32, config.model_in_dim),)
