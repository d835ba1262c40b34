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
"""TfIdfVectorizer of ``tvm_fixes.frontend.onnx`` against ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.grids import few
from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    node_model,
)
from tvm_fixes.frontend.onnx import from_onnx

ATTRIBUTES = {
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 2, 3, 5],
    "ngram_counts": [0, 4, 10],
    "ngram_indexes": [0, 6, 2, 9, 4, 5, 3, 1],
    "min_gram_length": 1,
    "max_gram_length": 3,
    "max_skip_count": 0,
    "mode": "TF",
}
WEIGHTS = [0.5, 1.5, 0.25, 3.0, 0.75, 2.0, 1.25, 4.0]


def model_of(data: np.ndarray, shape: Any = None, **changed: object) -> onnx.ModelProto:
    return node_model(
        "TfIdfVectorizer",
        {"x": data},
        ATTRIBUTES | changed,
        outputs={"y": ("float32", data.ndim)},
        shapes={"x": shape or data.shape},
    )


def words(*shape: int, dtype: str = "int64") -> np.ndarray:
    """Random elements, of which many are in the pool."""
    return np.random.default_rng(len(shape)).integers(2, 9, shape).astype(dtype)


@few(1)
@pytest.mark.parametrize("mode", ("TF", "IDF", "TFIDF"))
def test_modes_lengths_and_gaps(mode: str) -> None:
    """Indexes in any order, and without an n-gram; int32; a vector."""
    cases = {}
    for name, data, changed in (
        ("matrix", words(4, 30), {}),
        ("vector", words(50, dtype="int32"), {}),
        ("gaps", words(3, 40), {"max_skip_count": 3}),
        ("pairs", words(3, 25), {"min_gram_length": 2, "max_gram_length": 2, "max_skip_count": 1}),
        ("short", words(3, 1), {"max_skip_count": 2}),
        ("weights", words(4, 30), {"weights": WEIGHTS}),
    ):
        cases[name] = model_of(data, mode=mode, **changed), {"x": data}
    assert_as_onnx_runtime(from_onnx, cases)


def test_rows_and_lengths_of_a_call() -> None:
    model = model_of(words(2, 9), ("rows", "length"), max_skip_count=1)
    assert_follows_onnx_runtime(from_onnx, model, *([words(*s)] for s in ((2, 9), (1, 2), (5, 60))))


def test_pool_and_indexes_that_do_not_fit() -> None:
    for changed, message in (
        ({"ngram_indexes": [0, 0, 1, 2, 3, 4, 5, 6]}, "ngram_indexes"),
        ({"weights": WEIGHTS[:3]}, "number of weights is 3; expected 8"),
        ({"ngram_counts": [0, 3, 10]}, "attribute ngram_counts is [0, 3, 10]; expected starts"),
    ):
        assert_rejected(from_onnx, model_of(words(2, 9), **changed), message)


if __name__ == "__main__":
    tvm.testing.main()
