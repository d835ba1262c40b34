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
"""The command ``check``."""

import argparse

from . import early, terminal
from .arguments import (
    Commands,
    Result,
    add_command,
    add_loading,
    add_params,
    add_shape,
    shapes_of,
)
from .package import loaded
from .terminal import EQUAL, FAILED

_HELP = """\
List the operators of a model, those that cannot be imported first, with their nodes. If all can be
imported, import the model, which also finds unsupported attributes and types. Nothing is compiled,
and an .onnx file needs no weights for the list.

exit status: 0 the model can be imported, 1 it cannot, or unreadable file, 2 usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes check model.onnx
  tvm-fixes check model.pt2 --json
  tvm-fixes check old.relay --params old.params
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "check",
        _run,
        help="list the operators of a model that cannot be imported",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="MODEL",
        help="an .onnx, .pt2 or .tflite file, a factory as for 'compile', or a .relay, .txt or "
        ".json file of a Relay program",
    )
    add_params(parser)
    add_shape(parser)
    add_loading(parser)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def _run(arguments: argparse.Namespace) -> Result:
    shapes = shapes_of(arguments)
    early.check(arguments, arguments.source, ())
    with loaded(with_torch=early.needs_torch(arguments.source), imports=arguments.imports):
        from tvm_fixes import check
        from tvm_fixes_cli.console import render_preflight

        found = check(arguments.source, shapes, trust=arguments.trust, params=arguments.params)

    def write() -> None:
        if arguments.json:
            print(found.to_json())
        else:
            render_preflight(found, terminal.console())

    return EQUAL if found.ok else FAILED, write
