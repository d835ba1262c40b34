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
"""Exports of PyTorch models with random weights, and their quantized and narrow variants."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import torchvision_names
from .data import Case, to_torch

Build = Callable[[], Any]
"""Returns a module in eval mode."""
Dynamic = Mapping[str, Mapping[int, str]]
"""For an input, the names of its symbolic axes."""

_SEED = 0


def export(
    build: Build,
    case: Case,
    path: Path,
    *,
    dynamic: Dynamic | None = None,
    script: bool = False,
    opset: int | None = None,
) -> None:
    """Write a module as ONNX.

    Parameters
    ----------
    build : callable
        Makes the module.
    case : Case
        The example inputs.
    path : Path
    dynamic : mapping, optional
        The symbolic axes.
    script : bool
        Whether to export with TorchScript instead of ``torch.export``.
    opset : int, optional
        The version of the operators.
    """
    import torch

    module, values = _made(build, case)
    names = list(case.inputs)
    options: dict[str, Any] = {"dynamo": not script, "opset_version": opset}
    if dynamic and script:
        options["dynamic_axes"] = dynamic
    elif dynamic:
        options["dynamic_shapes"] = _dims(dynamic, names, module)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, values, str(path), input_names=names, external_data=False, **options
        )


def export_program(build: Build, case: Case, path: Path) -> None:
    """Write a module as a program of ``torch.export``."""
    import torch

    with torch.no_grad():
        torch.export.save(torch.export.export(*_made(build, case)), path)


def quantize_dynamic(make: Callable[[Path], None], path: Path) -> None:
    """Write a model whose matrix products are in int8, with scales computed at run time."""
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization import quantize_dynamic as quantize

    source = path.with_name("source.onnx")
    make(source)
    quantize(source, path, weight_type=QuantType.QInt8)
    source.unlink()


def quantize_static(make: Callable[[Path], None], case: Case, path: Path) -> None:
    """Write a model in int8, with QuantizeLinear and DequantizeLinear around its operators."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat
    from onnxruntime.quantization import quantize_static as quantize
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            rngs = (np.random.default_rng(seed) for seed in range(4))
            self._feeds = iter([{k: v(rng) for k, v in case.inputs.items()} for rng in rngs])

        def get_next(self) -> Any:
            return next(self._feeds, None)

    source, prepared = path.with_name("source.onnx"), path.with_name("prepared.onnx")
    make(source)
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    quantize(prepared, path, Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
    source.unlink()
    prepared.unlink()


def to_float16(make: Callable[[Path], None], path: Path) -> None:
    """Write a model in float16 with float32 inputs and outputs."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    make(path)
    model = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    onnx.save(model, path)


def torchvision(name: str, **options: Any) -> Any:
    """Make a model of torchvision."""
    torchvision_names.define()
    import torchvision.models as zoo

    group = next(g for g in (zoo, zoo.segmentation, zoo.detection) if hasattr(g, name))
    return getattr(group, name)(**options).eval()


def timm(name: str) -> Any:
    """Make a model of timm."""
    torchvision_names.define()
    import timm as library

    return library.create_model(name).eval()


def yolo(name: str) -> Any:
    """Make a detector of ultralytics, with its head for exports."""
    torchvision_names.define()
    os.environ.setdefault("YOLO_AUTOINSTALL", "false")
    from ultralytics.nn.tasks import DetectionModel

    model = DetectionModel(f"{name}.yaml", verbose=False).eval()
    model.model[-1].export, model.model[-1].format = True, "onnx"
    return model


def transformers(
    name: str, *outputs: str, config: str = "", method: str = "", **options: Any
) -> Any:
    """Make a model of transformers that returns the outputs with these names.

    Parameters
    ----------
    name : str
        The class.
    *outputs : str
        The attributes of the result to return.
    config : str
        The class of the configuration, by default that of the model.
    method : str
        Another method than ``forward``.
    **options : object
        The options of the configuration.
    """
    import transformers as library

    made = getattr(library, config or f"{_family(name)}Config")(**options)
    return _outputs(getattr(library, name)(made).eval(), outputs, method)


def diffusers(name: str, **options: Any) -> Any:
    """Make a model of diffusers."""
    import diffusers as library

    return _outputs(getattr(library, name)(**options).eval(), ("sample",), "")


def vae_decoder() -> Any:
    """Make the decoder of a latent diffusion model, as in Stable Diffusion."""
    import diffusers as library

    model = library.AutoencoderKL(
        block_out_channels=(128, 256, 512, 512),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2,
        latent_channels=4,
    )
    return _outputs(model.eval(), ("sample",), "decode")


def tagger(kind: str) -> Any:
    """Make a tagger: an embedding, a bidirectional recurrent layer, and a linear layer."""
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20000, 128)
            layer = getattr(nn, kind)
            self.recurrent = layer(128, 128, 2, batch_first=True, bidirectional=True)
            self.linear = nn.Linear(256, 32)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(self.recurrent(self.embedding(tokens))[0])
            return result

    return Tagger().eval()


def unet() -> Any:
    """Make a U-Net for segmentation."""
    import torch

    from examples._random import settle_batch_norm
    from examples.unet import UNet

    model = UNet(width=32, depth=4)
    settle_batch_norm(model, torch.randn(2, 3, 64, 64))
    return model


def narrow(build: Build, dtype: str) -> Any:
    """Make a module in another dtype."""
    import torch

    return build().to(getattr(torch, dtype))


def _made(build: Build, case: Case) -> tuple[Any, tuple[Any, ...]]:
    import torch

    torch.manual_seed(_SEED)
    rng = np.random.default_rng(_SEED)
    module = build()
    return module, tuple(to_torch(make(rng)) for make in case.inputs.values())


def _dims(dynamic: Dynamic, names: list[str], module: Any) -> tuple[Any, ...]:
    """Return the symbolic axes of the parameters of a module; those of ``*inputs`` are a tuple."""
    from torch.export import Dim

    dims = {name: Dim(name) for axes in dynamic.values() for name in axes.values()}
    axes = [
        {axis: dims[name] for axis, name in dynamic[k].items()} if k in dynamic else None
        for k in names
    ]
    parameters = list(inspect.signature(module.forward).parameters.values())
    if parameters[-1].kind is not inspect.Parameter.VAR_POSITIONAL:
        return tuple(axes)
    fixed = len(parameters) - 1
    return (*axes[:fixed], tuple(axes[fixed:]))


def _family(name: str) -> str:
    """Return a class of transformers without what it is for."""
    for end in ("Model", "LMHead", "ForConditionalGeneration", "WithProjection"):
        name = name.replace(end, "")
    return name.partition("For")[0]


def _outputs(model: Any, names: tuple[str, ...], method: str) -> Any:
    """Return a module that calls `model` and returns attributes of the result."""
    from torch import nn

    class Outputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            result = getattr(self.model, method)(*inputs) if method else self.model(*inputs)
            outputs = tuple(getattr(result, name) for name in names)
            return outputs[0] if len(outputs) == 1 else outputs

    return Outputs().eval()


class WithPast:
    """A GPT-2 whose inputs and outputs hold the keys and values of earlier tokens."""

    LAYERS, HEADS, WIDTH = 12, 12, 64

    @classmethod
    def make(cls) -> Any:
        """Make the module: tokens, then keys and values of each layer."""
        from torch import nn
        from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

        class Decoder(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = GPT2LMHeadModel(GPT2Config())

            def forward(self, tokens: Any, *past: Any) -> Any:
                cache = DynamicCache()
                for layer in range(cls.LAYERS):
                    cache.update(past[2 * layer], past[2 * layer + 1], layer)
                result = self.model(tokens, past_key_values=cache)
                layers = result.past_key_values.layers
                return (result.logits, *(t for layer in layers for t in (layer.keys, layer.values)))

        return Decoder().eval()


def ssd() -> Any:
    """Make the backbone and the heads of a detector, without the choice of boxes."""
    from torch import nn

    model = torchvision("ssdlite320_mobilenet_v3_large", weights_backbone=None)

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = model.backbone, model.head

        def forward(self, image: Any) -> Any:
            heads = self.head(list(self.backbone(image).values()))
            return heads["bbox_regression"], heads["cls_logits"]

    return Heads().eval()


def deeplab() -> Any:
    """Make a segmentation model that returns a tensor."""
    from torch import nn

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = torchvision("deeplabv3_mobilenet_v3_large", weights_backbone=None)

        def forward(self, image: Any) -> Any:
            return self.model(image)["out"]

    return Scores().eval()


def t5_decoder(**options: Any) -> Any:
    """Make the decoder of a translation model, with its head."""
    from torch import nn
    from transformers import T5Config, T5ForConditionalGeneration
    from transformers.modeling_outputs import BaseModelOutput

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = T5ForConditionalGeneration(T5Config(**options))

        def forward(self, encoder: Any, decoder_input_ids: Any) -> Any:
            states = BaseModelOutput(last_hidden_state=encoder)
            return self.model(
                encoder_outputs=states, decoder_input_ids=decoder_input_ids, use_cache=False
            ).logits

    return Decoder().eval()


def whisper(part: str, **options: Any) -> Any:
    """Make the encoder or the decoder of a speech recognizer."""
    from torch import nn
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = WhisperForConditionalGeneration(WhisperConfig(**options))

        def forward(self, *inputs: Any) -> Any:
            if part == "encoder":
                return self.model.model.encoder(*inputs).last_hidden_state
            tokens, states = inputs
            decoded = self.model.model.decoder(
                tokens, encoder_hidden_states=states, use_cache=False
            )
            return self.model.proj_out(decoded.last_hidden_state)

    return Part().eval()
