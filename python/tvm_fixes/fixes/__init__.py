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
"""The registry: one record a fix, in the order of their switches.

A record names what the other packages offer.  Only ``tvm_fixes.doctor`` and the tests import this
package.
"""

from . import (
    batch_norm,
    conv_transpose,
    dynamic_shapes,
    elements,
    environment,
    gpu,
    layout,
    matmul,
    memory,
    norms,
    onnx_importer,
    pixel_shuffle,
    rms_norm,
    torch_importer,
    verifier,
    weights,
)
from .record import Fix, Kind, Probe

FIXES: tuple[Fix, ...] = (
    conv_transpose.LEGALIZE,
    conv_transpose.INFER_LAYOUT,
    conv_transpose.OUTPUT_PADDING,
    conv_transpose.CONV_LEGALIZE,
    conv_transpose.CONV_INFER_LAYOUT,
    matmul.LEGALIZE,
    pixel_shuffle.PIXEL_SHUFFLE_LEGALIZE,
    rms_norm.RMS_NORM_LEGALIZE,
    norms.NORM_VARIANCE,
    elements.REDUCTION_LEGALIZE,
    elements.POOL_WINDOW,
    elements.INLINE_ELEMENTWISE,
    elements.REDUCTION_SCHEDULE,
    elements.ELEMENTWISE_SCHEDULE,
    elements.DECOMPOSE_REDUCTION,
    elements.ELEMENTARY_FUNCTIONS,
    gpu.SCHEDULE,
    elements.SPLIT_DATAFLOW,
    elements.COMPARISON_LEGALIZE,
    elements.CREATION_LEGALIZE,
    elements.STRIDED_SLICE_LEGALIZE,
    layout.LAYOUT_TRANSFORM_LEGALIZE,
    layout.RESHAPE_INFER_LAYOUT,
    layout.PERMUTE_DIMS_INFER_LAYOUT,
    layout.SQUEEZE_INFER_LAYOUT,
    layout.OPERATORS_INFER_LAYOUT,
    layout.LAYOUT_GUARDS,
    layout.DECOMPOSE_CHANNELWISE,
    layout.CHOOSE_LAYOUT,
    layout.PREPARE_LAYOUT,
    layout.FOLD_LAYOUT_INTO_CONV,
    layout.FUSE_TRANSPOSE_MATMUL,
    memory.PLAN_MEMORY_IF,
    batch_norm.BATCH_NORM_LEGALIZE,
    torch_importer.DTYPE,
    torch_importer.CONV_TRANSPOSE,
    torch_importer.BATCH_NORM,
    torch_importer.INSTANCE_NORM,
    torch_importer.INTERPOLATE,
    torch_importer.PAD,
    torch_importer.TILE,
    torch_importer.PRELU,
    torch_importer.LINEAR,
    torch_importer.PROMOTION,
    torch_importer.DYNAMIC_SHAPES,
    torch_importer.ATTENTION,
    onnx_importer.CONV_TRANSPOSE_OUTPUT_SHAPE,
    onnx_importer.CONV_AUTO_PAD,
    onnx_importer.DTYPE,
    onnx_importer.PAD,
    onnx_importer.PRELU,
    onnx_importer.RECURRENT,
    onnx_importer.RESIZE,
    onnx_importer.SLICE,
    onnx_importer.RESHAPE,
    onnx_importer.EXPAND,
    onnx_importer.PARAMETERS,
    onnx_importer.UNNAMED_DIMS,
    onnx_importer.SHAPE_VALUES,
    onnx_importer.IF,
    onnx_importer.LOOPS,
    onnx_importer.FUNCTIONS,
    onnx_importer.ELEMENTWISE,
    onnx_importer.REDUCTIONS,
    onnx_importer.NORMS,
    onnx_importer.POOLING,
    onnx_importer.BOXES,
    onnx_importer.QUANTIZED,
    dynamic_shapes.DYNAMIC_TO_STATIC,
    weights.BROADCAST_FREE_MATMUL,
    weights.FOLD_CONSTANT,
    weights.LIFT_TRANSFORM_PARAMS,
    weights.LIFTED_PARAMS,
    verifier.TYPES,
    verifier.FUNCTIONS,
    verifier.CALL_TIR,
    verifier.OPERATORS,
    verifier.ATTRIBUTES,
    verifier.PRIM_FUNC,
    verifier.VERIFIER,
    verifier.RUNTIME_CHECKS,
    environment.FFI_0_1_15,
)

__all__ = ["FIXES", "Fix", "Kind", "Probe"]
