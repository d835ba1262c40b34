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
"""The converters of the floating-point operators of the domain com.microsoft."""

from .microsoft_activations import (
    convert_bias_add,
    convert_bias_gelu,
    convert_bias_split_gelu,
    convert_fast_gelu,
    convert_gelu,
    convert_quick_gelu,
)
from .microsoft_attention import convert_attention, convert_multi_head_attention
from .microsoft_group_attention import convert_group_query_attention
from .microsoft_norms import (
    convert_embed_layer_norm,
    convert_group_norm,
    convert_skip_layer_norm,
    convert_skip_simplified_layer_norm,
)
from .microsoft_products import (
    convert_fused_conv,
    convert_fused_gemm,
    convert_fused_matmul,
    convert_gemm_fast_gelu,
    convert_nhwc_conv,
    convert_nhwc_max_pool,
)
from .microsoft_rotary import convert_rotary_embedding
from .microsoft_tensors import (
    convert_crop_and_resize,
    convert_expand_dims,
    convert_grid_sample,
    convert_microsoft_pad,
    convert_microsoft_range,
    convert_unique,
    renamed,
)
from .node import Correction

__all__ = ["MICROSOFT_CONVERTERS"]

_BY_NAME: dict[str, Correction] = {
    "Attention": convert_attention,
    "BiasAdd": convert_bias_add,
    "BiasGelu": convert_bias_gelu,
    "BiasSplitGelu": convert_bias_split_gelu,
    "CropAndResize": convert_crop_and_resize,
    "EmbedLayerNormalization": convert_embed_layer_norm,
    "ExpandDims": convert_expand_dims,
    "FastGelu": convert_fast_gelu,
    "FusedConv": convert_fused_conv,
    "FusedGemm": convert_fused_gemm,
    "FusedMatMul": convert_fused_matmul,
    "GatherND": renamed(11, "data indices", 2),
    "Gelu": convert_gelu,
    "GemmFastGelu": convert_gemm_fast_gelu,
    "GridSample": convert_grid_sample,
    "GroupNorm": convert_group_norm,
    "GroupQueryAttention": convert_group_query_attention,
    "MultiHeadAttention": convert_multi_head_attention,
    "NhwcConv": convert_nhwc_conv,
    "NhwcFusedConv": convert_nhwc_conv,
    "NhwcMaxPool": convert_nhwc_max_pool,
    "Pad": convert_microsoft_pad,
    "QuickGelu": convert_quick_gelu,
    "Range": convert_microsoft_range,
    "RotaryEmbedding": convert_rotary_embedding,
    "SkipGroupNorm": convert_group_norm,
    "SkipLayerNormalization": convert_skip_layer_norm,
    "SkipSimplifiedLayerNormalization": convert_skip_simplified_layer_norm,
    "TransposeMatMul": convert_fused_matmul,
    "Trilu": renamed(14, "X k", 1, "upper"),
    "Unique": convert_unique,
}

MICROSOFT_CONVERTERS = {f"com.microsoft.{name}": convert for name, convert in _BY_NAME.items()}
"""For each operator, with its domain, a converter that calls those of ONNX's operators."""
