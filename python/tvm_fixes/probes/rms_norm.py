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
"""The probe of RMS normalization."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R

from ..fixes.norms import RMS_NORM_LEGALIZE
from ._run import run
from .probe import Probe, register


def _normalize_channels() -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((2, 3, 4, 5), "float32"), rng.uniform(0.5, 2, 3)

    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((2, 3, 4, 5), "float32"), weight: R.Tensor((3,), "float32")
        ) -> R.Tensor((2, 3, 4, 5), "float32"):
            with R.dataflow():
                out = R.nn.rms_norm(x, weight, axes=[1])
                R.output(out)
            return out

    mean_square = (x**2).mean(1, keepdims=True)
    expected = x / np.sqrt(mean_square + 1e-5) * weight.reshape(3, 1, 1)
    got = run(Module, x, weight.astype("float32"))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


register(
    RMS_NORM_LEGALIZE,
    Probe(
        stock=_normalize_channels,
        fixed=_normalize_channels,
        symptom=re.compile(r"InternalError: .*dimension mismatch", re.DOTALL),
    ),
)
