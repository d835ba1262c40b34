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
"""A small version of Stable Diffusion's decoder (AutoencoderKL of `diffusers`)."""

import torch
from diffusers import AutoencoderKL
from torch import nn

from examples._random import seeded


class LatentDecoder(nn.Module):
    """The computation of ``AutoencoderKL.decode``, from a latent to an image, as a module.

    Parameters
    ----------
    autoencoder : AutoencoderKL
        The autoencoder that contains the decoder.
    """

    def __init__(self, autoencoder: AutoencoderKL):
        super().__init__()
        self.post_quant_conv = autoencoder.post_quant_conv
        self.decoder = autoencoder.decoder

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        """Map latents (N, 4, H, W) to images (N, 3, 2H, 2W)."""
        return self.decoder(self.post_quant_conv(latent))


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Make the decoder in eval mode, and one latent (1, 4, 16, 16), float32."""
    with seeded(0):
        autoencoder = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            block_out_channels=(16, 32),
            norm_num_groups=8,
        )
        module = LatentDecoder(autoencoder).eval()
        for layer in module.modules():
            if isinstance(layer, nn.GroupNorm):
                nn.init.uniform_(layer.weight, 0.5, 1.5)
                nn.init.normal_(layer.bias, std=0.2)
        return module, (torch.randn(1, 4, 16, 16),)
