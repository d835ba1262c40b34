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
"""Constants, and weights that are prepared once."""

from .fix import Kind, Symptom, declare

BROADCAST_FREE_MATMUL = declare(
    "broadcast-free-matmul",
    family="weights",
    kind=Kind.PASS,
    summary="keeps a matmul from repeating its weight for each element of the batch",
    symptoms={
        Symptom.COST: (
            "the weight of a matmul on transposed data (batch-first attention, "
            "ViT, permuted MLPs) is stored once for each element of the batch: 16 "
            "times its size and more"
        ),
    },
    upstream=(17546,),
)

FOLD_CONSTANT = declare(
    "fold-constant",
    family="weights",
    kind=Kind.PASS,
    summary="limits the growth of folded constants, and stores tied weights once",
    symptoms={
        Symptom.COST: (
            "FoldConstant stores `W.expand`, repeated rows, products of adapters, "
            "upcasts and dequantized weights, and a tied embedding twice: a "
            "library many times as large as the model"
        ),
    },
    upstream=(17546,),
)

LIFT_TRANSFORM_PARAMS = declare(
    "lift-transform-params",
    family="weights",
    kind=Kind.PASS,
    summary="lifts weights without growth, and keeps callers and shared transforms correct",
    symptoms={
        Symptom.CRASH: (
            "LiftTransformParams crashes if `num_input` exceeds the number of parameters"
        ),
        Symptom.WRONG: (
            "LiftTransformParams does not update functions that call the lifted "
            "one, and makes an ill-formed module if an output depends only on "
            "weights, or if one of two functions has the same expression twice"
        ),
        Symptom.COST: "LiftTransformParams dequantizes int8 weights: 4 times their size",
    },
    upstream=(17231, 17232),
)

LIFTED_PARAMS = declare(
    "lifted-params",
    family="weights",
    kind=Kind.PASS,
    summary="lets the passes for lazy and bundled parameters follow LiftTransformParams",
    symptoms={
        Symptom.ERROR: (
            "after LiftTransformParams, BundleModelParams bundles again, LazyGetInput and "
            "LazySetOutput pass all weights as one tuple, and LazyTransformParams does not "
            "store weights that are passed on; a symbol that only weights define is undefined"
        ),
    },
)
