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
"""Elementwise operators, reductions, poolings, sorts and indexing."""

from .fix import Kind, Symptom, declare

REDUCTION_LEGALIZE = declare(
    "reduction-legalize",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="matches PyTorch in extrema of infinities and NaN; argmax is never -1",
    symptoms={
        Symptom.WRONG: (
            "argmax is -1 if every element is the smallest of its dtype, such as 0 of uint8; "
            "the maximum of negative infinities is finite, in a pooling window too; a NaN is "
            "found or lost, depending on its position; a sum of 4096 ones of float16 is 2048, "
            "and the mean of 40000 threes infinite"
        ),
        Symptom.ERROR: "a mean of no elements does not build: `Divide by zero`",
        Symptom.COST: "max pooling in windows of 13 by 13 takes 45 times as long as necessary",
    },
)

SOFTMAX_LEGALIZE = declare(
    "softmax-legalize",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="sums a softmax of 16-bit floats in float32, and divides once per row",
    symptoms={
        Symptom.WRONG: "a softmax of 4096 equal elements in float16 gives each of them 1/2048",
        Symptom.COST: "a softmax on a CPU divides every element",
    },
)

POOL_WINDOW = declare(
    "pool-window",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="does not pad the data of a pooling to a window that is larger than the data",
    symptoms={
        Symptom.CRASH: (
            "a pooling window larger than its data, as at the end of "
            "EfficientNet, pads the data to the size of the window: 8 GiB for 49 "
            "pixels of 1280 channels"
        ),
    },
)

AVERAGE_POOL = declare(
    "average-pool",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="computes averages over windows of 16-bit floats in float32",
    symptoms={
        Symptom.ERROR: (
            "the average over 70,000 pixels of float16 does not build; nor does a result over "
            "three axes that is read twice"
        ),
        Symptom.WRONG: "the average of fewer, large float16 pixels is infinite",
    },
)

POOL_CEIL_MODE = declare(
    "pool-ceil-mode",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="builds poolings with ceil_mode along symbolic extents",
    symptoms={
        Symptom.ERROR: (
            "FuseOps raises at a pooling with `ceil_mode` along a symbolic extent "
            "if the last window may start beyond the data, for example with "
            "windows of 2 and a stride of 3"
        ),
    },
)

RESIZE_LEGALIZE = declare(
    "resize-legalize",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="copies elements unrounded when it resizes to the nearest one",
    symptoms={
        Symptom.WRONG: (
            "resizing to the nearest element rounds large integers and float64 to float32; "
            "results in three dimensions are wrong"
        ),
        Symptom.COST: "a resize on a CPU takes three times as long as in ONNX Runtime",
        Symptom.ERROR: "a resize between symbolic extents, or to one element, does not build",
    },
)

INLINE_ELEMENTWISE = declare(
    "inline-elementwise",
    family="elements",
    kind=Kind.PASS,
    summary="merges the steps of an elementwise kernel into one pass over memory",
    symptoms={
        Symptom.COST: (
            "each step of a gelu, or of fused operators, is a separate pass over "
            "memory on a CPU, with its own buffer: twice the time of PyTorch"
        ),
    },
)

REDUCTION_SCHEDULE = declare(
    "reduction-schedule",
    family="elements",
    kind=Kind.PASS,
    summary=(
        "schedules norms, softmax and reductions by rows, in vectors with several partial sums"
    ),
    symptoms={
        Symptom.WRONG: "the sum of 2**24 + 65536 ones in float32 is 2**24",
        Symptom.COST: (
            "norms, softmax, sums and means on a CPU take up to 8 times as long as in PyTorch"
        ),
    },
)

ELEMENTWISE_SCHEDULE = declare(
    "elementwise-schedule",
    family="elements",
    kind=Kind.PASS,
    summary="tiles transposes, and runs large elementwise kernels in parallel",
    symptoms={
        Symptom.COST: (
            "elementwise kernels, poolings and copies on a CPU use one core; a "
            "transpose takes up to 3 times as long as in ONNX Runtime"
        ),
    },
)

DECOMPOSE_REDUCTION = declare(
    "decompose-reduction",
    family="elements",
    kind=Kind.PASS,
    summary="gives sums, products and extrema over no elements their correct value",
    symptoms={
        Symptom.WRONG: (
            "a sum, product, extremum or matrix product over an axis without "
            "elements is uninitialized memory"
        ),
    },
)

ELEMENTARY_FUNCTIONS = declare(
    "elementary-functions",
    family="elements",
    kind=Kind.PASS,
    summary="computes exp, log, sin, erf, tanh and others on a CPU accurately, in vector code",
    symptoms={
        Symptom.ERROR: "`acos`, `sinh` and others of 16-bit floats do not build",
        Symptom.WRONG: "`tanh` of 1e-6 is 5% off on a CPU",
        Symptom.COST: (
            "gelu, silu, softmax, log and sin on a CPU call the C library for each element: "
            "about 10 times the time of PyTorch"
        ),
    },
)

FLOAT_ARITHMETIC = declare(
    "float-arithmetic",
    family="elements",
    kind=Kind.PASS,
    summary="keeps float arithmetic as written: inf - inf is NaN, (x + y) - y is rounded; -2 as "
    "uint8 is 254",
    symptoms={
        Symptom.ERROR: "a division by constant zeros does not build",
        Symptom.WRONG: (
            "in fused operators, infinity minus infinity is 0, (x + y) - y is x, and 0 times "
            "infinity is 0; a float cast to an integer that it does not fit differs between "
            "elements; NaN equals NaN, `not x < y` is false for NaN, and -0 + 0 is -0"
        ),
    },
)

INTEGER_OVERFLOW = declare(
    "integer-overflow",
    family="elements",
    kind=Kind.PASS,
    summary="lets integers overflow in fused operators: x + 1 > x is false for the largest x",
    symptoms={
        Symptom.WRONG: (
            "fused operators compute as if integers did not overflow: for int32, x + 1 > x is "
            "always true, and x * 2 // 2 is always x; on a GPU, sums of int8 have 32 bits; "
            "`x.astype(uint8) <= 127` is true for -1 of int8"
        ),
    },
)

SPLIT_INDICES = declare(
    "split-indices",
    family="elements",
    kind=Kind.PASS,
    summary="keeps the constants and signs of indices that are split, as by a reshape or a flip",
    symptoms={
        Symptom.WRONG: (
            "a kernel reads other elements if its index splits a difference or another split: "
            "`(63 - i) % 64` becomes `i % -64 * -1`, `(i + 12) // 7 % 4` becomes `(i + 7) // 7`"
        ),
    },
)

INTEGER_DIVISION = declare(
    "integer-division",
    family="elements",
    kind=Kind.PASS,
    summary="makes a CPU's integer division by 0 an error, and lets division by -1 wrap",
    symptoms={
        Symptom.CRASH: (
            "an integer division by 0, or of the smallest integer by -1, ends the "
            "process on a CPU, in a shape too"
        ),
    },
)

SLP_VECTORIZER = declare(
    "slp-vectorizer",
    family="elements",
    kind=Kind.CODE_GENERATOR,
    summary="compiles a kernel that LLVM's SLP vectorizer breaks without that vectorizer",
    symptoms={
        Symptom.ERROR: (
            "some kernels of few elements do not build: LLVM module verification failed"
        ),
    },
)

SORT_BY_KEYS = declare(
    "sort-by-keys",
    family="elements",
    kind=Kind.PASS,
    summary="sorts bfloat16, NaN and all integers correctly, in sort, argsort and topk",
    symptoms={
        Symptom.ERROR: (
            "sort and topk of most integer dtypes raise when the model runs; those of an empty "
            "tensor do not build for a GPU"
        ),
        Symptom.WRONG: (
            "sort and topk of bfloat16, and of other floats around a NaN, return a wrong order"
        ),
        Symptom.COST: "sorts on a CPU take ten times as long as a radix sort",
    },
)

SPLIT_DATAFLOW = declare(
    "split-dataflow",
    family="elements",
    kind=Kind.PASS,
    summary="keeps an operator from being fused with the computation of its extents",
    symptoms={
        Symptom.ERROR: (
            "an operator with an extent that is known at run time (Range, NonZero) is fused "
            "with an earlier one, and does not build, or is fused without end"
        ),
    },
)

COMPARISON_LEGALIZE = declare(
    "comparison-legalize",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="compares booleans, and propagates NaN through relu, clip, maximum and minimum",
    symptoms={
        Symptom.ERROR: (
            "a comparison of booleans does not build; isnan, isinf and isfinite of booleans "
            "are rejected"
        ),
        Symptom.WRONG: (
            "relu of NaN is 0; clip, maximum and minimum lose NaN too; not_equal of NaN and a "
            "number is false"
        ),
    },
)

ARITHMETIC_LEGALIZE = declare(
    "arithmetic-legalize",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary=("computes selu, softplus, log_add_exp, floor_divide and floor_mod to the last digits"),
    symptoms={
        Symptom.ERROR: (
            "power and mod of bfloat16, sign of unsigned integers, and ewise_fma do not build"
        ),
        Symptom.WRONG: (
            "selu, softplus and log_add_exp lose all digits near zero or overflow; "
            "floor_divide and floor_mod of floats are wrong where the quotient is rounded; a "
            "cast to bfloat16 in a fused kernel does not round; 0 - x of uint32 is 0; gelu of "
            "float16 is 8% off; 0 times infinity and 0 / 0 are 0, -0 + 0 is -0"
        ),
    },
)

CREATION_LEGALIZE = declare(
    "creation-legalize",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="fills tensors with infinities or NaN, and broadcasts extents",
    symptoms={
        Symptom.ERROR: (
            "`R.full` of an infinity, as in masks, does not lower; nor does "
            "broadcasting a tensor made of extents"
        ),
    },
)

STRIDED_SLICE_LEGALIZE = declare(
    "strided-slice-legalize",
    family="elements",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lets a slice count axes from the last one if an extent is symbolic",
    symptoms={
        Symptom.ERROR: (
            "a slice along axis -1 of data with a symbolic extent does not build; "
            "nor does an empty slice of a static shape"
        ),
    },
)

PIXEL_SHUFFLE_LEGALIZE = declare(
    "pixel-shuffle-legalize",
    family="pixel-shuffle",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lowers pixel_shuffle",
    symptoms={
        Symptom.ERROR: "`R.nn.pixel_shuffle` does not lower",
    },
)

INDEX_LEGALIZE = declare(
    "index-legalize",
    family="indices",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="wraps and bounds indices: gathers and scatters never leave their tensors",
    symptoms={
        Symptom.ERROR: (
            "cumsum and cumprod of some symbolic and empty shapes do not build for a GPU; "
            "index_put of rows, and slice_scatter along a symbolic dim, do not build"
        ),
        Symptom.CRASH: (
            "a negative or out-of-range index of a gather or scatter reads or "
            "writes memory outside the tensor"
        ),
        Symptom.WRONG: (
            "a gather with a negative index reads another element or foreign "
            "memory; a scatter with fewer indices than elements writes to other "
            "positions"
        ),
        Symptom.COST: "an index of an ONNX model takes three additional kernels",
    },
    upstream=(20297,),
)
