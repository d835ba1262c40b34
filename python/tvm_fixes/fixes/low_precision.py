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
"""Quantized models and 16-bit floats."""

from .fix import Kind, Symptom, declare

FUSE_DEQUANTIZE_MATMUL = declare(
    "fuse-dequantize-matmul",
    family="low-precision",
    kind=Kind.PASS,
    summary="multiplies by weights of 2, 4 or 8 bits without dequantizing them first",
    symptoms={
        Symptom.COST: "4-bit weights of a linear layer take as many bytes as in float32",
    },
)

FUSE_QUANTIZED = declare(
    "fuse-quantized",
    family="low-precision",
    kind=Kind.PASS,
    summary="computes convolutions and matrix products of quantized operands in integers",
    symptoms={
        Symptom.WRONG: "sums of products of dequantized 8-bit integers have rounding errors",
        Symptom.COST: "a quantized model takes longer than the float32 model it was made from",
    },
)
