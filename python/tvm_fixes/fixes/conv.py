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
"""Convolutions and transposed convolutions."""

from .fix import Kind, Symptom, declare

CONV_TRANSPOSE_LEGALIZE = declare(
    "conv-transpose-legalize",
    family="conv-transpose",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lowers transposed convolutions in every layout of data, kernel and output",
    symptoms={
        Symptom.ERROR: (
            "a transposed convolution in 1-D to 3-D does not build in any layout except NCHW/IOHW"
        ),
        Symptom.COST: (
            "a transposed convolution in NCHW multiplies inserted zeros, which makes it up to 200 "
            "times slower than necessary"
        ),
    },
    upstream=(17890, 19694),
)

CONV_TRANSPOSE_INFER_LAYOUT = declare(
    "conv-transpose-infer-layout",
    family="conv-transpose",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lets ConvertLayout pack transposed convolutions where the channels allow it",
    symptoms={
        Symptom.ERROR: (
            "ConvertLayout raises at a transposed convolution that it should pack, "
            "or that reads a packed value"
        ),
    },
    upstream=(17968, 18629),
)

CONV_TRANSPOSE_OUTPUT_PADDING = declare(
    "conv-transpose-output-padding",
    family="conv-transpose",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="accepts output_padding up to the dilation, as PyTorch does",
    symptoms={
        Symptom.ERROR: (
            "output_padding between stride and dilation, legal in PyTorch, is rejected"
        ),
    },
    upstream=(19842,),
)

CONV_LEGALIZE = declare(
    "conv-legalize",
    family="conv",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lowers convolutions in every layout, and sums 16-bit floats in float32",
    symptoms={
        Symptom.ERROR: (
            "a convolution in a packed layout, or with another layout for its "
            "output, does not build"
        ),
        Symptom.WRONG: (
            "a convolution with W before H in its layout gives wrong results; "
            "sums of 16-bit floats stop growing"
        ),
        Symptom.COST: "a convolution on a CPU takes about 30 times as long as in PyTorch",
    },
    upstream=(19694,),
)

FOLD_PAD_INTO_CONV = declare(
    "fold-pad-into-conv",
    family="conv",
    kind=Kind.PASS,
    summary="folds a pad in front of a convolution into the convolution",
    symptoms={
        Symptom.COST: (
            "a pad in front of a convolution, common in models from TensorFlow, "
            "copies the data, even if it pads nothing"
        ),
    },
)

TRIM_CONV_KERNEL = declare(
    "trim-conv-kernel",
    family="conv",
    kind=Kind.PASS,
    summary="leaves out the parts of a convolution's kernel that only meet padding",
    symptoms={
        Symptom.COST: (
            "a convolution whose dilation exceeds its data, as in DeepLab, multiplies nine times "
            "as much as needed"
        ),
    },
)

CONV_INFER_LAYOUT = declare(
    "conv-infer-layout",
    family="conv",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lets ConvertLayout pack convolutions where the channels allow it, and never raise",
    symptoms={
        Symptom.ERROR: (
            "ConvertLayout cannot pack conv1d and conv3d, packs channels that the blocks do "
            "not divide, and raises where a packed value reaches a convolution that is not "
            "listed; a depthwise convolution in a packed layout raises `Divide by zero`"
        ),
    },
)
