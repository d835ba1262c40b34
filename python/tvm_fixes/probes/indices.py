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

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R

from ..fixes.elements import INDEX_LEGALIZE
from ._run import run
from .probe import Probe, register


@I.ir_module
class _Take:
    @R.function
    def main(x: R.Tensor((4, 2), "float32"), i: R.Tensor((2,), "int64")) -> R.Tensor(
        (2, 2), "float32"
    ):
        with R.dataflow():
            out = R.take(x, i, axis=0)
            R.output(out)
        return out


def _take_last() -> None:
    x = np.arange(1, 9, dtype="float32").reshape(4, 2)
    np.testing.assert_array_equal(run(_Take, x, np.array([-1, 0])), x[[-1, 0]])


register(
    INDEX_LEGALIZE,
    Probe(
        stock=_take_last,
        fixed=_take_last,
        symptom=re.compile(r"AssertionError: .*Arrays are not equal|SIGSEGV", re.DOTALL),
    ),
)
