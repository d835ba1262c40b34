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
"""Small models of known architectures, with random weights."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import tvm
from torch import nn

from examples._random import seeded
from tvm_fixes.frontend.torch import from_exported_program


@dataclass(frozen=True)
class Architecture:
    """A small model with random weights.

    Attributes
    ----------
    make : callable
        Makes the module in eval mode and its inputs.
    dynamic : tuple
        The dynamic axes of each input.
    """

    make: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]
    dynamic: tuple[tuple[int, ...], ...] = ((0,),)


class First(nn.Module):
    """The first output of a transformers or diffusers model."""

    def __init__(self, model: nn.Module, **options: object) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(*inputs, return_dict=False, **self.options)[0]


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}


def picture(size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def tokens(length: int = 12) -> torch.Tensor:
    return torch.randint(0, 100, (2, length))


def of_transformers(
    name: str, *inputs: torch.Tensor, options: dict[str, object] | None = None, **config: object
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    import transformers

    settings = getattr(transformers, f"{name}Config")(**config)
    settings._attn_implementation = "eager"
    model = getattr(transformers, f"{name}Model")(settings).eval()
    return First(model, **(options or {})), inputs


def of_diffusers(
    name: str, *inputs: torch.Tensor, **config: object
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    import diffusers

    return First(getattr(diffusers, name)(**config).eval()), inputs


def whisper_encoder() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    import transformers

    config = transformers.WhisperConfig(
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=48,
        num_mel_bins=8,
        max_source_positions=20,
    )
    config._attn_implementation = "eager"
    encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder(config).eval()
    return First(encoder), (torch.randn(2, 8, 40),)


class DetrLike(nn.Module):
    """Convolutions, a transformer over their pixels, and learned queries."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()
        )
        self.transformer = nn.Transformer(32, 2, 1, 1, 48, batch_first=True)
        self.queries = nn.Parameter(torch.randn(1, 5, 32))
        self.boxes, self.classes = nn.Linear(32, 4), nn.Linear(32, 7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.backbone(x).flatten(2).transpose(1, 2)
        y = self.transformer(y, self.queries.expand(x.shape[0], -1, -1))
        return self.boxes(y).sigmoid(), self.classes(y)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer = kind(8, 16, 1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def encoder_layer() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layer = nn.TransformerEncoderLayer(32, 2, 48, batch_first=True)
    return layer.eval(), (torch.randn(2, 12, 32),)


ARCHITECTURES = {
    "vit": Architecture(
        lambda: of_transformers("ViT", picture(), image_size=32, patch_size=8, **SMALL)
    ),
    "deit": Architecture(
        lambda: of_transformers("DeiT", picture(), image_size=32, patch_size=8, **SMALL)
    ),
    "bert": Architecture(
        lambda: of_transformers("Bert", tokens(), vocab_size=100, **SMALL), ((0, 1),)
    ),
    "distilbert": Architecture(
        lambda: of_transformers(
            "DistilBert", tokens(), vocab_size=100, dim=32, n_layers=2, n_heads=2, hidden_dim=48
        ),
        ((0, 1),),
    ),
    "gpt2": Architecture(
        lambda: of_transformers(
            "GPT2",
            tokens(),
            vocab_size=100,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=64,
            use_cache=False,
        ),
        ((0, 1),),
    ),
    "llama": Architecture(
        lambda: of_transformers(
            "Llama",
            tokens(),
            vocab_size=100,
            num_key_value_heads=1,
            use_cache=False,
            **SMALL,
        ),
        ((0, 1),),
    ),
    "t5_encoder": Architecture(
        lambda: t5_encoder(),
        ((0, 1),),
    ),
    "whisper_encoder": Architecture(whisper_encoder),
    "detr_like": Architecture(lambda: (DetrLike().eval(), (picture(),))),
    "convnext": Architecture(
        lambda: of_transformers(
            "ConvNext", picture(), hidden_sizes=[8, 16], depths=[1, 1], num_stages=2
        )
    ),
    "resnet": Architecture(
        lambda: of_transformers(
            "ResNet",
            picture(),
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            layer_type="basic",
        )
    ),
    "mobilenet_v2": Architecture(
        lambda: of_transformers("MobileNetV2", picture(), depth_multiplier=0.25, image_size=32)
    ),
    "segformer": Architecture(
        lambda: of_transformers(
            "Segformer",
            picture(),
            num_encoder_blocks=2,
            depths=[1, 1],
            sr_ratios=[2, 1],
            hidden_sizes=[8, 16],
            num_attention_heads=[1, 2],
            patch_sizes=[3, 3],
            strides=[2, 2],
            mlp_ratios=[2, 2],
        )
    ),
    "unet2d": Architecture(
        lambda: of_diffusers(
            "UNet2DModel",
            torch.randn(2, 3, 16, 16),
            torch.tensor([1, 2]),
            sample_size=16,
            block_out_channels=(8, 16),
            layers_per_block=1,
            norm_num_groups=4,
            attention_head_dim=8,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        ),
        ((0,), (0,)),
    ),
    "vae": Architecture(
        lambda: of_diffusers(
            "AutoencoderKL", picture(16), block_out_channels=(8,), norm_num_groups=4
        )
    ),
    "lstm": Architecture(lambda: (Recurrent(nn.LSTM).eval(), (torch.randn(2, 5, 8),))),
    "gru": Architecture(lambda: (Recurrent(nn.GRU).eval(), (torch.randn(2, 5, 8),))),
    "encoder_layer": Architecture(encoder_layer, ((0, 1),)),
}


def t5_encoder() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    import transformers

    config = transformers.T5Config(
        vocab_size=100, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, use_cache=False
    )
    return First(transformers.T5EncoderModel(config).eval()), (tokens(),)


def import_architecture(architecture: Architecture, shapes: str) -> tvm.IRModule:
    """The model in Relax, with ``"static"`` or ``"dynamic"`` shapes."""
    with seeded(0):
        module, inputs = architecture.make()
    dims = None
    if shapes == "dynamic":
        extents = [torch.export.Dim("batch", max=16), torch.export.Dim("length", max=32)]
        dims = ({axis: extents[axis] for axis in axes} for axes in architecture.dynamic)
        dims = (tuple(dims),) if isinstance(module, First) else tuple(dims)
    program = torch.export.export(module, inputs, dynamic_shapes=dims)
    return from_exported_program(program)
