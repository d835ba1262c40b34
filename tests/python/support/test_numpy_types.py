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
"""TVM's types as dtypes of NumPy arrays."""

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import te
from tvm.ir import PrimType

import tvm_fixes.support.numpy_types as numpy_types
from tvm_fixes.support import switches

NAMES = ("float16", "float32", "float64", "int8", "int64", "uint8", "uint32", "bool")


@pytest.mark.parametrize("name", NAMES)
def test_type_is_dtype(name):
    assert np.zeros(3, PrimType(name)).dtype == np.dtype(name)
    assert np.ones(3).astype(PrimType(name)).dtype == np.dtype(name)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_narrow_type_is_dtype(name):
    assert np.zeros(3, PrimType(name)).dtype == np.dtype(getattr(ml_dtypes, name))


def test_dtypes_of_tensors_and_buffers():
    tensor = te.placeholder((4,), "int32", name="x")
    buffer = tvm.tirx.decl_buffer((4,), "float16")
    assert np.zeros(4, tensor.dtype).dtype == np.int32
    assert np.zeros(4, buffer.dtype).dtype == np.float16


def test_vector_type_is_rejected():
    with pytest.raises((TypeError, ValueError, AttributeError), match="float32x4"):
        np.zeros(3, PrimType("float32x4"))


def test_equality_and_hash_of_types_are_unchanged():
    assert PrimType("float32") == "float32"
    assert PrimType("float32") != PrimType("float16")
    assert hash(PrimType("int32")) == hash(PrimType("int32"))


def test_fix_is_off():
    with switches.without([numpy_types.FIX_ID]), pytest.raises(ValueError, match="NumPy dtype"):
        np.zeros(3, PrimType("float32"))


if __name__ == "__main__":
    tvm.testing.main()
