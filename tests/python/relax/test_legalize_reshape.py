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
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax import op

from helpers.relax_modules import build, cpu, integers, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.reshape import FIX_ID
from tvm_fixes.support import switches

N, K = tirx.Var("n", "int64"), tirx.Var("k", "int64")


def behind_a_pooling(shape, dtype="float32"):
    """Reshaped means of adjacent elements, k - 1 per row."""
    return build(
        {"x": tensor(N, 3, K, dtype=dtype)},
        lambda bb, x: op.reshape(
            bb.emit(op.nn.avg_pool1d(x, pool_size=[2])), relax.ShapeExpr(shape)
        ),
    )


@pytest.mark.parametrize("dtype", ("float32", "float16"))
@pytest.mark.parametrize(
    "shape, counts",
    (
        ([5, N * 3 * (K - 1) // 5], (5, -1)),
        ([N * 3 * (K - 1) // 30, 2, 5, 3], (-1, 2, 5, 3)),
        ([4, N * 3 * (K - 1) // 4], (4, -1)),
    ),
)
def test_quotients_of_symbols(shape, counts, dtype):
    mod = behind_a_pooling(shape, dtype)
    with switches.collect() as used:
        executable = relax.build(mod, cpu(), relax_pipeline=pipeline())
    assert FIX_ID in used
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for n, k in ((20, 6), (40, 2), (20, 1), (0, 3)):
        x = np.arange(n * 3 * k).reshape(n, 3, k).astype(dtype) % 64
        expected = ((x[:, :, 1:] + x[:, :, :-1]) / 2).reshape(counts if x[:, :, 1:].size else -1)
        got = vm["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got.ravel(), expected.ravel())
        assert not expected.size or got.shape == expected.shape


def test_a_view_of_what_a_kernel_has_made():
    columns = (K - 1) // 2 + 1
    inputs = {"x": tensor(2, 1, 3, columns), "g": tensor(columns), "w": tensor(columns, 32)}

    def emit(bb, x, gamma, w, _):
        norm = bb.emit(op.nn.layer_norm(x, gamma, gamma, axes=[-1], epsilon=1.0))
        return op.add(bb.emit(op.matmul(norm, w)), bb.emit(op.ones((32,), "float32")))

    x, gamma, w = integers(2, 1, 3, 3), integers(3, seed=1), integers(3, 32, seed=2)
    centered = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(-1, keepdims=True) + 1)
    expected = (centered / deviation * gamma + gamma) @ w + 1
    k = np.zeros(5, "float32")
    got = run(build(inputs | {"k": tensor(K)}, emit), x, gamma, w, k, pipeline=pipeline())
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_result_is_no_view_of_an_input():
    mod = build(
        {"x": tensor(N + 1, K), "n": tensor(N)},
        lambda _, x, n: op.reshape(x, [(N + 1) * K // 5, 5]),
    )
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    x, n = (tvm.runtime.tensor(np.ones(shape, "float32")) for shape in ((4, 5), (3,)))
    result = vm["main"](x, n)
    x.copyfrom(np.zeros((4, 5), "float32"))
    np.testing.assert_array_equal(result.numpy(), np.ones((4, 5)))


@pytest.mark.parametrize("shape", ([N, 3 * (K - 1)], [N * 3 * (K - 1)]))
def test_others_are_lowered_by_tvm(shape):
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    with switches.collect() as used:
        got = run(behind_a_pooling(shape), x)
    np.testing.assert_array_equal(got.ravel(), x[:, :, 1:].ravel() - 0.5)
    assert FIX_ID not in used


if __name__ == "__main__":
    tvm.testing.main()
