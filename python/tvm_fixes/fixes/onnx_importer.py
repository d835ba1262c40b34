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
"""The ONNX importer."""

from .fix import Kind, Symptom, declare

CONV_TRANSPOSE_OUTPUT_SHAPE = declare(
    "onnx-conv-transpose-output-shape",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="computes the pads of ConvTranspose from output_shape",
    symptoms={
        Symptom.WRONG: "`output_shape` of ConvTranspose is ignored: the shape is wrong",
    },
    upstream=(19450,),
)

CONV_AUTO_PAD = declare(
    "onnx-conv-auto-pad",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary=(
        "imports auto_pad of Conv with symbolic extents, and as an attribute where they are static"
    ),
    symptoms={
        Symptom.ERROR: "Conv with auto_pad SAME rejects symbolic extents",
        Symptom.COST: "Conv with auto_pad SAME stops layout conversion",
    },
)

DTYPE = declare(
    "onnx-dtype",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="sums Conv, ConvTranspose, MatMul and Gemm of 16-bit floats in float32",
    symptoms={
        Symptom.WRONG: (
            "Conv, ConvTranspose, MatMul and Gemm of float16 and bfloat16 sum in "
            "16 bits: wrong digits"
        ),
    },
)

PAD = declare(
    "onnx-pad",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary=("rejects a Pad with too wide a reflection, wraps after a cut, and lets layouts pass"),
    symptoms={
        Symptom.WRONG: (
            "Pad with too wide a reflection, or negative pads in mode wrap, gives wrong results"
        ),
        Symptom.COST: "layout conversion stops at a Pad",
        Symptom.ERROR: "computed pads are rejected: `Dynamic pads are not supported yet`",
    },
)

PRELU = declare(
    "onnx-prelu",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports PRelu with one slope for symbolic extents, and of integers",
    symptoms={
        Symptom.ERROR: (
            "PRelu with one slope and symbolic extents does not build; PRelu of "
            "integers is rejected"
        ),
    },
)

RECURRENT = declare(
    "onnx-recurrent",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports RNN, GRU and LSTM as one kernel, for any number of steps and sequences",
    symptoms={
        Symptom.ERROR: "RNN, GRU and LSTM are rejected",
    },
)

RESIZE = declare(
    "onnx-resize",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports Resize and Upsample by the given scales, on any axis, in every opset",
    symptoms={
        Symptom.ERROR: "Resize of older opsets, or with `axes`, is rejected",
        Symptom.WRONG: (
            "Resize to fractional extents, of N and C, or with `antialias` gives wrong results"
        ),
    },
)

SLICE = declare(
    "onnx-slice",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary=(
        "clamps the bounds of Slice to the data; imports Slice and Split by computed operands"
    ),
    symptoms={
        Symptom.ERROR: "an empty Slice and a computed Split are rejected",
        Symptom.WRONG: "Slice with extents as bounds is not clamped: its shape exceeds the data",
    },
)

RESHAPE = declare(
    "onnx-reshape",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary=(
        "imports Reshape, Flatten, Squeeze and Unsqueeze by any operands, checked at run time"
    ),
    symptoms={
        Symptom.ERROR: (
            "Squeeze of a symbolic extent, Reshape to a shape known at run time, "
            "and axes known at run time are rejected or lose the shape"
        ),
    },
)

EXPAND = declare(
    "onnx-expand",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary=(
        "broadcasts symbolic extents both ways; imports Tile and ConstantOfShape by any operand"
    ),
    symptoms={
        Symptom.ERROR: (
            "operands that broadcast along two symbols do not build; Tile and "
            "ConstantOfShape by extents are rejected"
        ),
        Symptom.WRONG: (
            "Expand between two symbols, or to an extent that is 1 at run time, gives a wrong "
            "shape; MatMul, Gemm and Einsum whose shared extents differ at run time read an "
            "operand out of bounds"
        ),
    },
)

PARAMETERS = declare(
    "onnx-parameters",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports TopK, OneHot, Range, EyeLike and CumSum with operands of any kind and dtype",
    symptoms={
        Symptom.ERROR: (
            "OneHot and EyeLike reject dtypes; an addition to a Range over an extent does not build"
        ),
        Symptom.WRONG: (
            "TopK of opset 10, of 0 elements or of more than exist gives wrong results"
        ),
    },
)

UNNAMED_DIMS = declare(
    "onnx-unnamed-dims",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="gives each unnamed dim of an input its own symbol",
    symptoms={
        Symptom.ERROR: (
            "all unnamed dims share one symbol: (?, 3, ?, ?) accepts only inputs with N = H = W"
        ),
    },
)

SHAPE_VALUES = declare(
    "onnx-shape-values",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="computes shapes, axes and conditions during the import",
    symptoms={
        Symptom.ERROR: (
            'shapes computed from Shape are rejected: "Dynamic pads", "cannot handle ShapeExpr"'
        ),
        Symptom.WRONG: "Equal of two equal shapes is False",
    },
)

IF = declare(
    "onnx-if",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary=("imports only the taken branch of an If with a known condition, and others as blocks"),
    symptoms={
        Symptom.ERROR: (
            "an If with a known condition converts both branches, raises the "
            "errors of the other branch, and loses its rank"
        ),
    },
    upstream=(17383,),
)

LOOPS = declare(
    "onnx-loops",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports Loop and Scan, unrolled or as functions that call themselves",
    symptoms={
        Symptom.ERROR: "Loop and Scan are rejected",
    },
)

FUNCTIONS = declare(
    "onnx-functions",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="expands functions of the model, and operators that ONNX defines by functions",
    symptoms={
        Symptom.ERROR: (
            "a model with its own functions (PyTorch's dynamo exporter), and "
            "Celu, CenterCropPad, RotaryEmbedding, Swish and others that ONNX "
            "defines by functions, are rejected"
        ),
        Symptom.WRONG: "a function with the name of an operator is mistaken for the operator",
    },
)

ELEMENTWISE = declare(
    "onnx-elementwise",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="follows ONNX in IsInf, Mod, Pow, BitShift, Mish, Softplus, Dropout and casts",
    symptoms={
        Symptom.ERROR: (
            "Pow of integers does not build; a Sum or Concat of 2000 operands crashes LLVM, "
            "and one of 400 takes a minute"
        ),
        Symptom.WRONG: (
            "IsInf with `detect_*`, Mod of infinities, Pow of mixed dtypes, Mish "
            "and Softplus of negative numbers, casts to 8-bit floats, the mask of "
            "Dropout and SpaceToDepth in mode CRD are wrong"
        ),
    },
)

ACTIVATIONS = declare(
    "onnx-activations",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="follows ONNX in Elu, Selu, Celu, Shrink, ThresholdedRelu, Clip, Sign and Hardmax",
    symptoms={
        Symptom.ERROR: (
            "Elu, Selu, Celu and ThresholdedRelu of float16 and float64, and "
            "Hardmax with symbolic extents, are rejected"
        ),
        Symptom.WRONG: (
            "Clip of NaN is a bound, ThresholdedRelu of negative infinity is NaN, "
            "and Elu loses all digits near zero"
        ),
    },
)

REDUCTIONS = declare(
    "onnx-reductions",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="computes ReduceLogSumExp of infinities, and reductions along computed axes",
    symptoms={
        Symptom.ERROR: "computed axes of a reduction raise an AssertionError that names no node",
        Symptom.WRONG: (
            "ReduceLogSumExp of an infinity is NaN; ReduceL2 of large 16-bit floats is infinite"
        ),
    },
)

NORMS = declare(
    "onnx-norms",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports norms of any dtype, LpNormalization, and the statistics that norms return",
    symptoms={
        Symptom.ERROR: (
            "LpNormalization is rejected, and GroupNormalization, LRN and "
            "MeanVarianceNormalization in any dtype except float32"
        ),
        Symptom.WRONG: (
            "Mean and InvStdDev of LayerNormalization are 0; BatchNormalization in training "
            "swaps the weights of its statistics; MeanVarianceNormalization of equal elements "
            "is NaN; results have no shape, or the wrong axes are normalized"
        ),
    },
)

POOLING = declare(
    "onnx-pooling",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary=(
        "follows ONNX in auto_pad and ceil_mode of poolings, indices of MaxPool and MaxUnpool"
    ),
    symptoms={
        Symptom.ERROR: "the indices of MaxPool are rejected",
        Symptom.WRONG: (
            "MaxPool with SAME_LOWER, AveragePool with SAME and dilations, and "
            "LpPool with `ceil_mode` give wrong results"
        ),
    },
)

BOXES = declare(
    "onnx-boxes",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="follows ONNX in half_pixel of RoiAlign and the threshold of NonMaxSuppression",
    symptoms={
        Symptom.WRONG: (
            "RoiAlign with `half_pixel` and a `spatial_scale` reads other "
            "regions; NonMaxSuppression suppresses boxes at the threshold or "
            "finds none"
        ),
    },
)

MICROSOFT = declare(
    "onnx-microsoft",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports the operators that ONNX Runtime's optimizer and model builder write",
    symptoms={
        Symptom.ERROR: "models that ONNX Runtime has optimized are rejected: FusedMatMul, "
        "MultiHeadAttention, GroupQueryAttention, SkipSimplifiedLayerNormalization",
        Symptom.WRONG: (
            "an operator with the name of one of ONNX's is converted as that one; "
            "SkipLayerNormalization returns no mean, and its sum lacks the bias"
        ),
    },
)

QUANTIZED = declare(
    "onnx-quantized",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports quantized models, with blocks, 4-bit weights and ONNX Runtime's operators",
    symptoms={
        Symptom.ERROR: "QLinearConv, QLinearMatMul, QGemm, MatMulNBits, 4-bit weights and blocks "
        "of QuantizeLinear are rejected",
        Symptom.WRONG: (
            "DynamicQuantizeLinear of zeros returns 255; QuantizeLinear of float16 is off by "
            "one; MatMulInteger of a vector returns a matrix"
        ),
    },
)

ML = declare(
    "onnx-ml",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary="imports the operators of ai.onnx.ml: trees, linear models, SVMs, scalers, encoders",
    symptoms={
        Symptom.ERROR: "models of scikit-learn, XGBoost and LightGBM are rejected",
    },
)

OPERATORS = declare(
    "onnx-operators",
    family="onnx-importer",
    kind=Kind.IMPORTER,
    summary=(
        "imports Det, Col2Im, CumProd, BitCast, TensorScatter, DFT, STFT, MelWeightMatrix, "
        "DeformConv, random numbers, 8-bit floats, sequences and optionals"
    ),
    symptoms={
        Symptom.ERROR: "the operators are rejected, or need constant operands",
    },
)
