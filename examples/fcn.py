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
"""FCN-8s (Long, Shelhamer and Darrell, 2015) with BatchNorm: segments an image."""

from collections.abc import Callable

import torch
from torch import nn

from examples._random import seeded, settle_batch_norm


class FCN(nn.Module):
    """An encoder whose scores at three depths are upsampled by transposed convolutions and added.

    Parameters
    ----------
    channels, classes : int
        Channels of the image and of the scores.
    width : int
        Channels of the first level; each level below has twice as many.
    activation : callable
        Makes the activation after each BatchNorm.
    """

    def __init__(
        self,
        channels: int = 3,
        classes: int = 4,
        width: int = 8,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ):
        super().__init__()
        widths = [width << level for level in range(5)]
        self.levels = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                activation(),
                nn.MaxPool2d(2),
            )
            for before, after in zip([channels, *widths], widths, strict=False)
        )
        self.scores = nn.ModuleList(nn.Conv2d(features, classes, 1) for features in widths[2:])
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(classes, classes, 2 * stride, stride, stride // 2, bias=False)
            for stride in (2, 2, 8)
        )

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Map images (N, channels, H, W) to scores (N, classes, H, W).

        H and W are multiples of 32.
        """
        features, skips = picture, []
        for level in self.levels:
            features = level(features)
            skips.append(features)
        eighth, sixteenth, last = (
            score(skip) for score, skip in zip(self.scores, skips[2:], strict=True)
        )
        last = sixteenth + self.up[0](last)
        return self.up[2](eighth + self.up[1](last))


def factory() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Make the network in eval mode, and one image (1, 3, 64, 64), float32."""
    with seeded(0):
        module = FCN()
        settle_batch_norm(module, torch.randn(4, 3, 64, 64))
        return module, (torch.randn(1, 3, 64, 64),)
