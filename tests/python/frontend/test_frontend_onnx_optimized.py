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
"""Transformers that ONNX Runtime has optimized, compared with ONNX Runtime.

Small configurations with random weights.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import tvm.testing
from torch import nn

from examples._random import seeded
from helpers.grids import sample
from helpers.onnx_graphs import imported_and_run, onnx_runtime
from tvm_fixes.frontend.onnx import from_onnx

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 48, "attn_implementation": "eager"}


class FirstOutput(nn.Module):
    """Returns the first output of a text or image model."""

    def __init__(self, model: nn.Module, **options: object) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        masks = {} if mask is None else {"attention_mask": mask}
        return self.model(x, **masks, **self.options)[0]


def bert() -> nn.Module:
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=16, **SIZES)
    return FirstOutput(transformers.BertModel(config, add_pooling_layer=False))


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=30, n_embd=32, n_layer=1, n_head=4, n_positions=16, attn_implementation="eager"
    )
    return FirstOutput(transformers.GPT2Model(config), use_cache=False)


def llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=30, max_position_embeddings=16, num_key_value_heads=2, **SIZES
    )
    return FirstOutput(transformers.LlamaModel(config), use_cache=False)


def vit() -> nn.Module:
    config = transformers.ViTConfig(image_size=16, patch_size=8, **SIZES)
    return FirstOutput(transformers.ViTModel(config, add_pooling_layer=False))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "vit": vit,
}


def inputs_of(name: str) -> dict[str, torch.Tensor]:
    """Pictures, or token ids with a mask that hides the end of a row."""
    if name == "vit":
        return {"x": torch.randn(2, 3, 16, 16)}
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    return {"x": torch.randint(0, 30, (2, 7)), "mask": mask}


def export(module: nn.Module, inputs: dict[str, torch.Tensor], path: Path) -> None:
    axes = {0: "batch"} if len(inputs) == 1 else {0: "batch", 1: "length"}
    torch.onnx.export(
        module,
        tuple(inputs.values()),
        str(path),
        input_names=list(inputs),
        output_names=["y"],
        dynamic_axes=dict.fromkeys(inputs, axes),
        opset_version=17,
        dynamo=False,
    )


def optimize_in_session(path: Path, name: str) -> onnx.ModelProto:
    """The model as optimized and saved by a session of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path.with_suffix(".optimized.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def optimize_with_tool(path: Path, name: str) -> onnx.ModelProto:
    """The model as optimized by ``onnxruntime.transformers``."""
    from onnxruntime.transformers import optimizer

    kind = {"llama": "gpt2"}.get(name, name)
    tool = optimizer.optimize_model(
        str(path), model_type=kind, num_heads=4, hidden_size=32, opt_level=0
    )
    return tool.model


TOOLS = {"session": optimize_in_session, "tool": optimize_with_tool}


@pytest.mark.parametrize(
    ("name", "tool"), sample(list(itertools.product(MODELS, TOOLS)), 2, seed=2)
)
def test_optimized_model(name: str, tool: str, tmp_path: Path) -> None:
    with seeded(0):
        module, inputs = MODELS[name]().eval(), inputs_of(name)
    path = tmp_path / "model.onnx"
    export(module, inputs, path)
    model = TOOLS[tool](path, name)
    assert any(node.domain == "com.microsoft" for node in model.graph.node)
    arrays = [inputs[value.name].numpy() for value in model.graph.input]
    (got,) = imported_and_run(from_onnx, model, *arrays, optimize=False)
    (expected,) = onnx_runtime(model, *arrays)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
