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
"""The command ``report``."""

import argparse
import os

from . import early, terminal
from .arguments import (
    Commands,
    Result,
    add_command,
    add_inputs,
    add_loading,
    add_quiet,
    add_seconds,
    add_seed,
    add_shape,
    add_sizes,
    shapes_of,
    sizes_of,
)
from .package import loaded
from .terminal import EQUAL, WRONG_USE, Failure

_HELP = """\
Write one HTML page about an artifact: the graph of its kernels, colored by time, error, bytes or
layout, and tables of what 'profile', 'compare' and 'inspect' find. It needs no other file and no
network.

A model for a GPU or for another machine is not measured; the page says so.

exit status: 0 written, 1 the artifact cannot be loaded, or the comparison or writing failed,
2 usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes report out/
  tvm-fixes report out/ --compare model.onnx -o model.html
  tvm-fixes report out/ --no-profile --json
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "report",
        _run,
        help="write a page with the graph, the times, the errors and the sizes",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument("source", metavar="DIR", help="an artifact of 'tvm-fixes compile'")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help="the page, which replaces an existing file (default: report.html)",
    )
    parser.add_argument(
        "--compare",
        metavar="MODEL",
        dest="original",
        help="compare each intermediate value with that of MODEL, from which the artifact was "
        "compiled, as 'compare' does",
    )
    parser.add_argument("--no-profile", action="store_true", help="do not measure the kernels")
    add_seconds(parser)
    add_shape(parser)
    add_sizes(parser)
    add_inputs(parser)
    add_seed(parser)
    add_loading(parser)
    parser.add_argument("--json", action="store_true", help="also print the values as JSON")
    add_quiet(parser)


def _run(arguments: argparse.Namespace) -> Result:
    shapes, sizes = shapes_of(arguments), sizes_of(arguments)
    original = arguments.original
    if not os.path.isdir(arguments.source):
        what = "not a directory" if os.path.lexists(arguments.source) else "no such directory"
        raise Failure(f"{arguments.source}: {what}; expected an artifact", WRONG_USE)
    early.check(arguments, original, ())
    with loaded(with_torch=early.needs_torch(original), imports=arguments.imports):
        from tvm_fixes.debug import report
        from tvm_fixes_cli.console import StepPrinter, render_page

        with StepPrinter(terminal.console(stderr=True)) as printer:
            found = report(
                arguments.source,
                arguments.output,
                original=original,
                measure=not arguments.no_profile,
                shapes=shapes,
                inputs=arguments.inputs,
                sizes=sizes,
                seed=arguments.seed,
                seconds=arguments.seconds,
                trust=arguments.trust,
                progress=None if arguments.quiet else printer,
            )

    def write() -> None:
        if arguments.json:
            print(found.to_json())
        else:
            render_page(found, arguments.output, terminal.console())

    return EQUAL, write
