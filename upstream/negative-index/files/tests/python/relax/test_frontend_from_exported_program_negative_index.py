# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Negative indices count from the end of an axis, as in PyTorch."""

import pytest

pytest.importorskip("torch")

import torch

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Along(torch.nn.Module):
    def forward(self, x, i):
        return x[:, i]


class Pairs(torch.nn.Module):
    def forward(self, x, i):
        return x[i, i + 1]


class Flat(torch.nn.Module):
    def forward(self, x, i):
        return torch.take(x.flatten(), i)


@pytest.mark.parametrize("module", [Along(), Pairs(), Flat()], ids=["along", "pairs", "flat"])
def test_negative_index(module):
    inputs = (torch.arange(12.0).reshape(3, 4) + 1, torch.tensor([-2, 1, -3]))
    mod = from_exported_program(torch.export.export(module, inputs))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = vm["main"](*(tvm.runtime.tensor(x.numpy()) for x in inputs))[0].numpy()
    tvm.testing.assert_allclose(got, module(*inputs).numpy())


if __name__ == "__main__":
    tvm.testing.main()
