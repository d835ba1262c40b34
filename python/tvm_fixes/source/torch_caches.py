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
"""Caches of transformers as arguments and results of a module: their tensors have names."""

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["register_caches"]


def register_caches() -> None:
    """Let ``torch.export`` flatten the caches of transformers, if that is loaded.

    The keys of the first layer are called ``0.key``; those of a decoder with an encoder
    ``self_attention.0.key``.  Classes that are registered stay so.
    """
    module = sys.modules.get("transformers.cache_utils")
    if module is None:
        return
    from torch.fx import _pytree as fx_pytree
    from torch.utils import _pytree as pytree

    for name, (part_of, made_of) in _CACHES.items():
        cache = getattr(module, name, None)
        if cache is None or cache in pytree.SUPPORTED_NODES:
            continue

        def flatten(value: Any, part_of: Any = part_of) -> tuple[list[Any], Any]:
            parts = part_of(value)
            return list(parts.values()), list(parts)

        def flatten_with_keys(value: Any, part_of: Any = part_of) -> tuple[list[Any], Any]:
            parts = part_of(value)
            keyed = [(pytree.MappingKey(key), part) for key, part in parts.items()]
            return keyed, list(parts)

        def unflatten(values: Any, keys: Any, cache: Any = cache, made_of: Any = made_of) -> Any:
            return made_of(cache, dict(zip(keys, values, strict=True)))

        def flatten_like(value: Any, spec: Any, part_of: Any = part_of) -> list[Any]:
            return list(part_of(value).values())

        pytree.register_pytree_node(
            cache,
            flatten,
            unflatten,
            serialized_type_name=f"{cache.__module__}.{cache.__name__}",
            flatten_with_keys_fn=flatten_with_keys,
        )
        fx_pytree.register_pytree_flatten_spec(cache, flatten_like)


def _layers(cache: Any) -> dict[int, dict[str, Any]]:
    """The keys and values of each layer that has some."""
    return {
        place: {"key": layer.keys, "value": layer.values}
        for place, layer in enumerate(cache.layers)
        if getattr(layer, "keys", None) is not None
    }


def _with_layers(cache: Any, layers: Mapping[int, Mapping[str, Any]]) -> Any:
    """A cache of layers without a window; their keys may be anything, as PyTorch requires."""
    made = cache()
    kind = sys.modules["transformers.cache_utils"].DynamicLayer
    for layer in layers.values():
        one = kind()
        one.keys, one.values, one.is_initialized = layer["key"], layer["value"], True
        one.dtype, one.device = (getattr(one.keys, name, None) for name in ("dtype", "device"))
        made.layers.append(one)
    return made


def _attentions(cache: Any) -> dict[str, Any]:
    return {name: getattr(cache, f"{name}_cache") for name in ("self_attention", "cross_attention")}


def _with_attentions(cache: Any, attentions: Mapping[str, Any]) -> Any:
    parts = attentions["self_attention"], attentions["cross_attention"]
    layers = [layer for part in parts for layer in getattr(part, "layers", ())]
    if layers and all(hasattr(layer.keys, "numel") for layer in layers):
        return cache(*parts)
    # The constructor reads the number of keys.
    made = cache.__new__(cache)
    made.self_attention_cache, made.cross_attention_cache = parts
    made.is_updated = {}
    return made


# How each class is taken apart and made.
_CACHES = {
    "DynamicCache": (_layers, _with_layers),
    "EncoderDecoderCache": (_attentions, _with_attentions),
}
