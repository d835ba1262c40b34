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
# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_fixes
from helpers.grids import few
from helpers.relax_modules import build, calls, cpu, integers, tensor
from tvm_fixes import pipeline
from tvm_fixes.lowering import stages
from tvm_fixes.relax.transform import UpdateInPlace
from tvm_fixes.relax.transform.update_in_place import FIX_ID
from tvm_fixes.support import switches

op = relax.op
CACHE = {"cache": tensor(6, 4), "at": tensor(2, 1, dtype="int64"), "rows": tensor(2, 4)}


@I.ir_module
class Before:
    @T.prim_func(private=True, s_tir=True)
    def put(
        old: T.Buffer((T.int64(4),), "float32"),
        value: T.Buffer((), "float32"),
        new: T.Buffer((T.int64(4),), "float32"),
    ):
        T.func_attr({"copies_first_operand": 1, "tirx.noalias": True})
        with T.sblock("put"):
            T.reads()
            T.writes()
            for i in range(T.int64(4)):
                new[i] = old[i]
            for _ in range(T.int64(1)):
                new[T.int64(2)] = value[()]

    @R.function
    def main(x: R.Tensor((4,), "float32"), v: R.Tensor((), "float32")) -> R.Tuple(
        R.Tensor((4,), "float32"), R.Tensor((4,), "float32")
    ):
        R.func_attr({"updates": {"x": 0}})
        cls = Before
        with R.dataflow():
            new = R.call_tir(cls.put, (x, v), out_ty=R.Tensor((4,), "float32"))
            twice = R.add(new, new)
            gv = new, twice
            R.output(gv)
        return gv


@I.ir_module
class Expected:
    @T.prim_func(private=True, s_tir=True)
    def put_in_place(old: T.Buffer((T.int64(4),), "float32"), value: T.Buffer((), "float32")):
        T.func_attr({"tirx.noalias": True})
        with T.sblock("put"):
            T.reads()
            T.writes()
            for _ in range(T.int64(1)):
                old[T.int64(2)] = value[()]

    @R.function
    def main(x: R.Tensor((4,), "float32"), v: R.Tensor((), "float32")) -> R.Tuple(
        R.Tensor((4,), "float32"), R.Tensor((4,), "float32")
    ):
        R.func_attr({"updates": {"x": 0}})
        cls = Expected
        with R.dataflow():
            new = R.call_tir_inplace(
                cls.put_in_place, (x, v), out_ty=R.Tensor((4,), "float32"), inplace_indices=[0]
            )
            twice = R.add(new, new)
            gv = new, twice
            R.output(gv)
        return gv


def test_a_write_becomes_a_write_to_the_parameter(monkeypatch):
    after = UpdateInPlace()(Before)
    tvm.ir.assert_structural_equal(after, Expected)
    assert not tvm_fixes.verify(after)
    assert UpdateInPlace()(after).same_as(after)
    functions = dict(Before.functions_items())
    functions[Before.get_global_var("main")] = Before["main"].without_attr("updates")
    plain = tvm.IRModule(functions)
    assert UpdateInPlace()(plain).same_as(plain)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert UpdateInPlace()(Before).same_as(Before)


def updating(emit, types=CACHE, updates=None):
    """A module whose first output is the new value of the first parameter."""
    mod = build(types, emit)
    mod["main"] = mod["main"].with_attr("updates", updates or {next(iter(types)): 0})
    return mod


def in_place(mod):
    """The number of writes to parameters, after all passes before the schedules."""
    with cpu():
        for stage in stages():
            mod = stage(mod)
            if stage.info.name == "UpdateInPlace":
                break
    assert not tvm_fixes.verify(mod).errors
    return len(calls(mod, "relax.call_tir_inplace"))


def run_shared(mod, *arguments):
    """The results of a run, and the first argument after it; asserts where the results are."""
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    tensors = list(map(tvm.runtime.tensor, arguments))
    results = vm["main"](*tensors)
    results = list(results) if not hasattr(results, "numpy") else [results]
    return results, tensors[0]


AT, ROWS = np.array([[4], [-6]]), integers(2, 4, seed=1)


def scattered(old):
    new = old.copy()
    new[[4, 0]] = ROWS
    return new


WRITES = {
    "scatter_nd": (CACHE, lambda b, x, at, rows: op.scatter_nd(x, at, rows)),
    "index_put": (
        CACHE | {"at": tensor(2, dtype="int64"), "rows": tensor(2)},
        lambda b, x, at, rows: op.index_put(x, relax.Tuple([at, at]), rows),
    ),
    "scatter_elements": (
        CACHE | {"at": tensor(6, 2, dtype="int64"), "rows": tensor(6, 2)},
        lambda b, x, at, rows: op.scatter_elements(x, at, rows, axis=1),
    ),
}


@few(3)
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("is_symbolic", [False, True])
def test_values_and_memory(name, is_symbolic):
    types, emit = WRITES[name]
    shapes = {key: [int(extent) for extent in ty.shape] for key, ty in types.items()}
    if is_symbolic:
        dims = {n: tirx.Var(f"n{n}", "int64") for n in (2, 6)}
        types = {
            key: tensor(*(dims.get(n, n) for n in shapes[key]), dtype=str(ty.dtype))
            for key, ty in types.items()
        }

    def summed(b, x, at, rows):
        new = b.emit(emit(b, x, at, rows))
        return relax.Tuple([new, b.emit(op.sum(new, axis=1))])

    mod = updating(summed, types)
    assert in_place(mod) == 1
    old, rows = integers(*shapes["cache"]), integers(*shapes["rows"], seed=1)
    at = np.random.default_rng(0).permuted(np.tile(np.arange(4) - 2, (6, 1)), axis=1)
    at = at[0, :2] if name == "index_put" else at[:1, :2].T if name == "scatter_nd" else at[:, :2]
    (new, sums), cache = run_shared(mod, old, np.ascontiguousarray(at), rows)
    expected = old.copy()
    if name == "scatter_elements":
        np.put_along_axis(expected, at, rows, 1)
    elif name == "index_put":
        expected[at, at] = rows
    else:
        expected[at[:, 0]] = rows
    np.testing.assert_array_equal(cache.numpy(), expected)
    np.testing.assert_array_equal(sums.numpy(), expected.sum(1))
    assert new.data_ptr() == cache.data_ptr()


def test_successive_writes():
    def twice(b, x, at, rows):
        first = b.emit(op.scatter_nd(x, at, rows))
        return op.scatter_nd(first, at, rows, reduction="add")

    mod = updating(twice)
    assert in_place(mod) == 2
    old = integers(6, 4)
    (new,), cache = run_shared(mod, old, AT, ROWS)
    expected = scattered(old)
    expected[[4, 0]] += ROWS
    np.testing.assert_array_equal(cache.numpy(), expected)
    assert new.data_ptr() == cache.data_ptr()


def read_before(b, x, at, rows):
    total = b.emit(op.sum(x))
    return relax.Tuple([b.emit(op.scatter_nd(x, at, rows)), total])


def read_after(b, x, at, rows):
    new = b.emit(op.scatter_nd(x, at, rows))
    return relax.Tuple([new, b.emit(op.subtract(new, x))])


def returned(b, x, at, rows):
    return relax.Tuple([b.emit(op.scatter_nd(x, at, rows)), x])


def returned_view(b, x, at, rows):
    view = b.emit(op.reshape(x, (24,)))
    return relax.Tuple([b.emit(op.scatter_nd(x, at, rows)), view])


def written_twice(b, x, at, rows):
    new = b.emit(op.scatter_nd(x, at, rows))
    return relax.Tuple([new, b.emit(op.scatter_nd(x, at, new_rows(b, rows)))])


def new_rows(b, rows):
    return b.emit(op.negative(rows))


def own_rows(b, x, at, rows):
    """The old value is also what is written."""
    head = b.emit(op.strided_slice(x, [0], [0], [2]))
    return relax.Tuple([b.emit(op.scatter_nd(x, at, head)), rows])


@pytest.mark.parametrize(
    "emit", [read_before, read_after, returned, returned_view, written_twice, own_rows]
)
def test_a_read_of_the_old_value_prevents_it(emit):
    mod = updating(emit)
    assert in_place(mod) == 0
    old = integers(6, 4)
    results, cache = run_shared(mod, old, AT, ROWS)
    np.testing.assert_array_equal(cache.numpy(), old)
    rows = old[:2] if emit is own_rows else ROWS
    new = old.copy()
    new[[4, 0]] = rows
    np.testing.assert_array_equal(results[0].numpy(), new)
    if emit is read_after:
        np.testing.assert_array_equal(results[1].numpy(), new - old)


def test_a_value_that_is_read_is_not_overwritten():
    """Only the first of two writes may use the memory, because its result is returned, too."""

    def emit(b, x, at, rows):
        first = b.emit(op.scatter_nd(x, at, rows))
        second = b.emit(op.scatter_nd(first, at, new_rows(b, rows)))
        return relax.Tuple([second, first])

    mod = updating(emit)
    assert in_place(mod) == 1
    old = integers(6, 4)
    (second, first), _ = run_shared(mod, old, AT, ROWS)
    np.testing.assert_array_equal(first.numpy(), scattered(old))
    expected = old.copy()
    expected[[4, 0]] = -ROWS
    np.testing.assert_array_equal(second.numpy(), expected)


def test_only_named_parameters_are_overwritten():
    types = {"other": tensor(6, 4), **CACHE}

    def emit(b, other, x, at, rows):
        new = [b.emit(op.scatter_nd(cache, at, rows)) for cache in (other, x)]
        return relax.Tuple(new)

    mod = updating(emit, types, {"cache": 1})
    assert in_place(mod) == 1
    old = integers(6, 4)
    (first, second), other = run_shared(mod, old, old + 1, AT, ROWS)
    np.testing.assert_array_equal(other.numpy(), old)
    np.testing.assert_array_equal(first.numpy(), scattered(old))
    np.testing.assert_array_equal(second.numpy(), scattered(old + 1))


if __name__ == "__main__":
    tvm.testing.main()
