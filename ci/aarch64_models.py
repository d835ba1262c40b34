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
"""Compare the outputs of the demo's models on aarch64 with those of this machine.

``make FOLDER`` compiles the models for both CPUs, and runs them on this machine.  ``check FOLDER``
runs them on aarch64, or in an emulator, and fails if an output differs.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import tvm_fixes
from tvm_fixes.observe import comparison

AARCH64 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}


def make(folder: Path) -> None:
    """For each model, write an artifact for aarch64, the inputs, and this machine's outputs."""
    import importlib

    import torch

    from examples.demo import MODELS

    for name in MODELS:
        module, inputs = importlib.import_module(f"examples.{name}").factory()
        program = torch.export.export(module, inputs)
        here = tvm_fixes.compile(program)
        assert here.report.accepted, name
        tvm_fixes.compile(program, target=AARCH64, compare=False, output=folder / name)
        arrays = [value.numpy() for value in inputs]
        outputs = here.run(*arrays)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        np.savez(
            folder / f"{name}.npz",
            **{f"input{i}": array for i, array in enumerate(arrays)},
            **{f"output{i}": array for i, array in enumerate(outputs)},
        )
        print(f"{name}: compiled", flush=True)


def check(folder: Path) -> int:
    """Run each artifact; return the number of outputs that differ."""
    wrong = 0
    for file in sorted(folder.glob("*.npz")):
        arrays = np.load(file)
        model = tvm_fixes.CompiledModel.load(folder / file.stem)
        outputs = model.run(*(arrays[key] for key in arrays if key.startswith("input")))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for index, (spec, got) in enumerate(zip(model.outputs, outputs, strict=True)):
            result = comparison.compare(spec.name, got, arrays[f"output{index}"])
            wrong += bool(result.problem)
            print(f"{file.stem} {spec.name}: {result.problem or 'equal'}", flush=True)
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("make", "check"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.step == "make":
        make(arguments.folder)
    else:
        sys.exit(1 if check(arguments.folder) else 0)
