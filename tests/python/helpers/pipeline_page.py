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
"""Writes ``docs/pipeline.md`` from the table in ``tvm_fixes.pipeline``.

``python tests/python/helpers/pipeline_page.py > docs/pipeline.md`` updates it.
"""

from collections.abc import Iterator

from helpers.fixes_page import LICENSE
from tvm_fixes.pipeline import PHASES, Phase

_INTRODUCTION = """\
# The pipeline

Every pass between an imported module and `relax.build`, in order, and why it stands there.
`tvm-fixes opt --print-pipeline --target TARGET` prints the passes for a target, and
`tvm-fixes compile --time-passes` measures them.
`tvm_fixes.pipeline(...)` and `tvm_fixes.compile` take the options; `compile` also sets
`merge_constants`, and `collected` if the weights are stored outside the library. Passes whose names
begin with `Legalize/` or `Lower/` run in the stage of that name.

<!-- Generated: python tests/python/helpers/pipeline_page.py > docs/pipeline.md -->"""

_BUILD = """\
## After the table

`relax.build` runs TVM's own pipeline for kernels (`tirx.get_default_tir_pipeline`) and its code
generator. Constants are evaluated by kernels that pass TVM's lists `dataflow_lower_passes` and
`finalize_passes`, and the passes above that define what a kernel computes: {guards}."""


def page() -> str:
    """The page, in Markdown."""
    guards = ", ".join(
        f"`{step.name}`" for phase in PHASES for step in phase.steps if step.defines_kernels
    )
    sections = [_section(phase) for phase in PHASES]
    return (
        "\n\n".join([LICENSE, _INTRODUCTION, _picture(), *sections, _BUILD.format(guards=guards)])
        + "\n"
    )


def rows() -> Iterator[tuple[str, ...]]:
    """The rows of the tables of the page."""
    for phase in PHASES:
        yield from _rows(phase)


def _rows(phase: Phase) -> Iterator[tuple[str, ...]]:
    for stage in phase.stages:
        for step in stage.steps:
            yield f"`{stage.path(step)}`", step.owner, step.condition, step.why


def _section(phase: Phase) -> str:
    table = [("pass", "whose", "runs", "why here"), ("---",) * 4, *_rows(phase)]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in table)
    return f"## {phase.name.capitalize()}\n\n{phase.purpose}\n\n{lines}"


def _picture() -> str:
    lines = ["flowchart TD", '    model(["a model: ONNX, PyTorch or Relay"]) -- importer --> relax']
    form, text = "relax", "operators of Relax"
    for phase in PHASES:
        own = sum(step.is_own for step in phase.steps)
        count = f"{own} of ours" + f", {len(phase.steps) - own} of TVM" * (own < len(phase.steps))
        lines += [f'    {form}(["{text}"]) --> {phase.name}["{phase.name}: {count}"]']
        form, text = f"after_{phase.name}", phase.result
        lines += [f"    {phase.name} --> {form}"]
    lines += [
        f'    {form}(["{text}"]) --> build["relax.build: TVM\'s passes for kernels, LLVM or NVRTC"]'
    ]
    lines += ['    build --> library(["a library and its weights"])']
    return "\n".join(["```mermaid", *lines, "```"])


if __name__ == "__main__":
    print(page(), end="")
