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
"""Symbolic shapes."""

from .fix import Kind, Symptom, declare

RESHAPE_LEGALIZE = declare(
    "reshape-legalize",
    family="dynamic-shapes",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="builds a reshape to an extent that is a quotient of symbols",
    symptoms={
        Symptom.ERROR: (
            "a reshape of a convolution's output does not build if -1 stands for "
            "an extent such as `n * 3 * (k - 1) // 5`"
        ),
    },
)

SHAPE_BOUNDS = declare(
    "shape-bounds",
    family="dynamic-shapes",
    kind=Kind.PASS,
    summary="keeps the conditions of a kernel on an extent such as `n * 2 - 4`",
    symptoms={
        Symptom.WRONG: (
            "a kernel with a parameter of `n * 2 - 4` elements assumes that n is at least 4, not "
            "2, and accesses memory out of bounds for smaller ones"
        ),
    },
)

DYNAMIC_TO_STATIC = declare(
    "dynamic-to-static",
    family="dynamic-shapes",
    kind=Kind.PASS,
    summary=(
        "turns shapes that are computed with tensors into expressions over the inputs' extents"
    ),
    symptoms={
        Symptom.ERROR: (
            "a shape computed with tensors (Shape, Gather, Concat, Range, or If "
            "around Squeeze) makes all later types unknown, and often does not "
            "build; nor does a slice whose bounds cross"
        ),
    },
)
