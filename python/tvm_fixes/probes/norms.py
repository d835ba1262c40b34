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
"""The probe of layer, group and instance normalization."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R

from ..fixes.norms import NORM_VARIANCE
from ._run import run
from .probe import Probe, register


def _normalize_groups_of_large_mean() -> None:
    x = np.random.default_rng(0).normal(1000, 1, (1, 4, 8, 8)).astype("float32")

    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((1, 4, 8, 8), "float32"),
            gamma: R.Tensor((4,), "float32"),
            beta: R.Tensor((4,), "float32"),
        ) -> R.Tensor((1, 4, 8, 8), "float32"):
            with R.dataflow():
                out = R.nn.group_norm(x, gamma, beta, num_groups=2, channel_axis=1, axes=[2, 3])
                R.output(out)
            return out

    groups = x.astype("float64").reshape(2, -1)
    centered = groups - groups.mean(1, keepdims=True)
    expected = centered / np.sqrt(centered.var(1, keepdims=True) + 1e-5)
    got = run(Module, x, np.ones(4, "float32"), np.zeros(4, "float32"))
    np.testing.assert_allclose(got.reshape(2, -1), expected, rtol=0, atol=1e-4)


register(
    NORM_VARIANCE,
    Probe(
        stock=_normalize_groups_of_large_mean,
        fixed=_normalize_groups_of_large_mean,
        symptom=re.compile(r"AssertionError: .*Not equal to tolerance", re.DOTALL),
    ),
)
