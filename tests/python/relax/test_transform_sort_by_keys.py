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
"""Sorts of every dtype, with NaN, signed zeros and ties."""

from collections.abc import Callable, Iterable

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.gpu_modules import run_on_gpu, run_scheduled, scheduled
from helpers.grids import few, is_full
from helpers.relax_modules import build, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import SortByKeys
from tvm_fixes.relax.transform.sort_by_keys import FIX_ID
from tvm_fixes.support import switches

op = relax.op

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


def data(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype == "bool":
        return rng.integers(0, 2, (3, 40)).astype(bool)
    if dtype in FLOATS:
        numbers = [0, -0.0, 1, -1, 2.5, -3, np.nan, np.inf, -np.inf, 1e-5, 300, -0.7, 5, 6]
        return rng.choice(numbers, (3, 40)).astype(
            ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        )
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    return rng.choice(np.array([least, most, 0, 1, 5, most - 1], dtype), (3, 40))


def order(x: np.ndarray, descending: bool) -> np.ndarray:
    """The order by Python's stable sort, with NaN as the greatest."""
    rows = [x_row.tolist() for x_row in (x.astype("float64") if "float" in str(x.dtype) else x)]
    sign = -1 if descending else 1

    def key(value: float) -> tuple[int, float]:
        return (sign, 0) if value != value else (0, sign * value)

    return np.array([sorted(range(len(row)), key=lambda i: key(row[i])) for row in rows])


SORTS: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "sort up": lambda x: op.sort(x, -1, False),
    "sort down": lambda x: op.sort(x, -1, True),
    "argsort up": lambda x: op.argsort(x, -1, False, "int64"),
    "argsort down": lambda x: op.argsort(x, -1, True, "int32"),
    "values": lambda x: op.topk(x, 5, -1, "values", False, "int32"),
    "indices": lambda x: op.topk(x, 5, -1, "indices", True),
    "both": lambda x: op.topk(x, 5, -1, "both", True, "int64"),
}


def sorted_by(names: Iterable[str], x: np.ndarray) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """A program of these sorts of `x`, and its results."""
    up, down = order(x, False), order(x, True)
    take: Callable[[np.ndarray], np.ndarray] = lambda i: np.take_along_axis(x, i, 1)  # noqa: E731
    expected = {
        "sort up": [take(up)],
        "sort down": [take(down)],
        "argsort up": [up],
        "argsort down": [down],
        "values": [take(up[:, :5])],
        "indices": [down[:, :5]],
        "both": [take(down[:, :5]), down[:, :5]],
    }

    def emit(bb: relax.BlockBuilder, parameter: relax.Expr) -> relax.Expr:
        results: list[relax.Expr] = []
        for name in names:
            found = bb.emit(SORTS[name](parameter))
            results += [bb.emit(found[i]) for i in range(2)] if name == "both" else [found]
        return relax.Tuple(results)

    mod = build({"x": tensor(*x.shape, dtype=str(x.dtype))}, emit)
    return mod, [result for name in names for result in expected[name]]


@few(5)
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, "bool"))
def test_order(dtype: str) -> None:
    x = data(dtype)
    mod, expected = sorted_by(SORTS, x)
    got = run(mod, x, pipeline=pipeline())
    for found, right in zip(got, expected, strict=True):
        assert found.dtype == x.dtype or right.dtype.kind == "i"
        # Exact for all these dtypes, and NumPy does not recognize NaN in bfloat16.
        np.testing.assert_array_equal(found.astype(np.longdouble), right.astype(np.longdouble))
    assert [a.dtype for a in got[2:4]] == ["int64", "int32"]


@pytest.mark.parametrize(
    ("dtype", "names"),
    [("bfloat16", ["both"])]
    + ([("float32", ["argsort up"]), ("uint8", ["sort down"])] if is_full() else []),
)
def test_order_on_a_gpu(dtype: str, names: list[str]) -> None:
    """TVM takes seconds to lower each of them."""
    x = data(dtype)
    mod, expected = sorted_by(SORTS if is_full() else names, x)
    for found, right in zip(run_on_gpu(mod, x), expected, strict=True):
        np.testing.assert_array_equal(found.astype("float64"), right.astype("float64"))


def test_symbolic_rows_on_a_gpu() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    mod = scheduled(build({"x": tensor(n, m, dtype="int32")}, lambda bb, v: op.sort(v, -1)))
    for shape in ((0, 5), (2, 0), (2, 300)):
        x = np.random.default_rng(0).integers(0, 99, shape).astype("int32")
        np.testing.assert_array_equal(run_scheduled(mod, x), np.sort(x))


@few(2)
@pytest.mark.parametrize("k", (-1, 0))
@pytest.mark.parametrize("dtype", ("float32", "float64", "int64"))
def test_first_of_all_elements(k: int, dtype: str) -> None:
    """For TVM, a topk of fewer than one element has all elements."""
    x = data(dtype)
    mod = build({"x": tensor(3, 40, dtype=dtype)}, lambda _, v: op.topk(v, k, 1, "indices"))
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), order(x, descending=True))


def test_no_elements() -> None:
    x = {"x": tensor(2, 0, 3)}
    both = (op.zeros((2, 0, 3), "float32"), op.zeros((2, 0, 3), "int32"))
    for sort, zeros in (
        (lambda x: op.sort(x, 0), lambda bb: both[0]),
        (lambda x: op.argsort(x, 0, dtype="int32"), lambda bb: both[1]),
        (lambda x: op.topk(x, 2, 0, dtype="int32"), lambda bb: relax.Tuple([*map(bb.emit, both)])),
    ):
        before = build(x, lambda bb, v, sort=sort: sort(v))
        after = build(x, lambda bb, v, zeros=zeros: zeros(bb))
        tvm.ir.assert_structural_equal(SortByKeys()(before), after)


def test_along_another_axis() -> None:
    x = data("float32")
    mod = build({"x": tensor(3, 40)}, lambda bb, v: op.sort(v, 0))
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), np.sort(x, 0))


def test_correct_sorts_are_left_to_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = build({"x": tensor(8, dtype="int64")}, lambda bb, v: op.sort(v, 0))
    assert SortByKeys()(mod).same_as(mod)
    mod = build({"x": tensor(8)}, lambda bb, v: op.sort(v, 0))
    assert not SortByKeys()(mod).same_as(mod)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert SortByKeys()(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
