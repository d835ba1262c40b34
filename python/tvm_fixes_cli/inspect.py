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
"""The command ``inspect``."""

import argparse
from functools import partial

from . import terminal
from .arguments import Commands, Result, add_command, add_params
from .package import loaded
from .terminal import EQUAL, WRONG_USE, Failure

_HELP = """\
Show where the bytes of an artifact are: constants, code, debug information and TVM modules, and
each constant with its size, type and parameter, the largest first; with --all, also the sections of
the library. Nothing is loaded or run.

Of a Relay program, show its inputs, parameters, types and operators, and which operators cannot be
translated.

exit status: 0 shown, 1 not a complete TVM artifact or a malformed program, 2 no such file
or another usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes inspect out/
  tvm-fixes inspect out/model.so --all
  tvm-fixes inspect out/ --json
  tvm-fixes inspect old.json --params old.params
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "inspect",
        _run,
        help="show where the bytes of an artifact are",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "path",
        metavar="DIR|FILE",
        help="an artifact of 'tvm-fixes compile', or a library of TVM's export_library, whose "
        "constants have no names; or a .relay, .txt or .json file of a Relay program",
    )
    add_params(parser)
    parser.add_argument(
        "--all", action="store_true", help="show all constants, and the sections of the library"
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def _run(arguments: argparse.Namespace) -> Result:
    with loaded(with_torch=False):
        from tvm_fixes.runtime.inspection import inspect
        from tvm_fixes.source.relay_file import is_program_name, reader
        from tvm_fixes_cli.console import render_inspection, render_program

        if is_program_name(arguments.path):
            program = reader().describe_file(arguments.path, arguments.params)
            to_json, show = program.to_json, partial(render_program, program)
        elif arguments.params is not None:
            raise Failure("--params can be given only for a Relay program", WRONG_USE)
        else:
            found = inspect(arguments.path)
            to_json = found.to_json
            show = partial(render_inspection, found, show_all=arguments.all)

    def write() -> None:
        if arguments.json:
            print(to_json())
        else:
            show(console=terminal.console())

    return EQUAL, write
