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
"""Factorizations, bits, searches, integers and complex numbers of PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from tvm import relax

from helpers.relax_modules import cpu
from helpers.torch_programs import Call, check_function, import_exported

NAN, INF = math.nan, math.inf


def test_factorizations() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(2, 4, n, generator=generator) for n in (4, 3))
    s = a @ a.mT + 4 * torch.eye(4)

    def function(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lower = torch.linalg.cholesky(s)
        return (
            *(torch.linalg.det(a), torch.linalg.slogdet(a)[1], torch.linalg.solve(s, b)),
            *(torch.linalg.solve(s[0], b[0, :, 0]), *torch.linalg.lu(b)),
            *(lower.mT, torch.cholesky_solve(b, lower), *torch.linalg.qr(b, mode="complete")),
            torch.linalg.solve_triangular(s, b.mT, upper=True, left=False, unitriangular=True),
            torch.linalg.det(a[:, :0, :0]),
        )

    check_function(function, a, b, s, tolerance=1e-4)


def test_loops_without_elements() -> None:
    """Their kernels are fused with those of their operands."""
    i, j = (torch.ones(0, n, 3, dtype=torch.int64) for n in (1, 4))

    def function(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.cholesky_inverse(x[:0, :0]), torch.gcd(i, j)

    check_function(function, torch.ones(3, 3), i, j)


def test_a_singular_matrix_fails_at_run_time() -> None:
    x = torch.eye(3)
    mod = import_exported(Call(torch.linalg.inv), (x,))
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    assert torch.equal(torch.from_dlpack(vm["main"](tvm.runtime.from_dlpack(x))), x)
    with pytest.raises(Exception, match=r"match_cast|MatchCast|shape"):
        vm["main"](tvm.runtime.from_dlpack(torch.zeros(3, 3)))


def test_products_of_groups() -> None:
    """The second group has no rows."""
    x, weights = torch.rand(7, 16).bfloat16(), torch.rand(3, 16, 8).bfloat16()
    ends = torch.tensor([3, 3, 7], dtype=torch.int32)
    check_function(lambda x, w, ends: (F.grouped_mm(x, w, offs=ends),), x, weights, ends)


def test_products_of_groups_of_transformers() -> None:
    """The experts of a mixture in float32; the rows after the last group are zeros."""
    moe = pytest.importorskip("transformers.integrations.moe")
    assert moe is not None
    operator = torch.ops.transformers.grouped_mm_fallback
    x, weights, ends = torch.rand(7, 16), torch.rand(3, 16, 8), torch.tensor([3, 3, 6])
    check_function(lambda x, w, ends: (operator(x, w, ends),), x, weights, ends)


def test_groups_multiply_only_their_own_rows() -> None:
    """A program for any groups; groups out of order, or beyond the rows, are an error."""
    pytest.importorskip("transformers.integrations.moe")
    operator = torch.ops.transformers.grouped_mm_fallback
    x, weights, ends = torch.rand(7, 16), torch.rand(3, 16, 8), torch.tensor([3, 3, 6])
    mod = import_exported(Call(lambda *values: (operator(*values),)), (x, weights, ends))
    products: list[relax.Expr] = []
    matmul = tvm.ir.Op.get("relax.matmul")

    def visit(value: relax.Expr) -> None:
        if isinstance(value, tvm.ir.Call) and value.op.same_as(matmul):
            products.append(value)

    relax.analysis.post_order_visit(mod["main"].body, visit)
    assert len(products) == 3
    assert all(isinstance(one.args[0].ty.shape[0], tvm.tirx.Var) for one in products)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for last in ([3, 3, 6], [0, 7, 7], [1, 2, 3]):
        ends = torch.tensor(last)
        got = vm["main"](*map(tvm.runtime.from_dlpack, (x, weights, ends)))
        torch.testing.assert_close(torch.from_dlpack(got), operator(x, weights, ends))
    for last in ([3, 2, 7], [1, 2, 8], [-1, 2, 7]):
        with pytest.raises(RuntimeError, match="match"):
            vm["main"](*map(tvm.runtime.from_dlpack, (x, weights, torch.tensor(last))))


def test_bits_and_integers() -> None:
    x = torch.tensor([0.0, -0.0, 1.5, INF, -2.0, -INF, 3e-42])
    y = torch.tensor([-1.0, 0.0, -0.0, 2.0, -INF, INF, 0.0])
    i = torch.tensor([[0, 1, -1, 2, -3, 7, 12]])
    j = torch.tensor([[5], [-2], [0], [63], [18]])
    small = torch.tensor([-5, 3, 127], dtype=torch.int8)

    def function(x, y, i, j, small) -> tuple[torch.Tensor, ...]:
        return (
            *(torch.signbit(x), torch.copysign(x, y), torch.copysign(i, -0.0)),
            *(torch.nextafter(x, y), *torch.frexp(x), x.view(torch.int32)),
            *(torch.gcd(i, j), torch.lcm(i, j), torch.sign(i > 1), i**j, 2**i, small**small),
            *(i << j, i >> j, small << 2, small >> 9),
        )

    check_function(function, x, y, i, j, small)


def test_orders_and_searches() -> None:
    x = torch.tensor([[3.0, NAN, -1.0, 3.0, INF], [2.0, 2.0, -INF, 0.5, 1.0]])
    i = torch.tensor([[3, 1, 3, 2, 2], [5, 5, 1, 0, 1]])
    rows = torch.tensor([[-2.0, 0.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0]])

    def function(x, i, rows) -> tuple[torch.Tensor, ...]:
        return (
            *(
                *torch.cummax(x, 1),
                *torch.cummin(x, 0),
                *torch.cummax(i, -1),
                *torch.cummin(i > 1, 1),
                *torch.cummax(x.bfloat16(), 1),
            ),
            *(torch.logcumsumexp(x, 1), torch.logcumsumexp(rows, 0)),
            *(torch.searchsorted(rows, x), torch.searchsorted(rows, x, right=True, out_int32=True)),
            *(torch.bucketize(x, rows[0]), torch.bucketize(i, rows[0], right=True)),
            *(torch.searchsorted(rows[0], 0.5), torch.searchsorted(rows[1], x[0, 0])),
            *(*torch.kthvalue(i, 2, 1), torch.mode(i, 1)[0], *torch.sort(i, stable=True, dim=1)),
            *(
                torch.nanmedian(x),
                torch.nanmedian(x, 1)[0],
                torch.histc(rows, 4),
                torch.histc(rows, 3, -1, 2),
            ),
        )

    check_function(function, x, i, rows)


def test_modes() -> None:
    """Of equal counts the smallest value wins; PyTorch does not define which of its places."""
    x = torch.randint(0, 5, (6, 40), generator=torch.Generator().manual_seed(0)).float()
    x[0, :3], x[1] = torch.nan, torch.arange(40.0).flip(0)

    def function(x) -> tuple[torch.Tensor, ...]:
        numbers = x[1:]
        found = [*torch.mode(x, 1), *torch.mode(numbers, 0, keepdim=True), *torch.mode(x[:, :1], 1)]
        places = x.gather(1, found[1].unsqueeze(1)), numbers.gather(0, found[3])
        return (*found[::2], *places, torch.mode(x > 2, 1)[0])

    check_function(function, x)


def test_windows_and_distances() -> None:
    x = torch.randn(2, 3, 7, 8, generator=torch.Generator().manual_seed(0))
    weight, indices = x[0, 0].clone(), torch.tensor([1, 2, 5, 0, 1])
    offsets = torch.tensor([0, 2, 2, 4])

    def function(x, weight, indices, offsets) -> tuple[torch.Tensor, ...]:
        rows = x[0, :, 0]
        bags = [F.embedding_bag(indices, weight, offsets, mode=m) for m in ("mean", "max")]
        return (
            *F.max_pool2d(x, 3, 2, 1, dilation=2, ceil_mode=True, return_indices=True),
            *F.adaptive_max_pool3d(x, (2, 3, 5), return_indices=True),
            *(torch.cdist(rows, rows + 1), *bags),
            *(rows.masked_scatter(rows > 0, x), torch.put(rows, indices, weight[0, :5])),
            torch.addbmm(x[0, 0, :, :7], x[0], x[1].mT, beta=0.5, alpha=2),
        )

    check_function(function, x, weight, indices, offsets, tolerance=1e-4)


def test_segments() -> None:
    """A segment may be empty, and the segments of each row may have other lengths."""
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    x[1, 0, 2] = NAN
    lengths, offsets = torch.tensor([[2, 0, 3], [0, 1, 4]]), torch.tensor([0, 1, 1, 2])

    def function(x, lengths, offsets) -> tuple[torch.Tensor, ...]:
        reductions = ("sum", "mean", "prod", "max", "min")
        return (
            *(torch.segment_reduce(x, r, lengths=lengths, axis=1) for r in reductions),
            *(torch.segment_reduce(x, r, offsets=offsets, initial=2) for r in reductions),
        )

    check_function(function, x, lengths, offsets)


def test_special_functions() -> None:
    x = torch.tensor([-3.5, -2.0, -1.1, -0.0, 0.0, 0.3, 1.0, 1.5, 2.0, 7.3, 40.0, 1e8, INF, NAN])
    small = torch.tensor([-1.0, -0.999, -0.3, -1e-20, 0.0, 0.5, 0.9999999, 1.0, 2.0, NAN])

    far = torch.tensor([0.5, 3.0, 5.0, 9.0])

    def function(
        x: torch.Tensor, small: torch.Tensor, far: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            *(torch.lgamma(x), torch.digamma(x), torch.erfc(x), torch.hypot(x, x + 1)),
            *(torch.i0(x), torch.special.i1(x), torch.special.i1e(x)),
            # The quotient shows the relative error.
            *(torch.erfinv(small), torch.erfc(far) / torch.exp(-far * far)),
        )

    check_function(function, x, small, far, tolerance=5e-6)


def test_gamma_functions_near_zero() -> None:
    x = torch.logspace(-15, -2, 27, dtype=torch.float64)
    x = torch.cat([-x, x])
    check_function(lambda x: (torch.lgamma(x), torch.digamma(x) * x), x, tolerance=1e-14)


def test_exponential_of_a_matrix() -> None:
    x = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0))
    x = x * torch.tensor([0.01, 1.0, 5.0]).reshape(3, 1, 1)
    check_function(lambda x: (torch.matrix_exp(x), torch.matrix_exp(x[:0])), x, tolerance=1e-4)


def test_complex_numbers() -> None:
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    turns = torch.polar(torch.ones(4), torch.arange(4.0))

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = torch.view_as_complex(x.reshape(3, 4, 2))
        turned = torch.view_as_real(pairs * turns.to(x.device)).flatten(1)
        products = torch.view_as_real(pairs @ pairs.mT / (pairs.sum(-1) + 2j))
        other = torch.view_as_real(torch.cat([pairs.exp(), pairs.conj() - 1], 1)[:, 1:])
        return turned, products, other, pairs.abs(), pairs.angle(), x.angle(), pairs.imag

    check_function(function, x, tolerance=1e-5)


def test_fourier_transforms() -> None:
    x = torch.randn(4, 180, generator=torch.Generator().manual_seed(0))
    window = torch.hann_window(16)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        real = torch.view_as_real
        return (
            *(real(torch.fft.fft(x)), real(torch.fft.fft2(x, norm="ortho"))),
            *(torch.fft.ifft(torch.fft.fft(x)).real, torch.fft.irfft2(torch.fft.rfft2(x))),
            *(torch.fft.hfft(x, 9), real(torch.fft.rfft(x, 7)), torch.fft.irfft(x, 5)),
            torch.stft(x, 16, 4, window=window, return_complex=True).abs(),
        )

    check_function(function, x, tolerance=1e-4)


def test_complex_inputs_and_operators_without_converter_are_rejected() -> None:
    z = torch.ones(2, dtype=torch.complex64)
    with pytest.raises(tvm.error.OpNotImplemented, match=r"input 'args_0' is torch\.complex64"):
        import_exported(Call(lambda z: torch.view_as_real(z)), (z,))
    with pytest.raises(tvm.error.OpNotImplemented, match=r"output .* is torch.complex64"):
        import_exported(Call(torch.fft.fft), (torch.ones(4),))
    with pytest.raises(tvm.error.OpNotImplemented, match=r"'tan': an operand .* is complex"):
        import_exported(Call(lambda x: torch.fft.fft(x).tan().abs()), (torch.ones(4),))


if __name__ == "__main__":
    tvm.testing.main()
