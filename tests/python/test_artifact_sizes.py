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
"""The size of artifacts and the memory to build them, compared with stock TVM.

The full tier has models of usual sizes, the others one small model. The table
``artifact_sizes`` has whichever ran.
"""

import gc
import resource
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from transformers import ConvNextConfig, ConvNextForImageClassification
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from examples.large_weights import anonymous_bytes, watched
from helpers import grids
from helpers.coverage_tables import CoverageTables
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.relax.constants.size_check import ALLOWANCE
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes.support.memory import give_back_memory

# The memory limit of stock TVM, beyond the model itself.
MEMORY = 8 << 30
SECONDS = 300

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


class VisionTransformer(nn.Module):
    """Patches, encoder layers as PyTorch has them, and a head."""

    def __init__(self, size: int, patch: int, width: int, layers: int, heads: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.position = nn.Parameter(torch.randn((size // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2) + self.position
        return self.head(self.encoder(x).mean(1))


class LanguageModel(nn.Module):
    """An embedding, LSTM layers and an output head."""

    def __init__(self, words: int, width: int, layers: int):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)
        self.scores = nn.Linear(width, words)

    def forward(self, tokens):
        return self.scores(self.layers(self.embedding(tokens))[0])


def convnext() -> Model:
    config = ConvNextConfig(depths=[3, 3, 27, 3], hidden_sizes=[128, 256, 512, 1024])
    config.num_labels = 1000
    return ConvNextForImageClassification(config).eval(), (torch.randn(2, 3, 224, 224),)


def vit(size: int, width: int, layers: int) -> Model:
    module = VisionTransformer(size, 16, width, layers, width // 64)
    for parameter in module.encoder.parameters():
        nn.init.normal_(parameter, std=0.02)  # PyTorch initializes all layers equally
    return module.eval(), (torch.randn(2, 3, size, size),)


def lstm() -> Model:
    return LanguageModel(33000, 650, 2).eval(), (torch.zeros(2, 16, dtype=torch.int64),)


SMALL: dict[str, Callable[[], Model]] = {"ViT of one layer, batch 2": partial(vit, 32, 64, 1)}
USUAL: dict[str, Callable[[], Model]] = {
    "ConvNeXt-B, batch 2": convnext,
    "ViT-B/16, batch 2": partial(vit, 224, 768, 12),
    "LSTM language model, batch 2, length 16": lstm,
}
MODELS = USUAL if grids.is_full() else SMALL


@dataclass(frozen=True)
class Measured:
    """The size of an artifact and the peak anonymous memory of building it, in bytes."""

    artifact: int
    peak: int


def measure(make: Callable[[Path], object]) -> Measured:
    """Measure `make`, which writes an artifact into a directory, in this process."""
    with tempfile.TemporaryDirectory() as directory:
        # Memory that is freed and reused would not be measured.
        gc.collect()
        give_back_memory()
        before = anonymous_bytes()
        limits = resource.getrlimit(resource.RLIMIT_DATA)
        in_use = resource_data()
        resource.setrlimit(resource.RLIMIT_DATA, (in_use + MEMORY, limits[1]))
        with watched() as peaks:
            make(Path(directory))
        artifact = sum(path.stat().st_size for path in Path(directory).iterdir())
        return Measured(artifact, max(peaks.by_step.values(), default=before) - before)


def resource_data() -> int:
    """The memory counted by ``RLIMIT_DATA`` (``VmData``)."""
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0])


def by_tvm(program: torch.export.ExportedProgram, directory: Path) -> None:
    """Build as in TVM's documentation."""
    mod = from_exported_program(program)
    mod = relax.get_pipeline("zero")(mod)
    relax.build(mod, "llvm").export_library(str(directory / "model.so"))


def by_us(program: torch.export.ExportedProgram, weights: str, directory: Path) -> None:
    compile_model(program, compare=False, weights=weights, output=directory / "out")
    for path in (directory / "out").iterdir():
        if path.name != "manifest.json":
            path.rename(directory / path.name)
    (directory / "out" / "manifest.json").unlink()
    (directory / "out").rmdir()


def megabytes(measured: Measured | None, of: str) -> str:
    return "exceeded" if measured is None else f"{getattr(measured, of) / 1e6:.1f}"


@pytest.mark.parametrize("name", MODELS)
def test_size_and_memory(name: str, coverage_table: CoverageTables) -> None:
    """At most 20% larger than the parameters, and not larger than TVM's artifact."""
    torch.manual_seed(0)
    program = torch.export.export(*MODELS[name]())
    parameters = sum(value.untyped_storage().nbytes() for value in program.state_dict.values())
    ways = {
        "stock": partial(by_tvm, program),
        "ours": partial(by_us, program, "inside"),
    }
    if grids.is_full():
        ways["outside"] = partial(by_us, program, "outside")
    found: dict[str, Measured | None] = {}
    for way, make in ways.items():
        outcome = run_forked(partial(measure, make), timeout=SECONDS)
        assert outcome.kind is OutcomeKind.VALUE or way == "stock", outcome.output
        found[way] = outcome.value if isinstance(outcome.value, Measured) else None
    stock, ours, outside = found["stock"], found["ours"], found.get("outside")
    coverage_table.measurement_table("artifact_sizes").add(
        model=name,
        parameters_MB=f"{parameters / 1e6:.1f}",
        artifact_stock_MB=megabytes(stock, "artifact"),
        artifact_ours_MB=megabytes(ours, "artifact"),
        ratio=f"{ours.artifact / parameters:.2f}",
        peak_stock_MB=megabytes(stock, "peak"),
        peak_ours_MB=megabytes(ours, "peak"),
        peak_ours_weights_outside_MB="-" if outside is None else megabytes(outside, "peak"),
    )
    # Exclude the kernels' code, which does not grow with the weights.
    code = 2 << 20
    assert ours.artifact <= 1.2 * parameters + ALLOWANCE + code
    if outside is not None:
        assert outside.artifact <= 1.2 * parameters + ALLOWANCE + code
        assert outside.peak <= 0.3 * parameters
    assert stock is None or ours.artifact <= stock.artifact + code


if __name__ == "__main__":
    tvm.testing.main()
