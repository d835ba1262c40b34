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
"""The kernels of models and of random graphs, compiled for GPUs on a machine without one."""

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm.testing

from examples.demo import MODELS as EXAMPLES
from helpers.architectures import (
    ARCHITECTURES,
    Architecture,
    import_architecture,
    of_transformers,
    picture,
)
from helpers.coverage_tables import CoverageTables
from helpers.gpu_kernels import GPU, build_sources, functions
from helpers.grids import from_tier, is_full, sample
from helpers.lowering import lowered_before
from helpers.simt import Unsupported, assert_equals_reference, element_count
from tests.fuzz import onnx_models, relax_programs
from tvm_fixes.errors import CompileError, UnsupportedOperatorError
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import Stages, stages
from tvm_fixes.support import ambient
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes.target import cuda, resolve
from tvm_fixes.tirx.gpu_kernel import contains_threads
from tvm_fixes.tirx.gpu_rules import gpu_rules
from tvm_fixes.tirx.transform import ApplyGpuSchedule
from tvm_fixes.tirx.transform.apply_gpu_schedule import ScheduledKernel


def compiles() -> bool:
    try:
        cuda.find_compiler("sm_90")
    except CompileError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(not compiles(), reason="neither NVRTC nor nvcc is installed"),
    pytest.mark.filterwarnings("ignore"),
]

ARCHS = ("sm_80", "sm_90", "sm_100")
GRAPHS = 500
_BATCH = 25 if is_full() else 5
# Kernels with more elements take too long on a CPU.
_MAX_ELEMENTS = 10000
_RUN_EACH = 5

MODELS = ARCHITECTURES | {
    "swin": Architecture(
        lambda: of_transformers(
            "Swin", picture(), image_size=32, patch_size=2, embed_dim=8, depths=[2], num_heads=[2]
        )
    ),
    "regnet": Architecture(
        lambda: of_transformers(
            "RegNet",
            picture(),
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            groups_width=4,
        )
    ),
}
CASES = [
    *((name, "example") for name in EXAMPLES),
    *((name, shapes) for name in MODELS for shapes in ("static", "dynamic")),
]


def module_of(name: str, kind: str) -> tvm.IRModule:
    if kind != "example":
        return import_architecture(MODELS[name], kind)
    module, inputs = importlib.import_module(f"examples.{name}").factory()
    return from_exported_program(torch.export.export(module, inputs))


def lower(
    mod: tvm.IRModule, lowering: Stages, arch: str
) -> tuple[tvm.IRModule, list[ScheduledKernel]]:
    """Schedule and lower a module of kernels for an architecture."""
    with resolve(f"cuda/{arch}"), ambient.collect() as facts:
        for stage in lowering.instructions:
            mod = stage(mod)
    return mod, facts.of(ScheduledKernel)


def row_of(kernels: Sequence[ScheduledKernel]) -> dict[str, int]:
    """The numbers of kernels, by the rule that scheduled them, and of those that fell back."""
    rules = Counter(kernel.rule for kernel in kernels)
    names = [type(rule).__name__ for rule in gpu_rules(resolve("cuda/sm_90"))]
    assert set(rules) <= set(names)
    fallbacks = sum(bool(kernel.failures) for kernel in kernels)
    return {"kernels": len(kernels), **{name: rules[name] for name in names}} | {
        "fallbacks": fallbacks
    }


@from_tier("ci")
@pytest.mark.parametrize("name, kind", sample(CASES, 1, seed=3))
def test_every_kernel_of_a_model_compiles(
    name: str, kind: str, coverage_table: CoverageTables
) -> None:
    table = coverage_table.measurement_table("gpu_kernels")
    lowering = stages("gpu")
    with resolve(f"cuda/{ARCHS[0]}"):
        mod = lowered_before(module_of(name, kind), lowering, "Lower")
    for arch in ARCHS if is_full() else ARCHS[1:2]:
        lowered, kernels = lower(mod, lowering, arch)
        for source in build_sources(lowered, resolve(f"cuda/{arch}")):
            assert cuda.find_compiler(arch)(source).startswith(b"\x7fELF")
        assert kernels
        table.add(
            models=name,
            shapes=kind,
            arch=arch,
            cases=1,
            rejected=0,
            run=0,
            **row_of(kernels),
        )


def random_module(seed: int) -> tuple[tvm.IRModule, dict[str, int]] | None:
    """A random module, and sizes of its symbols; None if the graph is invalid.

    It is made by Relax operators if the seed is odd, else imported from ONNX.
    """
    if seed % 2:
        program = relax_programs.make_program(np.random.default_rng(seed))
        return program.mod, {symbol.name: size for symbol, size in program.symbols.items()}
    graph = onnx_models.make_graph(seed)
    try:
        return (from_onnx(graph.model()), graph.sizes) if graph.nodes else None
    except (CompileError, tvm.error.OpAttributeInvalid):
        return None


def check_graph(seed: int, arch: str) -> tuple[list[ScheduledKernel], int] | None:
    """Compile the kernels of a random graph, and run those of every fifth one on a CPU.

    Returns the kernels, and the number of those that ran; None if the graph is rejected.
    """
    made = random_module(seed)
    if made is None:
        return None
    lowering, target = stages("gpu"), resolve("cuda/sm_90")
    try:
        with target:
            mod = lowered_before(made[0], lowering, "Lower")
        lowered, kernels = lower(mod, lowering, "sm_90")
    except UnsupportedOperatorError:
        return None
    for source in build_sources(lowered, target):
        cuda.find_compiler(arch)(source)
    return kernels, 0 if seed % _RUN_EACH else run_kernels(mod, made[1])


def run_kernels(mod: tvm.IRModule, sizes: dict[str, int]) -> int:
    """Compare the small scheduled kernels with unscheduled ones; count those that ran."""
    before = {name: f for name, f in functions(mod).items() if not contains_threads(f.body)}
    with GPU:
        after = functions(ApplyGpuSchedule()(mod))
    ran = 0
    for name, function in before.items():
        count = sum(element_count(parameter, sizes) for parameter in function.params)
        if count > _MAX_ELEMENTS:
            continue
        try:
            rng = np.random.default_rng(0)
            assert_equals_reference(function, after[name], rng, sizes)
        except Unsupported:
            continue
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        ran += 1
    return ran


def each_outcome(seeds: Sequence[int]) -> Iterator[Any]:
    for seed in seeds:
        arch = ARCHS[seed % len(ARCHS)]
        outcome = run_forked(lambda seed=seed, arch=arch: check_graph(seed, arch), timeout=300)
        assert outcome.kind is OutcomeKind.VALUE, f"seed {seed}: {outcome}"
        yield outcome.value


@pytest.mark.parametrize("first", sample(range(0, GRAPHS, _BATCH), 1, seed=1))
def test_every_kernel_of_random_graphs_compiles(first: int, coverage_table: CoverageTables) -> None:
    seeds = range(first, first + _BATCH)
    found = list(each_outcome(seeds))
    done = [result for result in found if result is not None]
    assert len(done) > _BATCH // 2
    ran = sum(count for _, count in done)
    assert ran
    coverage_table.measurement_table("gpu_kernels").add(
        models=f"random {first} to {seeds[-1]}",
        shapes="static, dynamic",
        arch="in turn",
        cases=_BATCH,
        rejected=found.count(None),
        run=ran,
        **row_of([kernel for kernels, _ in done for kernel in kernels]),
    )


if __name__ == "__main__":
    tvm.testing.main()
