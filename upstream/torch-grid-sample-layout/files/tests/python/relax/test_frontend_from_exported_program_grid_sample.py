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
"""torch.nn.functional.grid_sample reads the coordinates from the last axis of the grid."""

import pytest

pytest.importorskip("torch")

import torch

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class GridSample(torch.nn.Module):
    def __init__(self, mode, align_corners):
        super().__init__()
        self.options = {"mode": mode, "align_corners": align_corners}

    def forward(self, x, grid):
        return torch.nn.functional.grid_sample(x, grid, **self.options)


@pytest.mark.parametrize(
    "mode, align_corners, extents", [("bilinear", False, (5, 3)), ("nearest", True, (2, 2))]
)
def test_grid_sample(mode, align_corners, extents):
    torch.manual_seed(0)
    x, grid = torch.randn(2, 3, 4, 6), torch.rand(2, *extents, 2) * 2 - 1
    module = GridSample(mode, align_corners)
    mod = from_exported_program(torch.export.export(module, (x, grid)))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(x.numpy()), tvm.runtime.tensor(grid.numpy()))[0].numpy()
    tvm.testing.assert_allclose(got, module(x, grid).numpy(), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
