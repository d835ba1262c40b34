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
"""Probes of quantized products."""

import re

import numpy as np
import tvm
from tvm import relax

from ..fixes.low_precision import FUSE_DEQUANTIZE_MATMUL, FUSE_QUANTIZED
from ..lowering import pipeline
from ..relax.constants.fold_plan import bytes_of
from ..relax.constants.provenance import constants_of
from ._run import lower, run
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


def _lower_blocks(relax_pipeline: tvm.transform.Pass) -> None:
    """Multiply by 4-bit weights with a scale for each 32 elements of a row."""
    rng = np.random.default_rng(0)
    integers = relax.const(rng.integers(-8, 8, (96, 4, 32), "int8"))
    scale = relax.const(rng.uniform(0.5, 1, (96, 4, 1)).astype("float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 128), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            factors = builder.emit(relax.op.astype(integers, "float32"))
            matrix = builder.emit(relax.op.multiply(factors, scale))
            rows = builder.emit(relax.op.reshape(matrix, (96, 128)))
            columns = builder.emit(relax.op.permute_dims(rows))
            out = builder.emit_output(relax.op.matmul(x, columns))
        builder.emit_func_output(out)
    constants = constants_of(lower(builder.get(), relax_pipeline))
    size, limit = sum(map(bytes_of, constants)), 96 * 128 // 2 + 96 * 4 * 4
    assert size <= limit, f"the weight takes {size} bytes instead of {limit}"


register(
    FUSE_DEQUANTIZE_MATMUL,
    Probe(
        stock=lambda: _lower_blocks(relax.get_pipeline("zero")),
        fixed=lambda: _lower_blocks(pipeline()),
        symptom=re.compile(r"AssertionError: the weight takes (49152|13824) bytes instead of 7680"),
    ),
)
