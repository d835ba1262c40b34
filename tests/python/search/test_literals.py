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
"""Python expressions for arrays evaluate to them."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm.testing

from tvm_fixes.search.literals import Drawn, expressions, literal

ARRAYS = [
    np.array([1, -2], "int64"),
    np.array(3.5, "float32"),
    np.array([[np.nan, np.inf], [-np.inf, -0.0]], "float64"),
    np.array([True, False]),
    np.zeros((0, 3), "float16"),
    np.array([1 + 2j, complex(0, -1)], "complex64"),
    np.array([1.5, -3], ml_dtypes.bfloat16),
]


def evaluated(text):
    return eval(text, {"np": np, "ml_dtypes": ml_dtypes, "Path": Path, "__file__": "/a/script.py"})


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: array.dtype.name)
def test_literal(array):
    got = evaluated(literal(array))
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert got.tobytes() == array.tobytes()


def test_a_dtype_of_numpy_that_is_not_its_own_object():
    """Such as one of an array that another process sent."""
    array = np.ones(2, np.dtype("float32").newbyteorder("<"))
    assert array.dtype.isbuiltin == 0
    assert literal(array) == "np.array([1.0, 1.0], 'float32')"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint32", "bool"])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_drawn(dtype, shape):
    like = np.ones(shape, getattr(ml_dtypes, dtype, dtype))
    drawn = Drawn.like(like, 5)
    got = evaluated(drawn.expression())
    assert (got.dtype, got.shape) == (like.dtype, shape)
    assert np.asarray(got).tobytes() == drawn.array().tobytes()


def test_large_arrays_are_stored(tmp_path, monkeypatch):
    arrays = {"a": np.arange(100.0), "b": np.arange(70).astype(ml_dtypes.bfloat16)}
    texts, stored = expressions(arrays, {}, "values.npz")
    monkeypatch.setattr(Path, "with_name", lambda _, name: tmp_path / name)
    np.savez(tmp_path / "values.npz", **stored)
    for name, array in arrays.items():
        got = evaluated(texts[name])
        assert got.dtype == array.dtype and got.tobytes() == array.tobytes()


if __name__ == "__main__":
    tvm.testing.main()
