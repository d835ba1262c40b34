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
"""The text of findings, with the lines of TVMScript that they are about."""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm_ffi.access_path import AccessKind, AccessPath, AccessStep

from ..support.isolate import OutcomeKind, run_forked
from .diagnostic import Diagnostic
from .paths import node_at, path_text, short_text

# Printing a larger function or module takes too long for an excerpt of one line.
_MAX_PRINTED_BINDINGS = 200
_MAX_PRINTED_FUNCTIONS = 20
# Further findings get no excerpt: if there are this many, most have the same cause.
_MAX_EXCERPTS = 50
_MAX_WIDTH = 100
_TIMEOUT_S = 30.0

# TVM's printer may crash on a function with findings of these rules.
_UNPRINTABLE = frozenset({"ir.malformed", "type.missing"})


def text(module: tvm.IRModule, diagnostics: Sequence[Diagnostic]) -> str:
    """Return the text of all findings in `module`, and of their count."""
    return "\n".join(
        [*texts(module, diagnostics, unprintable_functions(diagnostics)), count_text(diagnostics)]
    )


def texts(
    module: tvm.IRModule,
    diagnostics: Sequence[Diagnostic],
    unprintable: Set[str],
    describe: Callable[[Diagnostic], list[str]] = lambda _: [],
) -> list[str]:
    """Return the text of each finding, with its line if that can be printed.

    Parameters
    ----------
    unprintable : set of str
        The functions that must not be printed.
    describe : callable
        Returns additional lines of a finding in a function that can be printed.

    Notes
    -----
    TVM's printer crashes on some IR that no rule covers.  Therefore a forked child prints, and a
    second attempt prints only the function of each finding.
    """
    printable = [
        diagnostic.function not in unprintable for diagnostic in diagnostics[:_MAX_EXCERPTS]
    ]
    printable += [False] * (len(diagnostics) - len(printable))

    def lines(alone: bool) -> list[tuple[list[str], list[str]]]:
        return [
            (excerpt(module, diagnostic.path, alone), describe(diagnostic))
            if may_print
            else ([], [])
            for diagnostic, may_print in zip(diagnostics, printable, strict=True)
        ]

    printed: Any = [([], [])] * len(diagnostics)
    for alone in (False, True) if any(printable) else ():
        outcome = run_forked(partial(lines, alone or bool(unprintable)), timeout=_TIMEOUT_S)
        if outcome.kind is OutcomeKind.VALUE:
            printed = outcome.value
            break
    return [
        _one_text(diagnostic, *extra)
        for diagnostic, extra in zip(diagnostics, printed, strict=True)
    ]


def unprintable_functions(diagnostics: Iterable[Diagnostic]) -> set[str]:
    """Return the functions whose findings show that TVM's printer may crash on them."""
    return {diagnostic.function for diagnostic in diagnostics if diagnostic.rule in _UNPRINTABLE}


def count_text(diagnostics: Iterable[Diagnostic]) -> str:
    """Count the errors, warnings and notes: ``1 error, 2 warnings``."""
    severities = [diagnostic.severity for diagnostic in diagnostics]
    counts = [(severities.count(name), name) for name in ("error", "warning", "note")]
    parts = [f"{count} {name}{'s' * (count > 1)}" for count, name in counts if count]
    return ", ".join(parts) or "no errors"


def _one_text(diagnostic: Diagnostic, line: list[str], description: list[str]) -> str:
    lines = [
        str(diagnostic),
        f"  path: {path_text(diagnostic.path)}",
        *(f"  {part}" for part in line),
    ]
    for note in diagnostic.notes:
        where = "" if note.path is None else f" ({short_text(note.path)})"
        lines.append(f"  note: {note.message}{where}")
    if diagnostic.hint:
        lines.append(f"  hint: {diagnostic.hint}")
    return "\n".join([*lines, *description])


def excerpt(module: tvm.IRModule, path: AccessPath, alone: bool = False) -> list[str]:
    """Return the line of TVMScript at `path`, and a line of carets below it.

    The line number refers to ``module.script()``, or to the script of the function if the module is
    large or must not be printed (`alone`).  If the function is large, too, there is no number.
    """
    steps = list(path.to_steps())
    function = _function_at(module, steps)
    if function is None:
        return []
    if len(steps) == 4 and steps[2].key == "params":
        path = path.attr("ty")  # the printer underlines the type of a parameter, not the parameter
        steps = list(path.to_steps())
    if isinstance(function, relax.Function) and _count_bindings(function) > _MAX_PRINTED_BINDINGS:
        depth = _binding_depth(steps)
        if depth is None:
            return []
        binding = node_at(module, steps[:depth])
        return _underlined(binding, _path_of(steps[depth:]), is_numbered=False)
    if not alone and _is_small(module):
        return _underlined(module, path)
    return _underlined(function, _path_of(steps[2:]))


def binding_at(module: tvm.IRModule, path: AccessPath) -> relax.Binding | None:
    """Return the innermost binding on `path`."""
    steps = list(path.to_steps())
    depth = _binding_depth(steps)
    return None if depth is None else node_at(module, steps[:depth])


def binding_text(binding: relax.Binding) -> str:
    """Return a binding as TVMScript, on one line if it fits."""
    # The lines before declare its free variables.
    lines = [line for line in str(binding.script()).splitlines() if not line.startswith("#")]
    target = f"{binding.var.name}:"
    starts = [i for i, line in enumerate(lines) if line.startswith(target) and " = " in line]
    return "\n".join(lines[starts[0] if starts else -1 :])


def _function_at(module: tvm.IRModule, steps: Sequence[AccessStep]) -> tvm.ir.BaseFunc | None:
    if len(steps) < 2 or steps[0].key != "functions":
        return None
    return module.functions.get(steps[1].key)


def _binding_depth(steps: Sequence[AccessStep]) -> int | None:
    """Return the number of steps to the innermost binding, or None outside bindings."""
    depths = [i + 2 for i, step in enumerate(steps[:-1]) if step.key == "bindings"]
    return depths[-1] if depths else None


def _count_bindings(function: relax.Function) -> int:
    return sum(len(block.bindings) for block in function.body.blocks)


def _is_small(module: tvm.IRModule) -> bool:
    functions = list(module.functions.values())
    if len(functions) > _MAX_PRINTED_FUNCTIONS:
        return False
    relax_functions = [function for function in functions if isinstance(function, relax.Function)]
    return sum(map(_count_bindings, relax_functions)) <= _MAX_PRINTED_BINDINGS


def _path_of(steps: Iterable[AccessStep]) -> AccessPath:
    path = AccessPath.root()
    for step in steps:
        if step.kind == AccessKind.ATTR:
            path = path.attr(step.key)
        elif step.kind == AccessKind.ARRAY_ITEM:
            path = path.array_item(step.key)
        else:
            path = path.map_item(step.key)
    return path


def _underlined(node: tvm.runtime.Object, path: AccessPath, is_numbered: bool = True) -> list[str]:
    """Return the first line that `path` underlines in the script of `node`, and the carets."""
    # The lines before the first empty line describe the path.
    lines = str(node.script(path_to_underline=[path], show_meta=False)).splitlines()
    number, label, code = 0, 0, ""
    for line in lines[lines.index("") + 1 :]:
        if not re.fullmatch(r" *\^+", line):
            # TVM does not count empty lines, and prints one before the carets of a PrimFunc's
            # last line.
            number += 1
            code, label = (line, number) if line else (code, label)
            continue
        indent = len(code) - len(code.lstrip())
        # The first line after the decorators names a node of many lines, such as a function.
        if code.startswith("@", indent):
            continue
        code, begin, end = _clip(code[indent:], line.index("^") - indent, len(line) - indent)
        return [
            f"{label if is_numbered else '':>4} |  {code}",
            f"{'':>4} |  {' ' * begin}{'^' * (end - begin)}",
        ]
    return []


def _clip(code: str, begin: int, end: int) -> tuple[str, int, int]:
    """Cut a long line to the part around the underlined columns."""
    if len(code) <= _MAX_WIDTH:
        return code, begin, end
    first = max(0, min(begin - _MAX_WIDTH // 4, len(code) - _MAX_WIDTH))
    last = first + _MAX_WIDTH
    begin, end = begin - first, min(end, last) - first
    part = code[first:last]
    return (
        ("…" + part[1:] if first else part)[: _MAX_WIDTH - 1]
        + ("…" if last < len(code) else part[-1]),
        begin,
        end,
    )
