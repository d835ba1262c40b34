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
"""The command ``compare``."""

import argparse
from typing import Any

from . import early, terminal
from .again import command_line
from .arguments import (
    Commands,
    Result,
    add_building,
    add_command,
    add_inputs,
    add_layout,
    add_loading,
    add_magnitude,
    add_passes,
    add_quiet,
    add_seed,
    add_shape,
    add_sizes,
    add_tolerances,
    building,
    positive,
    shapes_of,
    sizes_of,
    user_passes,
)
from .package import loaded
from .terminal import EQUAL, FAILED, Failure

_HELP = """\
Compare a compiled model with the original value by value: what each ONNX node or each node of a
PyTorch program computes. Report the first value that differs, with its node and error, how the
error grows afterwards, and where NaN and infinity first appear. If the model fails, report the
first value that cannot be computed.

exit status: 0 all values and outputs equal, or only the reference is off; 1 a value differs, or
compilation failed; 2 usage error
"""

_EXAMPLES = """\
examples:
  tvm-fixes compare model.onnx
  tvm-fixes compare package.module:factory --stock --json
  tvm-fixes compare model.onnx --save-inputs inputs.npz
  tvm-fixes compare model.onnx --inputs inputs.npz --layout NHWC
"""


_NEXT = (
    ("bisect", "finds the fix, the pass or the kernel"),
    ("reduce", "finds the smallest part of the model"),
)

_IMPORTED = "prints the imported module"


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        commands,
        "compare",
        _run,
        help="find the first node whose result differs from the original's",
        description=_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="MODEL",
        help="an .onnx, .pt2 or .tflite file, or a factory as for 'compile'",
    )
    add_shape(parser)
    add_sizes(parser)
    add_loading(parser)
    parser.add_argument("--target", default="native", help="as for 'compile' (default: native)")
    add_layout(parser)
    add_passes(parser)
    add_inputs(parser)
    parser.add_argument("--save-inputs", metavar="FILE", help="write the inputs to an .npz file")
    add_seed(parser)
    add_magnitude(parser)
    add_tolerances(parser)
    parser.add_argument(
        "--max-bytes",
        type=int,
        default=256 << 20,
        metavar="N",
        help="compare values of at most N bytes at once (default: 256 MiB)",
    )
    parser.add_argument(
        "--stock", action="store_true", help="also compare plain TVM, in a process of its own"
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        metavar="SECONDS",
        help="time limit for a group of values, to find one that hangs, on a CPU (default: none)",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="run each compiled part N times, and name the values that are not the same in all "
        "runs (default: 1)",
    )
    add_building(parser)
    parser.add_argument(
        "--fill-memory",
        action="store_true",
        help="fill new memory within kernels, too, with NaN and with large numbers, and name the "
        "values that depend on it (default: the tensors between kernels)",
    )
    parser.add_argument("--all", action="store_true", help="list all values")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    add_quiet(parser)


def _run(arguments: argparse.Namespace) -> Result:
    shapes, sizes = shapes_of(arguments), sizes_of(arguments)
    if arguments.max_bytes < 1:
        raise Failure(f"--max-bytes: expected a positive number, got {arguments.max_bytes}", 2)
    if arguments.repeat < 1:
        raise Failure(f"--repeat: expected a positive number, got {arguments.repeat}", 2)
    early.check(arguments, arguments.source, ())
    with loaded(with_torch=early.needs_torch(arguments.source), imports=arguments.imports):
        from tvm_fixes.debug import compare
        from tvm_fixes_cli.console import StepPrinter, print_command, render_comparison

        with (
            StepPrinter(terminal.console(stderr=True)) as printer,
            user_passes(arguments) as passes,
        ):
            found = compare(
                arguments.source,
                shapes=shapes,
                inputs=arguments.inputs,
                sizes=sizes,
                magnitude=arguments.magnitude,
                save_inputs=arguments.save_inputs,
                seed=arguments.seed,
                rtol=arguments.rtol,
                atol=arguments.atol,
                max_bytes=arguments.max_bytes,
                stock=arguments.stock,
                trust=arguments.trust,
                timeout=arguments.timeout,
                target=arguments.target,
                layout=arguments.layout,
                passes=passes,
                repeat=arguments.repeat,
                **building(arguments),
                fill_memory=arguments.fill_memory,
                progress=None if arguments.quiet else printer,
            )

    first = found.first
    # If later operators mask the difference, the searches need the name of the value.
    is_masked = all(output.accepted for output in found.outputs)
    value = first.name if first is not None and is_masked else ""
    changes: dict[str, Any] = {"value": value}
    if found.magnitude != 1:
        changes["magnitude"] = found.magnitude
    if found.problem and first is None:
        changes["crashes" if found.crashes else "fails"] = True

    def write() -> None:
        if arguments.json:
            print(found.to_json())
        else:
            console = terminal.console()
            render_comparison(found, console, show_all=arguments.all)
            for command, purpose in _NEXT if found.problem or first is not None else ():
                line = command_line(arguments, command, **changes)
                print_command(console, "next", line, purpose)
            if any("import" in places for places in found.fixes.values()):
                line = command_line(arguments, "opt", user_passes=[])
                print_command(console, "next", line, _IMPORTED)

    return EQUAL if found.accepted else FAILED, write
