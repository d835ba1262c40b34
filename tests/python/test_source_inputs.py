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
"""Inputs that the user gives."""

import numpy as np
import tvm.testing

from tvm_fixes.runtime.manifest import TensorSpec
from tvm_fixes.source.inputs import fitting


def test_inputs_keep_their_rank():
    """NumPy's `ascontiguousarray` gives a scalar an axis."""
    specs = [TensorSpec("level", (), "float32"), TensorSpec("x", ("n", 2), "float32")]
    x = np.arange(6, dtype="float32").reshape(2, 3).T
    level, rows = fitting(specs, {"x": x, "level": np.float32(3).reshape(())})
    assert (level.shape, level.dtype) == ((), np.float32)
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, x)


if __name__ == "__main__":
    tvm.testing.main()
