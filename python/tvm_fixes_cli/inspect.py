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
import os
from functools import partial
from typing import Any

from . import (
    description,
    early,
    onnx_description,
    terminal,
    tflite_description,
    torch_description,
)
from .again import command_line
from .arguments import Commands, Result, add_command, add_loading, add_params
from .package import loaded
from .terminal import EQUAL, WRONG_USE, Failure

_HELP = """\
Show what a model is: its format and producer, inputs and outputs, the most frequent operators, the
bytes of its weights by dtype, and the command to use next. Neither TVM nor PyTorch is loaded for an
.onnx or .pt2 file. A factory is called.

Show where the bytes of an artifact are: constants, code, debug information and TVM modules, and
each constant with its size, type and parameter, the largest first; with --all, also the sections of
the library. Nothing is loaded or run.

Of a Relay program, show its inputs, parameters, types and operators, and which operators cannot be
translated.

exit status: 0 shown, 1 not a model, a complete TVM artifact or a well-formed program, 2 no such
file or another usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes inspect model.onnx
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
        help="show what a model is, or where the bytes of an artifact are",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "path",
        metavar="DIR|MODEL",
        help="an .onnx, .pt2 or .tflite file, a factory as for 'compile', or a .relay, .txt or "
        ".json file of a Relay program; an artifact of 'tvm-fixes compile', or a library of TVM's "
        "export_library, whose constants have no names",
    )
    add_params(parser)
    add_loading(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="show all operators or constants, and the sections of the library",
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def _run(arguments: argparse.Namespace) -> Result:
    path = arguments.path
    is_factory = ":" in path and not os.path.lexists(path)
    if is_factory or (path.endswith((".onnx", ".pt2", ".tflite")) and not os.path.isdir(path)):
        early.check(arguments, path, ())
        return _describe(arguments, is_factory)
    if os.path.isfile(path) and not path.endswith(early.RELAY):
        kind = description.kind_of(path)
        if kind not in ("", description.LIBRARY):
            raise Failure(f"{path}: not a library or a model: it is {kind}")
    can_compile = False
    with loaded(with_torch=False):
        from tvm_fixes.runtime.inspection import inspect
        from tvm_fixes.source.relay_file import is_program_name, reader
        from tvm_fixes_cli.console import print_command, render_inspection, render_program

        if is_program_name(arguments.path):
            program = reader().describe_file(arguments.path, arguments.params)
            to_json, show = program.to_json, partial(render_program, program)
            problems = [one for one in program.operators if one.problem]
            can_compile = not problems and not program.type_error
        elif arguments.params is not None:
            raise Failure("--params can be given only for a Relay program", WRONG_USE)
        else:
            found = inspect(arguments.path)
            to_json = found.to_json
            show = partial(render_inspection, found, show_all=arguments.all)

    def write() -> None:
        if arguments.json:
            print(to_json())
            return
        console = terminal.console()
        show(console=console)
        if can_compile:
            print_command(console, "next", _next(arguments, "compile"), "translate and compile it")

    return EQUAL, write


def _describe(arguments: argparse.Namespace, is_factory: bool) -> Result:
    path, reference = arguments.path, "PyTorch"
    if is_factory:
        with loaded(with_torch=early.needs_torch(path), imports=arguments.imports):
            from tvm_fixes.source import open_source
            from tvm_fixes.source.torch import TorchSource

            source = open_source(path)
            assert isinstance(source, TorchSource)  # so are those of all factories
            found = torch_description.describe_program(source)
    elif path.endswith(".pt2"):
        found = torch_description.describe(path)
    elif path.endswith(".tflite"):
        with loaded(with_torch=False):
            found, reference = tflite_description.describe(path), "LiteRT"
    else:
        found, reference = onnx_description.describe(path), "ONNX Runtime"
    needed: dict[str, Any] = {"trust": True} if found.trust else {}
    if found.imports and not arguments.imports:
        needed["imports"] = found.imports
    commands = [
        (_next(arguments, command, **needed), what)
        for command, what in found.next_commands(reference)
    ]

    def write() -> None:
        if arguments.json:
            print(found.to_json(commands))
        else:
            description.write(found, commands, arguments.all)

    return EQUAL, write


def _next(arguments: argparse.Namespace, command: str, **changes: Any) -> str:
    """A command line for the model, with the options that this command was called with."""
    return command_line(arguments, command, source=arguments.path, output="out/", **changes)
