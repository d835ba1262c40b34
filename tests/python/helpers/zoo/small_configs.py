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
"""Small configurations of models of transformers."""

import re
from functools import partial
from typing import Any

from torch import nn

from .entry import TEXT, VOCABULARY, Entry, Inputs, Tensors

WIDTH, HEAD, LAYERS = 32, 16, 2

# The values of numbers by name; the first pattern that matches counts.
_VALUES: dict[str, int] = {
    r"vocab_size|.*_vocab_size|vocabulary_size": VOCABULARY,
    r"num_key_value_heads|num_kv_heads|multi_query_group_num": 1,
    r"(num_)?((en|de)coder_)?((num_)?attention_)?(heads|n_heads?)|.*_heads|n_head|n_heads": 2,
    r"head_dim|d_kv|attention_head_dim|.*_head_dim": HEAD,
    r"moe_intermediate_size|shared_expert_intermediate_size": 16,
    r"intermediate_size|.*_intermediate_size|.*ffn_dim|d_ff|d_inner|ffn_hidden_size|hidden_dim"
    r"|n_inner": 48,
    r"hidden_size|.*_hidden_size|d_model|n_embd|dim|embed_dim|embedding_size|encoder_hidden"
    r"|projection_dim|emb_dim|width": WIDTH,
    r"num_experts_per_tok|num_experts_per_token|top_k|moe_topk|moe_top_k": 2,
    r"num_experts|num_local_experts|n_routed_experts|moe_num_experts": 4,
    r"n_shared_experts|num_shared_experts": 1,
    r"(num_)?(hidden_|encoder_|decoder_)?layers|n_layers?|depth|num_.*_layers": LAYERS,
    r"max_position_embeddings|n_positions|max_.*_positions|n_ctx|max_seq_len(gth)?|seq_length": 64,
    r"pad_token_id": 0,
    r"bos_token_id|decoder_start_token_id": 1,
    r"eos_token_id|sep_token_id|forced_eos_token_id": 2,
    r"image_size": 32,
    r"patch_size": 8,
}

# Larger weights than a training begins with: the results depend on every layer.
_FLOATS = {"initializer_range": 0.2, "init_std": 0.2}


def shrunk(kind: type[Any], **overrides: Any) -> Any:
    """A small configuration of `kind`; `overrides` are its fields, or dicts for inner ones."""
    default = kind()
    values: dict[str, Any] = {}
    for name, value in vars(default).items():
        if hasattr(value, "to_dict"):
            given = overrides.pop(name, {})
            # A configuration of another kind replaces the default one.
            values[name] = given if "model_type" in given else shrunk(type(value), **given)
        elif name in _FLOATS:
            values[name] = _FLOATS[name]
        elif (isinstance(value, int) and not isinstance(value, bool)) or value is None:
            found = (v for pattern, v in _VALUES.items() if re.fullmatch(pattern, name))
            new = next(found, None)
            if new is not None:
                values[name] = new
    return kind(**(values | overrides))


def of_transformers(
    name: str,
    model: str = "Model",
    inputs: Inputs = TEXT,
    *,
    onnx: bool = False,
    config: str = "",
    options: dict[str, Any] | None = None,
    **overrides: Any,
) -> Entry:
    """The class ``name + model`` with a small configuration of the class `config`.

    Parameters
    ----------
    name, model : str
        The parts of the model's name.
    inputs : Inputs
        The inputs.
    onnx : bool
        Whether the ONNX exports are tested too.
    config : str
        By default ``name + "Config"``.
    options : dict, optional
        Keyword arguments of the model.
    overrides
        Fields of the configuration; see :func:`shrunk`.
    """
    kind = config or f"{name}Config"
    names = tuple(inputs.dynamic)
    make = partial(_make, name + model, kind, names, options or {}, overrides)
    return Entry("transformers", make, inputs, onnx=onnx)


def _make(
    model: str,
    kind: str,
    names: tuple[str, ...],
    options: dict[str, Any],
    overrides: dict[str, Any],
) -> nn.Module:
    import transformers

    config = shrunk(getattr(transformers, kind), **overrides)
    module = getattr(transformers, model)(config).eval()
    defaults = {"use_cache": False} if hasattr(config, "use_cache") else {}
    return Tensors(module, names, defaults | options)
