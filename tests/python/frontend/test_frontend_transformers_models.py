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
"""Transformers and vision models through each exporter, with static and dynamic batch.

Small configurations with random weights.
"""

import io
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import onnx
import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from tvm import relax

from examples._random import seeded
from helpers.coverage_tables import CoverageTables
from helpers.grids import sample
from helpers.relax_modules import cpu
from helpers.shape_models import FORMS_OF_TORCH, Form
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.torch import from_exported_program

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]


class Outputs(nn.Module):
    """Some outputs of a model, whose inputs have `names`."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names, self.outputs = model, names, outputs

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(**dict(zip(self.names, inputs, strict=True)))
        return tuple(getattr(found, name) for name in self.outputs)


@dataclass(frozen=True)
class Model:
    """A model of random weights.

    Attributes
    ----------
    make : callable
        Makes the module.
    inputs : callable
        Makes its inputs for a batch.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[torch.Tensor, ...]]


def pictures(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 32, 32),)


def swin() -> nn.Module:
    config = transformers.SwinConfig(
        image_size=32,
        patch_size=2,
        embed_dim=8,
        depths=[2, 2],
        num_heads=[2, 2],
        window_size=4,
        num_labels=5,
    )
    model = transformers.SwinForImageClassification(config)
    return Outputs(model, ("pixel_values",), ("logits",))


def mobilenet() -> nn.Module:
    config = transformers.MobileNetV2Config(
        image_size=32, depth_multiplier=0.25, min_depth=4, depth_divisible_by=4, num_labels=5
    )
    model = transformers.MobileNetV2ForImageClassification(config)
    return Outputs(model, ("pixel_values",), ("logits",))


def conditional_detr() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    layers = {
        f"{part}_{what}": number
        for part in ("encoder", "decoder")
        for what, number in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))
    }
    config = transformers.ConditionalDetrConfig(
        use_timm_backbone=False,
        backbone_config=backbone,
        backbone=None,
        use_pretrained_backbone=False,
        d_model=16,
        num_queries=5,
        num_labels=7,
        **layers,
    )
    config._attn_implementation = "eager"
    model = transformers.ConditionalDetrForObjectDetection(config)
    return Outputs(model, ("pixel_values",), ("logits", "pred_boxes"))


class Decoder(nn.Module):
    """The decoder of a codec, with an LSTM and transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.EncodecConfig(
            hidden_size=8, num_filters=4, upsampling_ratios=[2, 2], num_lstm_layers=1
        )
        self.model = transformers.EncodecModel(config).decoder

    def forward(self, codes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.model(codes),)


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, use_cache=False
    )
    model = transformers.T5ForConditionalGeneration(config)
    return Outputs(model, ("input_ids", "decoder_input_ids"), ("logits",))


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=20,
        num_mel_bins=4,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_source_positions=8,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    config._attn_implementation = "eager"
    model = transformers.WhisperForConditionalGeneration(config)
    return Outputs(model, ("input_features", "decoder_input_ids"), ("logits",))


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, 20, (batch, length))


MODELS = {
    "swin": Model(swin, pictures),
    "mobilenet_v2": Model(mobilenet, pictures),
    "conditional_detr": Model(conditional_detr, pictures),
    "encodec decoder": Model(Decoder, lambda batch: (torch.randn(batch, 8, 6),)),
    "t5": Model(t5, lambda batch: (tokens(batch, 7), tokens(batch, 5))),
    "whisper": Model(whisper, lambda batch: (torch.randn(batch, 4, 16), tokens(batch, 5))),
}

# Rejected by PyTorch's exporters: a branch on the padded length, and aten::diff.
_NOT_EXPORTED = {
    ("encodec decoder", Form.EXPORTED),
    ("encodec decoder", Form.DYNAMO),
    ("whisper", Form.TORCHSCRIPT),
}
CASES = [
    case
    for case in itertools.product(MODELS, FORMS_OF_TORCH, ("static", "dynamic"))
    if case[:2] not in _NOT_EXPORTED
]


def exported(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], is_dynamic: bool
) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=2, max=16)
    shapes = tuple({0: batch} for _ in inputs)
    # A module with a single variadic parameter takes its inputs as a nested tuple.
    shapes = (shapes,) if isinstance(module, Outputs) else shapes
    return torch.export.export(module, inputs, dynamic_shapes=shapes if is_dynamic else None)


def imported(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], form: Form, is_dynamic: bool
) -> tvm.IRModule:
    if form is Form.EXPORTED:
        return from_exported_program(exported(module, inputs, is_dynamic))
    if form is Form.DYNAMO:
        program = torch.onnx.export(
            exported(module, inputs, is_dynamic), dynamo=True, verbose=False
        )
        return from_onnx(program.model_proto)
    names = [f"x{index}" for index in range(len(inputs))]
    file = io.BytesIO()
    torch.onnx.export(
        module,
        inputs,
        file,
        input_names=names,
        dynamic_axes={name: {0: "batch"} for name in names} if is_dynamic else None,
        opset_version=17,
        dynamo=False,
    )
    return from_onnx(onnx.load_from_string(file.getvalue()))


@pytest.mark.parametrize("name, form, shapes", sample(CASES, 2, seed=1668))
@torch.no_grad()
def test_model(name: str, form: Form, shapes: str, coverage_table: CoverageTables) -> None:
    model = MODELS[name]
    with seeded(0):
        module = model.make().eval()
        batches = [model.inputs(batch) for batch in ((2, 3) if shapes == "dynamic" else (2,))]
    with coverage_table("transformers_models").case(model=name, form=form, shapes=shapes):
        mod = imported(module, batches[0], form, shapes == "dynamic")
        executable = relax.build(mod, cpu(), relax_pipeline="tvm_fixes")
        vm = relax.VirtualMachine(executable, tvm.cpu())
        for inputs in batches:
            result = vm["main"](*map(tvm.runtime.from_dlpack, inputs))
            fields = [result] if isinstance(result, tvm.runtime.Tensor) else result
            got = tuple(torch.from_dlpack(field) for field in fields)
            torch.testing.assert_close(got, module(*inputs), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
