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
"""Architectures of timm."""

import importlib
from functools import partial
from typing import Any

from torch import nn

from benchmarks import torchvision_names

from .entry import Entry, Tensors, pictures


def _timm(name: str, size: int, **options: Any) -> nn.Module:
    torchvision_names.define()
    import timm

    options.setdefault("num_classes", 10)
    return Tensors(timm.create_model(name, pretrained=False, **options).eval(), ("_x",), {})


def of_timm(name: str, size: int = 64, *, onnx: bool = False, **options: Any) -> Entry:
    return Entry("timm", partial(_timm, name, size, **options), pictures(size, "_x"), onnx=onnx)


TIMM = {
    name: of_timm(name, 64 if size is None else size, onnx=onnx, **options)
    for name, size, onnx, options in (
        ("test_vit", 160, False, {}),
        ("test_byobnet", None, False, {}),
        ("test_efficientnet", None, False, {}),
        ("test_nfnet", None, False, {}),
        ("test_mambaout", None, True, {}),
        ("xcit_nano_12_p16_224", 224, True, {"embed_dim": 16, "depth": 2, "num_heads": 2}),
        ("cait_xxs24_224", 224, False, {"embed_dim": 16, "depth": 2, "num_heads": 2}),
        (
            "convit_tiny",
            224,
            False,
            {"embed_dim": 16, "depth": 2, "num_heads": 2, "local_up_to_layer": 1},
        ),
        (
            "crossvit_tiny_240",
            240,
            True,
            {"embed_dim": (16, 16), "num_heads": (2, 2), "depth": ((1, 1, 0),)},
        ),
        (
            "tnt_s_legacy_patch16_224",
            224,
            False,
            {"embed_dim": 16, "inner_dim": 8, "depth": 2, "num_heads_outer": 2},
        ),
        (
            "twins_svt_small",
            224,
            False,
            {"embed_dims": (16, 16, 16, 16), "num_heads": (2, 2, 2, 2), "depths": (1, 1, 1, 1)},
        ),
        ("eva02_tiny_patch14_224", 224, True, {"embed_dim": 16, "depth": 2, "num_heads": 2}),
    )
}


def _built(module: str, kind: str, **options: Any) -> nn.Module:
    torchvision_names.define()

    model = getattr(importlib.import_module(f"timm.models.{module}"), kind)
    return Tensors(model(num_classes=10, **options).eval(), ("_x",), {})


TIMM |= {
    name: Entry("timm", partial(_built, module, kind, **options), pictures(64, "_x"), onnx=onnx)
    for name, module, kind, onnx, options in (
        (
            "mlp_mixer",
            "mlp_mixer",
            "MlpMixer",
            True,
            {"img_size": 64, "embed_dim": 16, "num_blocks": 2},
        ),
        ("convmixer", "convmixer", "ConvMixer", False, {"dim": 16, "depth": 2}),
        (
            "caformer",
            "metaformer",
            "MetaFormer",
            True,
            {"dims": (8, 16, 16, 32), "depths": (1, 1, 1, 1)},
        ),
        (
            "volo",
            "volo",
            "VOLO",
            False,
            {
                "img_size": 64,
                "layers": (1, 1, 1, 1),
                "embed_dims": (16, 16, 16, 16),
                "num_heads": (2, 2, 2, 2),
            },
        ),
        (
            "nest",
            "nest",
            "Nest",
            False,
            {
                "img_size": 64,
                "embed_dims": (16, 16, 16),
                "num_heads": (2, 2, 2),
                "depths": (1, 1, 1),
            },
        ),
    )
}
