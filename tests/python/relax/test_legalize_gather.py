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

from itertools import product

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.grids import is_full
from helpers.relax_modules import build, call, cpu, merge, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.legalize.indices import FIX_ID
from tvm_fixes.support import switches
from tvm_fixes.support.isolate import OutcomeKind, run_forked

op = relax.op
n, m, k = (tirx.Var(name, "int64") for name in "nmk")


def machine(mods):
    executable = relax.build(merge(mods), cpu(), relax_pipeline="default")
    return relax.VirtualMachine(executable, tvm.cpu())


def forked(vm, name, *arguments):
    """Call a function in a child process, which may crash."""
    return forked_all(vm, {name: arguments})[name]


def forked_all(vm, arguments):
    """Call functions with their arguments in one child process."""
    outcome = run_forked(
        lambda: {name: call(vm, name, *own) for name, own in arguments.items()}, timeout=60
    )
    assert outcome.kind is OutcomeKind.VALUE, outcome
    return outcome.value


def gathers(index="int64", rows=n, columns=m):
    x, i = tensor(rows, columns), tensor(k, dtype=index)
    square = {"x": x, "i": tensor(k, columns, dtype=index)}
    pairs = {"x": x, "i": tensor(k, 2, dtype="int64")}  # TVM takes no others
    return {
        "take": build({"x": x, "i": i}, lambda _, x, i: op.take(x, i, axis=0)),
        "take_last": build({"x": x, "i": i}, lambda _, x, i: op.take(x, i, axis=-1)),
        "gather_elements": build(square, lambda _, x, i: op.gather_elements(x, i, axis=0)),
        "gather_nd": build(pairs, lambda _, x, i: op.gather_nd(x, i)),
        "index_tensor": build(
            {"x": x, "i": i, "j": i}, lambda _, x, i, j: op.index_tensor(x, [i, j])
        ),
    }


def expected_of(x, i, square, pairs):
    return {
        "take": x[i],
        "take_last": x[:, i],
        "gather_elements": np.take_along_axis(x, square.astype("int64"), 0),
        "gather_nd": x[tuple(pairs.T)],
        "index_tensor": x[i, i[::-1]],
    }


NEGATIVE = list(product(["int32", "int64"], [(n, m), (5, 5)]))


@pytest.mark.parametrize(("index", "extents"), NEGATIVE if is_full() else NEGATIVE[1:3], ids=str)
def test_negative_indices_count_from_the_end(index, extents):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((5, 5)).astype("float32")
    i = np.array([-1, 0, -5, 4, 2, -3], index)
    square = generator.integers(-5, 5, (6, 5)).astype(index)
    pairs = generator.integers(-5, 5, (6, 2))
    with switches.collect() as used:
        vm = machine(gathers(index, *extents))
    assert FIX_ID in used
    arguments = {
        "gather_elements": (square,),
        "gather_nd": (pairs,),
        "index_tensor": (i, i[::-1].copy()),
    }
    expected = expected_of(x, i, square, pairs)
    got = forked_all(vm, {name: (x, *arguments.get(name, (i,))) for name in expected})
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


@pytest.mark.parametrize("extents", [(n, m), (5, 5)], ids=["symbolic", "static"])
def test_indices_out_of_range_read_the_nearest_element(extents):
    x = np.random.default_rng(0).standard_normal((5, 5)).astype("float32")
    i = np.array([5, 1 << 40, -6, -(1 << 62), 2], "int64")
    clipped = np.array([4, 4, 0, 0, 2])
    square, pairs = np.stack([i] * 5, 1), np.stack([i, i[::-1]], 1)
    near = np.stack([clipped] * 5, 1), np.stack([clipped, clipped[::-1]], 1)
    vm = machine(gathers("int64", *extents))
    arguments = {
        "gather_elements": (square,),
        "gather_nd": (pairs,),
        "index_tensor": (i, i[::-1].copy()),
    }
    expected = expected_of(x, clipped, *near)
    got = forked_all(vm, {name: (x, *arguments.get(name, (i,))) for name in expected})
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


def test_nothing_is_read_of_no_elements():
    vm = machine(gathers())
    x, i = np.zeros((0, 0), "float32"), np.array([0, 7], "int64")
    given = {"gather_nd": (x, np.stack([i, i], 1)), "index_tensor": (x, i, i)}
    given["take"] = np.zeros((0, 3), "float32"), i
    got = forked_all(vm, given)
    assert not any(got[name].any() for name in given)
    static = machine(gathers("int64", 0, 3))
    assert forked(static, "take", np.zeros((0, 3), "float32"), i).shape == (2, 3)


def test_gather_elements_of_more_indices_than_data_on_another_axis():
    inputs = {"x": tensor(n, m), "i": tensor(k, 9, dtype="int64")}
    vm = machine({"main": build(inputs, lambda _, x, i: op.gather_elements(x, i, axis=0))})
    x = np.arange(6, dtype="float32").reshape(2, 3)
    got = forked(vm, "main", x, np.ones((1, 9), "int64"))
    np.testing.assert_array_equal(got, x[1:, [0, 1, 2, 2, 2, 2, 2, 2, 2]])


@pytest.mark.parametrize("mode", ["clip", "wrap", "nan"])
def test_modes_of_take(mode):
    inputs = {"x": tensor(n), "i": tensor(k, dtype="int64")}
    vm = machine({"main": build(inputs, lambda _, x, i: op.take(x, i, axis=0, mode=mode))})
    x, i = np.arange(5, dtype="float32"), np.array([0, 4, 5, 12, -1, -7, 1 << 40], "int64")
    expected = {
        "clip": np.take(x, i, mode="clip"),
        "wrap": x[i % 5],
        "nan": np.where((i >= 0) & (i < 5), x[np.clip(i, 0, 4)], np.nan),
    }
    np.testing.assert_array_equal(forked(vm, "main", x, i), expected[mode])
    got = forked(vm, "main", x[:0], i)
    assert np.isnan(got).all() if mode == "nan" else not got.any()


def test_take_of_scalars_and_of_batches():
    x = tensor(n, 4, 3)
    vm = machine(
        {
            "scalar": build({"x": x, "i": tensor(dtype="int32")}, lambda _, x, i: op.take(x, i, 1)),
            "constant": build({"x": x}, lambda _, x: op.take(x, relax.const(-1, "int64"), 0)),
            "matrix": build(
                {"x": x, "i": tensor(2, k, dtype="uint8")}, lambda _, x, i: op.take(x, i, 1)
            ),
        }
    )
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("float32")
    np.testing.assert_array_equal(call(vm, "scalar", x, np.array(-2, "int32")), x[:, -2])
    np.testing.assert_array_equal(call(vm, "constant", x), x[-1])
    i = np.array([[0, 3, 2], [1, 1, 255]], "uint8")
    np.testing.assert_array_equal(forked(vm, "matrix", x, i), x[:, np.minimum(i, 3)])


def test_gather_nd_of_batches():
    inputs = {"x": tensor(n, 3, 4, 5), "i": tensor(n, k, 2, dtype="int64")}
    vm = machine({"main": build(inputs, lambda _, x, i: op.gather_nd(x, i, batch_dims=1))})
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2, 3, 4, 5)).astype("float32")
    i = generator.integers(-3, 3, (2, 6, 2))
    expected = np.stack([x[b][i[b, :, 0], i[b, :, 1]] for b in range(2)])
    np.testing.assert_array_equal(forked(vm, "main", x, i), expected)


def test_index_tensor_broadcasts_and_leaves_the_other_axes():
    inputs = {"x": tensor(n, m, 3), "i": tensor(2, 1, dtype="int64"), "j": tensor(k, dtype="int32")}
    vm = machine({"main": build(inputs, lambda _, x, i, j: op.index_tensor(x, [i, j]))})
    x = np.random.default_rng(0).standard_normal((4, 5, 3)).astype("float32")
    i, j = np.array([[-1], [2]]), np.array([0, -5, 4], "int32")
    np.testing.assert_array_equal(forked(vm, "main", x, i, j), x[i, j])


def test_gathers_of_one_function_are_those_of_pytorch_at_random():
    generator = np.random.default_rng(1)
    x = generator.standard_normal((3, 4, 5)).astype("float32")
    mods, arguments, expected = {}, {}, {}
    for axis in (0, 1, 2):
        shape = [int(generator.integers(1, extent + 1)) for extent in x.shape]
        shape[axis] = 7
        i = generator.integers(0, x.shape[axis], shape)
        expected[f"g{axis}"] = torch.gather(torch.tensor(x), axis, torch.tensor(i)).numpy()
        arguments[f"g{axis}"] = np.where(generator.random(shape) < 0.5, i, i - x.shape[axis])
        inputs = {"x": tensor(3, 4, 5), "i": tensor(*shape, dtype="int64")}
        mods[f"g{axis}"] = build(
            inputs, lambda _, x, i, axis=axis: op.gather_elements(x, i, axis=axis)
        )
    vm = machine(mods)
    for name, i in arguments.items():
        np.testing.assert_array_equal(call(vm, name, x, i), expected[name])


def test_the_pipeline_keeps_the_bounds():
    mod = build(
        {"x": tensor(n, 8), "i": tensor(k, dtype="int64")},
        lambda builder, x, i: op.nn.relu(
            builder.emit(op.take(x, builder.emit(op.add(i, relax.const(1, "int64"))), axis=0))
        ),
    )
    executable = relax.build(mod, cpu(), relax_pipeline=pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    got = forked(vm, "main", x, np.array([-2, 0, 2]))
    np.testing.assert_array_equal(got, np.maximum(x[[3, 1, 3]], 0))


def test_switched_off(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    with switches.collect() as used:
        machine(gathers())
    assert FIX_ID not in used


if __name__ == "__main__":
    tvm.testing.main()
