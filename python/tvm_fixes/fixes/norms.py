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
"""Normalizations."""

from .fix import Kind, Symptom, declare

NORM_VARIANCE = declare(
    "norm-variance",
    family="norms",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary=(
        "computes layer, group and instance norms accurately, for any mean, dtype, axes and flags"
    ),
    symptoms={
        Symptom.ERROR: (
            "layer, group and instance norms of float64 and bfloat16 do not lower; nor do "
            "those along a negative axis"
        ),
        Symptom.WRONG: (
            "layer, group and instance norms of data with a large mean lose all "
            "digits or give NaN; `center=False` and `scale=False` are ignored"
        ),
    },
)

BATCH_NORM_LEGALIZE = declare(
    "batch-norm-legalize",
    family="batch-norm",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="fuses batch normalization, and keeps the dtype of 16-bit floats",
    symptoms={
        Symptom.WRONG: (
            "batch normalization of float16 or bfloat16 gives float32; in training mode, "
            "float16 over 16384 elements is off by 2, or NaN"
        ),
        Symptom.COST: "batch normalization is not fused with a convolution",
    },
)

RMS_NORM_LEGALIZE = declare(
    "rms-norm-legalize",
    family="rms-norm",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lowers rms_norm over any axes in any order, in the dtype of its operands",
    symptoms={
        Symptom.ERROR: "`R.nn.rms_norm` over axes other than the last does not lower",
        Symptom.WRONG: (
            "`R.nn.rms_norm` over axes out of order gives wrong results; float64 "
            "is computed in float32"
        ),
    },
)
