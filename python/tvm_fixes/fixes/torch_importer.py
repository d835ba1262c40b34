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
"""The PyTorch importers."""

from .fix import Kind, Symptom, declare

DTYPE = declare(
    "torch-dtype",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="keeps the dtype of conv, conv_transpose, linear and addmm",
    symptoms={
        Symptom.ERROR: (
            "a float16, bfloat16 or float64 convolution or linear layer with a bias is rejected"
        ),
        Symptom.WRONG: (
            "a float16, bfloat16 or float64 convolution or linear layer without a "
            "bias gives float32"
        ),
    },
    upstream=(18328,),
)

CONV_TRANSPOSE = declare(
    "torch-conv-transpose",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports ConvTranspose3d, and convolutions of unbatched data",
    symptoms={
        Symptom.ERROR: "ConvTranspose3d and unbatched inputs are rejected",
    },
    upstream=(17325, 17968),
)

BATCH_NORM = declare(
    "torch-batch-norm",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="uses the running statistics of a batch norm in eval mode",
    symptoms={
        Symptom.WRONG: (
            "a batch norm in a program that is not decomposed normalizes with the statistics of "
            "the batch in eval mode"
        ),
    },
    upstream=(17752,),
)

INSTANCE_NORM = declare(
    "torch-instance-norm",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports an instance norm as one operator, even with a symbolic batch",
    symptoms={
        Symptom.ERROR: "an instance norm with a symbolic batch is rejected",
        Symptom.COST: (
            "an instance norm becomes a batch norm over a reshape, which keeps its transposes"
        ),
    },
)

INTERPOLATE = declare(
    "torch-interpolate",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="interpolates as PyTorch does, in all modes",
    symptoms={
        Symptom.ERROR: "1-D and 3-D interpolation to other extents is rejected",
        Symptom.WRONG: "nearest interpolation reads the wrong pixels",
    },
    upstream=(17932, 18500),
)

FX = declare(
    "torch-fx",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports traced modules as torch.export exports them",
    symptoms={
        Symptom.ERROR: (
            "`from_fx` rejects `where`, `embedding`, `gather`, GroupNorm, BatchNorm1d, Upsample, "
            "PReLU, the padding modules and others"
        ),
        Symptom.WRONG: (
            "`from_fx` ignores `correction` of `std` and `var`, arguments of `norm`, `output_size` "
            "and the running statistics of a batch norm; `x[0, 1::2]` and `max(dim)` have another "
            "shape"
        ),
    },
    upstream=(17325, 17752, 17932, 18703),
)

MUTATIONS = declare(
    "torch-mutations",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="returns the new values of mutated inputs; `compile` copies them to the inputs",
    symptoms={
        Symptom.WRONG: "writes of a program to an input, such as a key-value cache, are lost",
    },
)

TILE = declare(
    "torch-tile",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports tile and repeat by a symbolic extent",
    symptoms={
        Symptom.ERROR: "`tile` and `repeat` by symbolic extents are rejected",
    },
    upstream=(17291, 17304),
)

PRELU = declare(
    "torch-prelu",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports PReLU as one operator that layouts pass through",
    symptoms={
        Symptom.COST: "a PReLU becomes several operators",
    },
    upstream=(17816,),
)

LINEAR = declare(
    "torch-linear",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports linear layers and matmul without repeating weights; imports Bilinear",
    symptoms={
        Symptom.ERROR: "nn.Bilinear is rejected",
        Symptom.COST: (
            "a Linear or matmul on a transposed input, as in attention and "
            "recurrent layers, repeats its weight for each element of the batch"
        ),
        Symptom.WRONG: "`addmm` with `alpha=0` has the shape of its first operand",
    },
    upstream=(17546,),
)

PROMOTION = declare(
    "torch-promotion",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="promotes operands as PyTorch does; imports alpha of add, and sums of booleans",
    symptoms={
        Symptom.ERROR: (
            "`cumsum` of booleans, `clamp` of integers, and integer divisions of "
            "mixed dtypes are rejected"
        ),
        Symptom.WRONG: (
            "an integer tensor times 0.5 is 0, divided by 2 it is still an integer, and `add` "
            "ignores `alpha`; the root of -inf is inf"
        ),
    },
    upstream=(18459,),
)

DYNAMIC_SHAPES = declare(
    "torch-dynamic-shapes",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="takes sizes from torch.export, in slices, splits and pads too, and checks types",
    symptoms={
        Symptom.CRASH: "`x[-1]` along a dynamic axis, and `x[:n]` by the size n of another input, "
        "read memory outside x",
        Symptom.ERROR: "the maximum of sizes, splits and pads by them, and a number or a string as "
        "input or output are rejected",
        Symptom.WRONG: "a value whose type differs from PyTorch's is accepted",
    },
    upstream=(17818, 18918),
)

ATTENTION = declare(
    "torch-attention",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports attention with a viewed result, boolean masks, scale and grouped heads",
    symptoms={
        Symptom.ERROR: (
            "attention (SDPA) with a viewed result, as in GPT-2, is rejected; so "
            "is a boolean mask in a program that is not decomposed"
        ),
        Symptom.WRONG: "`scale` of attention is ignored in a program that is not decomposed",
    },
)

INDEXING = declare(
    "torch-indexing",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary=(
        "imports advanced indexing, assignment to indices and masks, dynamic slices and scatters"
    ),
    symptoms={
        Symptom.ERROR: (
            "`x[i] = rows`, `x[mask] = v` and `x[:, :n] = y` along a dynamic axis do not build"
        ),
        Symptom.WRONG: (
            "`L[..., i, i] = v` writes only the diagonal of the batch; `x[..., i, "
            ":, j]` reads other elements"
        ),
    },
)

ACTIVATIONS = declare(
    "torch-activations",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary=("computes elu, selu, celu, expm1 and log1p to the last digits, and softshrink of NaN"),
    symptoms={
        Symptom.WRONG: (
            "`selu` lacks its scale and is 5% off; `elu`, `celu`, `expm1` and `log1p` lose "
            "all digits near zero; NaN is lost"
        ),
    },
)

POOLING = declare(
    "torch-pooling",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports divisor_override of average pooling",
    symptoms={
        Symptom.WRONG: "average pooling ignores `divisor_override`",
    },
)

GRID_SAMPLE = declare(
    "torch-grid-sample",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="reads the coordinates of grid_sample from the last axis of the grid; imports 3-D",
    symptoms={
        Symptom.ERROR: "3-D `grid_sample` is rejected",
        Symptom.WRONG: "`grid_sample` reads the grid as [N, 2, H, W]",
    },
)

REDUCTIONS = declare(
    "torch-reductions",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary=(
        "imports max and min along an axis, even of NaN; amax, amin, aminmax; axes of scalars"
    ),
    symptoms={
        Symptom.ERROR: (
            "`min(dim)`, `amax`, `amin`, `aminmax`, and axes of 0-d tensors are rejected"
        ),
        Symptom.WRONG: "`x.max(dim)` loses NaN; the norm of large float16 numbers is infinite",
    },
)

CREATION = declare(
    "torch-creation",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports arange of floats, with negative steps, or empty; empty with symbolic sizes",
    symptoms={
        Symptom.ERROR: (
            "`arange` of floats with symbolic sizes, and `empty` with them, are rejected"
        ),
        Symptom.WRONG: "`arange` with a negative step has a wrong length",
    },
)

DECOMPOSITIONS = declare(
    "torch-decompositions",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary=(
        "decomposes operators that have no converter; imports factorizations, searches, complex "
        "numbers and the statistics of norms"
    ),
    symptoms={
        Symptom.ERROR: (
            "`var_mean`, `x.unfold`, `linalg.inv`, `fft.rfft` and others are rejected, and the "
            "error names no node; so are `var`, `where` with a number, `lerp` and `layer_norm` "
            "without a weight, in a program that is not decomposed"
        ),
        Symptom.WRONG: (
            "statistics of a norm that the program reads are zeros or the data; in a program "
            "that is not decomposed, `std` ignores `correction`, and `cross_entropy` of "
            "images is another number; `as_strided` ignores the strides of its operand, "
            "`median` ignores NaN"
        ),
    },
)

QUANTIZED = declare(
    "torch-quantized",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports programs quantized with PT2E or torchao",
    symptoms={
        Symptom.ERROR: (
            "`quantized_decomposed.quantize_per_tensor` and the other operators of PT2E, "
            "`torchao.*`, `_int_mm` and fake quantization are rejected"
        ),
    },
)

RANDOM = declare(
    "torch-random",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="imports random numbers, and dropout in training mode",
    symptoms={
        Symptom.ERROR: "`rand`, `randint`, `normal`, `multinomial` and others are rejected",
        Symptom.WRONG: (
            "`dropout` in training mode and `bernoulli` with a probability return their "
            "operand; `exponential` gives zeros; `randn` has other numbers in each import"
        ),
    },
)

LOOPS = declare(
    "torch-loops",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary=(
        "imports `while_loop`, `scan`, `map` and `associative_scan`, and LSTM, GRU and RNN without "
        "unrolling them"
    ),
    symptoms={
        Symptom.ERROR: (
            "`while_loop`, `scan`, `map` and `associative_scan` are rejected, and so are branches "
            "of `cond` that compute with sizes"
        ),
        Symptom.COST: "a recurrent layer is unrolled, one copy per time step",
    },
)
