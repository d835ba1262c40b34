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
import tvm_ffi
from tvm import relax, tirx

import tvm_fixes  # noqa: F401  puts the lowerings in force
from helpers.grids import few
from helpers.relax_modules import build, call, cpu, merge, tensor

op = relax.op
n, m = (tirx.Var(name, "int64") for name in "nm")


def machine(mods):
    executable = relax.build(merge(mods), cpu(), relax_pipeline="default")
    return relax.VirtualMachine(executable, tvm.cpu())


@few(4)
@pytest.mark.parametrize(
    "start, end, step", [(0, 6, 1), (1, 4, 1), (2, 2, 1), (0, 5, 2), (1, 6, 3)]
)
@pytest.mark.parametrize("is_symbolic", [False, True])
def test_slice_scatter(start, end, step, is_symbolic):
    x = np.random.default_rng(0).standard_normal((2, 6, 3)).astype("float32")
    source = np.random.default_rng(1).standard_normal(x[:, start:end:step].shape).astype("float32")
    own, outer = (n, m) if is_symbolic else (6, source.shape[1])
    inputs = {"x": tensor(2, own, 3), "s": tensor(2, outer, 3)}
    bounds = [relax.prim_value(value) for value in (start, end, step)]
    vm = machine({"main": build(inputs, lambda _, x, s: op.slice_scatter(x, s, *bounds, axis=-2))})
    expected = torch.tensor(x).slice_scatter(torch.tensor(source), 1, start, end, step)
    np.testing.assert_array_equal(call(vm, "main", x, source), expected.numpy())


def test_slice_scatter_up_to_a_symbolic_dim():
    inputs = {"x": tensor(2, n), "s": tensor(2, m)}
    one = relax.prim_value(1)
    vm = machine(
        {
            "main": build(
                inputs,
                lambda _, x, s: op.slice_scatter(
                    x, s, relax.prim_value(0), relax.prim_value(m), one, axis=1
                ),
            )
        }
    )
    x, s = np.zeros((2, 5), "float32"), np.ones((2, 3), "float32")
    np.testing.assert_array_equal(call(vm, "main", x, s), [[1, 1, 1, 0, 0]] * 2)
    np.testing.assert_array_equal(call(vm, "main", x, s[:, :0]), x)


def test_dynamic_strided_slice_of_any_bounds():
    vector = tensor(2, dtype="int64")
    inputs = {"x": tensor(n, m), "b": vector, "e": vector, "s": vector}
    vm = machine({"main": build(inputs, lambda _, *args: op.dynamic_strided_slice(*args))})
    x = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")
    generator = np.random.default_rng(2)
    for _ in range(60):
        b, e = generator.integers(-7, 8, (2, 2))
        s = generator.choice([-3, -2, -1, 1, 2, 3], 2)
        expected = x[b[0] : e[0] : s[0], b[1] : e[1] : s[1]]
        # A bound before the first element has no other representation.
        if any(
            step < 0 and stop < -extent for step, stop, extent in zip(s, e, x.shape, strict=True)
        ):
            continue
        got = call(vm, "main", x, b, e, s)
        np.testing.assert_array_equal(got, expected, err_msg=f"{b} {e} {s}")
    whole = np.array([-1, -1]), np.array([-(1 << 63)] * 2), np.array([-1, -1])
    np.testing.assert_array_equal(call(vm, "main", x, *whole), x[::-1, ::-1])
    none = call(vm, "main", x, np.array([0, 0]), np.array([4, 5]), np.array([0, 1]))
    assert none.shape == (0, 5)


def test_dynamic_strided_slice_of_no_elements_and_of_longest_strides():
    vector = tensor(1, dtype="int64")
    inputs = {"x": tensor(n), "b": vector, "e": vector, "s": vector}
    vm = machine({"main": build(inputs, lambda _, *args: op.dynamic_strided_slice(*args))})
    most, least = (1 << 63) - 1, -(1 << 63)
    for extent, begin, end, stride, expected in [
        (0, -1, -100, -1, []),
        (0, 0, 5, 1, []),
        (0, -1, least, least, []),
        (5, 0, 5, most, [0]),
        (5, 1, most, most - 1, [1]),
        (5, 4, -100, least, [4]),
        (5, 4, least, -4, [4, 0]),
        (5, 3, 3, most, []),
        (5, least, 9, 1 << 62, [0]),
        (5, most, least + 1, -1, [4, 3, 2, 1, 0]),
        # As in NumPy, nothing is before the first element.
        (5, least, least, -1, []),
        (5, -(1 << 31), -7, least, []),
    ]:
        bounds = (np.array([value], "int64") for value in (begin, end, stride))
        got = call(vm, "main", np.arange(extent, dtype="float32"), *bounds)
        assert got.tolist() == expected, (extent, begin, end, stride)


def test_reverse_sequence_of_any_lengths():
    inputs = {"x": tensor(n, 2, m), "l": tensor(n, dtype="int32")}
    vm = machine(
        {"main": build(inputs, lambda _, x, n: op.reverse_sequence(x, n, seq_axis=2, batch_axis=0))}
    )
    x = np.random.default_rng(0).standard_normal((5, 2, 4)).astype("float32")
    expected = x.copy()
    for row, length in enumerate([0, 3, 4, 4, 0]):
        expected[row, :, :length] = x[row, :, :length][:, ::-1]
    got = call(vm, "main", x, np.array([0, 3, 4, 1 << 30, -5], "int32"))
    np.testing.assert_array_equal(got, expected)


def test_strided_slice_of_bounds_that_are_not_within():
    """Reads beyond the axis return the nearest element."""
    mods = {
        "symbolic": build(
            {"x": tensor(n, 2), "y": tensor(m)},
            lambda _, x, y: op.strided_slice(x, [0], [m - 2], [m + 2], assume_inbound=True),
        ),
        "stepped": build(
            {"x": tensor(n, 2)},
            lambda _, x: op.strided_slice(x, [-2], [1], [8], [2], assume_inbound=True),
        ),
    }
    vm = machine(mods)
    x = np.arange(10, dtype="float32").reshape(5, 2)
    for length in (0, 1, 2, 4, 9):
        got = call(vm, "symbolic", x, np.zeros(length, "float32"))
        np.testing.assert_array_equal(got, x[np.clip(np.arange(length - 2, length + 2), 0, 4)])
        np.testing.assert_array_equal(call(vm, "symbolic", x[:0], got[:, 0]), np.zeros((4, 2)))
    np.testing.assert_array_equal(call(vm, "stepped", x), x[[1, 3, 4, 4]])


def test_a_slice_of_one_element_before_another_kernel():
    """The fused kernel has a number and symbols of extents."""

    def repeated(builder, x, shape):
        first, count = tirx.Var("first", "int64"), tirx.Var("count", "int64")
        builder.match_cast(shape, relax.ShapeType([first, count]))
        part = op.strided_slice(x, [0], [first], [first + count], assume_inbound=True)
        return builder.emit(op.negative(builder.emit(part)))

    mod = build({"x": tensor(1), "shape": relax.ShapeType(ndim=2)}, repeated)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    x = np.array([3], "float32")
    for first, count in ((0, 1), (0, 0), (1, 0)):
        got = call(vm, "main", x, tvm_ffi.Shape([first, count]))
        np.testing.assert_array_equal(got, -x[first : first + count])


if __name__ == "__main__":
    tvm.testing.main()
