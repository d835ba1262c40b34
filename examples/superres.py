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
"""The generator of SRGAN (Ledig et al., 2017): scales height and width of an image by four."""

import torch
from torch import nn

from examples._random import seeded, settle_batch_norm


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm, a PReLU between them, and a skip connection.

    Parameters
    ----------
    features : int
        Channels of the input and of the output.
    """

    def __init__(self, features: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(features, features, 3, padding=1, bias=False),
            nn.BatchNorm2d(features),
            nn.PReLU(features),
            nn.Conv2d(features, features, 3, padding=1, bias=False),
            nn.BatchNorm2d(features),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map (N, features, H, W) to the same shape."""
        return features + self.layers(features)


class SuperResolution(nn.Module):
    """Residual blocks on the small image, then pixel shuffles that double height and width.

    Parameters
    ----------
    channels : int
        Channels of the input and the output image.
    width : int
        Channels of the hidden layers.
    blocks : int
        Number of residual blocks.
    shuffles : int
        Number of pixel shuffles before the last convolution; with 0, a single shuffle follows the
        last convolution, and the output has twice the height and width.
    """

    def __init__(self, channels: int = 3, width: int = 16, blocks: int = 2, shuffles: int = 2):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 9, padding=4), nn.PReLU()]
        layers += [ResidualBlock(width) for _ in range(blocks)]
        for _ in range(shuffles):
            layers += [
                nn.Conv2d(width, 4 * width, 3, padding=1),
                nn.PixelShuffle(2),
                nn.PReLU(width),
            ]
        if shuffles:
            layers.append(nn.Conv2d(width, channels, 9, padding=4))
        else:
            layers += [nn.Conv2d(width, 4 * channels, 3, padding=1), nn.PixelShuffle(2)]
        self.layers = nn.Sequential(*layers)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Map images (N, channels, H, W) to larger images."""
        return self.layers(picture)


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Make the network in eval mode, and one image (1, 3, 16, 16), float32."""
    with seeded(0):
        module = SuperResolution()
        for layer in module.modules():
            if isinstance(layer, nn.PReLU):
                nn.init.uniform_(layer.weight, 0.1, 0.5)
        settle_batch_norm(module, torch.randn(4, 3, 16, 16))
        return module, (torch.randn(1, 3, 16, 16),)
