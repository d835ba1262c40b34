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
"""A self-contained Python script that reproduces a problem, for a bug report."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .literals import expressions
from .parts import Candidate, Text
from .problem import Kind, Problem
from .trial import Settings

_VALUES = "values.npz"


def write_script(
    candidate: Candidate, heading: str, problem: Problem, settings: Settings, folder: Path
) -> Path:
    """Write the script, and an .npz file of the arrays that are too large for it.

    Parameters
    ----------
    candidate : Candidate
    heading : str
        The first line of the script.
    problem : Problem
        What the script shows.
    settings : Settings
        How the script builds the model.
    folder : Path
        The directory of the script.
    """
    text = candidate.text()
    arrays = {**text.inputs, **text.constants}
    written, stored = expressions(arrays, text.drawn, _VALUES)
    if stored:
        np.savez_compressed(folder / _VALUES, **stored)
    lines = [f'"""{_quoted(heading)}"""', ""]
    lines += _imports(text, written, problem, settings)
    if text.constants:
        lines += _dict("constants", {name: written[name] for name in text.constants})
    lines += text.model
    lines += _dict("inputs", {name: written[name] for name in text.inputs})
    lines += text.wrap
    lines += _ending(text, problem, settings)
    path = folder / "reproduce.py"
    path.write_text("\n".join(lines) + "\n")
    return path


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _imports(
    text: Text, written: Mapping[str, str], problem: Problem, settings: Settings
) -> list[str]:
    modules = {"numpy as np", *text.imports, *_machine(settings)[0]}
    if settings.stock:
        modules |= set(text.stock_imports)
    if problem.kind in (Kind.WRONG, Kind.SLOWER):
        modules |= set(text.reference_imports)
    if any("ml_dtypes." in one for one in written.values()):
        modules.add("ml_dtypes")
    if problem.kind is Kind.SLOWER:
        modules.add("timeit")
    lines = [one if one.startswith("from ") else f"import {one}" for one in modules]
    return [*sorted(lines, key=lambda line: (line.startswith("from "), line)), ""]


def _machine(settings: Settings) -> tuple[set[str], list[str]]:
    """The imports and lines that define `run`, given `model`, or `mod` of TVM's importer."""
    if settings.stock:
        target = settings.target if isinstance(settings.target, str) else "llvm"
        target = "llvm" if target == "native" else target
        return {"tvm", "from tvm import relax"}, [
            f'vm = relax.VirtualMachine(relax.build(mod, "{target}"), tvm.cpu())',
            "",
            "",
            "def run():",
            '    result = vm["main"](*map(tvm.runtime.tensor, inputs.values()))',
            "    results = [result] if hasattr(result, 'numpy') else result",
            "    return [one.numpy() for one in results]",
            "",
            "",
        ]
    options = "".join(
        f", {name}={value!r}"
        for name, value in (
            ("target", settings.target),
            ("layout", settings.layout),
            ("passes", [str(one) for one in settings.passes]),
        )
        if value not in ("native", None, [])
    )
    return {"tvm_fixes"}, [
        f"compiled = tvm_fixes.compile(model{options}, compare=False)",
        "",
        "",
        "def run():",
        "    result = compiled.run(*inputs.values())",
        "    return list(result) if isinstance(result, tuple | list) else [result]",
        "",
        "",
    ]


def _ending(text: Text, problem: Problem, settings: Settings) -> list[str]:
    _, machine = _machine(settings)
    built = [*(text.stock if settings.stock else []), *machine]
    if problem.kind is Kind.WRONG:
        ending = [
            *text.reference,
            "for got, want in zip(run(), expected, strict=True):",
            "    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())",
        ]
    elif problem.kind is Kind.SLOWER:
        ending = [
            *text.reference,
            'print("ms:", 1e3 * min(timeit.repeat(run, number=1, repeat=20)))',
            f'print("{text.name}, ms:", 1e3 * min(timeit.repeat(reference, number=1, repeat=20)))',
        ]
    elif problem.kind is Kind.LARGER:
        ending = ["print(compiled.manifest.nbytes)"]
    else:
        ending = ["print(run())"]
    return [*built, *ending]


def _dict(name: str, values: Mapping[str, str]) -> list[str]:
    if not values:
        return [f"{name} = {{}}"]
    return [f"{name} = {{", *(f"    {key!r}: {text}," for key, text in values.items()), "}"]
