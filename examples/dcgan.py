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
"""The generator of DCGAN (Radford, Metz and Chintala, 2015): noise to a 64x64 image."""

import torch
from torch import nn

from examples._random import seeded, settle_batch_norm


class Generator(nn.Module):
    """Five transposed convolutions, each but the last followed by BatchNorm and ReLU.

    Parameters
    ----------
    latent : int
        Channels of the noise, whose shape is (N, latent, 1, 1).
    width : int
        Channels before the last layer; each earlier layer has twice as many as the next one.
    channels : int
        Channels of the image, whose shape is (N, channels, 64, 64).
    """

    def __init__(self, latent: int = 100, width: int = 16, channels: int = 3):
        super().__init__()
        layers: list[nn.Module] = []
        previous, stride, padding = latent, 1, 0
        for features in (8 * width, 4 * width, 2 * width, width):
            layers += [
                nn.ConvTranspose2d(previous, features, 4, stride, padding, bias=False),
                nn.BatchNorm2d(features),
                nn.ReLU(),
            ]
            previous, stride, padding = features, 2, 1
        layers += [nn.ConvTranspose2d(previous, channels, 4, 2, 1, bias=False), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        """Map noise (N, latent, 1, 1) to images (N, channels, 64, 64) in [-1, 1]."""
        return self.layers(noise)


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Make the generator in eval mode, and one noise vector (1, 100, 1, 1), float32."""
    with seeded(0):
        module = Generator()
        settle_batch_norm(module, torch.randn(8, 100, 1, 1))
        return module, (torch.randn(1, 100, 1, 1),)
