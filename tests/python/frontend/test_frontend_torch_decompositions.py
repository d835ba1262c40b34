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
"""Operators that PyTorch decomposes beyond its core set, and the statistics of norms."""

import math

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import is_full
from helpers.relax_modules import count, cpu
from helpers.torch_programs import Call, check_function, import_exported, random, run
from tvm_fixes.frontend.torch import ExportedProgramImporter, from_exported_program

NAN, INF = math.nan, math.inf


def check(function, *inputs: torch.Tensor, tolerance: float = 1e-5) -> None:
    """Compare the outputs of a function with PyTorch's."""
    mod = import_exported(Call(function), inputs)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    outputs = vm["main"](*(tvm.runtime.from_dlpack(x) for x in inputs))
    for number, (output, expected) in enumerate(zip(outputs, function(*inputs), strict=True)):
        torch.testing.assert_close(
            torch.from_dlpack(output),
            expected,
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=lambda text, number=number: f"output {number}: {text}",
        )


def test_roll() -> None:
    """A roll by a known number is two slices."""
    x, empty = random(3, 5, 4, dtype=torch.float32, seed=0), torch.zeros(2, 0)

    def function(x: torch.Tensor, empty: torch.Tensor) -> tuple:
        return (
            x.roll(2, -1),
            x.roll(-7, 0),
            x.roll(0, 1),
            x.roll((1, -3, 9), (0, 1, 0)),
            x.roll(11),
            x.bool().roll(1, 1).float(),
            empty.roll((1, 3), (0, 1)),
        )

    check_function(function, x, empty)
    mod = import_exported(Call(lambda x: x.roll(2, -1)), (x,))
    assert count(mod, "relax.take") == 0
    check_function(
        lambda x: (x.roll(3, 0), x.roll(9, (0,))), x.new_ones(6, 2).cumsum(0), dynamic=(0,)
    )


def test_batch_norm_in_training_mode_with_its_statistics() -> None:
    x = 3 + 2 * random(5, 3, 4, dtype=torch.float32, seed=0)
    mean, var = torch.zeros(3), torch.ones(3)

    def function(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple:
        mean, var = mean.clone(), var.clone()
        return F.batch_norm(x, mean, var, training=True), mean, var

    check(function, x, mean, var)
    check(
        lambda x, mean, var: torch.native_batch_norm(
            x, None, None, mean.clone(), var.clone(), True, 0.1, 1e-5
        ),
        x,
        mean,
        var,
    )


NORMS = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("dtype", NORMS if is_full() else NORMS[:1])
def test_other_norms(dtype: torch.dtype) -> None:
    x = random(2, 6, 4, dtype=dtype, seed=0)
    weight = random(6, dtype=dtype, seed=1)
    check(
        lambda x, weight: (
            *torch.native_layer_norm(x, (4,), None, None, 1e-5),
            F.group_norm(x, 2),
            F.group_norm(x, 3, weight, None),
            F.group_norm(x, 3, None, weight),
            F.rms_norm(x, (6, 4)),
            *torch.var_mean(x, 1),
            *torch.std_mean(x, (0, 2), correction=0, keepdim=True),
        ),
        x,
        weight,
        tolerance=1e-5 if dtype == torch.float32 else 2e-2,
    )


def test_statistics_that_no_converter_gives_are_decomposed() -> None:
    module, x = (
        Call(lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5)[1]),
        torch.rand(2, 4),
    )
    program = torch.export.export(module, (x,))
    mod = from_exported_program(program, run_ep_decomposition=False, unwrap_unit_return_tuple=True)
    torch.testing.assert_close(run(mod, x), module(x))


def test_operators_without_converter() -> None:
    x = torch.tensor([[1, NAN, -3], [INF, 2, NAN]])
    y = torch.tensor([[NAN, 4, 1], [0, -INF, NAN]])
    matrix = torch.arange(12.0).reshape(3, 4)
    check(
        lambda x, y, matrix, number: (
            *(torch.fmax(x, y), torch.fmin(x, y), torch.fmax(number, number + 1)),
            *(torch._is_all_true(number > 2), torch._is_any_true(number > 2)),
            *(torch.exp2(x), torch.exp2(number), torch.logaddexp2(matrix, matrix + 1)),
            *(matrix.unfold(1, 2, 1), matrix.unfold(0, 3, 2), matrix.unfold(-1, 3, 1)),
            torch.diagonal_scatter(matrix, torch.full((3,), -1.0)),
            torch.diagonal_scatter(matrix, torch.full((3,), -1.0), 1),
            torch.diagonal_scatter(matrix, torch.tensor([-1.0, -2.0]).double(), -1),
            torch.diagonal_scatter(matrix, torch.tensor([-1.0, -2.0]), -1, 0, 1),
            torch.diagonal_scatter(matrix, torch.tensor([-1.0, -2.0, -3.0]), -1, 1, 0),
            torch.diagonal_scatter(matrix.reshape(2, 3, 2), torch.ones(2, 2), 0, 2, 1),
        ),
        x,
        y,
        matrix,
        torch.tensor([3, -2]),
    )


@pytest.mark.parametrize("step", [2, 3] if is_full() else [3])
def test_windows_where_the_example_has_one(step: int) -> None:
    x = torch.arange(39.0).reshape(13, 3)
    module = Call(lambda x: x.unfold(-2, 2, step))
    shapes = (({0: torch.export.Dim.AUTO},),)
    program = torch.export.export(module, (x[:3],), dynamic_shapes=shapes)
    mod = from_exported_program(program)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for values in (x[:3], x[:7], x):
        got = torch.from_dlpack(vm["main"](tvm.runtime.from_dlpack(values))[0])
        assert torch.equal(got, module(values))


def test_strides() -> None:
    """Views of any strides in the memory of a tensor, which may be permuted, and writes to them."""
    check(
        lambda x, y: (
            *(x.as_strided((2, 3), (1, 2)), x.as_strided((3, 3), (0, 1), 2)),
            *(x.as_strided((3, 4), (4, 1)), x.as_strided((), (), 3), x.as_strided((0, 2), (1, 1))),
            *(x.t().as_strided((2, 3), (3, 1)), x[1:].as_strided((2, 2), (2, 1))),
            x[1:].as_strided((2, 2), (2, 1), 7),
            torch.as_strided_scatter(x, y, (2, 2), (1, 5)),
            torch.as_strided_scatter(x.t(), y, (2, 2), (1, 5), 3),
        ),
        torch.arange(12.0).reshape(3, 4),
        -torch.arange(1, 5.0).reshape(2, 2),
    )


@pytest.mark.parametrize(
    ("function", "message"),
    (
        (lambda x: x[:, 1:].as_strided((2, 2), (4, 1)), "expected elements without gaps"),
        (lambda x: x[1:].as_strided((2, 2), (2, 1), 0), "elements -4 to -1 of an operand of 8"),
    ),
    ids=("gaps", "outside"),
)
def test_strides_of_elements_that_the_operand_has_not(function, message: str) -> None:
    with pytest.raises(tvm.error.OpNotImplemented, match=message):
        import_exported(Call(function), (torch.zeros(3, 4),))


def test_adaptive_maxima_of_any_extents() -> None:
    """The example's extents are multiples of the result's; those of other inputs are not."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = F.adaptive_max_pool1d(x.flatten(0, 1), 4)
        return rows, F.adaptive_max_pool2d(x, (2, 4)), F.adaptive_max_pool2d(x, 1)

    inputs = [torch.randn(2, 3, *extents) for extents in ((6, 8), (5, 4), (7, 9), (4, 13))]
    inputs[2][0, 1, 3, 4] = NAN
    check_function(function, inputs[0], dynamic=(2, 3), others=[(x,) for x in inputs[1:]])


def test_places_of_adaptive_maxima() -> None:
    x = torch.randn(2, 3, 5, 7)
    check(lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), x)
    check(lambda x: F.adaptive_max_pool1d(x.flatten(0, 1), 3, return_indices=True), x)


def test_copies_and_empty_slices() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        y.transpose(0, 1).copy_(-1.5)
        z = x.clone()
        z[1].copy_(torch.tensor(3))
        return y, z, x[:, 4:2], x[3:], x[-1:0, :, :], x

    check(function, torch.arange(6.0).reshape(2, 3, 1))


def test_a_write_to_transposed_elements() -> None:
    """PyTorch's rule ends in a copy with the strides of the transposed tensor."""
    check(
        lambda x: [x.permute(2, 0, 1).clone().index_fill_(0, torch.tensor([0, 3]), 2.0), x],
        torch.arange(24.0).reshape(2, 3, 4),
    )


def test_layer_norm_over_a_symbolic_extent() -> None:
    module = Call(lambda x: F.layer_norm(x, x.shape[1:]))
    x = torch.arange(90.0).reshape(3, 30).sin()
    shapes = (({1: torch.export.Dim.AUTO},),)
    program = torch.export.export(module, (x,), dynamic_shapes=shapes)
    mod = from_exported_program(program)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for values in (x[:, :7], x):
        got = torch.from_dlpack(vm["main"](tvm.runtime.from_dlpack(values.contiguous()))[0])
        torch.testing.assert_close(got, module(values))


def test_the_median_of_data_with_nan_is_nan() -> None:
    x = torch.tensor([[1, NAN, 3, NAN, 2], [5, 1, 4, 2, 3], [INF, -1, -INF, 0, -1], [NAN] * 5])
    check(lambda x: (*x.median(1), *x.t().median(0, keepdim=True), x.median(), x[1:3].median()), x)
    check(
        lambda x: (x.median(1)[0], x.median(), x[0, 0].median()), torch.arange(24).reshape(4, 6) % 7
    )


def test_norm_of_one_element_is_its_magnitude() -> None:
    """Its square may be 0 or infinite."""
    check_function(
        lambda x: (x.norm(dim=0), x.norm(1.5, dim=0), torch.linalg.vector_norm(x, 3, -2)),
        torch.tensor([[-1e-30, 1e30, 0.0]]),
    )


def test_norms_of_orders() -> None:
    x = torch.tensor([[3.0, 0, -4], [0, 0, 12]])
    large = torch.tensor([300.0, -400.0], dtype=torch.float16)
    check(
        lambda x, large: (
            *(torch.linalg.vector_norm(x, order, 1) for order in (0, 1, 2, 2.5, INF, -INF)),
            *(torch.linalg.vector_norm(x, 0), x.norm(), x.norm(0, keepdim=True)),
            *(large.norm(), large.bfloat16().norm(0)),
        ),
        x,
        large,
    )


LIMITED = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", LIMITED if is_full() else LIMITED[::2])
def test_parts_of_limited_norms(dtype: torch.dtype) -> None:
    x = random(3, 4, 2, dtype=dtype, seed=0)

    def limited(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.renorm(x, 2, 1, 1.5), torch.renorm(x, 1, -1, 100.0), torch.renorm(x, 3, 0, 0.5)

    check_function(limited, x, tolerance=1e-5 if dtype == torch.float32 else 8e-3)


def test_an_unknown_operator_is_rejected_with_its_node() -> None:
    with pytest.raises(
        tvm.error.OpNotImplemented,
        match=r"^unsupported operator aten.igamma.default at node 'igamma', "
        r"aten.special_airy_ai.default at node 'special_airy_ai'$",
    ):
        import_exported(
            Call(lambda x: (torch.igamma(x, x), torch.igamma(x, x), torch.special.airy_ai(x))),
            (torch.ones(3),),
        )


@pytest.mark.parametrize("kind", (KeyError, TypeError, tvm.error.InternalError))
def test_what_a_converter_fails_with_names_the_node(kind: type[Exception]) -> None:
    def fail(node: torch.fx.Node) -> relax.Expr:
        raise kind("something")

    program = torch.export.export(Call(torch.exp), (torch.ones(3),))
    importer = ExportedProgramImporter()
    importer.context.importer.convert_map["exp.default"] = fail
    with pytest.raises(tvm.error.OpNotImplemented, match=r"'exp': .*something"):
        importer.import_program(program)


def test_places_of_a_max_pooling_without_decomposition() -> None:
    """TVM's converter returns zeros."""
    x = torch.randn(1, 2, 6, 6)
    pool = Call(lambda x: torch.ops.aten.max_pool2d_with_indices(x, [2, 2]))
    mod = import_exported(pool, (x,), decompose=False)
    machine = relax.VirtualMachine(relax.build(mod, relax_pipeline="tvm_fixes"), tvm.cpu())
    for ours, theirs in zip(machine["main"](tvm.runtime.tensor(x.numpy())), pool(x), strict=True):
        assert torch.equal(torch.from_numpy(ours.numpy()), theirs)
    check(lambda x: (F.max_pool2d(x, 2, dilation=2), F.max_pool2d(x, 2)), x)


if __name__ == "__main__":
    tvm.testing.main()
