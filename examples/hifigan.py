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
"""A small vocoder of SpeechT5 (SpeechT5HifiGan of `transformers`): log-mel to waveform."""

import torch
from torch import nn
from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

from examples._random import seeded


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Make the vocoder in eval mode, and one log-mel spectrogram (1, 24, 80), float32."""
    with seeded(0):
        config = SpeechT5HifiGanConfig(
            upsample_initial_channel=64,
            upsample_rates=[4, 4],
            upsample_kernel_sizes=[8, 8],
            resblock_kernel_sizes=[3, 7],
            resblock_dilation_sizes=[[1, 3], [1, 3]],
            initializer_range=0.06,  # the default is for 512 channels; with 64, the signal vanishes
        )
        module = SpeechT5HifiGan(config).eval()
        for layer in module.modules():
            if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
                nn.init.normal_(layer.bias, std=0.1)
        nn.init.normal_(module.mean, -4.0, 1.0)
        nn.init.uniform_(module.scale, 1.0, 3.0)
        spectrogram = module.mean + module.scale * torch.randn(1, 24, config.model_in_dim)
        return module, (spectrogram,)
