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
"""Seeded weights for the example models, without a change of PyTorch's global random state."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's random numbers within the block, and restore the global state after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def settle_batch_norm(module: nn.Module, *args: torch.Tensor) -> None:
    """Give every BatchNorm of `module` random weights and the statistics of the batch `args`.

    The initial statistics, zero and one, would hide a compiler that ignores them.  With statistics
    that do not fit the data, the signal would vanish in the layers.  `module` is in eval mode
    afterwards.
    """
    layers = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for layer in layers:
        nn.init.uniform_(layer.weight, 0.5, 1.5)
        nn.init.normal_(layer.bias, std=0.2)
        layer.momentum = None  # a plain average, so that one batch is enough
    with torch.no_grad():
        module.train()(*args)
    module.eval()
