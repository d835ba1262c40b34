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
"""The command ``compile``."""

import argparse
import json

from . import early, terminal
from .again import command_line
from .arguments import (
    EXAMPLES,
    Commands,
    Result,
    add_building,
    add_command,
    add_inputs,
    add_layout,
    add_loading,
    add_magnitude,
    add_params,
    add_passes,
    add_seed,
    add_shape,
    add_sizes,
    add_target,
    add_tolerances,
    shapes_of,
    sizes_of,
    user_passes,
)
from .package import loaded
from .terminal import EQUAL, FAILED, WRONG_USE, Failure

_HELP = """\
Compile a model into a library for TVM's virtual machine. Run the library and ONNX Runtime or
PyTorch on the same random inputs, and report errors, latency and size. A Relay program of TVM
0.6 to 0.19 is translated; nothing can run it, so its outputs are not compared.

exit status: 0 all outputs equal, or not compared, or only the reference is off; 1 outputs differ,
or compilation failed; 2 usage error
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "compile",
        _run,
        help="compile a model and compare it with the original",
        description=_HELP,
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="MODEL",
        help="an .onnx or .tflite file, a .pt2 file (torch.export.save), or a factory, "
        "package.module:name or FILE.py:name: a callable, which is executed, that returns "
        "(module, args, kwargs, dynamic_shapes), of which the last two may be missing, or an "
        "ExportedProgram; or a Relay program: a .relay or .txt file of its text, or a .json file "
        "of tvm.ir.save_json (TVM 0.6 to 0.19)",
    )
    add_params(parser)
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="save the artifact to DIR, unless outputs differ"
    )
    add_target(parser)
    add_layout(
        parser,
        help="convert convolutions of any rank to channels-first, channels-last or blocked "
        "channels, in upper or lower case (default: keep each layout, or use blocked channels "
        "where they are faster)",
    )
    add_shape(parser)
    add_sizes(parser)
    add_inputs(parser)
    add_loading(parser)
    parser.add_argument(
        "--no-compare",
        dest="compare",
        action="store_false",
        help="do not run the model or compare its outputs with the original's",
    )
    add_tolerances(parser)
    add_seed(parser)
    add_magnitude(parser)
    add_building(parser)
    parser.add_argument(
        "--verify-each",
        action="store_true",
        help="also verify the module after each pass, so that an error names the faulty pass",
    )
    parser.add_argument(
        "--max-size-ratio",
        type=float,
        metavar="TIMES",
        help="fail if constants exceed TIMES x parameters (+256 KiB); by default, warn above 1.2 x",
    )
    parser.add_argument(
        "--strip", action="store_true", help="leave debug information out of the library"
    )
    add_passes(parser)
    parser.add_argument(
        "--dump-ir",
        metavar="DIR",
        help="write the module after each pass that changes it to DIR, with a diff",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="list each fix with the nodes that it changed, what plain TVM would do, and the "
        "optimizations that were not made, with the reason",
    )
    parser.add_argument(
        "--time-passes",
        action="store_true",
        help="list the time and the calls of each pass, with and without the passes that run in it",
    )
    parser.add_argument(
        "--cache",
        action="store_true",
        help="take the library from the cache of compiled models, or store it there: see 'cache'",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="show neither progress nor warnings"
    )


def _run(arguments: argparse.Namespace) -> Result:
    from dataclasses import fields

    from .native_warnings import filtered

    chosen = vars(arguments) | {"shapes": shapes_of(arguments), "sizes": sizes_of(arguments)}
    early.check(arguments, arguments.source, ())
    if arguments.max_size_ratio is not None and not arguments.max_size_ratio > 0:
        raise Failure(f"max_size_ratio must be positive, got {arguments.max_size_ratio}", WRONG_USE)
    with loaded(with_torch=early.needs_torch(arguments.source), imports=arguments.imports):
        from tvm_fixes.compiler import compile as compile_model
        from tvm_fixes.compiler.options import Options
        from tvm_fixes_cli.console import StepPrinter, render

        with (
            filtered(quiet=arguments.quiet) as descriptor,
            open(descriptor, "w", closefd=False, errors="backslashreplace") as stderr,
            StepPrinter(terminal.console(file=stderr)) as printer,
            user_passes(arguments) as chosen["passes"],
        ):
            chosen["progress"] = None if arguments.quiet else printer
            names = {option.name for option in fields(Options)} & chosen.keys()
            model = compile_model(arguments.source, **{name: chosen[name] for name in names})
    report = model.report
    assert report is not None
    if report.decisive.magnitude != 1:
        arguments.magnitude = report.decisive.magnitude

    def write() -> None:
        if arguments.json:
            saved = arguments.output if report.accepted is not False else None
            document = report.to_dict() | {"target": model.manifest.target, "output": saved}
            print(json.dumps(document, indent=2))
        else:
            render(
                report,
                terminal.console(),
                output=arguments.output,
                quiet=arguments.quiet,
                compare=command_line(arguments, "compare"),
            )

    return FAILED if report.accepted is False else EQUAL, write
