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
"""Architectures of transformers that read pictures, sound, time series and several of these."""

from functools import partial

from .entry import pictures
from .small_configs import of_transformers

of_pictures = partial(of_transformers, inputs=pictures())

_RESNET = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "layer_type": "basic",
}
_BACKBONE = _RESNET | {"model_type": "resnet"}
_PYRAMID = _BACKBONE | {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}
_NO_TIMM = {"use_timm_backbone": False, "backbone": None, "use_pretrained_backbone": False}
_STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1]}

VISION = {
    "vit": of_pictures("ViT", onnx=True),
    "deit": of_pictures("DeiT"),
    "beit": of_pictures("Beit", use_relative_position_bias=True),
    "dinov2": of_pictures("Dinov2"),
    "dinov2_with_registers": of_pictures("Dinov2WithRegisters"),
    "dinov3_vit": of_pictures("DINOv3ViT", onnx=True),
    "dinov3_convnext": of_pictures(
        "DINOv3ConvNext", hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]
    ),
    "swin": of_pictures(
        "Swin", embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4, patch_size=2, onnx=True
    ),
    "mobilevit": of_pictures(
        "MobileViT",
        hidden_sizes=[16, 16, 16],
        neck_hidden_sizes=[8, 8, 16, 16, 16, 16, 16],
        patch_size=2,
        onnx=True,
    ),
    "mobilevitv2": of_pictures(
        "MobileViTV2", inputs=pictures(64), width_multiplier=0.25, patch_size=2, onnx=True
    ),
    "levit": of_pictures(
        "Levit",
        "ForImageClassification",
        inputs=pictures(64),
        image_size=64,
        patch_size=16,
        hidden_sizes=[16, 24, 32],
        num_attention_heads=[2, 2, 2],
        key_dim=[8, 8, 8],
        depths=[1, 1, 1],
    ),
    "hiera": of_pictures(
        "Hiera",
        image_size=[64, 64],
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 1, 1],
        patch_size=[7, 7],
        inputs=pictures(64),
    ),
    "rt_detr": of_pictures(
        "RTDetr",
        "ForObjectDetection",
        inputs=pictures(64),
        backbone_config=_PYRAMID
        | {
            "out_features": ["stage2", "stage3", "stage4"],
        },
        encoder_in_channels=[16, 16, 16],
        feat_strides=[8, 16, 32],
        encoder_hidden_dim=32,
        d_model=32,
        num_queries=5,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=32,
        decoder_n_points=2,
        num_denoising=0,
        onnx=True,
    ),
    "deformable_detr": of_pictures(
        "DeformableDetr",
        "ForObjectDetection",
        inputs=pictures(64),
        num_queries=5,
        num_feature_levels=2,
        backbone_config=_BACKBONE | {"out_features": ["stage1", "stage2"]},
        **_NO_TIMM,
        onnx=True,
    ),
    "detr": of_pictures(
        "Detr",
        "ForObjectDetection",
        inputs=pictures(64),
        num_queries=5,
        backbone_config=_BACKBONE | {"out_features": ["stage2"]},
        **_NO_TIMM,
        onnx=True,
    ),
    "rf_detr": of_pictures("RfDetr", "ForObjectDetection", num_queries=5, inputs=pictures(64)),
    "mask2former": of_pictures(
        "Mask2Former",
        "Model",
        inputs=pictures(64),
        backbone_config=_PYRAMID | {"out_features": ["stage1", "stage2", "stage3", "stage4"]},
        feature_size=32,
        mask_feature_size=16,
        num_queries=5,
        encoder_feedforward_dim=32,
        dim_feedforward=32,
        num_feature_levels=3,
    ),
}
