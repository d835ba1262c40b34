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

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from .. import target as targets
from ..compiler.options import Options
from ..support import switches
from ..user_passes import UserPass
from .literals import expressions
from .parts import Candidate, Text
from .problem import Kind, Problem
from .trial import Settings

_VALUES = "values.npz"


def write_script(
    candidate: Candidate,
    heading: str,
    problem: Problem,
    settings: Settings,
    folder: Path,
    tolerances: Sequence[float] = (),
) -> Path:
    """Write the script, and an .npz file of the arrays that are too large for it.

    Parameters
    ----------
    candidate : Candidate
    heading : str
        The first line of the script.
    problem : Problem
        What the script shows: it ends in an error, unless a command decides.
    settings : Settings
        How the candidate was built.
    folder : Path
        The directory of the script.
    tolerances : sequence of float
        Relative and absolute tolerances beyond which an output differs.
    """
    text = candidate.text()
    arrays = {**text.inputs, **text.constants}
    written, stored = expressions(arrays, text.drawn, _VALUES)
    if stored:
        np.savez_compressed(folder / _VALUES, **stored)
    lines = [f'"""{_quoted(heading)}"""', ""]
    lines += _imports(text, written, problem, settings, has_file=bool(stored))
    lines += _switches(settings)
    if text.constants:
        lines += _dict("constants", {name: written[name] for name in text.constants})
    lines += text.model
    lines += _dict("inputs", {name: written[name] for name in text.inputs})
    lines += text.wrap
    if settings.stock:
        lines += [*text.stock, *_stock_machine(settings)]
    else:
        lines += _machine(settings, dict(zip(candidate.inputs, text.inputs, strict=True)))
    lines += _ending(text, problem, settings, tolerances)
    path = folder / "reproduce.py"
    path.write_text("\n".join(lines) + "\n")
    return path


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _imports(
    text: Text,
    written: Mapping[str, str],
    problem: Problem,
    settings: Settings,
    *,
    has_file: bool,
) -> list[str]:
    modules = {"numpy as np", *text.imports}
    modules |= {"from pathlib import Path"} if has_file else set()
    modules |= {"tvm", "from tvm import relax"} if settings.stock else {"tvm_fixes"}
    if settings.stock:
        modules |= set(text.stock_imports)
    if problem.kind in (Kind.WRONG, Kind.SLOWER):
        modules |= set(text.reference_imports)
    if any("ml_dtypes." in one for one in written.values()):
        modules.add("ml_dtypes")
    if problem.kind is Kind.SLOWER:
        modules.add("timeit")
    if problem.kind is Kind.LARGER and settings.stock:
        modules.add("os")
    if not settings.stock:
        modules |= {"os"} if switches.disabled() else set()
        modules |= {"sys"} if _needs_folder(settings) else set()
    lines = [one if one.startswith("from ") else f"import {one}" for one in modules]
    return [*sorted(lines, key=lambda line: (line.startswith("from "), line)), ""]


def _needs_folder(settings: Settings) -> bool:
    """Whether modules of users' passes may be in the working directory."""
    return any(not _is_file(one) for one in settings.user_passes)


def _is_file(user_pass: UserPass) -> bool:
    return user_pass.origin.rpartition(":")[0].endswith(".py")


def _switches(settings: Settings) -> list[str]:
    """Lines that turn off fixes, and that find the modules of users' passes."""
    if settings.stock:
        return []
    off = ",".join(sorted(switches.disabled()))
    lines = [f"os.environ[{switches.ENVIRONMENT_VARIABLE!r}] = {off!r}"] if off else []
    if _needs_folder(settings):
        lines.append(f"sys.path.insert(0, {os.getcwd()!r})")
    return [*lines, ""] if lines else []


def _machine(settings: Settings, names: Mapping[str, str]) -> list[str]:
    """The lines that define `run`, given `model`; `names` are those of the inputs in the script."""
    # The script runs in any directory.
    passes = [
        f"{os.path.abspath(one.origin)}{str(one).removeprefix(one.origin)}"
        if _is_file(one)
        else str(one)
        for one in settings.user_passes
    ]
    shapes = {names[name]: shape for name, shape in (settings.shapes or {}).items()}
    chosen = {"target": settings.target, "layout": settings.layout, "passes": passes}
    chosen |= {"shapes": shapes, **settings.options}
    defaults = {option.name: option.default for option in fields(Options)}
    defaults |= {"passes": [], "shapes": {}}
    options = "".join(
        f", {name}={value!r}" for name, value in chosen.items() if value != defaults[name]
    )
    return [
        f"compiled = tvm_fixes.compile(model{options}, compare=False)",
        "",
        "",
        "def run():",
        "    result = compiled.run(*inputs.values())",
        "    return list(result) if isinstance(result, tuple | list) else [result]",
        "",
        "",
    ]


def _stock_machine(settings: Settings) -> list[str]:
    """The lines that define `run`, given `mod` of TVM's importer."""
    target: object = "llvm"
    if settings.target not in ("llvm", "native"):
        target = targets.to_json(targets.resolve(settings.target))
    return [
        f"executable = relax.build(mod, tvm.target.Target({target!r}))",
        "vm = relax.VirtualMachine(executable, tvm.cpu())",
        "",
        "",
        "def run():",
        '    result = vm["main"](*map(tvm.runtime.tensor, inputs.values()))',
        "    results = [result] if hasattr(result, 'numpy') else result",
        "    return [one.numpy() for one in results]",
        "",
        "",
    ]


def _ending(
    text: Text, problem: Problem, settings: Settings, tolerances: Sequence[float]
) -> list[str]:
    """The lines that show the problem, given `run`."""
    if problem.kind is Kind.WRONG:
        rtol, atol = (f"{tolerance:.2g}" for tolerance in tolerances or (1e-4, 1e-5))
        return [
            *text.reference,
            "for got, want in zip(run(), expected, strict=True):",
            f"    np.testing.assert_allclose(got, want, rtol={rtol}, atol={atol})",
        ]
    if problem.kind is Kind.SLOWER:
        return [
            *text.reference,
            "times = [min(timeit.repeat(one, number=1, repeat=20)) for one in (run, reference)]",
            f'print("ours and {text.name}, s:", times)',
            f"assert times[0] <= {problem.limit:g} * times[1], times",
        ]
    if problem.kind is Kind.LARGER:
        size = ["nbytes = compiled.manifest.nbytes"]
        if settings.stock:
            size = ['executable.export_library("model.so")', 'nbytes = os.path.getsize("model.so")']
        return [*size, "print(nbytes)", f"assert nbytes <= {problem.limit:.0f}, nbytes"]
    return ["print(run())"]


def _dict(name: str, values: Mapping[str, str]) -> list[str]:
    if not values:
        return [f"{name} = {{}}"]
    return [f"{name} = {{", *(f"    {key!r}: {text}," for key, text in values.items()), "}"]
