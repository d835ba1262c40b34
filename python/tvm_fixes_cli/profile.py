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
"""The command ``profile``."""

import argparse
import os
from pathlib import Path

from . import early, terminal
from .arguments import (
    Commands,
    Result,
    add_command,
    add_inputs,
    add_layout,
    add_loading,
    add_params,
    add_passes,
    add_quiet,
    add_seconds,
    add_seed,
    add_shape,
    add_sizes,
    shapes_of,
    sizes_of,
    user_passes,
)
from .package import loaded
from .terminal import EQUAL, Failure

_HELP = """\
Measure the time of each kernel of a compiled model on this CPU, with the ONNX nodes or the nodes
and modules of the PyTorch program that it computes, and with the time that ONNX Runtime or PyTorch
takes for these nodes. A model is compiled first.

exit status: 0 measured, 1 the model cannot be compiled or loaded, 2 usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes profile out/
  tvm-fixes profile out/ --compare model.onnx
  tvm-fixes profile model.onnx --trace trace.json
  tvm-fixes profile out/ --inputs inputs.npz --json
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "profile",
        _run,
        help="measure the time of each kernel, by node of the model",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="DIR|MODEL",
        help="an artifact of 'tvm-fixes compile', an .onnx, .pt2 or .tflite file, or a factory",
    )
    add_params(parser)
    add_shape(parser)
    add_sizes(parser)
    add_loading(parser)
    add_layout(parser)
    add_passes(parser)
    add_inputs(parser)
    add_seed(parser)
    add_seconds(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--compare",
        metavar="MODEL",
        help="the model of the artifact: also measure its nodes in ONNX Runtime or PyTorch",
    )
    group.add_argument(
        "--no-compare",
        action="store_true",
        help="do not measure a MODEL in ONNX Runtime or PyTorch",
    )
    parser.add_argument("--trace", metavar="FILE", help="write a Chrome trace to FILE")
    parser.add_argument("--all", action="store_true", help="show all kernels, not only the slowest")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    add_quiet(parser)


def _run(arguments: argparse.Namespace) -> Result:
    shapes, sizes = shapes_of(arguments), sizes_of(arguments)
    models = [arguments.compare] if os.path.isdir(arguments.source) else [arguments.source]
    early.check(arguments, models[0], ())
    with loaded(with_torch=any(map(early.needs_torch, models)), imports=arguments.imports):
        from tvm_fixes.debug import profile
        from tvm_fixes_cli.console import StepPrinter, render_profile

        given = {} if arguments.layout is None else {"layout": arguments.layout}
        try:
            with (
                StepPrinter(terminal.console(stderr=True)) as printer,
                user_passes(arguments) as passes,
            ):
                found = profile(
                    arguments.source,
                    original=arguments.compare,
                    compare=not arguments.no_compare,
                    shapes=shapes,
                    inputs=arguments.inputs,
                    sizes=sizes,
                    seed=arguments.seed,
                    seconds=arguments.seconds,
                    trust=arguments.trust,
                    params=arguments.params,
                    progress=None if arguments.quiet else printer,
                    passes=passes,
                    **given,
                )
            if arguments.trace is not None:
                Path(arguments.trace).write_text(found.trace())
        except OSError as error:
            raise Failure(f"{arguments.trace}: {error.strerror}") from error

    def write() -> None:
        if arguments.json:
            print(found.to_json())
        else:
            render_profile(found, terminal.console(), show_all=arguments.all)

    return EQUAL, write
