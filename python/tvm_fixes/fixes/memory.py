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
"""Memory of compiled models and of the compiler."""

from .fix import Kind, Symptom, declare

LONG_LOOPS = declare(
    "long-loops",
    family="memory",
    kind=Kind.PASS,
    summary="does not unroll loops of 2**20 iterations and more",
    symptoms={
        Symptom.CRASH: (
            "a loop whose iterations times stores reach 2**31, as in a sum over "
            "2**30 elements, exhausts memory during the build: `std::bad_alloc`"
        ),
    },
)

TILES_ON_STACK = declare(
    "tiles-on-stack",
    family="memory",
    kind=Kind.PASS,
    summary="keeps register tiles of 1 KiB or more on the stack",
    symptoms={
        Symptom.COST: (
            "a kernel with a register tile of 1 KiB or more allocates it again for each tile, and "
            "loads and stores each sum"
        ),
    },
)

SELECT_LOADS = declare(
    "select-loads",
    family="memory",
    kind=Kind.PASS,
    summary="computes both operands of a Select, so that its loop is vectorized",
    symptoms={
        Symptom.COST: (
            "a PReLU or `where` after a depthwise convolution or a pooling branches "
            "for each element, and takes up to nine times as long as the convolution"
        ),
    },
)

PLAN_MEMORY_IF = declare(
    "plan-memory-if",
    family="memory",
    kind=Kind.PASS,
    summary="keeps one branch of an If from using storage that the other one allocates",
    symptoms={
        Symptom.CRASH: (
            "a model with an If crashes: memory planning lets one branch use "
            "storage that the other one allocates"
        ),
    },
)

PLAN_MEMORY_ESCAPE = declare(
    "plan-memory-escape",
    family="memory",
    kind=Kind.PASS,
    summary="does not reuse the memory of tensors that a call with effects keeps",
    symptoms={
        Symptom.WRONG: (
            "later tensors overwrite tensors that a packed function with effects "
            "keeps: `set_item` of LazyTransformParams stores the last weight "
            "everywhere"
        ),
    },
)

PLAN_MEMORY_BOUNDS = declare(
    "plan-memory-bounds",
    family="memory",
    kind=Kind.PASS,
    summary="allocates the size of a large symbolic tensor, not the upper bound of its size",
    symptoms={
        Symptom.CRASH: (
            "a slice of a symbolic axis up to 2**31 - 1, which exporters write for the end, "
            "allocates 2**31 - 1 rows: `std::bad_alloc`"
        ),
    },
)

VM_SHAPE_LOWER_WEIGHTS = declare(
    "vm-shape-lower-weights",
    family="memory",
    kind=Kind.PASS,
    summary="accepts a weight of unknown shape in a function with num_input",
    symptoms={
        Symptom.CRASH: (
            "a function with `num_input` that takes a weight of unknown shape "
            "crashes during the build"
        ),
    },
)

EMPTY_CONSTANTS = declare(
    "empty-constants",
    family="memory",
    kind=Kind.PASS,
    summary="does not store empty constants, which do not load",
    symptoms={
        Symptom.ERROR: (
            "a library with an empty constant is written, but does not load; a permute of no "
            "elements does not build"
        ),
    },
)

UPDATE_IN_PLACE = declare(
    "update-in-place",
    family="memory",
    kind=Kind.PASS,
    summary="writes new rows into an input that the caller lets it overwrite",
    symptoms={
        Symptom.COST: "a decoding step copies the whole cache to write one row of it",
    },
)

FOLD_PERMUTE_INTO_SCATTER = declare(
    "fold-permute-into-scatter",
    family="memory",
    kind=Kind.PASS,
    summary="scatters along an axis instead of permuting the tensor and back",
    symptoms={
        Symptom.COST: (
            "`index_copy` of a cache, as PyTorch exports it to ONNX, permutes the whole cache twice"
        ),
    },
)

MALLOC_ALIGNMENT = declare(
    "malloc-alignment",
    family="memory",
    kind=Kind.PASS,
    summary="takes inputs that are aligned as malloc aligns them",
    symptoms={
        Symptom.COST: (
            "each run copies an input that is a NumPy array, for kernels assume an alignment of "
            "64 bytes"
        ),
    },
)
