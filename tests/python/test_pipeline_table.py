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
"""tvm_fixes.pipeline, the table, against TVM's lists, the passes and the page."""

import json
from pathlib import Path

import pytest
import tvm.testing
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as cpu_generic
from tvm.relax.backend.cuda import pipeline as cuda
from tvm.relax.backend.gpu_generic import pipeline as gpu_generic

from helpers import pipeline_page
from tvm_fixes import lowering
from tvm_fixes.lowering import Options, places, stages, stock_rest
from tvm_fixes.pipeline import PHASES, TVM_LISTS, kernel_guards, steps
from tvm_fixes.target import resolve
from tvm_fixes.tirx import semantics
from tvm_fixes_cli import main

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"

TARGETS = {
    "cpu": (tvm.target.Target("llvm"), cpu_generic),
    "gpu": (tvm.target.Target("vulkan", host="llvm"), gpu_generic),
    "cuda": (resolve("cuda/sm_90"), cuda),
}


def names(passes):
    return [str(one.info.name) for one in passes]


@pytest.mark.parametrize("tvm_list", TVM_LISTS)
@pytest.mark.parametrize("device", TARGETS)
def test_tvm_has_the_lists_that_the_table_assumes(device, tvm_list):
    target, module = TARGETS[device]
    found = names(getattr(module, tvm_list)(target))
    devices = {"", device, "gpu" if device == "cuda" else device}
    known = [
        step.tvm_name for _, step in steps() if step.tvm_list == tvm_list and step.device in devices
    ]
    assert found == known, (
        f"{module.__name__}.{tvm_list} changed: new {sorted(set(found) - set(known))}, gone "
        f"{sorted(set(known) - set(found))}. Edit python/tvm_fixes/pipeline.py: add a row "
        f"_tvm(name, …) at the place of each new pass, delete those that are gone, and keep TVM's "
        f"order, unless a row says why not"
    )


@pytest.mark.parametrize("device", TARGETS)
def test_all_of_tvm_s_passes_are_left_at_the_start(device):
    target, module = TARGETS[device]
    expected = [one for each in TVM_LISTS for one in names(getattr(module, each)(target))]
    assert names(stock_rest(target, names(stages()))) == expected


@pytest.mark.parametrize(
    "after, left",
    [
        ("Legalize/LowerScan", "DispatchSampling"),
        ("Legalize/ReadTupleFields", "AnnotateTIROpPattern"),
        ("Legalize/FoldConstant", "FuseOps"),
        ("Lower/RecordKernelCalls", "CallTIRRewrite"),
        ("Lower/CallTIRRewrite", "StaticPlanBlockMemory"),
        ("Lower/AttachGlobalSymbol", None),
    ],
)
def test_state_after_a_pass(after, left):
    target, _ = TARGETS["cpu"]
    stage = after.partition("/")[0]
    within = [place.stage.path(place.step) for place in places(target) if place.stage.name == stage]
    every = names(stages())
    rest = stock_rest(target, every[every.index(stage) :], within.index(after) + 1)
    assert next(iter(names(rest)), None) == left


def test_a_gpu_s_kernels_are_scheduled_by_tvm_if_not_by_us():
    target, _ = TARGETS["cuda"]
    every = names(stages())
    at = every.index("Lower")
    assert names(stock_rest(target, every[at:]))[0] == "ApplyDefaultSchedule"
    within = [place.step.name for place in places(target) if place.stage.name == "Lower"]
    executed = within.index("ApplyGpuSchedule") + 1
    assert "ApplyDefaultSchedule" not in names(stock_rest(target, every[at:], executed))


def test_a_pass_of_a_later_tvm_runs_after_the_one_before_it(monkeypatch):
    new = tvm.transform.module_pass(lambda mod, _: mod, opt_level=0, name="NewInTVM")
    stock = cpu_generic.finalize_passes

    def later(target):
        first, *others = stock(target)
        return [new, first, new, *(one for one in others if one.info.name != "KillAfterLastUse")]

    monkeypatch.setattr(cpu_generic, "finalize_passes", later)
    found = [place.step.name for place in places(TARGETS["cpu"][0]) if place.stage.name == "Lower"]
    at = found.index("StaticPlanBlockMemory")
    assert found[at - 2 : at + 3] == [
        *("CallTIRRewrite", "NewInTVM", "StaticPlanBlockMemory", "NewInTVM", "LowerAllocTensor")
    ]
    assert "KillAfterLastUse" not in found
    seen = []

    @tvm.ir.instrument.pass_instrument
    class Names:
        def run_before_pass(self, _mod, info):
            seen.append(str(info.name))

    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.abs(x)))
    with tvm.transform.PassContext(instruments=[Names()]):
        relax.build(builder.get(), "llvm", relax_pipeline="tvm_fixes")
    assert seen.count("NewInTVM") == 2


def test_every_pass_of_ours_has_the_name_in_the_table():
    options = Options(layout="NHWC", collected={})
    for _, step in steps():
        if step.is_own:
            assert options.make(step).info.name == step.name


def test_options_exist():
    fields = set(vars(Options()))
    for _, step in steps():
        assert {step.option, step.unless, *step.takes} - {""} <= fields


def test_phases_are_the_fields_of_stages():
    assert list(vars(stages())) == [phase.name for phase in PHASES]


def test_the_guards_of_kernels_are_the_same_for_constants():
    before, after = kernel_guards()
    assert names(semantics.before_lowering()) == list(before)
    assert names(semantics.after_lowering()) == list(after)
    assert {"GuardFloatCasts", "DecomposeReduction"} <= set(before)
    assert {"GuardIntegerDivision", "KeepTilesOnStack"} <= set(after)


@pytest.mark.parametrize("device", TARGETS)
def test_the_sequence_is_the_table(device):
    """The passes that run, as an instrument sees them."""
    target, _ = TARGETS[device]
    seen, depth = [], 0

    @tvm.ir.instrument.pass_instrument
    class Outer:
        def run_before_pass(self, _mod, info):
            nonlocal depth
            seen.append((depth, str(info.name)))
            depth += 1

        def run_after_pass(self, _mod, _info):
            nonlocal depth
            depth -= 1

    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.abs(x)))
    with tvm.transform.PassContext(instruments=[Outer()]), target:
        lowering.pipeline()(builder.get())
    on = Options()
    expected = [place for place in places(target) if on.enable(place.step)]
    is_group = {stage.name: len(stage.steps) > 1 or step.device for stage, step in steps()}
    # A stage for a target is a pass that runs a sequence of its name.
    inner = [name for level, name in seen if level == 3]
    plain = [place.step.name for place in expected if is_group[place.stage.name]]
    assert [name for name in inner if name in plain] == plain
    assert [name for level, name in seen if level == 1] == names(stages())


def test_the_page_is_generated():
    """``python tests/python/helpers/pipeline_page.py > docs/pipeline.md`` regenerates it."""
    assert PAGE.read_text() == pipeline_page.page()


@pytest.mark.parametrize("target", ["llvm", "cuda/sm_90"])
def test_opt_prints_the_rows_of_the_page(target, capfd):
    assert main(["opt", "--print-pipeline", "--target", target, "--json"]) == 0
    printed = [tuple(row.values()) for row in json.loads(capfd.readouterr().out)]
    lines = PAGE.read_text().splitlines()
    page = [tuple(line[2:-2].split(" | ")) for line in lines if line.startswith("| `")]
    page = [(name.strip("`"), *cells) for name, *cells in page]
    elsewhere = {"on a CPU"} if target.startswith("cuda") else {"on a GPU", "on CUDA"}
    assert printed == [row for row in page if row[2].partition(",")[0] not in elsewhere]
    assert main(["opt", "--print-pipeline", "--target", target]) == 0
    text = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in text] == [name for name, *_ in printed]
    assert all(line.endswith(row[-1]) for line, row in zip(text, printed, strict=True))


if __name__ == "__main__":
    tvm.testing.main()
