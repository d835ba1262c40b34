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
"""Conditions on sizes that torch.export records: programs check them at run time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm.testing

from helpers.grids import is_full
from helpers.torch_programs import Call, random
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.runtime.compiled_model import CompiledModel

AUTO = torch.export.Dim.AUTO


def inputs(columns: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        random(3, columns, dtype=torch.float32, seed=columns),
        random(count, dtype=torch.float32, seed=count),
    )


def exported(function: Callable[..., torch.Tensor], sizes: tuple[int, int]):
    """A program whose first input has symbolic columns, and whose second one has any length."""
    axes = (({1: AUTO}, {0: AUTO}),)
    return torch.export.export(Call(function).eval(), inputs(*sizes), dynamic_shapes=axes)


def check(
    model: CompiledModel, function: Callable[..., torch.Tensor], accepted: list, rejected: list
) -> None:
    for sizes in accepted:
        [result] = [model.run(*inputs(*sizes))]
        np.testing.assert_allclose(result, function(*inputs(*sizes)), 1e-5, 1e-5)
    for sizes in rejected:
        with pytest.raises(Exception, match="export the program with sizes like those"):
            model.run(*inputs(*sizes))


GUARDED = (
    # The other extents read beyond the data, or are not those that Python gives.
    (lambda x, y: x[:, : y.shape[0]] + 1, [(8, 4), (5, 5)], [(4, 9)]),
    (lambda x, y: x[:, -y.shape[0] :] + 1, [(8, 4), (5, 5)], [(4, 9)]),
    (lambda x, y: x[:, -y.shape[0] :: 2] + 1, [(4, 6), (3, 9)], [(9, 4)]),
    (lambda x, y: x.narrow(1, 1, y.shape[0]) + 1, [(8, 4), (5, 4)], [(4, 4), (3, 9)]),
    (lambda x, y: x[:, y.shape[0]] + 1, [(8, 4), (5, 4)], [(4, 4), (3, 9)]),
    (lambda x, y: x.split(y.shape[0], 1)[-1] + 1, [(8, 5), (9, 5)], [(5, 5), (8, 3)]),
    (lambda x, y: x.topk(y.shape[0], 1)[0], [(8, 4), (5, 5)], [(4, 9)]),
    (lambda x, y: x.reshape(y.shape[0], -1), [(8, 4), (10, 5)], [(4, 9), (7, 4)]),
    (lambda x, y: x.reshape(y.shape[0], -1) + 1, [(8, 4), (10, 5)], [(4, 9), (7, 4)]),
    (lambda x, y: x[:, ::2] @ y, [(8, 4), (7, 4)], [(6, 4), (9, 4)]),
    (lambda x, y: x.unfold(1, 3, 2) + y[0], [(8, 4), (5, 4)], []),
    (lambda x, y: x * 2 if x.shape[1] % 2 else x * 3, [(6, 4), (4, 3)], [(5, 4), (7, 3)]),
    (lambda x, y: torch.tensor_split(x, 3, 1)[0] + 1, [(6, 4), (9, 4)], [(7, 4), (8, 4)]),
)


@pytest.mark.parametrize(
    ("function", "accepted", "rejected"), GUARDED if is_full() else GUARDED[::3]
)
def test_sizes_that_a_guard_excludes(
    function: Callable[..., torch.Tensor], accepted: list, rejected: list
) -> None:
    model = compile_model(exported(function, accepted[0]), compare=False)
    check(model, function, accepted, rejected)


SCATTERED = (
    (lambda x, y: x.slice_scatter(y, 0, 0, y.shape[0]), [(6, 3), (3, 3)], [(3, 4)]),
    (lambda x, y: x.slice_scatter(y, 0, 1, y.shape[0] + 1), [(6, 3), (4, 3)], [(3, 3)]),
    (lambda x, y: x.slice_scatter(y, 0, -y.shape[0]), [(6, 3), (3, 3)], [(3, 4)]),
    (lambda x, y: x.slice_scatter(y, 0, x.shape[0] - 5, 9, 2), [(6, 3), (7, 3)], [(4, 3)]),
)


@pytest.mark.parametrize(
    ("function", "accepted", "rejected"), SCATTERED if is_full() else SCATTERED[1::2]
)
def test_size_of_a_scattered_slice(
    function: Callable[..., torch.Tensor], accepted: list, rejected: list
) -> None:
    def make(rows: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return random(rows, dtype=torch.float32, seed=0), random(count, dtype=torch.float32, seed=1)

    program = torch.export.export(
        Call(function).eval(), make(6, 3), dynamic_shapes=(({0: AUTO}, {0: AUTO}),), strict=False
    )
    model = compile_model(program, compare=False)
    for sizes in accepted:
        np.testing.assert_array_equal(model.run(*make(*sizes)), function(*make(*sizes)))
    for sizes in rejected:
        with pytest.raises(RuntimeError, match="src"):
            function(*make(*sizes))
        with pytest.raises(
            Exception, match=r"slice_scatter.*: axis 0 of .* expected \d; the inputs"
        ):
            model.run(*make(*sizes))


def test_a_program_in_a_file(tmp_path: Path) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[1] % 2 == 0 else x[:, : y.shape[0]]

    torch.export.save(exported(function, (8, 4)), tmp_path / "program.pt2")
    model = compile_model(tmp_path / "program.pt2", compare=False, trust=True)
    check(model, function, [(6, 4)], [(7, 4)])


def test_the_message_names_the_condition() -> None:
    model = compile_model(exported(lambda x, y: x[:, : y.shape[0]] + 1, (8, 4)), compare=False)
    with pytest.raises(Exception, match=r"slice.* of s\d+ elements on axis 1|input 'args_1'"):
        model.run(*inputs(4, 9))


def test_sizes_may_be_equal_or_1() -> None:
    """PyTorch records that the sizes differ, and that half of one is not 1."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, ::2].sum(1), y]) * 2

    model = compile_model(exported(function, (8, 5)), compare=False)
    check(model, function, [(8, 5), (8, 8), (2, 2)], [])


def test_a_bound_beyond_int64() -> None:
    """PyTorch derives ``columns <= 2**64 - 4`` from the end of the slice."""
    step, end = 2**31, -(2**63 - 1)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[:, -(y.shape[0] + 1) :: 2][:, -y.shape[0] : end : step]

    model = compile_model(exported(function, (5, 5)), compare=False)
    check(model, function, [(5, 5), (6, 9)], [])


def test_views_of_symbolic_size_with_strides() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2, y.shape[0]), (1, 1))

    check(compile_model(exported(function, (4, 4)), compare=False), function, [(4, 4), (6, 9)], [])


if __name__ == "__main__":
    tvm.testing.main()
