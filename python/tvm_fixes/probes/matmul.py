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
"""The probe of matrix products."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R

from ..fixes.matmul import MATMUL_LEGALIZE
from ._run import run
from .probe import Probe, register


def _sum_4096_ones() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((1, 4096), "float16"), weight: R.Tensor((4096, 8), "float16")
        ) -> R.Tensor((1, 8), "float16"):
            with R.dataflow():
                out = R.matmul(x, weight)
                R.output(out)
            return out

    got = run(Module, np.ones((1, 4096), "float16"), np.ones((4096, 8), "float16"))
    np.testing.assert_array_equal(got, np.full((1, 8), 4096, "float16"))


register(
    MATMUL_LEGALIZE,
    Probe(
        stock=_sum_4096_ones,
        fixed=_sum_4096_ones,
        symptom=re.compile(r"AssertionError: .*2048", re.DOTALL),
    ),
)
