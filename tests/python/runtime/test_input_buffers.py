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
    (kept,) = (two._accepted[key] for key in two._accepted if key[0][0] == (1, 4))
    number = len(kept)
    assert number > 0
    with monkeypatch.context() as patch:
        patch.setattr(two, "_function", fail)
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


if __name__ == "__main__":
    tvm.testing.main()
