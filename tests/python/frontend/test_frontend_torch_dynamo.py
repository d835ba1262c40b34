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
"""``relax_dynamo`` and ``dynamo_capture_subgraphs`` against PyTorch."""

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch._dynamo
import tvm.testing
from torch import nn
from tvm.relax.frontend import torch as tvm_torch

from helpers.torch_programs import run_all
from tvm_fixes.frontend.torch import dynamo_capture_subgraphs, relax_dynamo

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check_compiled(
    function: Callable, *calls: Sequence[torch.Tensor], dynamic: bool | None = None
) -> None:
    """Compare results and inputs after each of several calls."""
    compiled = torch.compile(function, backend=relax_dynamo(), dynamic=dynamic)
    for arguments in calls:
        ours, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
        with torch.no_grad():
            torch.testing.assert_close(compiled(*ours), function(*theirs))
        torch.testing.assert_close(ours, theirs)


def test_sizes() -> None:
    layer, conv = nn.Linear(10, 4), nn.Conv2d(3, 4, 3, padding=1)
    check_compiled(
        lambda x: torch.relu(layer(x)), *((torch.randn(rows, 10),) for rows in (3, 5, 1, 7))
    )
    check_compiled(
        lambda x: conv(x).view(x.size(0), -1),
        *((torch.randn(batch, 3, 8, 8),) for batch in (1, 2, 4)),
        dynamic=True,
    )


def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.cat([x, y])
    return z * 2 if z.size(0) > 5 else torch.std(z + 2, dim=1, correction=0)


def test_branches_on_sizes() -> None:
    calls = [(torch.randn(rows, 3), torch.randn(rows, 3)) for rows in (2, 4)]
    check_compiled(joined, *calls, dynamic=True)


def written(x: torch.Tensor) -> tuple:
    x.add_(1)
    return x * 2, x.shape[0], None, 3


def test_writes_and_results_that_are_not_tensors() -> None:
    check_compiled(written, (torch.randn(4, 5),), (torch.randn(5, 5),))


def test_statistics_of_a_batch_norm_in_training_mode() -> None:
    ours = nn.BatchNorm1d(5).train()
    theirs = copy.deepcopy(ours)
    x = torch.randn(6, 5)
    with torch.no_grad():
        got = torch.compile(ours, backend=relax_dynamo())(x)
        torch.testing.assert_close(got, theirs(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))


def broken(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Depends on a value, where Dynamo ends a graph."""
    x = a / (torch.sin(a) + 1)
    return x * (b * -1 if torch.sum(b) < 1 else b)


def test_capture() -> None:
    a, b = torch.randn(10), torch.ones(10)
    mod = dynamo_capture_subgraphs(broken, a, b)
    assert {var.name_hint for var in mod.get_global_vars()} == {"subgraph_0", "subgraph_1"}
    first = tvm.IRModule({"main": mod["subgraph_0"].with_attr("global_symbol", "main")})
    condition, x = sorted(run_all(first, a, b), key=lambda output: output.ndim)
    assert not condition
    torch.testing.assert_close(x, a / (torch.sin(a) + 1))


def test_signatures_are_those_of_tvm() -> None:
    ours, theirs = map(inspect.signature, (relax_dynamo, tvm_torch.relax_dynamo))
    assert list(ours.parameters) == list(theirs.parameters)


if __name__ == "__main__":
    tvm.testing.main()
