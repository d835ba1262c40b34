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
"""Importing aten.elu, which scales its operand and its result, as PyTorch exports selu."""

import pytest

pytest.importorskip("torch")

import torch

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Elu(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.elu(x, 1.5, 2.0, 0.5)


@pytest.mark.parametrize("module", [torch.nn.SELU(), Elu()], ids=["selu", "elu"])
def test_scales(module):
    x = torch.linspace(-3, 3, 25)
    mod = from_exported_program(torch.export.export(module, (x,)))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(x.numpy()))[0].numpy()
    tvm.testing.assert_allclose(got, module(x).numpy(), rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
