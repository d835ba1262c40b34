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
"""Tensors of TVM from arrays of narrow dtypes."""

import ml_dtypes
import numpy as np
import pytest
import tvm.testing

from tvm_fixes.errors import InputError
from tvm_fixes.support.tensors import to_tvm


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float4_e2m1fn"])
def test_narrow_floats_are_copied(name: str) -> None:
    array = np.array([[0, 1, 2], [4, 6, 1]]).astype(getattr(ml_dtypes, name))
    tensor = to_tvm(array)
    assert str(tensor.dtype) == name
    assert (tensor.numpy() == array).all()


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "float6_e2m3fn"])
def test_packed_dtypes_that_tvm_cannot_convert_are_named(name: str) -> None:
    array = np.ones((2, 3), getattr(ml_dtypes, name))
    with pytest.raises(InputError, match=f"no conversion of {name} arrays"):
        to_tvm(array)


if __name__ == "__main__":
    tvm.testing.main()
