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
"""Architectures of diffusers."""

from functools import partial
from typing import Any

import torch
from torch import nn

from .entry import BATCH, Entry, Inputs, Tensors, of_shape

TEXT_WIDTH = 16


def _diffusers(
    name: str, inputs: tuple[str, ...], options: dict[str, Any], **config: Any
) -> nn.Module:
    import diffusers

    model = getattr(diffusers, name).from_config(config).eval()
    return Tensors(model, inputs, {"return_dict": False} | options)


def of_diffusers(
    name: str,
    inputs: Inputs,
    *,
    onnx: bool = False,
    options: dict[str, Any] | None = None,
    **config: Any,
) -> Entry:
    names = tuple(inputs.dynamic)
    return Entry(
        "diffusers", partial(_diffusers, name, names, options or {}, **config), inputs, onnx=onnx
    )


def noise(
    size: int = 8, channels: int = 4, frames: int = 0, name: str = "sample", **shapes: Any
) -> Inputs:
    """A noisy latent, its step, and other inputs by shape."""
    depth = (frames,) if frames else ()
    rest = of_shape(**{name: ("batch", channels, *depth, size, size)}, **shapes)

    def make(batch: int, length: int) -> dict[str, torch.Tensor]:
        return rest.make(batch, length) | {"timestep": torch.arange(1, batch + 1)}

    return Inputs(make, dict(rest.dynamic) | {"timestep": BATCH})


def _states(**shapes: Any) -> Inputs:
    return noise(name="hidden_states", encoder_hidden_states=("batch", 6, TEXT_WIDTH), **shapes)


_UNET = {
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_size": 8,
}
_CROSS = _UNET | {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": TEXT_WIDTH,
    "attention_head_dim": 4,
}
_PROMPT = {"encoder_hidden_states": ("batch", 6, TEXT_WIDTH)}

DIFFUSERS = {
    "unet_2d_condition": of_diffusers(
        "UNet2DConditionModel", noise(**_PROMPT), onnx=True, **_CROSS
    ),
    "controlnet": of_diffusers(
        "ControlNetModel",
        noise(controlnet_cond=("batch", 3, 16, 16), **_PROMPT),
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        cross_attention_dim=TEXT_WIDTH,
        attention_head_dim=4,
        conditioning_embedding_out_channels=(8, 8),
    ),
    "dit": of_diffusers(
        "DiTTransformer2DModel",
        Inputs(
            lambda batch, length: {
                "hidden_states": torch.randn(batch, 4, 8, 8),
                "timestep": torch.arange(1, batch + 1),
                "class_labels": torch.arange(batch),
            },
            {"hidden_states": BATCH, "timestep": BATCH, "class_labels": BATCH},
        ),
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        num_embeds_ada_norm=20,
        onnx=True,
    ),
    "pixart": of_diffusers(
        "PixArtTransformer2DModel",
        _states(),
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=2,
        sample_size=8,
        cross_attention_dim=16,
        caption_channels=TEXT_WIDTH,
        in_channels=4,
        out_channels=8,
        use_additional_conditions=False,
    ),
    "sd3": of_diffusers(
        "SD3Transformer2DModel",
        _states(pooled_projections=("batch", 16)),
        sample_size=8,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=TEXT_WIDTH,
        caption_projection_dim=16,
        pooled_projection_dim=16,
        pos_embed_max_size=8,
        onnx=True,
    ),
    "sana": of_diffusers(
        "SanaTransformer2DModel",
        _states(),
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=2,
        num_cross_attention_heads=2,
        cross_attention_head_dim=8,
        cross_attention_dim=16,
        caption_channels=TEXT_WIDTH,
        sample_size=8,
    ),
    "auraflow": of_diffusers(
        "AuraFlowTransformer2DModel",
        _states(),
        sample_size=8,
        in_channels=4,
        out_channels=4,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=TEXT_WIDTH,
        caption_projection_dim=16,
        pos_embed_max_size=64,
    ),
    "cogview4": of_diffusers(
        "CogView4Transformer2DModel",
        _states(original_size=("batch", 2), target_size=("batch", 2), crop_coords=("batch", 2)),
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        text_embed_dim=TEXT_WIDTH,
        time_embed_dim=8,
        condition_dim=4,
        rope_axes_dim=(8, 8),
    ),
    "wan": of_diffusers(
        "WanTransformer3DModel",
        noise(frames=2, name="hidden_states", **_PROMPT),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=TEXT_WIDTH,
        freq_dim=16,
        ffn_dim=32,
        num_layers=2,
    ),
    "latte": of_diffusers(
        "LatteTransformer3DModel",
        noise(frames=2, name="hidden_states", **_PROMPT),
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        out_channels=8,
        num_layers=1,
        sample_size=8,
        patch_size=2,
        cross_attention_dim=16,
        caption_channels=TEXT_WIDTH,
        video_length=2,
        norm_elementwise_affine=False,
    ),
    "kl": of_diffusers(
        "AutoencoderKL",
        of_shape(sample=("batch", 3, 16, 16)),
        block_out_channels=(8,),
        norm_num_groups=4,
        onnx=True,
    ),
    "vq": of_diffusers(
        "VQModel",
        of_shape(sample=("batch", 3, 16, 16)),
        block_out_channels=(8,),
        norm_num_groups=4,
        num_vq_embeddings=16,
    ),
    "tiny": of_diffusers(
        "AutoencoderTiny",
        of_shape(sample=("batch", 3, 16, 16)),
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1),
    ),
    "dc": of_diffusers(
        "AutoencoderDC",
        of_shape(sample=("batch", 3, 16, 16)),
        latent_channels=4,
        attention_head_dim=8,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=(1, 1),
        downsample_block_type="conv",
        upsample_block_type="interpolate",
        decoder_norm_types="rms_norm",
        decoder_act_fns="silu",
    ),
    "wan_vae": of_diffusers(
        "AutoencoderKLWan",
        of_shape(sample=("batch", 3, 5, 16, 16)),
        base_dim=4,
        z_dim=4,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    ),
    "oobleck": of_diffusers(
        "AutoencoderOobleck",
        of_shape(sample=("batch", 2, 64)),
        encoder_hidden_size=8,
        decoder_channels=8,
        decoder_input_channels=4,
        channel_multiples=[1, 2],
        downsampling_ratios=[2, 2],
        audio_channels=2,
    ),
    "ltx_video": of_diffusers(
        "LTXVideoTransformer3DModel",
        of_shape(
            hidden_states=("batch", 8, 4),
            encoder_hidden_states=("batch", 6, TEXT_WIDTH),
            timestep=("batch",),
            encoder_attention_mask=("batch", 6),
        ),
        options={"num_frames": 2, "height": 2, "width": 2},
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=8,
        cross_attention_dim=16,
        num_layers=2,
        caption_channels=TEXT_WIDTH,
    ),
    "flux": of_diffusers(
        "FluxTransformer2DModel",
        Inputs(
            lambda batch, length: {
                "hidden_states": torch.randn(batch, 16, 4),
                "encoder_hidden_states": torch.randn(batch, 6, TEXT_WIDTH),
                "pooled_projections": torch.randn(batch, 16),
                "timestep": torch.rand(batch),
                "img_ids": torch.randint(0, 4, (16, 3)).float(),
                "txt_ids": torch.zeros(6, 3),
            },
            {
                "hidden_states": BATCH,
                "encoder_hidden_states": BATCH,
                "pooled_projections": BATCH,
                "timestep": BATCH,
                "img_ids": (),
                "txt_ids": (),
            },
        ),
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=TEXT_WIDTH,
        pooled_projection_dim=16,
        axes_dims_rope=[4, 4, 8],
        onnx=True,
    ),
}
