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
"""The command line ``tvm-fixes``: one module per command, and the parser in :mod:`.arguments`.

It is outside the package ``tvm_fixes``, whose import loads TVM, so that help and errors appear at
once.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

from . import (
    bisect,
    cache,
    check,
    compare,
    compile,
    doctor,
    inspect,
    opt,
    profile,
    reduce,
    report,
    terminal,
    verify,
)
from .arguments import EXAMPLES, Parser, Result
from .completion import SHELLS, PrintCompletion
from .terminal import EQUAL, INTERRUPTED, TERMINATED, Failure

_COMMANDS = (
    *(
        compile,
        check,
        verify,
        opt,
        inspect,
        compare,
        profile,
        report,
        reduce,
        bisect,
        cache,
        doctor,
    ),
)
"""The modules of the commands, in the order of the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The command-line arguments (default: ``sys.argv[1:]``).

    Returns
    -------
    status : int
        0: done, and all outputs are equal.  1: outputs differ, the command failed, verification
        found errors, or the installation needs fixing.  2: usage error.  130: interrupted.
        143: terminated.
    """
    terminal.open_streams()
    arguments = _parser().parse_args(argv)
    with _handled_like_interrupt(signal.SIGTERM) as terminated:
        try:
            return terminal.write_out(*_result(arguments))
        except KeyboardInterrupt:
            status, cause = (
                (TERMINATED, "terminated") if terminated else (INTERRUPTED, "interrupted")
            )
            print(f"tvm-fixes: {cause}; {_describe_output(arguments)}", file=sys.stderr)
            signals = sys.modules.get("tvm_fixes.support.signals")
            return status if signals is None else signals.leave(status)


@contextmanager
def _handled_like_interrupt(number: signal.Signals) -> Iterator[list[signal.Signals]]:
    """Handle a signal like Ctrl-C, which removes temporary folders; yield the signals received."""
    received: list[signal.Signals] = []

    def receive(_: int, frame: FrameType | None) -> None:
        received.append(number)
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # a shell starts background jobs with SIGINT ignored
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(number) is not signal.SIG_DFL:
        yield received
        return
    signal.signal(number, receive)
    try:
        yield received
    finally:
        signal.signal(number, signal.SIG_DFL)


def _result(arguments: argparse.Namespace) -> Result:
    try:
        try:
            result: Result = arguments.run(arguments)
        except (Failure, KeyboardInterrupt):
            raise
        except BaseException as error:
            if sys.flags.dev_mode:
                raise
            raise terminal.unforeseen(error) from error
    except Failure as failure:
        print(f"tvm-fixes: error: {failure}", file=sys.stderr)
        return failure.status, partial(terminal.write_failure, failure, as_json=arguments.json)
    return result


def _describe_output(arguments: argparse.Namespace) -> str:
    """Whether the output directory was written, for the message of an interrupted command."""
    staging = sys.modules.get("tvm_fixes.runtime.staging")
    output = getattr(arguments, "output", None)
    if staging is not None and output is not None and staging.is_written(output):
        return f"{terminal.printable(output)} is written"
    return "nothing was written"


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="tvm-fixes",
        description="Compile PyTorch and ONNX models with Apache TVM and fixes that it lacks.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="print the versions and exit")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        default=argparse.SUPPRESS,
        help="print a script of completions for a shell and exit",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser


class _Version(argparse.Action):
    """Prints the installed versions without importing the packages."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata  # only here, because it takes longer than all the rest

        versions = {}
        for package in ("tvm-fixes", "apache-tvm", "apache-tvm-ffi"):
            try:
                versions[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                versions[package] = "(not installed as a package)"
        text = "\n".join(f"{package} {version}" for package, version in versions.items())
        parser.exit(terminal.write_out(EQUAL, partial(print, text)))
