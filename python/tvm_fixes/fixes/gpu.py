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
"""Kernels for GPUs."""

from .fix import Kind, Symptom, declare

GPU_SCHEDULE = declare(
    "gpu-schedule",
    family="gpu",
    kind=Kind.PASS,
    summary="finds a schedule for every kernel of a GPU",
    symptoms={
        Symptom.ERROR: (
            "a grouped convolution, a convolution with one channel, an argmax and others do not "
            "build for a GPU, because a schedule rule fails or its schedule cannot be lowered"
        ),
        Symptom.WRONG: (
            "on a GPU, a sum or product over no elements returns uninitialized memory; a kernel "
            "without elements, and a product of a matrix of fewer than 16 rows and a vector, "
            "write beyond their outputs; a transposed convolution reads beyond its input; a bias "
            "is added twice to a product with one input channel; a product of 16-bit matrices "
            "misreads its mask; in a CUDA graph, a kernel of several launches uses memory that "
            "belongs to other tensors by then; a maximum that is kept in global memory is the last "
            "element instead, as nvcc reads it from a cache without recent writes"
        ),
        Symptom.CRASH: (
            "on a GPU, nonzero and unique return tensors in the memory of the host, which the "
            "kernels after them read"
        ),
        Symptom.COST: (
            "for a GPU, the first 16-bit matrix product takes a minute to compile, and two "
            "floor_divide in a row take two"
        ),
    },
    upstream=(17873, 20036, 20047, 20061),
)
