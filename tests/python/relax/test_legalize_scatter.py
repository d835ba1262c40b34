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

from helpers.gpu_modules import run_on_gpu
from helpers.grids import few, is_full
from helpers.relax_modules import build, call, cpu, merge, tensor
from tvm_fixes.relax.legalize.indices import FIX_ID
from tvm_fixes.support import switches

op = relax.op
n, m, k = (tirx.Var(name, "int64") for name in "nmk")

REDUCTIONS = ("update", "add", "mul", "min", "max")


def machine(mods):
    executable = relax.build(merge(mods), cpu(), relax_pipeline="default")
    return relax.VirtualMachine(executable, tvm.cpu())


def scattered(data, indices, updates, axis, reduction):
    """ONNX's ScatterElements, element by element; out-of-range positions are skipped."""
    result, extent = data.copy(), data.shape[axis]
    for at in np.ndindex(*indices.shape):
        place = list(at)
        place[axis] = int(indices[at]) + extent * (indices[at] < 0)
        if 0 <= place[axis] < extent:
            put(result, tuple(place), updates[at], reduction)
    return result


def put(result, place, value, reduction):
    old = result[place]
    result[place] = {
        "update": value,
        "add": old + value,
        "mul": old * value,
        "min": np.minimum(old, value),
        "max": np.maximum(old, value),
    }[reduction]


INDICES = list(product([False, True], ["int32", "int64"]))


@pytest.mark.parametrize("is_symbolic, index", INDICES if is_full() else INDICES[1:3])
def test_scatter_elements_of_fewer_indices_on_any_axis(index, is_symbolic):
    generator = np.random.default_rng(0)
    mods, arguments, expected = {}, {}, {}
    for case, reduction in enumerate(REDUCTIONS * 2):
        shape, axis = (4, 5, 3), case % 3
        own = [int(generator.integers(1, extent + 1)) for extent in shape]
        own[axis] = 6
        indices = generator.integers(-shape[axis] - 2, shape[axis] + 2, own).astype(index)
        arrays = generator.standard_normal(shape).astype("float32"), indices
        arrays += (generator.standard_normal(own).astype("float32"),)
        dims = [tirx.Var(f"{'dio'[a]}{b}", "int64") for a in range(2) for b in range(3)]
        data, update = (dims[:3], dims[3:]) if is_symbolic else (shape, own)
        inputs = {"x": tensor(*data), "i": tensor(*update, dtype=index), "u": tensor(*update)}
        name = f"case{case}"
        mods[name] = build(
            inputs,
            lambda _, x, i, u, a=axis, r=reduction: op.scatter_elements(x, i, u, a - 3, r),
        )
        arguments[name], expected[name] = arrays, scattered(*arrays, axis, reduction)
    with switches.collect() as used:
        vm = machine(mods)
    assert FIX_ID in used
    for name, arrays in arguments.items():
        np.testing.assert_allclose(call(vm, name, *arrays), expected[name], rtol=1e-6, err_msg=name)


def test_scatter_nd_wraps_and_drops():
    mods = {
        reduction: build(
            {"x": tensor(n, m, 3), "i": tensor(k, 2, dtype="int64"), "u": tensor(k, 3)},
            lambda _, x, i, u, r=reduction: op.scatter_nd(x, i, u, r),
        )
        for reduction in REDUCTIONS
    }
    vm = machine(mods)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, 5, 3)).astype("float32")
    i, u = generator.integers(-6, 6, (30, 2)), generator.standard_normal((30, 3)).astype("float32")
    for reduction in REDUCTIONS:
        expected = x.copy()
        for (a, b), value in zip(i, u, strict=True):
            if -4 <= a < 4 and -5 <= b < 5:
                put(expected, (a, b), value, reduction)
        np.testing.assert_allclose(call(vm, reduction, x, i, u), expected, rtol=1e-6)
    with_empty = call(vm, "add", x[:0], i, u)
    assert with_empty.shape == (0, 5, 3)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_of_tuples_that_broadcast(accumulate):
    first, second = np.array([[0], [-1]]), np.array([1, -2, 0], "int32")
    third, fourth = np.array([-1]), np.array([[0, 5, 2], [-4, 1, 1]])
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, 5, 3)).astype("float32")
    tuples = {"broadcast": (first, second, third), "dropped": (third, second, fourth)}
    mods, values = {}, generator.standard_normal((2, 3)).astype("float32")
    for name, indices in tuples.items():
        types = {f"i{p}": tensor(*i.shape, dtype=str(i.dtype)) for p, i in enumerate(indices)}
        mods[name] = build(
            {"x": tensor(n, m, 3), "v": tensor(2, 3), **types},
            lambda _, x, v, *i: op.index_put(x, relax.Tuple(list(i)), v, accumulate),
        )
    vm = machine(mods)
    for name, indices in tuples.items():
        expected = x.copy()
        whole = map(np.ravel, np.broadcast_arrays(*indices, values))
        for *place, value in zip(*whole, strict=True):
            if -3 <= place[-1] < 3:
                put(expected, tuple(place), value, "add" if accumulate else "update")
        got = call(vm, name, x, values, *indices)
        np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=name)


def test_scatters_to_and_of_nothing():
    inputs = {"x": tensor(2, 0, 3), "i": tensor(1, 4, 3, dtype="int64"), "u": tensor(1, 4, 3)}
    none = {"x": tensor(2, 3), "i": tensor(0, 1, dtype="int64"), "u": tensor(0, 3)}
    vm = machine(
        {
            "to": build(inputs, lambda _, x, i, u: op.scatter_elements(x, i, u, 1, "add")),
            "of": build(none, lambda _, x, i, u: op.scatter_nd(x, i, u)),
        }
    )
    x = np.ones((2, 3), "float32")
    zeros = np.zeros((1, 4, 3), "float32")
    assert call(vm, "to", np.zeros((2, 0, 3), "float32"), zeros.astype("int64"), zeros).size == 0
    np.testing.assert_array_equal(call(vm, "of", x, np.zeros((0, 1), "int64"), x[:0]), x)


def test_large_data_is_copied_in_parallel():
    inputs = {"x": tensor(300, 100), "i": tensor(k, 100, dtype="int64"), "u": tensor(k, 100)}
    vm = machine({"main": build(inputs, lambda _, x, i, u: op.scatter_elements(x, i, u, 0, "add"))})
    generator = np.random.default_rng(0)
    x = generator.standard_normal((300, 100)).astype("float32")
    i, u = generator.integers(0, 300, (400, 100)), generator.standard_normal((400, 100))
    expected = torch.tensor(x).scatter_add(0, torch.tensor(i), torch.tensor(u.astype("float32")))
    got = call(vm, "main", x, i, u.astype("float32"))
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [0, -1])
def test_gradient_of_take_wraps_and_drops(axis):
    shape = (k, m) if axis == 0 else (n, k)
    inputs = {"g": tensor(*shape), "x": tensor(n, m), "i": tensor(k, dtype="int64")}
    vector = {"g": tensor(k), "x": tensor(n), "i": tensor(k, dtype="int32")}
    vm = machine(
        {
            "main": build(inputs, lambda _, g, x, i: op.grad.take_backward(g, x, i, axis)),
            "flat": build(vector, lambda _, g, x, i: op.grad.take_backward(g, x, i)),
        }
    )
    generator = np.random.default_rng(0)
    x, i = np.zeros((4, 5), "float32"), np.array([1, -1, 1, 9, -9, 10**12])
    gradient = generator.standard_normal((6, 5) if axis == 0 else (4, 6)).astype("float32")
    expected, extent = x.copy(), x.shape[axis]
    for at, index in enumerate(i):
        if -extent <= index < extent:
            np.moveaxis(expected, axis, 0)[index] += np.moveaxis(gradient, axis, 0)[at]
    np.testing.assert_allclose(call(vm, "main", gradient, x, i), expected, rtol=1e-6)
    got = call(vm, "flat", gradient.ravel()[:3], x[0], np.array([4, -9, 4], "int32"))
    assert got.tolist() == [0, 0, 0, 0, gradient.ravel()[0] + gradient.ravel()[2]]


def test_scatters_of_scalars_between_reshapes():
    """Fusion merges scatters with equal buffers."""
    one = {"x": tensor(1), "i": tensor(1, dtype="int64"), "u": tensor(1)}

    def between(scatter):
        def emit(bb, x, i, u):
            before = bb.emit(op.reshape(bb.emit(op.reshape(x, ())), (1,)))
            return bb.emit(op.reshape(bb.emit(scatter(before, i, u)), (1, 1)))

        return build(one, emit)

    vm = machine(
        {
            "elements": between(lambda x, i, u: op.scatter_elements(x, i, u)),
            "put": between(lambda x, i, u: op.index_put(x, relax.Tuple([i]), u)),
            "take": between(lambda x, i, u: op.grad.take_backward(u, x, i, 0)),
        }
    )
    x, u = np.ones(1, "float32"), np.full(1, 3, "float32")
    for name in ("elements", "put", "take"):
        assert call(vm, name, x, np.zeros(1, "int64"), u).tolist() == [[3]]


ELEMENTS = list(product(REDUCTIONS, [0, 1, 2], [False, True]))


@few(2)
@pytest.mark.parametrize(
    ("reduction", "axis", "is_symbolic"), ELEMENTS if is_full() else ELEMENTS[::7]
)
def test_a_gpu_scatters_elements_in_order(reduction, axis, is_symbolic):
    """Indices repeat, are out of range, or are fewer than elements on the other axes."""
    generator = np.random.default_rng(axis)
    shape, own = (4, 5, 3), [3, 2, 2]
    own[axis] = 9
    x, u = (generator.standard_normal(each).astype("float32") for each in (shape, own))
    i = generator.integers(-shape[axis] - 2, shape[axis] + 2, own)
    data = (n, m, 3) if is_symbolic else shape
    inputs = {"x": tensor(*data), "i": tensor(*own, dtype="int64"), "u": tensor(*own)}
    mod = build(inputs, lambda _, x, i, u: op.scatter_elements(x, i, u, axis, reduction))
    expected = scattered(x, i, u, axis, reduction)
    np.testing.assert_allclose(run_on_gpu(mod, x, i, u), expected, rtol=1e-6)
    if is_symbolic:
        assert run_on_gpu(mod, x[:0], i, u).shape == (0, 5, 3)


ROWS = list(product([(3,), (), (70, 60) if is_full() else (35, 8)], [False, True]))


@pytest.mark.parametrize(("rows", "is_symbolic"), ROWS if is_full() else ROWS[1::2])
def test_a_gpu_puts_rows_in_order(rows, is_symbolic):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, 5, *rows)).astype("float32")
    i, u = generator.integers(-6, 6, (30, 2)), generator.standard_normal((30, *rows))
    u = u.astype("float32")
    dims = [m, k][: len(rows)] if is_symbolic else rows
    types = {"x": tensor(n, 5, *dims), "i": tensor(30, 2, dtype="int64"), "u": tensor(30, *dims)}
    for reduction in REDUCTIONS if is_full() or not rows else REDUCTIONS[:2]:
        expected = x.copy()
        for (a, b), value in zip(i, u, strict=True):
            if -4 <= a < 4 and -5 <= b < 5:
                put(expected, (a, b), value, reduction)
        mod = build(types, lambda _, x, i, u, r=reduction: op.scatter_nd(x, i, u, r))
        np.testing.assert_allclose(run_on_gpu(mod, x, i, u), expected, rtol=1e-6)
        if not rows and reduction in ("update", "add"):
            split = types | {"i": tensor(30, dtype="int64"), "j": tensor(30, dtype="int64")}
            mod = build(
                split,
                lambda _, x, i, u, j, r=reduction: op.index_put(
                    x, relax.Tuple([i, j]), u, r == "add"
                ),
            )
            got = run_on_gpu(mod, x, i[:, 0].copy(), u, i[:, 1].copy())
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_gpu_applies_thousands_of_updates_at_once():
    rng = np.random.default_rng(0)
    count = 10000
    x, u = (rng.standard_normal((count, 1)).astype("float32") for _ in range(2))
    i = rng.permutation(count)[:, None]
    types = {"x": tensor(n, 1), "i": tensor(count, 1, dtype="int64"), "u": tensor(count, 1)}
    mod = build(types, lambda _, x, i, u: op.scatter_elements(x, i, u, 0))
    np.testing.assert_array_equal(run_on_gpu(mod, x, i, u), scattered(x, i, u, 0, "update"))


def test_a_gpu_sums_gradients_in_order():
    i = np.array([1, -1, 1, 4])
    gradient = np.arange(8, dtype="float32").reshape(4, 2)
    mod = build(
        {"u": tensor(4, 2), "x": tensor(3, 2), "i": tensor(4, dtype="int64")},
        lambda _, u, x, i: op.grad.take_backward(u, x, i, 0),
    )
    got = run_on_gpu(mod, gradient, np.zeros((3, 2), "float32"), i)
    np.testing.assert_array_equal(got, [[0, 0], [4, 6], [2, 3]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_extrema_keep_nan(dtype):
    nan = np.nan
    x, u = (np.array(v, dtype) for v in ([[1, nan, 3, 4]] * 2, [[nan, 5, nan, 9]] * 2))
    i = np.array([[0, 1, 2, 3]] * 2)
    rows = np.array([[0], [1]])
    inputs = {
        name: tensor(*v.shape, dtype=str(v.dtype)) for name, v in zip("xiu", (x, i, u), strict=True)
    }
    nd = inputs | {"i": tensor(2, 1, dtype="int64")}
    mods, expected = {}, {"max": np.maximum(x, u), "min": np.minimum(x, u)}
    for kind in expected:
        mods[f"elements_{kind}"] = build(
            inputs, lambda _, x, i, u, r=kind: op.scatter_elements(x, i, u, 1, r)
        )
        mods[f"nd_{kind}"] = build(nd, lambda _, x, i, u, r=kind: op.scatter_nd(x, i, u, r))
    vm = machine(mods)
    for kind, value in expected.items():
        np.testing.assert_array_equal(call(vm, f"elements_{kind}", x, i, u), value)
        np.testing.assert_array_equal(call(vm, f"nd_{kind}", x, rows, u), value)


if __name__ == "__main__":
    tvm.testing.main()
