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
"""The passes on Relax functions, one per file.

``FuseOps``, ``CopyHostResults`` and ``CheckLowered`` are only for the pipeline.

How to remove
    When TVM passes the tests of a file, and the fix of a cost makes no difference to ``make
    bench``, delete the file, its tests, its line in :mod:`tvm_fixes.pipeline` and the fix id.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

import typing

from .allocate_empty_constants import AllocateEmptyConstants
from .broadcast_free_matmul import BroadcastFreeMatmul
from .bundle_model_params import BundleModelParams
from .check_indices import CheckIndices
from .choose_layout import ChooseLayout
from .constants_to_params import ConstantsToParams
from .decompose_channelwise import DecomposeChannelwise
from .decompose_conv_transpose import DecomposeConvTranspose
from .decompose_einsum import DecomposeEinsum
from .decompose_group_norm import DecomposeGroupNorm
from .dispatch_to_cublas import DispatchToCublas
from .dispatch_to_cudnn import DispatchToCudnn
from .dynamic_to_static import DynamicToStatic
from .fold_constant import FoldConstant
from .fold_layout_into_conv import FoldLayoutIntoConv
from .fold_layout_transform import FoldLayoutTransform
from .fold_pad_into_conv import FoldPadIntoConv
from .fold_permute_into_scatter import FoldPermuteIntoScatter
from .fuse_dequantize_matmul import FuseDequantizeMatmul
from .fuse_quantized import FuseQuantized
from .fuse_safe_softmax import FuseSafeSoftmax
from .fuse_transpose_matmul import FuseTransposeMatmul
from .insert_runtime_checks import InsertRuntimeChecks
from .lazy_get_input import LazyGetInput
from .lazy_set_output import LazySetOutput
from .lazy_transform_params import LazyTransformParams
from .lift_transform_params import LiftTransformParams
from .lift_workspaces import LiftWorkspaces
from .lower_assert_op import LowerAssertOp
from .lower_recurrence import LowerRecurrence
from .lower_scan import LowerScan
from .merge_equal_constants import MergeEqualConstants
from .merge_reshapes import MergeReshapes
from .merge_small_kernels import MergeSmallKernels
from .prepare_layout import PrepareLayout
from .read_transposed_rows import ReadTransposedRows
from .read_transposed_weights import ReadTransposedWeights
from .read_tuple_fields import ReadTupleFields
from .record_kernel_calls import RecordKernelCalls
from .refresh_types import RefreshTypes
from .rewrite_cuda_graph import RewriteCUDAGraph
from .sort_by_keys import SortByKeys
from .specialize_kernels import SpecializeKernels
from .split_dataflow import SplitDataflow
from .spread_source_nodes import SpreadSourceNodes
from .static_plan_block_memory import StaticPlanBlockMemory
from .trim_conv_kernel import TrimConvKernel
from .update_in_place import UpdateInPlace
from .view_reshapes import ViewReshapes
from .vm_shape_lower import VMShapeLower

if not typing.TYPE_CHECKING:  # mypy reads a computed __all__ as an empty one
    __all__ = [name for name in dir() if name[0].isupper()]
