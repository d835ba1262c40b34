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
"""The strides of results under the backend of ``torch.compile``."""

from collections.abc import Callable

import pytest
import torch
import torch._dynamo
import tvm.testing

from tvm_fixes.torch.backend import Backend
from tvm_fixes.torch.explanation import Graph
from tvm_fixes.torch.options import Options


def memory(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def scatters(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = x.narrow(0, 0, 1) * 2
    return torch.slice_scatter(x, rows, 0, 0, 1), torch.diagonal_scatter(x, rows[0, :5]), rows


def diagonal(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.diagonal().add_(1)
    return (x >= x,)


def windows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.sin()
    return y, y.unfold(0, 3, 2), y.unfold(1, 2, 1).cos()


@pytest.mark.parametrize(
    ("model", "x", "left"),
    [
        (diagonal, torch.randn(4, 5).mT, []),
        (scatters, torch.randn(5, 6).mT.contiguous().mT, []),
        (scatters, torch.randn(5, 6, 2)[..., 1], ["slice_scatter", "diagonal_scatter"]),
        (windows, torch.randn(7, 4), []),
    ],
    ids=["an updated diagonal", "dense", "gaps", "windows"],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_results_have_the_strides_of_pytorch(
    model: Callable[..., tuple[torch.Tensor, ...]],
    x: torch.Tensor,
    left: list[str],
    dynamic: bool | None,
) -> None:
    torch._dynamo.reset()
    graphs: list[Graph] = []
    fast = torch.compile(model, backend=Backend(Options("llvm"), graphs.append), dynamic=dynamic)
    with torch.no_grad():
        got, expected = fast(x), model(x)
    assert len({*map(memory, got)}) == len({*map(memory, expected)})
    for value, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(value, wanted)
        assert value.squeeze().stride() == wanted.squeeze().stride()
    assert [reason.split(".")[1] for reason in graphs[0].eager.values()] == left
    assert graphs[0].partitions


if __name__ == "__main__":
    tvm.testing.main()
