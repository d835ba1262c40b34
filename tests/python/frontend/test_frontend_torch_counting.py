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
"""Results of PyTorch's operators whose extents depend on the elements."""

import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from tvm import relax

from helpers.relax_modules import cpu
from helpers.torch_programs import Call, check_function, import_exported
from tvm_fixes.frontend.torch import from_exported_program

NAN = float("nan")


class Counting(nn.Module):
    """Counts of integers, runs and different elements of a row."""

    def forward(self, x: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, ...]:
        options = {"return_inverse": True, "return_counts": True}
        return (
            torch.bincount(x),
            torch.bincount(x, numbers, minlength=6),
            torch.repeat_interleave(x),
            numbers.repeat_interleave(x),
            torch.nonzero_static(x, size=3),
            *torch.unique(numbers, **options),
            *torch.unique_consecutive(numbers, **options),
        )


def test_rows_of_symbolic_length() -> None:
    x = torch.tensor([1, 3, 3, 0, 7, 3, 1])
    numbers = torch.tensor([1.5, 3, 3, NAN, -0.0, 0.0, NAN])
    rows = torch.export.Dim("rows", min=1, max=99)
    program = torch.export.export(Counting(), (x, numbers), dynamic_shapes=({0: rows}, {0: rows}))
    mod = from_exported_program(program)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    rest = torch.tensor([4, 4, 4, 0, 0]), torch.tensor([2.0, -1, -1, 2, -1])
    for inputs in ((x, numbers), (x[:1], numbers[:1]), (x[3:4], numbers[3:4]), rest):
        results = vm["main"](*(tvm.runtime.from_dlpack(x.clone()) for x in inputs))
        for got, expected in zip(results, Counting()(*inputs), strict=True):
            torch.testing.assert_close(torch.from_dlpack(got), expected, equal_nan=True)


def test_places_of_nonzero_elements() -> None:
    x = torch.tensor([[0.0, 2, NAN], [0, 0, -1]])
    check_function(
        lambda x: (
            *(torch.nonzero_static(x, size=size) for size in (0, 2, 9)),
            torch.nonzero_static(x[0, 1], size=2, fill_value=7),
            torch.nonzero_static(x[:, :0], size=2),
            *(x[0, 0].nonzero(), x[0, 1].nonzero(), x.nonzero()),
        ),
        x,
    )


def test_different_rows_are_rejected() -> None:
    x = torch.zeros(2, 3)
    for function, name in (
        (lambda x: torch.unique(x, dim=0), "aten.unique_dim.default"),
        (lambda x: torch.unique_consecutive(x, dim=0), "aten.unique_consecutive"),
    ):
        with pytest.raises((tvm.error.OpNotImplemented, NotImplementedError), match=name):
            import_exported(Call(function), (x,))


if __name__ == "__main__":
    tvm.testing.main()
