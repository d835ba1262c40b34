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
"""The probe of pixel shuffles."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R

from ..fixes.elements import PIXEL_SHUFFLE_LEGALIZE
from ._run import run
from .probe import Probe, register


def _shuffle() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 2, 3), "float32")) -> R.Tensor((1, 1, 4, 6), "float32"):
            with R.dataflow():
                out = R.nn.pixel_shuffle(x, 2)
                R.output(out)
            return out

    x = np.arange(24, dtype="float32").reshape(1, 4, 2, 3)
    expected = x.reshape(2, 2, 2, 3).transpose(2, 0, 3, 1).reshape(1, 1, 4, 6)
    np.testing.assert_array_equal(run(Module, x), expected)


register(
    PIXEL_SHUFFLE_LEGALIZE,
    Probe(
        stock=_shuffle,
        fixed=_shuffle,
        symptom=re.compile(r"AttributeError: .*has no attribute 'pixel_shuffle'", re.DOTALL),
    ),
)
