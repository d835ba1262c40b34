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
"""The probe of quantized products."""

import re

import numpy as np
from tvm import relax

from ..fixes.low_precision import FUSE_QUANTIZED
from ._run import run
from .probe import Probe, register


def _multiply(pipeline: str) -> None:
    """Multiply dequantized integers, with sums that float32 cannot add up exactly."""
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.integers(64, 128, shape, "int8") for shape in ((1, 4096), (4096, 8)))
    builder = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorType(lhs.shape, "int8"))
    one, zero = relax.const(1.0, "float32"), relax.const(0, "int8")
    with builder.function("main", [param]):
        with builder.dataflow():
            operands = [
                builder.emit(relax.op.dequantize(operand, one, zero, 0))
                for operand in (param, relax.const(rhs))
            ]
            out = builder.emit_output(relax.op.matmul(*operands))
        builder.emit_func_output(out)
    got = run(builder.get(), lhs, relax_pipeline=pipeline)
    exact = lhs.astype("int32") @ rhs.astype("int32")
    np.testing.assert_array_equal(got, exact.astype("float32"))


register(
    FUSE_QUANTIZED,
    Probe(
        stock=lambda: _multiply("default"),
        fixed=lambda: _multiply("tvm_fixes"),
        symptom=re.compile(r"AssertionError: .*Mismatched elements", re.DOTALL),
    ),
)
