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
"""The generator of CycleGAN (Zhu, Park, Isola and Efros, 2017): changes the style of an image."""

import torch
from torch import nn

from examples._random import seeded


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with reflection padding, and a skip connection.

    Parameters
    ----------
    features : int
        Channels of the input and of the output.
    """

    def __init__(self, features: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(features, features, 3),
            nn.InstanceNorm2d(features),
            nn.ReLU(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(features, features, 3),
            nn.InstanceNorm2d(features),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map (N, features, H, W) to the same shape."""
        return features + self.layers(features)


class Generator(nn.Module):
    """Two layers that halve height and width, residual blocks, and two layers that double them.

    Parameters
    ----------
    channels : int
        Channels of the input and the output image.
    width : int
        Channels after the first layer.
    blocks : int
        Number of residual blocks.
    """

    def __init__(self, channels: int = 3, width: int = 8, blocks: int = 2):
        super().__init__()

        def normalized(*layers: nn.Module, features: int) -> list[nn.Module]:
            return [*layers, nn.InstanceNorm2d(features), nn.ReLU()]

        layers = normalized(nn.ReflectionPad2d(3), nn.Conv2d(channels, width, 7), features=width)
        for features in (width, 2 * width):
            down = nn.Conv2d(features, 2 * features, 3, stride=2, padding=1)
            layers += normalized(down, features=2 * features)
        layers += [ResidualBlock(4 * width) for _ in range(blocks)]
        for features in (2 * width, width):
            up = nn.ConvTranspose2d(
                2 * features, features, 3, stride=2, padding=1, output_padding=1
            )
            layers += normalized(up, features=features)
        layers += [nn.ReflectionPad2d(3), nn.Conv2d(width, channels, 7), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Map images (N, channels, H, W) to images in [-1, 1]; H and W are multiples of 4."""
        return self.layers(picture)


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Make the generator in eval mode, and one image (1, 3, 32, 32), float32."""
    with seeded(0):
        return Generator().eval(), (torch.randn(1, 3, 32, 32),)
