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
"""Sorts on a CPU: short and long rows, both key sizes and directions, and the first places."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.grids import few
from helpers.relax_modules import build, call, cpu, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.legalize.argsort import argsort_rows, first_of_rows

op = relax.op


def keys(kind: str, dtype: str, rows: int, length: int) -> np.ndarray:
    rng = np.random.default_rng(length)
    limits = np.iinfo(dtype)
    if kind == "any":
        x = rng.integers(limits.min, limits.max, (rows, length), dtype, endpoint=True)
        x[:, : length // 3] = x[:, -(length // 3) :][:, : length // 3]
        x[0, :2] = limits.min, limits.max
        return x
    least = {"small": -300, "equal bytes": 1 << 30}[kind]
    return rng.integers(least, least + 70, (rows, length)).astype(dtype)


def stable_order(x: np.ndarray, descending: bool) -> np.ndarray:
    return np.argsort(~x if descending else x, axis=-1, kind="stable")


@few(3)
@pytest.mark.parametrize("dtype", ("int32", "int64"))
@pytest.mark.parametrize("kind", ("any", "small", "equal bytes"))
def test_order_of_rows(kind: str, dtype: str) -> None:
    """Of rows on both sides of the limit for counting, and of one that has all bytes in common."""
    cases = [(2, 40), (3, 96), (2, 97), (2, 700)]
    data = [keys(kind, dtype, *case) for case in cases] + [np.full((1, 300), 7, dtype)]
    inputs = {f"x{i}": tensor(*x.shape, dtype=dtype) for i, x in enumerate(data)}

    def orders(builder: relax.BlockBuilder, *params: relax.Var) -> relax.Expr:
        kernels = [argsort_rows(descending, "int64") for descending in (False, True)]
        return relax.Tuple(
            [builder.emit(builder.call_te(kernel, x)) for x in params for kernel in kernels]
        )

    expected = [stable_order(x, descending) for x in data for descending in (False, True)]
    for got, right in zip(run(build(inputs, orders), *data), expected, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("kind", ("any", "small"))
def test_first_places(kind: str) -> None:
    x, counts = keys(kind, "int32", 2, 500), (1, 7, 499, 500)

    def first(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        kernels = [first_of_rows(k, is_max, "int32") for k in counts for is_max in (False, True)]
        return relax.Tuple([builder.emit(builder.call_te(kernel, x)) for kernel in kernels])

    expected = [stable_order(x, is_max)[:, :k] for k in counts for is_max in (False, True)]
    got = run(build({"x": tensor(2, 500, dtype="int32")}, first), x)
    for places, right in zip(got, expected, strict=True):
        np.testing.assert_array_equal(places, right)


def test_sorts_of_a_cpu() -> None:
    """Along any axis; the kernel's result is that of NumPy's stable sort."""
    rng = np.random.default_rng(0)
    x = rng.integers(-5, 5, (2, 130, 3)).astype("int64")
    wide = rng.integers(-500, 500, (2, 900)).astype("float32")

    def sorts(builder: relax.BlockBuilder, x: relax.Var, wide: relax.Var) -> relax.Expr:
        pair = builder.emit(op.topk(wide, 200, -1, "both", True, "int64"))
        return relax.Tuple(
            [
                builder.emit(op.argsort(x, 1, True, "int64")),
                builder.emit(op.sort(x, 1)),
                builder.emit(op.topk(x, 100, 1, "indices", False, "int32")),
                *(builder.emit(pair[i]) for i in range(2)),
            ]
        )

    mod = build({"x": tensor(2, 130, 3, dtype="int64"), "wide": tensor(2, 900)}, sorts)
    got = run(mod, x, wide, pipeline=pipeline())
    best = np.argsort(-wide, axis=1, kind="stable")[:, :200]
    expected = [
        np.argsort(-x, axis=1, kind="stable"),
        np.sort(x, axis=1),
        np.argsort(x, axis=1, kind="stable")[:, :100],
        np.take_along_axis(wide, best, 1),
        best,
    ]
    for found, right in zip(got, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_symbolic_extents() -> None:
    """One library, for any number of rows and keys, also none."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    mod = build({"x": tensor(n, m)}, lambda bb, x: op.argsort(x, -1, False, "int64"))
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    for shape in ((3, 200), (1, 1), (2, 0), (0, 5)):
        x = np.random.default_rng(0).integers(0, 9, shape).astype("float32")
        np.testing.assert_array_equal(call(vm, "main", x), np.argsort(x, axis=-1, kind="stable"))


if __name__ == "__main__":
    tvm.testing.main()
