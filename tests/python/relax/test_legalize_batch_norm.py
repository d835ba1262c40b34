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
"""Lowering of relax.nn.batch_norm."""

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from relax_helpers import build, integers, run, tensor
from tvm_fixes import switches

UNIT = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}


def batch_norm(dtype: str) -> tvm.IRModule:
    def emit(builder, x, *params):
        return builder.emit(relax.op.nn.batch_norm(x, *params, axis=1, training=False)[0])

    names = ("gamma", "beta", "mean", "variance")
    vectors = {name: tensor(3, dtype=dtype) for name in names}
    return build({"x": tensor(2, 3, 4, dtype=dtype)} | vectors, emit)


def arrays(dtype: str) -> list[np.ndarray]:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    vectors = [integers(3, seed=seed) for seed in (1, 2, 3)]
    variance = np.array([1, 2, 4], "float32")
    return [array.astype(kind) for array in (integers(2, 3, 4), *vectors, variance)]


@pytest.mark.parametrize("dtype", UNIT)
def test_result_has_the_dtype_of_its_type(dtype):
    args = arrays(dtype)
    got = run(batch_norm(dtype), *args)
    assert got.dtype == args[0].dtype
    x, gamma, beta, mean, variance = (array.astype("float64") for array in args)
    scale, shift, mean = (v[:, None] for v in (gamma / np.sqrt(variance + 1e-5), beta, mean))
    expected = (x - mean) * scale + shift
    # One rounding of a result of magnitude up to 36, and those of the arithmetic before it.
    bound = 36 * (UNIT[dtype] + 8 * min(UNIT["float32"], UNIT[dtype]))
    np.testing.assert_allclose(got.astype("float64"), expected, rtol=0, atol=bound)


def test_switched_off(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "batch-norm-dtype")
    assert run(batch_norm("float16"), *arrays("float16")).dtype == np.float32


def test_float32_is_lowered_as_before(monkeypatch):
    legalize = relax.transform.LegalizeOps()
    ours = legalize(batch_norm("float32"))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "batch-norm-dtype")
    tvm.ir.assert_structural_equal(ours, legalize(batch_norm("float32")))


if __name__ == "__main__":
    tvm.testing.main()
