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
"""The probe of NumPy's dtypes."""

import re

import numpy as np
import tvm
from tvm import relax

from ..fixes.environment import NUMPY_DTYPE, UNFINISHED_FUNCTIONS
from .probe import Probe, register


def _make_array_of_type() -> None:
    assert np.zeros(4, tvm.ir.PrimType("float32")).dtype == np.float32


register(
    NUMPY_DTYPE,
    Probe(
        stock=_make_array_of_type,
        fixed=_make_array_of_type,
        # The first is the text of NumPy 2.4, the second that of 2.3.
        symptom=re.compile("ValueError: (Could not convert .* to a NumPy dtype|dtype attribute)"),
    ),
)


def _fail_within_a_function() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2], "float32"))
    with builder.function("outer", [x]):
        y = builder.emit(relax.op.add(x, x))
        try:
            with builder.function("inner", [relax.Var("z", x.ty)]):
                raise ValueError
        except ValueError:
            pass
        builder.emit_func_output(y)
    assert relax.analysis.check_well_formed(builder.get()), "the bindings of outer are lost"


register(
    UNFINISHED_FUNCTIONS,
    Probe(
        stock=_fail_within_a_function,
        fixed=_fail_within_a_function,
        symptom=re.compile("AssertionError: the bindings of outer are lost"),
    ),
)
