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
"""Layout conversion."""

from .fix import Kind, Symptom, declare

LAYOUT_TRANSFORM_LEGALIZE = declare(
    "layout-transform-legalize",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lowers layout_transform of booleans",
    symptoms={
        Symptom.ERROR: (
            "`layout_transform` of booleans, which a packed comparison needs, does not lower"
        ),
    },
)

RESHAPE_INFER_LAYOUT = declare(
    "reshape-infer-layout",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lets a reshape that merges or splits spatial axes follow its operand's layout",
    symptoms={
        Symptom.COST: "ConvertLayout transposes around every reshape that merges or splits axes",
    },
)

REVERSE_SEQUENCE_INFER_LAYOUT = declare(
    "reverse-sequence-infer-layout",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lets reverse_sequence follow its operand's layout",
    symptoms={
        Symptom.COST: "ConvertLayout transposes before and after every reverse_sequence",
    },
)

PERMUTE_DIMS_INFER_LAYOUT = declare(
    "permute-dims-infer-layout",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="treats a permute in the model as a change of layout instead of a transpose",
    symptoms={
        Symptom.COST: (
            "ConvertLayout performs the model's own permutes, and then transposes back and forth"
        ),
    },
)

SQUEEZE_INFER_LAYOUT = declare(
    "squeeze-infer-layout",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="lets ConvertLayout handle a squeeze of axes counted from the end",
    symptoms={
        Symptom.CRASH: (
            "ConvertLayout overwrites memory, crashes or ends in `std::bad_alloc` "
            "at a squeeze of axes counted from the end"
        ),
    },
)

OPERATORS_INFER_LAYOUT = declare(
    "operators-infer-layout",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary=(
        "lets clip, pad, where, take, cumsum, argmax and others follow their operand's layout"
    ),
    symptoms={
        Symptom.COST: (
            "ConvertLayout transposes around leakyrelu, clip, pad, where, "
            "softplus, argmax, take, quantize and others that have no layout rule"
        ),
    },
    upstream=(18593, 18637, 18638, 18643),
)

LAYOUT_GUARDS = declare(
    "layout-guards",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="keeps operators correct in a converted or packed layout, or leaves the layout",
    symptoms={
        Symptom.ERROR: (
            "norms, reductions and broadcasts of packed values raise in "
            "ConvertLayout; rms_norm, resize and prelu of packed slopes do not "
            "build"
        ),
        Symptom.WRONG: (
            "norms over several axes, and a repeat that flattens, give wrong "
            "results in a converted layout"
        ),
    },
)

DECOMPOSE_CHANNELWISE = declare(
    "decompose-channelwise",
    family="layout",
    kind=Kind.PASS,
    summary="turns norms and PReLU into arithmetic that a packed layout passes through",
    symptoms={
        Symptom.ERROR: "ConvertLayout to a packed layout raises at a norm",
        Symptom.COST: "ConvertLayout to a packed layout goes back to NCHW around norms and PReLU",
    },
)

CHOOSE_LAYOUT = declare(
    "choose-layout",
    family="layout",
    kind=Kind.PASS,
    summary="keeps the channels of a convolutional model in blocks on CPUs where that is faster",
    symptoms={
        Symptom.COST: (
            "each convolution of a ResNet rearranges its channels on a CPU with "
            "AVX-512: 10% of its time"
        ),
    },
)

PREPARE_LAYOUT = declare(
    "prepare-layout",
    family="layout",
    kind=Kind.PASS,
    summary="removes dead code and identities around ConvertLayout, and folds reshape(const)",
    symptoms={
        Symptom.COST: (
            "biases and unused values keep transposes in the model; leaving a "
            "packed layout and the model's permute after it move the data twice"
        ),
    },
)

FOLD_LAYOUT_INTO_CONV = declare(
    "fold-layout-into-conv",
    family="layout",
    kind=Kind.PASS,
    summary="lets convolutions read and write in place of the layout transforms around them",
    symptoms={
        Symptom.COST: (
            "ConvertLayout copies activations before and after convolutions that "
            "could read and write them in place"
        ),
    },
)

FUSE_TRANSPOSE_MATMUL = declare(
    "fuse-transpose-matmul",
    family="layout",
    kind=Kind.PASS,
    summary="lets FuseTransposeMatmul leave matmul(x, x^T) alone",
    symptoms={
        Symptom.ERROR: (
            "FuseTransposeMatmul raises on `matmul(x, x^T)`, and makes an ill-"
            "formed module if something else reads the transposed operand"
        ),
    },
)
