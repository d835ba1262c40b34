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
"""The command ``bisect``."""

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import terminal
from .again import command_line
from .arguments import Commands, Result, add_command
from .search import add_model, add_problem, add_settings, search, show_unstable
from .terminal import EQUAL, FAILED

if TYPE_CHECKING:
    from tvm_fixes.search.bisection import Bisection
    from tvm_fixes.search.culprit import Culprit

_HELP = """\
Find what makes the difference to a problem: by default, that an output is not equal to the
reference's. Fixes are switched off; the model runs after some of the passes, with TVM's own
pipeline for the rest, and with some of its kernels scheduled. If the model does not show the
problem, find the fixes without which it does. If stock TVM shows it, too, find what makes it
larger, beyond the noise of a latency.

exit status: 0 found, 1 nothing makes a difference, 2 usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes bisect model.onnx
  tvm-fixes bisect model.onnx --over kernels --slower-than 2
  tvm-fixes bisect model.pt2 --over fixes --check ./shows-problem.sh
"""

# A copy of tvm_fixes.search.bisection.OVER, whose import takes seconds.
_OVER = ("fixes", "passes", "kernels")

_MAX_DIFF_LINES = 40


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "bisect",
        _run,
        help="find the fix, the pass or the kernel with a problem",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    add_model(parser)
    parser.add_argument(
        "--over",
        choices=_OVER,
        action="append",
        help="what to search; repeat the option for several (default: all)",
    )
    add_problem(parser, "the artifact")
    add_settings(parser)


def _run(arguments: argparse.Namespace) -> Result:
    def run(*positional: Any, **named: Any) -> "Bisection":
        from tvm_fixes.search.bisection import bisect

        return bisect(*positional, over=arguments.over or _OVER, **named)

    found = search(arguments, run)
    arguments.value = found.value
    if found.magnitude != 1:
        arguments.magnitude = found.magnitude
    culprits = [replace(one, again=_again(arguments, one)) for one in found.culprits]
    found = replace(found, culprits=culprits)

    def write() -> None:
        if arguments.json:
            print(found.to_json())
            return
        console = terminal.console()
        show = partial(console.print, markup=False, highlight=False, soft_wrap=True)
        show(f"{found.problem}: {'yes' if found.shows else 'no'}; {found.what}")
        show_unstable(console, arguments, found.unstable)
        if found.value:
            show(f"{'value':<12}{found.value}, instead of the outputs")
        for culprit in found.culprits:
            show(f"{culprit.over:<12}{culprit.what}")
            if culprit.again:
                show(f"{'':<12}again: {culprit.again}")
            lines = culprit.diff.splitlines()
            for line in lines[:_MAX_DIFF_LINES]:
                show(f"{'':<12}{line}")
            if len(lines) > _MAX_DIFF_LINES:
                show(f"{'':<12}… {len(lines) - _MAX_DIFF_LINES} more lines (use --json)")

    return EQUAL if any(culprit.names for culprit in found.culprits) else FAILED, write


def _again(arguments: argparse.Namespace, culprit: "Culprit") -> str:
    """The command that shows the difference again; empty without one."""
    if not culprit.names:
        return ""
    if culprit.node:  # without the fix, nothing can be compared
        return command_line(arguments, "compare", timeout=None)
    is_module = arguments.source.endswith((".py", ".json")) or ".py:" in arguments.source
    if culprit.over != "fixes" or is_module or arguments.check is not None:
        return command_line(arguments, "bisect", over=[culprit.over])
    if arguments.crashes:  # `compare` survives it
        return command_line(arguments, "compare", off=culprit.names)
    command = "compare" if arguments.value else "compile"
    return command_line(arguments, command, off=culprit.names, timeout=None)
