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
"""Memory for small inputs, which calls use again."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.models import onnx_sum_and_product
from helpers.onnx_graphs import program
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.runtime import CompiledModel
from tvm_fixes.runtime.input_buffers import MAX_BYTES, InputBuffers


@pytest.fixture(scope="module")
def two() -> CompiledModel:
    """Inputs a and b, outputs sum and mul, all (n, 4)."""
    return compile_model(onnx_sum_and_product(), compare=False)


@pytest.mark.parametrize(
    "value",
    (
        np.arange(6, dtype="float32").reshape(2, 3),
        np.arange(12, dtype="int64").reshape(3, 4)[::-1, ::2],
        np.array(3.5),
        np.float32(2),
        np.array([True, False]),
        np.arange(4, dtype=">f4"),
        np.arange(4).astype(ml_dtypes.bfloat16),
        np.zeros((0, 3), "float32"),
        np.zeros(MAX_BYTES + 1, "uint8"),
    ),
    ids=str,
)
def test_values_are_copied(value):
    buffers = InputBuffers([value])
    for changed in (value, value + value):
        (tensor,) = buffers.filled([changed])
        got = tensor.numpy()
        np.testing.assert_array_equal(got.astype("float64"), np.asarray(changed, "float64"))
        assert got.shape == np.shape(value)


def test_only_small_inputs_are_kept():
    small, large = np.ones(4, "float32"), np.ones(MAX_BYTES, "float32")
    buffers = InputBuffers([small, large])
    pointers = [[t.data_ptr() for t in buffers.filled([small, large])] for _ in range(2)]
    assert pointers[0][0] == pointers[1][0]
    assert pointers[0][0] % 64 == 0
    assert [memory.nbytes for _, memory in buffers._copied] == [small.nbytes]


def test_calls_of_several_sizes(two):
    for n in (3, 1, 3, 0, 2, 5000, 3):
        a, b = (np.random.default_rng(n).normal(size=(2, n, 4))).astype("float32")
        total, product = two.run(a, b)
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(product, a * b)


def test_outputs_do_not_change_with_the_next_call():
    model = program({"y": ("Identity", ["x"])}, {"x": ("float32", (3,))}, {})
    compiled = compile_model(model, compare=False)
    first = compiled.run(np.array([1, 2, 3], "float32"))
    compiled.run(np.zeros(3, "float32"))
    np.testing.assert_array_equal(first, [1, 2, 3])


def test_memory_of_a_failed_call_is_not_used_again(two, monkeypatch):
    def fail(*_):
        raise RuntimeError("no")

    values = np.ones((2, 1, 4), "float32")
    two.run(*values)
    (kept,) = (two._accepted[key] for key in two._accepted if key[0] == (1, 4))
    number = len(kept)
    assert number > 0
    with monkeypatch.context() as patch:
        patch.setattr(two, "_function", fail)
        patch.setattr(two, "_call_into", fail)
        with pytest.raises(RuntimeError):
            two.run(*values)
    assert len(kept) == number - 1
    two.run(*values)
    assert len(kept) == number


def test_outputs_of_all_kinds_are_copied():
    """Among them a tensor that NumPy cannot view, and an input."""
    bfloat16 = onnx.TensorProto.BFLOAT16
    model = program(
        {"half": ("Cast", ["x"], {"to": bfloat16}), "same": ("Identity", ["x"])},
        {"x": ("float32", ("n", 3))},
        outputs={"half": "bfloat16", "same": "float32"},
    )
    compiled = compile_model(model, compare=False)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    half, same = compiled.run(x)
    compiled.run(np.zeros_like(x))
    assert half.dtype.name == "bfloat16"
    np.testing.assert_array_equal(half.astype("float32"), x)
    np.testing.assert_array_equal(same, x)


def values_of(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_results_go_to_memory_of_the_caller(two, monkeypatch):
    a, b = values_of(2, 3, 4)
    first, second = two.run(a, b), two.run(b, a)
    with monkeypatch.context() as patch:
        patch.setattr(two, "_function", None)  # CallInto calls the library's own
        third = two.run(a, b)
    (kept,) = (two._accepted[key] for key in two._accepted if key[0] == (3, 4))
    assert any(buffers.results is not None for buffers in kept)
    for total, product in (first, second, third):
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(product, a * b)
        assert total.flags.writeable
        assert total.flags.owndata
    # Each call has arrays of its own.
    first[0][...] = 0
    np.testing.assert_array_equal(third[0], a + b)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "uint8"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (300, 300)], ids=str)
def test_one_result_of_any_shape(dtype, shape):
    model = program({"y": ("Identity", ["x"])}, {"x": (dtype, shape)}, {})
    compiled = compile_model(model, compare=False)
    for factor in range(3):
        x = (values_of(*shape) * 5 + factor).astype(dtype)
        y = compiled.run(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x)


def test_results_whose_shapes_depend_on_values():
    """The memory for the results of a call does not fit those of the next one."""
    model = program(
        {"y": ("NonZero", ["x"]), "z": ("Neg", ["x"])},
        {"x": ("float32", ("n",))},
        outputs={"y": "int64", "z": "float32"},
    )
    compiled = compile_model(model, compare=False)
    for x in ([0, 1, 2, 0], [1, 0, 3, 0], [1, 2, 3, 4], [0, 0, 0, 0], [0, 1, 2, 0]):
        array = np.array(x, "float32")
        places, negative = compiled.run(array)
        np.testing.assert_array_equal(places, np.array(np.nonzero(array)))
        np.testing.assert_array_equal(negative, -array)


def test_weights_outside_follow_the_inputs(tmp_path):
    weight = np.random.default_rng(1).normal(size=(4, 3)).astype("float32")
    model = program({"y": ("MatMul", ["x", "w"])}, {"x": ("float32", ("n", 4))}, {"w": weight})
    compile_model(model, compare=False, weights="outside").save(tmp_path / "out")
    compiled = CompiledModel.load(tmp_path / "out")
    x = values_of(2, 4)
    for factor in (1, 2, 3):
        y = compiled.run(factor * x)
        np.testing.assert_allclose(y, factor * x @ weight, rtol=1e-5, atol=1e-6)


def test_an_error_within_a_call_into_memory_names_its_cause():
    """The second call of a shape fails where the first one did not."""
    model = program(
        {"y": ("Gather", ["x", "i"], {"axis": 0})}, {"x": ("float32", (4,)), "i": ("int64", (1,))}
    )
    compiled = compile_model(model, compare=False)
    x, place = values_of(4), np.array([1])
    for _ in range(2):
        np.testing.assert_array_equal(compiled.run(x, place), x[1:2])
    outcomes = []
    for run in (compiled.run, compile_model(model, compare=False).run):
        try:
            outcomes.append(str(run(x, np.array([9]))))
        except Exception as error:
            outcomes.append(f"{type(error)} {error}")
    assert outcomes[0] == outcomes[1]


if __name__ == "__main__":
    tvm.testing.main()
