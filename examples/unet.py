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
"""U-Net (Ronneberger, Fischer and Brox, 2015) with BatchNorm: segments an image."""

from collections.abc import Callable

import torch
from torch import nn

from examples._random import seeded, settle_batch_norm


def double_convolution(
    channels: int, features: int, activation: Callable[[], nn.Module]
) -> nn.Sequential:
    """Two 3x3 convolutions that keep height and width, each with BatchNorm and activation."""
    layers: list[nn.Module] = []
    for previous in (channels, features):
        layers += [
            nn.Conv2d(previous, features, 3, padding=1, bias=False),
            nn.BatchNorm2d(features),
            activation(),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """An encoder, a decoder, and skip connections between their levels.

    Parameters
    ----------
    channels, classes : int
        Channels of the image and of the scores.
    width : int
        Channels of the first level; each level below has twice as many.
    depth : int
        Number of poolings that halve height and width; both must be multiples of ``2**depth``.
    activation : callable
        Makes the activation after each BatchNorm.
    """

    def __init__(
        self,
        channels: int = 3,
        classes: int = 2,
        width: int = 8,
        depth: int = 3,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ):
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.encoder = nn.ModuleList(
            double_convolution(before, after, activation)
            for before, after in zip([channels, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * features, features, 2, stride=2)
            for features in reversed(widths[:-1])
        )
        self.decoder = nn.ModuleList(
            double_convolution(2 * features, features, activation)
            for features in reversed(widths[:-1])
        )
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Map images (N, channels, H, W) to scores (N, classes, H, W)."""
        skips = []
        features = self.encoder[0](picture)
        for level in list(self.encoder)[1:]:
            skips.append(features)
            features = level(self.pool(features))
        for up, level in zip(self.up, self.decoder, strict=True):
            features = level(torch.cat([skips.pop(), up(features)], dim=1))
        return self.head(features)


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Make the network in eval mode, and one image (1, 3, 64, 64), float32."""
    with seeded(0):
        module = UNet()
        settle_batch_norm(module, torch.randn(4, 3, 64, 64))
        return module, (torch.randn(1, 3, 64, 64),)
