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

import itertools

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.target.codegen import target_has_features

from helpers.grids import is_full
from helpers.relax_modules import build, call, count, integers, merge, run, tensor
from tvm_fixes import pipeline, transform
from tvm_fixes.target import resolve

op = relax.op
TARGETS = {
    "any": {"kind": "llvm"},
    "AVX2": {"kind": "llvm", "mcpu": "haswell"},
}
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}


def tied(batch, weight, dtype="float32", out_dtype=None, depth=None):
    """``x @ weight.T``, and a row of the weight, so that it is also read untransposed."""
    matrix = relax.const(weight.astype(DTYPES.get(dtype, dtype)), dtype)

    def emit(b, x, at):
        row = b.emit(op.take(matrix, at, axis=0))
        transposed = b.emit(op.permute_dims(matrix))
        return relax.Tuple([row, b.emit(op.matmul(x, transposed, out_dtype))])

    x = tensor(*batch, weight.shape[1] if depth is None else depth, dtype=dtype)
    return build({"x": x, "at": tensor(1, dtype="int64")}, emit)


def built(mods, target):
    executable = relax.build(merge(mods), tvm.target.Target(target), relax_pipeline=pipeline())
    return relax.VirtualMachine(executable, tvm.cpu())


EXTENTS = list(itertools.product([(1,), (5,), (2, 3)], [1, 3, 10], [1, 5, 8, 19]))
EXTENTS = EXTENTS if is_full() else EXTENTS[::3]


@pytest.mark.parametrize("target", TARGETS)
def test_extents_that_tiles_do_not_divide(target):
    if target == "AVX2" and not target_has_features("avx2", resolve("native")):
        pytest.skip("this CPU has no AVX2")
    mods = {
        str(index): tied(batch, integers(columns, depth, seed=index))
        for index, (batch, columns, depth) in enumerate(EXTENTS)
    }
    vm = built(mods, TARGETS[target])
    for index, (batch, columns, depth) in enumerate(EXTENTS):
        x, weight = integers(*batch, depth, seed=99), integers(columns, depth, seed=index)
        row, product = call(vm, str(index), x, np.array([0]))
        np.testing.assert_array_equal(product, x @ weight.T)
        np.testing.assert_array_equal(row, weight[:1])


def test_depth_is_unknown():
    weight, x = integers(10, 19), integers(4, 19, seed=1)
    vm = built({"main": tied((4,), weight, depth=tvm.tirx.Var("m", "int64"))}, TARGETS["any"])
    np.testing.assert_array_equal(call(vm, "main", x, np.array([0]))[1], x @ weight.T)


def test_rows_are_unknown():
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")
    weight = integers(10, 19)
    vm = built({"main": tied((n, m), weight)}, TARGETS["any"])
    for batch in [(1, 1), (2, 3), (4, 4), (1, 9), (0, 3)]:
        x = integers(*batch, 19, seed=1)
        np.testing.assert_array_equal(call(vm, "main", x, np.array([0]))[1], x @ weight.T)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    weight, x = integers(10, 19), integers(5, 19, seed=1)
    vm = built({"main": tied((5,), weight, dtype)}, TARGETS["any"])
    got = call(vm, "main", x.astype(DTYPES[dtype]), np.array([0]))[1]
    assert got.dtype == DTYPES[dtype]
    np.testing.assert_array_equal(got, (x @ weight.T).astype(DTYPES[dtype]))


def test_integers():
    weight, x = integers(10, 19), integers(5, 19, seed=1)
    mod = tied((5,), weight, "int32")
    got = run(mod, x.astype("int32"), np.array([0]), pipeline=pipeline())[1]
    np.testing.assert_array_equal(got, x @ weight.T)


def test_sums_are_in_vectors():
    """The schedule applies to CPUs; kernels of other targets keep their own schedules."""
    mod = tied((32,), integers(64, 64))
    for target, is_scheduled in (("llvm", True), ("cuda", False)):
        with tvm.target.Target(target):
            after = transform.ReadTransposedWeights()(mod)
        assert count(after, "relax.matmul") == 0
        kernel = next(f for v, f in after.functions_items() if v.name_hint == "NT_matmul")
        assert ("T.vectorized" in kernel.script()) == is_scheduled


if __name__ == "__main__":
    tvm.testing.main()
