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
"""Lowering of layout_transform of booleans."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.relax_modules import build, integers, run, tensor
from tvm_fixes.support import switches


def transform(dtype: str, *shape: int, index_map, pad_value=None) -> tvm.IRModule:
    def emit(builder, x):
        return builder.emit(relax.op.layout_transform(x, index_map, pad_value))

    return build({"x": tensor(*shape, dtype=dtype)}, emit)


def test_split_and_merge():
    packed = transform("bool", 2, 8, 3, index_map=lambda n, c, w: (n, c // 4, w, c % 4))
    data = integers(2, 8, 3) > 0
    split = run(packed, data)
    assert split.dtype == np.bool_
    np.testing.assert_array_equal(split, data.reshape(2, 2, 4, 3).transpose(0, 1, 3, 2))
    unpacked = transform("bool", 2, 2, 3, 4, index_map=lambda n, c, w, b: (n, c * 4 + b, w))
    np.testing.assert_array_equal(run(unpacked, split), data)


@pytest.mark.parametrize("value", [None, False, True])
def test_padding(value):
    pad_value = None if value is None else tvm.tirx.IntImm("bool", value)
    mod = transform("bool", 5, index_map=lambda i: (i // 4, i % 4), pad_value=pad_value)
    data = integers(5) > 0
    expected = np.full(8, bool(value))
    expected[:5] = data
    np.testing.assert_array_equal(run(mod, data), expected.reshape(2, 4))


def test_symbolic_extent():
    n = tvm.tirx.Var("n", "int64")
    mod = transform("bool", n, 8, index_map=lambda i, j: (i, j // 4, j % 4))
    data = integers(3, 8) > 0
    np.testing.assert_array_equal(run(mod, data), data.reshape(3, 2, 4))


def test_other_dtypes_are_lowered_as_in_stock_tvm(monkeypatch):
    legalize = relax.transform.LegalizeOps()
    before = transform("float32", 2, 8, index_map=lambda i, j: (i, j // 4, j % 4))
    ours = legalize(before)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "layout-transform-legalize")
    tvm.ir.assert_structural_equal(ours, legalize(before))


if __name__ == "__main__":
    tvm.testing.main()
