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
"""``from_exported_program``: against PyTorch in every dtype, and as TVM's where TVM is right."""

import inspect
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from tvm import relax
from tvm.relax.frontend import torch as tvm_torch
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.coverage_tables import CoverageTables
from helpers.grids import batched, few, is_full, sample
from helpers.relax_modules import calls
from helpers.torch_programs import (
    FLOATS,
    Call,
    check,
    check_all,
    import_exported,
    name_of,
    random,
    randomize,
    run,
    run_all,
)
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.support import switches

DTYPES = st.sampled_from(FLOATS)


def check_cases(cases: Sequence["Linear | ScaledSum"], decompose: bool) -> None:
    named = {
        f"{number} {case}": (case.module(), case.inputs()) for number, case in enumerate(cases)
    }
    check_all(named, import_exported, decompose=decompose)


def stock_and_ours(program: torch.export.ExportedProgram, **options) -> None:
    tvm.ir.assert_structural_equal(
        from_exported_program(program, **options),
        tvm_torch.from_exported_program(program, **options),
    )


@dataclass(frozen=True)
class Convolution:
    rank: int
    dtype: torch.dtype
    bias: bool
    groups: int
    stride: int
    padding: int
    dilation: int
    batched: bool
    decompose: bool

    def module(self) -> nn.Module:
        layer = getattr(nn, f"Conv{self.rank}d")(
            24,
            8,
            kernel_size=(3, 2, 3)[: self.rank],
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            bias=self.bias,
        )
        return randomize(layer, self.dtype)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        shape = (2, 24, *(6, 7, 5)[: self.rank])
        return (random(*shape[0 if self.batched else 1 :], dtype=self.dtype, seed=0),)

    def __str__(self) -> str:
        return (
            f"{self.rank}d-{name_of(self.dtype)}-bias{self.bias:d}-g{self.groups}-"
            f"s{self.stride}-p{self.padding}-d{self.dilation}-"
            f"batched{self.batched:d}-decompose{self.decompose:d}"
        )


CONVOLUTIONS = [
    Convolution(rank, dtype, bias, groups, stride, padding, dilation, batched, decompose)
    for rank in (1, 2, 3)
    for dtype in FLOATS
    for bias in (False, True)
    for groups in (1, 8)
    for stride, padding, dilation in ((1, 0, 1), (2, 1, 1), (1, 1, 2), (3, 0, 2))
    for batched in (False, True)
    for decompose in (False, True)
]


def covered(
    tables: CoverageTables, operator: str, dtype: torch.dtype, decompose: bool
) -> AbstractContextManager[None]:
    return tables("torch_importer").case(
        operator=operator, dtype=name_of(dtype), decomposed=decompose
    )


@pytest.mark.parametrize("case", sample(CONVOLUTIONS, 8, seed=2), ids=str)
def test_convolution(case: Convolution, coverage_table: CoverageTables) -> None:
    with covered(coverage_table, f"Conv{case.rank}d", case.dtype, case.decompose):
        check(case.module(), *case.inputs(), decompose=case.decompose)


@dataclass(frozen=True)
class Linear:
    dtype: torch.dtype
    leading: tuple[int, ...]
    width: int
    out: int
    bias: bool

    def module(self) -> nn.Module:
        return randomize(nn.Linear(self.width, self.out, bias=self.bias), self.dtype)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return (random(*self.leading, self.width, dtype=self.dtype, seed=0),)


LINEARS = st.builds(
    Linear,
    dtype=DTYPES,
    leading=st.lists(st.integers(1, 4), max_size=3).map(tuple),
    width=st.integers(1, 64),
    out=st.integers(1, 9),
    bias=st.booleans(),
)


@batched(5 if is_full() else 10)
@given(cases=st.lists(LINEARS, min_size=5, max_size=5), decompose=st.booleans())
def test_linear(cases: list[Linear], decompose: bool) -> None:
    check_cases(cases, decompose)


@dataclass(frozen=True)
class ScaledSum:
    """addmm, or baddbmm with a batch, with every addend that PyTorch broadcasts."""

    dtype: torch.dtype
    batch: int | None
    extents: tuple[int, int, int]
    addend: str
    alpha: float
    beta: float

    def module(self) -> nn.Module:
        operator = torch.addmm if self.batch is None else torch.baddbmm
        return Call(lambda c, a, b: operator(c, a, b, alpha=self.alpha, beta=self.beta))

    def inputs(self) -> tuple[torch.Tensor, ...]:
        rows, width, columns = self.extents
        leading = () if self.batch is None else (self.batch,)
        shape = {
            "full": (*leading, rows, columns),
            "row": (columns,),
            "column": (rows, 1),
            "scalar": (),
        }[self.addend]
        return (
            random(*shape, dtype=self.dtype, seed=0),
            random(*leading, rows, width, dtype=self.dtype, seed=1),
            random(*leading, width, columns, dtype=self.dtype, seed=2),
        )


FACTORS = st.sampled_from((0, 1, -1, 0.7, 2.5))
SCALED_SUMS = st.builds(
    ScaledSum,
    dtype=DTYPES,
    batch=st.one_of(st.none(), st.integers(1, 3)),
    extents=st.tuples(st.integers(1, 5), st.integers(1, 64), st.integers(1, 5)),
    addend=st.sampled_from(("full", "row", "column", "scalar")),
    alpha=FACTORS,
    beta=FACTORS,
)


@batched(5 if is_full() else 10)
@given(cases=st.lists(SCALED_SUMS, min_size=5, max_size=5), decompose=st.booleans())
def test_scaled_sum(cases: list[ScaledSum], decompose: bool) -> None:
    check_cases(cases, decompose)


@few(3)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("alpha", (0, 1))
def test_beta_0_ignores_the_addend(dtype: torch.dtype, alpha: int) -> None:
    inputs = (torch.full((3,), torch.nan), torch.ones(2, 4), torch.ones(4, 3))
    inputs = tuple(x.to(dtype) for x in inputs)
    module = Call(lambda c, a, b: torch.addmm(c, a, b, alpha=alpha, beta=0))
    program = torch.export.export(module, inputs)
    mod = from_exported_program(program)
    used = {var.name for var in relax.analysis.free_vars(mod["main"].body)}
    assert used == ({var.name for var in mod["main"].params[1:]} if alpha else set())
    got = run(mod, *inputs)
    torch.testing.assert_close(got, torch.full((2, 3), 4.0 * alpha, dtype=dtype))


MATRIX_PRODUCTS = {
    "mm": (torch.mm, (3, 600), (600, 5)),
    "bmm": (torch.bmm, (2, 3, 600), (2, 600, 5)),
    "matmul": (torch.matmul, (2, 3, 4, 300), (3, 300, 5)),
    "matmul of a vector": (torch.matmul, (600,), (2, 600, 5)),
}


@pytest.mark.parametrize(
    "name, dtype, decompose",
    sample(list(itertools.product(MATRIX_PRODUCTS, FLOATS, (False, True))), 8),
    ids=str,
)
def test_matrix_product(
    name: str, dtype: torch.dtype, decompose: bool, coverage_table: CoverageTables
) -> None:
    operator, *shapes = MATRIX_PRODUCTS[name]
    inputs = [random(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    with covered(coverage_table, name, dtype, decompose):
        check(Call(operator), *inputs, decompose=decompose)


INTEGERS = list(
    itertools.product((torch.int8, torch.int32, torch.int64, torch.uint8), (False, True))
)


@pytest.mark.parametrize(("dtype", "decompose"), INTEGERS if is_full() else INTEGERS[::3], ids=str)
def test_integers_stay_integers(dtype: torch.dtype, decompose: bool) -> None:
    """Sums wrap around in the operands' dtype, as in PyTorch; factors are truncated to it."""
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randint(0, 100, shape, dtype=dtype, generator=generator)
        for shape in ((5,), (3, 4), (4, 5), (5, 4))
    ]
    module = Call(
        lambda c, a, b, w: a @ b + torch.addmm(c, a, b, alpha=2.5, beta=3) + F.linear(a, w, c)
    )
    program = torch.export.export(module, tuple(inputs))
    got = run(from_exported_program(program, run_ep_decomposition=decompose), *inputs)
    torch.testing.assert_close(got, module(*inputs), rtol=0, atol=0)


def test_float16_linear() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float16"),
            weight: R.Tensor((3, 4), "float16"),
            bias: R.Tensor((3,), "float16"),
        ) -> R.Tuple(R.Tensor((2, 3), "float16")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                wide_bias = R.astype(bias, "float32")
                transposed = R.permute_dims(weight)
                product = R.matmul(x, transposed, out_dtype="float32")
                wide = R.add(product, wide_bias)
                rounded = R.astype(wide, "float16")
                out: R.Tuple(R.Tensor((2, 3), "float16")) = (rounded,)
                R.output(out)
            return out

    x = torch.zeros(2, 4, dtype=torch.float16)
    program = torch.export.export(nn.Linear(4, 3).half().eval(), (x,))
    mod = from_exported_program(program, keep_params_as_input=True)
    mod["main"] = mod["main"].without_attr("params")
    tvm.ir.assert_structural_equal(mod, Expected)


FLOAT32 = torch.float32
FLOAT32_MODULES = {
    "linear": (nn.Linear(4, 3), [(2, 4)]),
    "linear without bias": (nn.Linear(4, 3, bias=False), [(2, 5, 4)]),
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1), [(2, 4, 8)]),
    "conv2d": (nn.Conv2d(4, 6, 3, dilation=2, groups=2), [(2, 4, 8, 9)]),
    "conv2d without bias": (nn.Conv2d(4, 6, 3, bias=False), [(2, 4, 8, 9)]),
    "conv3d": (nn.Conv3d(4, 6, 3), [(2, 4, 5, 6, 7)]),
    "conv_transpose1d": (nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), [(2, 4, 8)]),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1), [(2, 4, 8, 9)]),
    "mm": (Call(torch.mm), [(2, 4), (4, 3)]),
    "bmm": (Call(torch.bmm), [(5, 2, 4), (5, 4, 3)]),
    "matmul": (Call(torch.matmul), [(5, 2, 4), (4, 3)]),
    "addmm": (Call(lambda c, a, b: torch.addmm(c, a, b, alpha=2)), [(3,), (2, 4), (4, 3)]),
    "baddbmm": (
        Call(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5)),
        [(3,), (5, 2, 4), (5, 4, 3)],
    ),
}


AS_BY_TVM = list(itertools.product((False, True), FLOAT32_MODULES))


@few(3)
@pytest.mark.parametrize(("decompose", "name"), AS_BY_TVM if is_full() else AS_BY_TVM[::3])
def test_float32_is_imported_as_by_tvm(name: str, decompose: bool) -> None:
    module, shapes = FLOAT32_MODULES[name]
    program = torch.export.export(module.eval(), tuple(torch.zeros(shape) for shape in shapes))
    ours = from_exported_program(program, run_ep_decomposition=decompose)
    # Linear layers and matmul are not decomposed.
    decompose &= not name.startswith(("linear", "matmul"))
    stock = tvm_torch.from_exported_program(program, run_ep_decomposition=decompose)
    tvm.ir.assert_structural_equal(ours, stock)


@pytest.mark.parametrize(
    "option", ("keep_params_as_input", "unwrap_unit_return_tuple", "no_bind_return_tuple")
)
def test_options_are_those_of_tvm(option: str) -> None:
    program = torch.export.export(nn.Linear(4, 3).eval(), (torch.zeros(2, 4),))
    stock_and_ours(program, run_ep_decomposition=False, **{option: True})


@pytest.mark.parametrize("is_bound", (False, True))
def test_a_single_result_that_is_not_a_tuple(is_bound: bool) -> None:
    """It has no tuple to bind; two results still have one."""
    options = {"unwrap_unit_return_tuple": True, "no_bind_return_tuple": not is_bound}
    x = torch.arange(3.0)
    for module, expected in ((nn.ReLU(), [x]), (TwoResults(), [x, -x])):
        mod = from_exported_program(torch.export.export(module, (x,)), **options)
        assert isinstance(mod["main"].ret_ty, relax.TupleType) == (len(expected) > 1)
        for ours, theirs in zip(run_all(mod, x), expected, strict=True):
            assert torch.equal(ours, theirs)


class TwoResults(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.relu(), -x


def test_signature_begins_with_that_of_tvm() -> None:
    """All other parameters are optional."""

    def parameters(function: Callable) -> list:
        signature = inspect.signature(function)
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    ours, theirs = map(parameters, (from_exported_program, tvm_torch.from_exported_program))
    assert ours[: len(theirs)] == theirs
    assert ours[len(theirs) :] == [("return_updates", inspect.Parameter.KEYWORD_ONLY, False)]


def test_caller_converter_goes_first() -> None:
    program = torch.export.export(nn.Linear(4, 3).eval().half(), (torch.zeros(2, 4).half(),))

    def convert(node: torch.fx.Node, importer) -> relax.Var:
        return importer.block_builder.emit(relax.op.zeros((2, 3), "float16"))

    mod = from_exported_program(
        program, custom_convert_map={"linear.default": convert}, run_ep_decomposition=False
    )
    assert [call.op.name for call in calls(mod)] == ["relax.zeros"]


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, self.linear, lambda x: -self.linear(x), (x,))


@pytest.mark.parametrize("sign", (-1, 1))
def test_branches_of_cond(sign: int) -> None:
    x = sign * random(2, 4, dtype=torch.float16, seed=0).abs()
    check(randomize(Branches(), torch.float16), x)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(4).to_sparse())
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.sparse.mm(self.matrix, x))


def test_sparse_program_is_not_decomposed() -> None:
    stock_and_ours(torch.export.export(Sparse().eval(), (torch.zeros(4, 3),)))


def test_float64_sparse_buffer() -> None:
    module = randomize(Sparse(), torch.float64)
    x = random(4, 3, dtype=torch.float64, seed=0)
    program = torch.export.export(module, (x,))
    got = run(from_exported_program(program), x)
    torch.testing.assert_close(got, module(x).detach(), rtol=1e-14, atol=1e-14)


class Generator(nn.Module):
    """A small DCGAN: linear, transposed convolutions, batch norms and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 8 * 16)
        self.body = nn.Sequential(
            nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(4, 3, 3, padding=1),
        )

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.body(self.linear(z).reshape(-1, 8, 4, 4)))


NETWORK_DTYPES = (torch.float16, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("dtype", NETWORK_DTYPES if is_full() else NETWORK_DTYPES[:1], ids=str)
@torch.no_grad()
def test_network(dtype: torch.dtype) -> None:
    """Each layer rounds once, so the result stays within a few ulp."""
    torch.manual_seed(0)
    module = Generator().eval().to(dtype)
    z = random(2, 16, dtype=dtype, seed=0)
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (z,), dynamic_shapes=({0: batch},))
    got = run(from_exported_program(program), z)
    expected = module(z)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(2, 4, dtype=torch.float64)
    program = torch.export.export(nn.Linear(4, 3, bias=False).double().eval(), (x,))
    stock = tvm_torch.from_exported_program(program)
    assert stock["main"].ret_ty.fields[0].dtype.dtype == "float32"
    with switches.collect() as acted:
        ours = from_exported_program(program)
    assert ours["main"].ret_ty.fields[0].dtype.dtype == "float64"
    assert acted == {"torch-dtype"}
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-dtype,torch-linear")
    tvm.ir.assert_structural_equal(from_exported_program(program), stock)


def test_float32_needs_no_fix() -> None:
    program = torch.export.export(nn.Linear(4, 3).eval(), (torch.zeros(2, 4),))
    with switches.collect() as acted:
        from_exported_program(program)
    assert acted == set()


if __name__ == "__main__":
    tvm.testing.main()
