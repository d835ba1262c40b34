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
"""Architectures of transformers for sound, text with pictures, and time series."""

import torch

from .entry import BATCH, SEQUENCE, Inputs, of_shape, padding, tokens
from .small_configs import of_transformers

_CONV = {
    "conv_dim": [8, 8],
    "conv_kernel": [5, 3],
    "conv_stride": [4, 2],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
}
WAVES = of_shape(input_values=("batch", 400))

_TEXT_AND_PICTURE = Inputs(
    lambda batch, length: {
        "input_ids": tokens(batch, 12),
        "pixel_values": torch.randn(batch, 3, 32, 32),
        "attention_mask": padding(batch, 12),
    },
    {"input_ids": BATCH, "pixel_values": BATCH, "attention_mask": BATCH},
)
_PAST = Inputs(
    lambda batch, length: {
        "past_values": torch.rand(batch, 24),
        "past_time_features": torch.rand(batch, 24, 2),
        "past_observed_mask": torch.ones(batch, 24),
        "future_values": torch.rand(batch, 6),
        "future_time_features": torch.rand(batch, 6, 2),
    },
    {
        name: BATCH
        for name in (
            "past_values",
            "past_time_features",
            "past_observed_mask",
            "future_values",
            "future_time_features",
        )
    },
)
_WINDOW = of_shape(past_values=("batch", 32, 2))
_FORECAST = {
    "prediction_length": 6,
    "context_length": 17,
    "num_time_features": 2,
    "lags_sequence": [1, 7],
}

OTHER = {
    "wav2vec2": of_transformers("Wav2Vec2", inputs=WAVES, onnx=True, **_CONV),
    "hubert": of_transformers("Hubert", inputs=WAVES, **_CONV),
    "wavlm": of_transformers("WavLM", inputs=WAVES, **_CONV),
    "sew": of_transformers("SEW", inputs=WAVES, squeeze_factor=2, **_CONV),
    "wav2vec2_conformer": of_transformers("Wav2Vec2Conformer", inputs=WAVES, **_CONV),
    "wav2vec2_bert": of_transformers(
        "Wav2Vec2Bert",
        inputs=of_shape(input_features=("batch", 40, 16)),
        feature_projection_input_dim=16,
    ),
    "audio_spectrogram_transformer": of_transformers(
        "AST", inputs=of_shape(input_values=("batch", 32, 16)), max_length=32, num_mel_bins=16
    ),
    "whisper": of_transformers(
        "Whisper",
        "ForConditionalGeneration",
        inputs=Inputs(
            lambda batch, length: {
                "input_features": torch.randn(batch, 8, 40),
                "decoder_input_ids": tokens(batch, length),
            },
            {"input_features": BATCH, "decoder_input_ids": SEQUENCE},
        ),
        num_mel_bins=8,
        max_source_positions=20,
        onnx=False,
    ),
    "speech_to_text": of_transformers(
        "Speech2Text",
        "ForConditionalGeneration",
        inputs=Inputs(
            lambda batch, length: {
                "input_features": torch.randn(batch, 40, 8),
                "decoder_input_ids": tokens(batch, length),
            },
            {"input_features": BATCH, "decoder_input_ids": SEQUENCE},
        ),
        input_feat_per_channel=8,
        conv_channels=16,
    ),
    "moonshine": of_transformers(
        "Moonshine",
        "ForConditionalGeneration",
        inputs=Inputs(
            lambda batch, length: {
                "input_values": torch.randn(batch, 2000),
                "decoder_input_ids": tokens(batch, length),
            },
            {"input_values": BATCH, "decoder_input_ids": SEQUENCE},
        ),
        pad_head_dim_to_multiple_of=None,
    ),
    "parakeet": of_transformers(
        "ParakeetEncoder",
        "",
        inputs=of_shape(input_features=("batch", 64, 16)),
        num_mel_bins=16,
        subsampling_conv_channels=8,
    ),
    "speecht5_hifigan": of_transformers(
        "SpeechT5HifiGan",
        "",
        inputs=of_shape(spectrogram=("batch", "length", 8)),
        model_in_dim=8,
        upsample_initial_channel=16,
        upsample_rates=[2, 2],
        upsample_kernel_sizes=[4, 4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
    ),
    "univnet": of_transformers(
        "UnivNet",
        inputs=of_shape(
            input_features=("batch", "length", 8), noise_sequence=("batch", "length", 8)
        ),
        model_in_channels=8,
        model_hidden_channels=8,
        num_mel_bins=8,
        resblock_stride_sizes=[2, 2],
        resblock_kernel_sizes=[3, 3],
        resblock_dilation_sizes=[[1, 3], [1, 3]],
        kernel_predictor_hidden_channels=8,
    ),
    "dac": of_transformers(
        "Dac",
        inputs=of_shape(input_values=("batch", 1, 64)),
        encoder_hidden_size=8,
        downsampling_ratios=[2, 2],
        decoder_hidden_size=16,
        n_codebooks=2,
        codebook_size=16,
        codebook_dim=4,
        upsampling_ratios=[2, 2],
    ),
    "clap_audio": of_transformers(
        "ClapAudio",
        inputs=of_shape(input_features=("batch", 1, 32, 16)),
        num_mel_bins=16,
        spec_size=32,
        patch_stride=[4, 4],
        patch_size=4,
        window_size=4,
        depths=[1, 1],
        num_attention_heads=[2, 2],
        patch_embeds_hidden_size=8,
        hidden_size=16,
    ),
    "clip": of_transformers("CLIP", inputs=_TEXT_AND_PICTURE, onnx=True),
    "siglip": of_transformers("Siglip", inputs=_TEXT_AND_PICTURE),
    "blip": of_transformers("Blip", inputs=_TEXT_AND_PICTURE),
    "flava": of_transformers("Flava", inputs=_TEXT_AND_PICTURE),
    "owlvit": of_transformers("OwlViT", inputs=_TEXT_AND_PICTURE),
    "clipseg": of_transformers(
        "CLIPSeg",
        "ForImageSegmentation",
        inputs=_TEXT_AND_PICTURE,
        extract_layers=[0, 1],
        reduce_dim=16,
        projection_dim=32,
    ),
    "groupvit": of_transformers("GroupViT", inputs=_TEXT_AND_PICTURE),
    "git": of_transformers("Git", inputs=_TEXT_AND_PICTURE),
    "lilt": of_transformers(
        "Lilt",
        hidden_size=48,
        inputs=Inputs(
            lambda batch, length: {"input_ids": tokens(batch, length)}, {"input_ids": SEQUENCE}
        ),
    ),
    "tapas": of_transformers(
        "Tapas",
        inputs=Inputs(
            lambda batch, length: {
                "input_ids": tokens(batch, length),
                "attention_mask": padding(batch, length),
                "token_type_ids": torch.zeros(batch, length, 7, dtype=torch.int64),
            },
            {"input_ids": SEQUENCE, "attention_mask": SEQUENCE, "token_type_ids": SEQUENCE},
        ),
    ),
    "patchtst": of_transformers(
        "PatchTST",
        "ForPrediction",
        inputs=_WINDOW,
        num_input_channels=2,
        context_length=32,
        prediction_length=4,
        patch_length=8,
        patch_stride=8,
    ),
    "patchtsmixer": of_transformers(
        "PatchTSMixer",
        "ForPrediction",
        inputs=_WINDOW,
        num_input_channels=2,
        context_length=32,
        prediction_length=4,
        patch_length=8,
        patch_stride=8,
    ),
    "time_series_transformer": of_transformers("TimeSeriesTransformer", inputs=_PAST, **_FORECAST),
    "decision_transformer": of_transformers(
        "DecisionTransformer",
        inputs=Inputs(
            lambda batch, length: {
                "states": torch.randn(batch, length, 5),
                "actions": torch.randn(batch, length, 3),
                "rewards": torch.randn(batch, length, 1),
                "returns_to_go": torch.randn(batch, length, 1),
                "timesteps": torch.arange(length)[None].repeat(batch, 1),
                "attention_mask": padding(batch, length),
            },
            {
                name: SEQUENCE
                for name in (
                    "states",
                    "actions",
                    "rewards",
                    "returns_to_go",
                    "timesteps",
                    "attention_mask",
                )
            },
        ),
        state_dim=5,
        act_dim=3,
        max_ep_len=64,
    ),
}
