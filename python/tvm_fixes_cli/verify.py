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
"""The command ``verify``."""

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
Import a model or read a TVM module, and report all violations.

A .py file is executed: verify only files that you trust.

exit status: 0 no errors, 1 errors or unreadable file, 2 usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes verify model.onnx --warnings-as-errors
  tvm-fixes verify module.py:Module
  tvm-fixes verify module.json --json
  tvm-fixes verify old.json --params old.params
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "verify",
        _run,
        help="report all violations in a model or a TVM module",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="FILE",
        help="an .onnx, .pt2 or .tflite file, a factory as for 'compile', a .py file of "
        "TVMScript, which is executed (FILE.py:NAME if it has several modules), a .json file "
        "(tvm.ir.save_json), or a .relay, .txt or .json file of a Relay program, which is "
        "translated first",
    )
    add_params(parser)
    add_shape(parser)
    add_loading(parser)
    parser.add_argument(
        "--warnings-as-errors", action="store_true", help="exit with 1 for warnings, too"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def _run(arguments: argparse.Namespace) -> Result:
    shapes = shapes_of(arguments)
    early.check(arguments, arguments.source)
    with loaded(with_torch=early.needs_torch(arguments.source), imports=arguments.imports):
        from tvm_fixes import verify
        from tvm_fixes.source.module_file import read_module
        from tvm_fixes_cli.console import render_diagnostics

        module = read_module(
            arguments.source, shapes, trust=arguments.trust, params=arguments.params
        )
        found = verify(module)
    is_wrong = found.errors or (arguments.warnings_as_errors and found.warnings)

    def write() -> None:
        if arguments.json:
            print(found.json())
        else:
            render_diagnostics(found, terminal.console())

    return FAILED if is_wrong else EQUAL, write
