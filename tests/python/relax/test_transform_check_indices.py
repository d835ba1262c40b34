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

from helpers.grids import few
from helpers.relax_modules import build, call, calls, merge, tensor
from tvm_fixes import verify
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.legalize.indices import FIX_ID, from_start
from tvm_fixes.relax.transform import CheckIndices
from tvm_fixes.support import switches
from tvm_fixes.support.isolate import run_forked

op = relax.op
n, m, k = (tirx.Var(name, "int64") for name in "nmk")
LLVM = tvm.target.Target("llvm")


def checked(mod):
    with LLVM:
        return CheckIndices()(mod)


def number_of_checks(mod):
    return sum(name.name_hint.startswith("check_indices") for name in checked(mod).functions)


def machine(mods, **options):
    executable = relax.build(merge(mods), LLVM, relax_pipeline=pipeline(**options))
    return relax.VirtualMachine(executable, tvm.cpu())


def modules():
    ints = tensor(k, dtype="int64")
    x, pairs = tensor(n, 5), tensor(k, 2, dtype="int64")
    return {
        "take": build({"x": x, "i": ints}, lambda _, x, i: op.take(x, i, axis=-1)),
        "gather_elements": build(
            {"x": x, "i": tensor(k, 5, dtype="int32")},
            lambda _, x, i: op.gather_elements(x, i, axis=0),
        ),
        "gather_nd": build({"x": x, "i": pairs}, lambda _, x, i: op.gather_nd(x, i)),
        "index_tensor": build({"x": x, "i": ints}, lambda _, x, i: op.index_tensor(x, [i, i])),
        "scatter_elements": build(
            {"x": x, "i": tensor(k, 5, dtype="int64"), "u": tensor(k, 5)},
            lambda _, x, i, u: op.scatter_elements(x, i, u, axis=0),
        ),
        "scatter_nd": build(
            {"x": x, "i": pairs, "u": tensor(k)}, lambda _, x, i, u: op.scatter_nd(x, i, u)
        ),
        "index_put": build(
            {"x": x, "i": ints, "u": tensor(k)},
            lambda _, x, i, u: op.index_put(x, relax.Tuple([i, i]), u, False),
        ),
    }


def arguments_of(name, first, second):
    """Arguments with one index `first` along axis 0, or `second` along axis 1."""
    x = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")
    rows = np.full((2, 5), 0, "int32" if name == "gather_elements" else "int64")
    rows[1, 3] = first
    pairs = np.array([[0, 1], [first, second]])
    indices = {"take": np.array([0, second]), "gather_nd": pairs, "scatter_nd": pairs}
    other = np.array([0, first]) if name in ("index_tensor", "index_put") else rows
    i = indices.get(name, other)
    updates = {"scatter_elements": (2, 5), "scatter_nd": (2,), "index_put": (2,)}
    return (x, i, *([np.ones(updates[name], "float32")] if name in updates else []))


@pytest.fixture(scope="module")
def checking():
    with switches.collect() as used:
        vm = machine(modules())
    assert FIX_ID in used
    return vm


@few(4)
@pytest.mark.parametrize("name", modules())
def test_an_index_out_of_range_is_an_error_that_names_it(checking, name):
    assert call(checking, name, *arguments_of(name, 3, -5)).size
    axis, extent = (1, 5) if name == "take" else (0, 4)
    for wrong in (extent, -extent - 1, 1 << 20):
        arguments = arguments_of(name, wrong, wrong if axis else 0)
        outcome = run_forked(
            lambda arguments=arguments: call(checking, name, *arguments), timeout=60
        )
        assert outcome.name == "AssertionError", outcome
        text = f"{name}: index {wrong} is out of range for axis {axis} of {extent} elements"
        assert text in outcome.message


def test_a_mark_forbids_negative_indices_and_leaves_no_cast():
    mod = build(
        {"x": tensor(n, 5), "i": tensor(k, 5, dtype="int64")},
        lambda _, x, i: op.gather_elements(x, from_start(i), axis=0),
    )
    with LLVM:
        kernels = [name.name_hint for name in pipeline()(mod).functions]
    assert sorted(kernels) == ["check_indices", "gather_elements", "main", "shape_func"]
    vm = machine({"marked": mod})
    x, i = np.arange(20, dtype="float32").reshape(4, 5), np.ones((2, 5), "int64")
    assert (call(vm, "marked", x, i) == x[1]).all()
    i[1, 1] = -1
    with pytest.raises(AssertionError, match="index -1 is out of range for axis 0 of 4"):
        call(vm, "marked", x, i)
    with switches.without([FIX_ID]):
        assert number_of_checks(mod) == 0
    place = build(
        {"x": tensor(n, 5)},
        lambda b, x: op.take(x, from_start(b.emit(op.arange(3))), axis=1),
    )
    assert number_of_checks(place) == 0


def tuples_and_numbers():
    ints = tensor(k, dtype="int64")
    x = tensor(n, 5)
    pair = relax.TupleType([ints, ints])
    return {
        "index_tensor": build({"x": x, "i": pair}, lambda _, x, i: op.index_tensor(x, i)),
        "index_put": build(
            {"x": x, "i": pair, "u": tensor(k)}, lambda _, x, i, u: op.index_put(x, i, u, False)
        ),
        "index_tensor_bound": build(
            {"x": x, "i": ints},
            lambda b, x, i: op.index_tensor(x, b.emit(relax.Tuple([i, i]))),
        ),
        "take_number": build(
            {"x": x, "s": relax.ShapeType([m])},
            lambda _, x, s: op.take(x, relax.prim_value(m - 3), axis=0),
        ),
        "take_constant": build({"x": x}, lambda _, x: op.take(x, relax.prim_value(4), axis=0)),
    }


def test_tuples_and_numbers_are_checked():
    vm = machine(tuples_and_numbers())
    x = np.random.default_rng(0).standard_normal((5, 5)).astype("float32")
    ones = np.ones(2, "float32")

    def run(name, array, number):
        data, i = tvm.runtime.tensor(array), tvm.runtime.tensor(np.array([0, number]))
        return {
            "index_tensor": lambda: vm[name](data, [i, i]),
            "index_put": lambda: vm[name](data, [i, i], tvm.runtime.tensor(ones)),
            "index_tensor_bound": lambda: vm[name](data, i),
            "take_number": lambda: vm[name](data, tvm.runtime.ShapeTuple([number + 3])),
            "take_constant": lambda: vm[name](data),
        }[name]().numpy()

    put = x.copy()
    put[[0, -1], [0, -1]] = 1
    expected = {"index_put": put, "take_number": x[-1], "take_constant": x[4]}
    for name in tuples_and_numbers():
        wanted = expected.get(name, x[[0, -1], [0, -1]])
        np.testing.assert_array_equal(run(name, x, -1), wanted)
        with pytest.raises(AssertionError, match=r"index 4 is out of range for axis 0 of 4"):
            run(name, x[:4], 4)


def test_each_column_of_rows_has_an_extent_of_its_own(checking):
    with pytest.raises(AssertionError, match=r"gather_nd: index 5 .* axis 1 of 5 elements"):
        call(checking, "gather_nd", *arguments_of("gather_nd", 3, 5))


def test_empty_index_of_an_empty_tensor(checking):
    x, i = np.zeros((0, 5), "float32"), np.zeros((1, 2), "int64")
    with pytest.raises(AssertionError, match=r"index 0 .* of 0 elements"):
        call(checking, "gather_nd", x, i)
    assert call(checking, "gather_nd", x, i[:0]).shape == (0,)


def test_proven_indices_are_not_checked():
    def computed(builder, x, y):
        one = relax.const(1, "int64")
        places = [
            relax.const([0, -1, 4], "int64"),
            builder.emit(op.arange(relax.prim_value(5), dtype="int64")),
            builder.emit(op.argmax(x, axis=1)),
            builder.emit(op.astype(builder.emit(op.argmin(x, axis=-1)), "int32")),
            builder.emit(op.argsort(x, axis=1, dtype="int64")),
            builder.emit(op.floor_mod(y, relax.const(5, "int64"))),
            builder.emit(op.topk(x, 2, axis=1, ret_type="indices", dtype="int64")),
            builder.emit(op.astype(builder.emit(op.less(y, one)), "int64")),
        ]
        taken = [builder.emit(op.take(x, i, axis=1)) for i in places]
        own = builder.emit(op.arange(relax.prim_value(n), dtype="int64"))
        taken.append(builder.emit(op.take(x, own, axis=0)))
        own = builder.emit(op.reshape(own, (n, 1)))
        taken.append(builder.emit(op.take(x, own, axis=0)))
        return builder.emit(relax.Tuple(taken))

    inputs = {"x": tensor(n, 5), "y": tensor(k, dtype="int64")}
    assert number_of_checks(build(inputs, computed)) == 0


@pytest.mark.parametrize(
    "indices",
    [
        lambda b, x, y: relax.const([5], "int64"),
        lambda b, x, y: b.emit(op.arange(relax.prim_value(6), dtype="int64")),
        lambda b, x, y: b.emit(op.arange(relax.prim_value(n), dtype="int64")),
        lambda b, x, y: b.emit(op.argmax(x, axis=0)),
        lambda b, x, y: b.emit(op.add(y, y)),
        lambda b, x, y: b.emit(op.astype(x, "int64")),
    ],
)
def test_unproven_indices_are_checked(indices):
    inputs = {"x": tensor(n, 5), "y": tensor(k, dtype="int64")}
    mod = build(inputs, lambda b, x, y: op.take(x, indices(b, x, y), axis=1))
    assert number_of_checks(mod) == 1
    assert not verify(checked(mod)).errors
    (take,) = calls(checked(mod), "relax.take")
    assert not take.args[1].same_as(calls(mod, "relax.take")[0].args[1])


@pytest.mark.parametrize(
    "indices",
    [
        lambda b, y: op.astype(relax.const([-1], "int64"), "uint8"),
        lambda b, y: op.astype(b.emit(op.arange(relax.prim_value(300), dtype="int64")), "int8"),
        lambda b, y: op.max(b.emit(op.clip(y, 0, 3)), axis=0),
        lambda b, y: op.clip(y, 4, -400),
        lambda b, y: op.add(relax.const([1 << 62], "int64"), relax.const([1 << 62], "int64")),
    ],
)
def test_overflow_and_empty_data_are_not_proved(indices):
    def emit(b, x, y):
        return op.take(x, b.emit(indices(b, y)), axis=0)

    mod = build({"x": tensor(300), "y": tensor(k, dtype="int64")}, emit)
    assert number_of_checks(mod) == 1


def test_a_long_chain_of_sums_is_given_up():
    def emit(b, x, y):
        i = b.emit(op.clip(y, 0, 0))
        for _ in range(400):
            i = b.emit(op.add(i, i))
        return op.take(x, i, axis=0)

    assert number_of_checks(build({"x": tensor(300), "y": tensor(k, dtype="int64")}, emit)) == 1


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_narrow_indices_of_long_axes(dtype):
    extent = 300 if dtype == "int8" else 40000
    inputs = {"x": tensor(extent), "i": tensor(k, dtype=dtype)}
    mods = {
        "take": build(inputs, lambda _, x, i: op.take(x, i, axis=0)),
        "gather_elements": build(inputs, lambda _, x, i: op.gather_elements(x, i, axis=0)),
    }
    vm = machine(mods)
    x, i = np.arange(extent, dtype="float32"), np.array([-100, -1, 0, 127], dtype)
    for name in mods:
        np.testing.assert_array_equal(call(vm, name, x, i), x[i])


def test_other_modes_of_take_are_not_checked():
    mod = build(
        {"x": tensor(n, 5), "y": tensor(k, dtype="int64")},
        lambda _, x, y: op.take(x, y, axis=1, mode="clip"),
    )
    assert checked(mod).same_as(mod)


def test_nothing_is_checked_for_a_gpu():
    mod = modules()["take"]
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        assert CheckIndices()(mod).same_as(mod)


def test_unsafe_indices_are_neither_checked_nor_bounded():
    mod = modules()["take"]
    stages = {}
    for unsafe in (False, True):
        with LLVM:
            stages[unsafe] = str(pipeline(unsafe_indices=unsafe)(mod))
    assert "assert_op" in stages[False] and "T.max" in stages[False]
    assert "assert_op" not in stages[True] and "T.max" not in stages[True]
    vm = machine({"take": mod}, unsafe_indices=True)
    x, i = np.arange(10, dtype="float32").reshape(2, 5), np.array([-1, 4])
    np.testing.assert_array_equal(call(vm, "take", x, i), x[:, i])


def test_switched_off(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    mod = modules()["take"]
    assert checked(mod).same_as(mod)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_topk_of_fewer_elements(dtype):
    """A static k is clamped to the extent; a dynamic one is an error at run time."""
    results = ("both", "values", "indices")
    mods = {
        f"{result}_{extent}": build(
            {"x": tensor(m, extent, dtype=dtype)},
            lambda _, x, r=result: op.topk(x, 2, -1, r),
        )
        for result in results
        for extent in (n, 0, 1)
    }
    vm = machine(mods)
    x = np.arange(6).reshape(2, 3).astype(dtype)
    values, indices = call(vm, "both_n", x)
    np.testing.assert_array_equal(values, x[:, :0:-1])
    np.testing.assert_array_equal(indices, [[2, 1]] * 2)
    for result in results:
        for extent in (0, 1):
            message = f"topk: k is 2, but axis 1 has only {extent} elements"
            with pytest.raises(AssertionError, match=message):
                call(vm, f"{result}_n", x[:, :extent])
            got = call(vm, f"{result}_{extent}", x[:, :extent])
            assert {array.shape for array in (got if result == "both" else [got])} == {(2, extent)}


if __name__ == "__main__":
    tvm.testing.main()
