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
"""The argument alpha of add, sub and rsub."""

import pytest

pytest.importorskip("torch")

import torch

import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program, from_fx


class Alpha(torch.nn.Module):
    def forward(self, x, y):
        added = torch.add(x, y, alpha=3) + torch.add(x, 2, alpha=3)
        return added, torch.sub(x, y, alpha=0.5), torch.rsub(x, y, alpha=3)


def check(mod, expected, inputs):
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = vm["main"](*(tvm.runtime.tensor(x.numpy()) for x in inputs))
    for tensor, reference in zip(got, expected, strict=True):
        tvm.testing.assert_allclose(tensor.numpy(), reference.numpy(), rtol=1e-6, atol=1e-6)


def test_from_exported_program():
    inputs = (torch.tensor([1.0, 2.0, -3.0]), torch.tensor([2, 3, 4]))
    mod = from_exported_program(torch.export.export(Alpha(), inputs))
    check(mod, Alpha()(*inputs), inputs)


def test_from_fx():
    inputs = (torch.tensor([1.0, 2.0, -3.0]), torch.tensor([2.0, 3.0, 4.0]))
    mod = from_fx(torch.fx.symbolic_trace(Alpha()), [((3,), "float32"), ((3,), "float32")])
    check(mod, Alpha()(*inputs), inputs)


if __name__ == "__main__":
    tvm.testing.main()
