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

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch.nn import functional
from tvm import relax, tirx

from helpers.gpu_kernels import GPU, functions
from helpers.gpu_modules import run_on_gpu
from helpers.lowering import lowered_before
from helpers.relax_modules import build, count, run, tensor
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import stages
from tvm_fixes.relax.transform import FuseSafeSoftmax

op = relax.op


def safe_softmax(bb, x, *, axis=-1, bound=-np.inf, other=0.0, keepdims=True):
    dtype = str(x.ty.dtype)
    y = bb.emit(op.nn.softmax(x, axis=-1))
    masked = bb.emit(op.astype(bb.emit(op.equal(x, relax.const(bound, dtype))), "int8"))
    least = bb.emit(op.min(masked, [axis], keepdims=keepdims))
    return op.where(bb.emit(op.astype(least, "bool")), relax.const(other, dtype), y)


def expected_of(x):
    y = torch.from_numpy(x)
    zero = torch.zeros(())
    return torch.where((y == -torch.inf).all(-1, keepdim=True), zero, y.softmax(-1)).numpy()


ROWS = np.array(
    [
        [1.0, 2.0, -3.0, 0.5],
        [-np.inf, 1.0, -np.inf, 2.0],
        [-np.inf, -np.inf, -np.inf, -np.inf],
        [-np.inf, np.nan, 1.0, -np.inf],
        [np.inf, 1.0, 2.0, -np.inf],
        [-3e38, -3e38, -np.inf, -3e38],
    ],
    "float32",
)


def test_values():
    after = FuseSafeSoftmax()(build({"x": tensor(2, 3, 4)}, safe_softmax))
    for name in ("relax.nn.softmax", "relax.min", "relax.where", "relax.equal"):
        assert count(after, name) == 0, name
    x = ROWS.reshape(2, 3, 4)
    np.testing.assert_allclose(run(after, x), expected_of(x), rtol=1e-6)


def test_symbolic_rows():
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    after = FuseSafeSoftmax()(build({"x": tensor(n, m)}, safe_softmax))
    assert count(after, "relax.nn.softmax") == 0
    np.testing.assert_allclose(run(after, ROWS), expected_of(ROWS), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_of_16_bits(dtype):
    """A masked row is not NaN, and the sum of a long row is not rounded to 16 bits."""
    x = np.zeros((2, 3000), "float32").astype(dtype)
    x[1] = -np.inf
    mod = build({"x": tensor(*x.shape, dtype=dtype)}, safe_softmax)
    expected = expected_of(x.astype("float32"))
    for got in (run(FuseSafeSoftmax()(mod), x), run_on_gpu(mod, x)):
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got.astype("float32"), expected, rtol=5e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"axis": 0},
        {"bound": -1.0},
        {"other": 1.0},
        {"axis": 0, "keepdims": False},
    ],
)
def test_others_are_kept(options):
    mod = build({"x": tensor(4, 4)}, lambda bb, x: safe_softmax(bb, x, **options))
    tvm.ir.assert_structural_equal(FuseSafeSoftmax()(mod), mod)


class Attention(torch.nn.Module):
    def forward(self, q, k, v, mask):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def test_an_attention_of_pytorch():
    operands = [torch.randn(2, 3, 5, 8) for _ in range(3)]
    mask = torch.rand(2, 1, 5, 5) > 0.5
    mask[0, 0, 2] = False
    mod = from_exported_program(torch.export.export(Attention(), (*operands, mask)))
    lowering = stages("gpu")
    with GPU:
        kernels = functions(lowered_before(mod, lowering, "Lower"))
    assert any("safe_softmax" in name for name in kernels)
    assert not any("min" in name for name in kernels)
    [got] = run(FuseSafeSoftmax()(mod), *operands, mask)
    expected = Attention()(*operands, mask)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
