# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""A primitive type as a dtype of a NumPy array."""

import numpy as np
import pytest

import tvm
import tvm.testing
from tvm import te


@pytest.mark.parametrize("name", ["float16", "float32", "int64", "uint8", "bool"])
def test_type_is_dtype(name):
    assert np.zeros(4, tvm.ir.PrimType(name)).dtype == np.dtype(name)


def test_dtype_of_tensor():
    x = te.placeholder((4,), "int32", name="x")
    assert np.ones(4, x.dtype).dtype == np.dtype("int32")


if __name__ == "__main__":
    tvm.testing.main()
