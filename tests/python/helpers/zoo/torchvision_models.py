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
"""Architectures of torchvision."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks import torchvision_names

from .entry import Entry, Inputs, Tensors, of_shape, pictures


def _torchvision(make: Callable[[Any], nn.Module]) -> nn.Module:
    torchvision_names.define()
    import torchvision

    return Tensors(make(torchvision).eval(), ("_x",), {})


def of_torchvision(
    make: Callable[[Any], nn.Module], inputs: Inputs | None = None, *, onnx: bool = False
) -> Entry:
    return Entry(
        "torchvision", partial(_torchvision, make), inputs or pictures(64, "_x"), onnx=onnx
    )


class _Pair(nn.Module):
    """The flow between a picture and its shift."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x, x.roll(2, -1), num_flow_updates=2)


def _swin(tv: Any, block: str, merging: str) -> nn.Module:
    module = tv.models.swin_transformer
    return module.SwinTransformer(
        [4, 4],
        8,
        [2, 2],
        [2, 2],
        [4, 4],
        block=getattr(module, block),
        downsample_layer=getattr(module, merging),
        num_classes=10,
    )


def _mvit(tv: Any) -> nn.Module:
    module = tv.models.video.mvit
    blocks = [
        module.MSBlockConfig(1, 8, 16, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
        module.MSBlockConfig(2, 16, 16, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1]),
    ]
    return module.MViT((32, 32), 4, blocks, True, True, True, True, True, num_classes=10)


def _raft(tv: Any) -> nn.Module:
    return _Pair(tv.models.optical_flow.raft_small(weights=None))


_CLIP = of_shape(_x=("batch", 3, 4, 32, 32))

TORCHVISION = {
    "squeezenet1_1": of_torchvision(lambda tv: tv.models.squeezenet1_1(num_classes=10), onnx=True),
    "shufflenet_v2_x0_5": of_torchvision(
        lambda tv: tv.models.shufflenet_v2_x0_5(num_classes=10), onnx=True
    ),
    "densenet": of_torchvision(
        lambda tv: tv.models.DenseNet(8, (2, 2, 2), 16, num_classes=10), onnx=True
    ),
    "vit": of_torchvision(
        lambda tv: tv.models.VisionTransformer(64, 16, 2, 2, 32, 64, num_classes=10), onnx=True
    ),
    "swin_v2": of_torchvision(lambda tv: _swin(tv, "SwinTransformerBlockV2", "PatchMergingV2")),
    "maxvit": of_torchvision(
        lambda tv: tv.models.MaxVit((64, 64), 16, 2, [16, 16], [1, 1], 8, 0.1, num_classes=10)
    ),
    "deeplabv3": of_torchvision(
        lambda tv: tv.models.segmentation.deeplabv3._deeplabv3_mobilenetv3(
            tv.models.mobilenet_v3_small(width_mult=0.5, dilated=True), 5, None
        )
    ),
    "lraspp": of_torchvision(
        lambda tv: tv.models.segmentation.lraspp._lraspp_mobilenetv3(
            tv.models.mobilenet_v3_small(width_mult=0.5, dilated=True), 5
        ),
        onnx=True,
    ),
    "fcn": of_torchvision(
        lambda tv: tv.models.segmentation.FCN(
            tv.models._utils.IntermediateLayerGetter(
                tv.models.mobilenet_v3_small(width_mult=0.5, dilated=True).features, {"8": "out"}
            ),
            tv.models.segmentation.fcn.FCNHead(24, 5),
        )
    ),
    "mvit_v2": of_torchvision(_mvit, _CLIP, onnx=True),
    "swin3d": of_torchvision(
        lambda tv: tv.models.video.swin_transformer.SwinTransformer3d(
            [2, 4, 4], 8, [1, 1], [2, 2], [2, 4, 4], num_classes=10
        ),
        _CLIP,
    ),
    "raft_small": of_torchvision(_raft, pictures(128, "_x")),
}
