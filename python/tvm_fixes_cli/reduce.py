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
"""The command ``reduce``."""

import argparse
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import Commands, Result, add_command
from .search import add_model, add_problem, add_settings, search, show_unstable
from .terminal import EQUAL, INTERRUPTED

if TYPE_CHECKING:
    from tvm_fixes.search.reduction import Reduction

_HELP = """\
Reduce a model to a few operators that still show a problem: by default, that an output is not equal
to the reference's. Values at a cut become inputs and constants. DIR gets the model, a Python script
for a bug report, and a journal, from which an interrupted search resumes. Ctrl-C ends the search
with the smallest model so far.

exit status: 0 reduced, 1 the model does not show the problem, 2 usage error, 130 interrupted
"""

_EXAMPLES = """\
examples:
  tvm-fixes reduce model.onnx -o reduced/
  tvm-fixes reduce model.pt2 --crashes
  tvm-fixes reduce module.py --stock
  tvm-fixes reduce model.onnx --check ./shows-problem.sh
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "reduce",
        _run,
        help="find the smallest part of a model with a problem",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    add_model(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        default="reduced",
        help="the directory for the result and the journal (default: reduced)",
    )
    parser.add_argument(
        "--stock", action="store_true", help="build with TVM's own importer and pipeline"
    )
    add_problem(parser, "the model")
    add_settings(parser)


def _run(arguments: argparse.Namespace) -> Result:
    def run(*positional: Any, **named: Any) -> "Reduction":
        from tvm_fixes.search.reduction import reduce

        return reduce(*positional, output=arguments.output, **named)

    found = search(arguments, run)

    def write() -> None:
        if arguments.json:
            print(found.to_json())
            return
        console = terminal.console()
        ended = " (interrupted)" if found.interrupted else ""
        rows = (
            ("problem", f"{found.problem}: {found.what}"),
            *([("value", f"{found.value}, instead of the outputs")] if found.value else []),
            ("operators", f"{len(found.operators)} of {found.before}{ended}"),
            ("", ", ".join(found.operators[:20])),
            ("trials", f"{found.trials} in {found.seconds:.0f} s"),
            ("model", found.model),
            ("script", found.script),
        )
        for label, text in rows:
            console.print(f"{label:<12}{text}", markup=False, highlight=False, soft_wrap=True)
        show_unstable(console, arguments, found.unstable)

    return INTERRUPTED if found.interrupted else EQUAL, write
