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
"""The probe of batch normalization."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R

from ..fixes.norms import BATCH_NORM_LEGALIZE
from ._run import run
from .probe import Probe, register


def _normalize_half() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4), "float32").astype("float16")

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3, 4), "float16")) -> R.Tensor((2, 3, 4), "float16"):
            with R.dataflow():
                ones = R.ones((3,), "float16")
                zeros = R.zeros((3,), "float16")
                normalized = R.nn.batch_norm(x, ones, zeros, zeros, ones, axis=1, training=False)
                out = normalized[0]
                R.output(out)
            return out

    got = run(Module, x)
    assert got.dtype == np.float16, f"expected a float16 result, got {got.dtype}"
    np.testing.assert_allclose(got, x, rtol=2e-3, atol=1e-3)


register(
    BATCH_NORM_LEGALIZE,
    Probe(
        stock=_normalize_half,
        fixed=_normalize_half,
        symptom=re.compile(r"AssertionError: expected a float16 result, got float32"),
    ),
)
