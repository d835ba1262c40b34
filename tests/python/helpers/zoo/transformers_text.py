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
"""Architectures of transformers that read text."""

from dataclasses import replace

from .entry import TOKENS, TRANSLATION
from .small_configs import of_transformers

_MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}

ENCODERS = {
    "bert": of_transformers("Bert", onnx=True),
    "deberta_v2": of_transformers(
        "DebertaV2", pos_att_type=["c2p", "p2c"], relative_attention=True, onnx=True
    ),
    "modernbert": of_transformers("ModernBert", num_hidden_layers=4, onnx=True),
    "fnet": of_transformers("FNet", inputs=TOKENS),
    "squeezebert": of_transformers("SqueezeBert", onnx=True),
    "big_bird": of_transformers("BigBird", attention_type="original_full"),
    "xlnet": of_transformers("XLNet"),
    "funnel": of_transformers("Funnel", block_sizes=[1, 1], num_decoder_layers=1),
    "esm": of_transformers("Esm", position_embedding_type="rotary"),
}

DECODERS = {
    "gpt2": of_transformers("GPT2", "LMHeadModel", onnx=True),
    "gptj": of_transformers("GPTJ", "ForCausalLM", rotary_dim=8),
    "bloom": of_transformers("Bloom", "ForCausalLM", onnx=True),
    "mpt": of_transformers("Mpt", "ForCausalLM"),
    "falcon": of_transformers("Falcon", "ForCausalLM", onnx=True),
    "llama": of_transformers("Llama", "ForCausalLM", onnx=True),
    "mixtral": of_transformers("Mixtral", "ForCausalLM"),
    "qwen2": of_transformers("Qwen2", "ForCausalLM"),
    "gemma2": of_transformers("Gemma2", "ForCausalLM", onnx=True),
    "olmoe": of_transformers("Olmoe", "ForCausalLM"),
    "granitemoehybrid": of_transformers(
        "GraniteMoeHybrid", "ForCausalLM", layer_types=["mamba", "attention"]
    ),
    "glm4_moe": of_transformers("Glm4Moe", "ForCausalLM"),
    "deepseek_v2": of_transformers(
        "DeepseekV2",
        "ForCausalLM",
        num_key_value_heads=2,
        v_head_dim=16,
        n_group=2,
        topk_group=1,
        **_MLA,
    ),
    "deepseek_v3": of_transformers(
        "DeepseekV3",
        "ForCausalLM",
        num_key_value_heads=2,
        v_head_dim=16,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        head_dim=8,
        **_MLA,
    ),
    "gpt_oss": of_transformers("GptOss", "ForCausalLM"),
    "jamba": of_transformers("Jamba", "ForCausalLM", attn_layer_period=2, attn_layer_offset=1),
    "lfm2": of_transformers("Lfm2", "ForCausalLM", layer_types=["conv", "full_attention"]),
    "mamba": of_transformers("Mamba", "ForCausalLM", onnx=True),
    # The exported program is for lengths that need no padding, as that of the example.
    "mamba2": replace(
        of_transformers(
            "Mamba2", "ForCausalLM", num_heads=4, state_size=8, n_groups=1, chunk_size=4
        ),
        sizes=((2, 12), (3, 8)),
    ),
    "rwkv": of_transformers("Rwkv", "ForCausalLM", inputs=TOKENS, attention_hidden_size=32),
    "recurrent_gemma": of_transformers(
        "RecurrentGemma", "ForCausalLM", block_types=["recurrent", "attention"]
    ),
    "xlstm": of_transformers("xLSTM", "ForCausalLM", inputs=TOKENS),
    "llama4": of_transformers("Llama4", "ForCausalLM", config="Llama4TextConfig"),
    "phimoe": of_transformers("Phimoe", "ForCausalLM"),
    "hrm_text": of_transformers("HrmText", "ForCausalLM"),
    "doge": of_transformers("Doge", "ForCausalLM"),
}

TRANSLATORS = {
    "t5": of_transformers("T5", "ForConditionalGeneration", TRANSLATION, onnx=True),
    "m2m_100": of_transformers("M2M100", "ForConditionalGeneration", TRANSLATION),
}

TEXT_MODELS = ENCODERS | DECODERS | TRANSLATORS
