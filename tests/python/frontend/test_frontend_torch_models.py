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
"""Whole models through ``from_fx`` equal PyTorch."""

import pytest
import torch
import torch.nn.functional as F
import tvm.testing
from torch import nn

from examples import dcgan, unet
from helpers.grids import few
from helpers.relax_modules import calls
from helpers.torch_programs import import_fx, run


class VAE(nn.Module):
    """A small variational autoencoder that decodes the mean; its decoder resizes and convolves."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.SiLU(),
        )
        self.mean = nn.Linear(16 * 8 * 6, 10)
        self.latent = nn.Linear(10, 16 * 8 * 6)
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2),
            nn.Conv2d(16, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.PReLU(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(8, 8, 3),
            nn.SiLU(),
        )
        self.picture = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        mean = self.mean(torch.flatten(self.encoder(picture), 1))
        features = self.decoder(self.latent(mean).reshape(-1, 16, 8, 6))
        features = F.interpolate(features, size=picture.shape[2:], mode="nearest")
        return torch.sigmoid(self.picture(features))


def vae() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The factory of :class:`VAE`; the batch norms have met some data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, picture = VAE(), torch.randn(2, 3, 31, 23)
        module(torch.randn(4, 3, 31, 23))
        return module.eval(), (picture,)


MODELS = {"dcgan": dcgan.factory, "unet": unet.factory, "vae": vae}


@few(1)
@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    module, inputs = MODELS[name]()
    mod = import_fx(module, inputs)
    assert not any(call.attrs.training for call in calls(mod, "relax.nn.batch_norm"))
    with torch.no_grad():
        expected = module(*inputs)
    torch.testing.assert_close(run(mod, *inputs), expected, rtol=2e-5, atol=2e-5)


if __name__ == "__main__":
    tvm.testing.main()
