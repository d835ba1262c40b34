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
"""The command line ``tvm-fixes``.

The module is outside the package, whose import loads TVM, so that help and errors appear at once.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

import tvm_fixes_terminal as terminal
from tvm_fixes_terminal import EQUAL, FAILED, INTERRUPTED, TERMINATED, WRONG_USE, Failure

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_EXAMPLES = """\
examples:
  tvm-fixes compile model.onnx -o out/
  tvm-fixes compile model.pt2 --layout NHWC -o out/
  tvm-fixes compile package.module:factory --target '{"kind": "llvm", "mcpu": "skylake-avx512"}'
  tvm-fixes compile dynamic.onnx --shape image=1,3,64,64 --json
  tvm-fixes compile model.onnx --target cuda/sm_90 --no-compare -o out/
  tvm-fixes compile old.relay --params old.params -o out/
  tvm-fixes check model.onnx
  tvm-fixes verify model.onnx
  tvm-fixes inspect out/
  tvm-fixes doctor
"""

# Copies of the choices in tvm_fixes.compiler and tvm_fixes.pipeline, whose import takes seconds.
_WEIGHTS = ("auto", "inside", "outside")
_LAYOUTS = ("NCHW", "NHWC", "NCHW4c", "NCHW8c", "NCHW16c")

_COMPILE_HELP = """\
Compile a model into a library for TVM's virtual machine. Run the library and ONNX Runtime or
PyTorch on the same random inputs, and report errors, latency and size. A Relay program of TVM
0.6 to 0.19 is translated; nothing can run it, so its outputs are not compared.

exit status: 0 all outputs equal, or not compared; 1 outputs differ, or compilation failed;
2 usage error
"""


_CHECK_HELP = """\
List the operators of a model, those that cannot be imported first, with their nodes. If all can be
imported, import the model, which also finds unsupported attributes and types. Nothing is compiled,
and an .onnx file needs no weights for the list.

exit status: 0 the model can be imported, 1 it cannot, or unreadable file, 2 usage error
"""

_CHECK_EXAMPLES = """\
examples:
  tvm-fixes check model.onnx
  tvm-fixes check model.pt2 --json
  tvm-fixes check old.relay --params old.params
"""


_VERIFY_HELP = """\
Import a model or read a TVM module, and report all violations.

A .py file is executed: verify only files that you trust.

exit status: 0 no errors, 1 errors or unreadable file, 2 usage error
"""

_VERIFY_EXAMPLES = """\
examples:
  tvm-fixes verify model.onnx --warnings-as-errors
  tvm-fixes verify module.py:Module
  tvm-fixes verify module.json --json
  tvm-fixes verify old.json --params old.params
"""


_INSPECT_HELP = """\
Show where the bytes of an artifact are: the sections of the library, its TVM modules, and each
constant with its size, type and parameter, the largest first. Nothing is loaded or run.

Of a Relay program, show its inputs, parameters, types and operators, and which operators cannot be
translated.

exit status: 0 shown, 1 not a complete TVM artifact or a malformed program, 2 usage error
"""

_INSPECT_EXAMPLES = """\
examples:
  tvm-fixes inspect out/
  tvm-fixes inspect out/model.so --all
  tvm-fixes inspect out/ --json
  tvm-fixes inspect old.json --params old.params
"""


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
            return terminal.write_out(*_run(arguments))
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


def _run(arguments: argparse.Namespace) -> "_Result":
    try:
        try:
            result: _Result = arguments.command(arguments)
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


_Result = tuple[int, Callable[[], None]]
"""The exit status, and a function that writes the result to standard output."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error if its help cannot be written to standard output."""

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        if file is not None:
            super().print_help(file)
            return
        status = terminal.write_out(EQUAL, partial(print, self.format_help(), end=""))
        if status != EQUAL:
            self.exit(status)


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="tvm-fixes",
        description="Compile PyTorch and ONNX models with Apache TVM and fixes that it lacks.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="print the versions and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_compile(commands)
    _add_check(commands)
    _add_verify(commands)
    _add_inspect(commands)
    _add_doctor(commands)
    return parser


def _add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    command: Callable[[argparse.Namespace], "_Result"],
    *,
    help: str,
    description: str,
    epilog: str,
) -> argparse.ArgumentParser:
    """Add a command whose description and epilog keep their line breaks."""
    parser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command)
    return parser


def _add_compile(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add_command(
        commands,
        "compile",
        _compile,
        help="compile a model and compare it with the original",
        description=_COMPILE_HELP,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="MODEL",
        help="an .onnx file, a .pt2 file (torch.export.save), or package.module:factory: a "
        "callable, which is executed, that returns an nn.Module in eval mode and a tuple of "
        "example inputs; or a Relay program: a .relay or .txt file of its text, or a .json file of "
        "tvm.ir.save_json (TVM 0.6 to 0.19)",
    )
    _add_params(parser)
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="save the artifact to DIR, unless outputs differ"
    )
    parser.add_argument(
        "--target",
        default="native",
        help="'native' (this CPU, the default), 'cuda/sm_90' (a GPU architecture), 'cuda' (the "
        "GPU of this machine), a TVM target tag, or a target configuration as JSON",
    )
    parser.add_argument(
        "--layout",
        choices=_LAYOUTS,
        help="convert convolutions of any rank to channels-first, channels-last or blocked "
        "channels (default: keep each layout, or use blocked channels where they are faster)",
    )
    _add_shape(parser)
    _add_trust(parser)
    parser.add_argument(
        "--static",
        action="store_true",
        help="make all dims static, with the sizes from --shape or PyTorch's example inputs",
    )
    parser.add_argument(
        "--no-compare",
        action="store_true",
        help="do not run the model or compare its outputs with the original's",
    )
    parser.add_argument(
        "--rtol", type=_tolerance, help="relative tolerance; default depends on dtype"
    )
    parser.add_argument(
        "--atol", type=_tolerance, help="absolute tolerance; default depends on dtype"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of random inputs (default: 0)")
    parser.add_argument("--no-verify", action="store_true", help="do not verify the module")
    parser.add_argument(
        "--verify-each",
        action="store_true",
        help="also verify the module after each pass, so that an error names the faulty pass",
    )
    parser.add_argument(
        "--runtime-checks",
        action="store_true",
        help="let the model check at run time what cannot be proved at compile time",
    )
    parser.add_argument(
        "--unsafe-indices",
        action="store_true",
        help="trust computed indices: neither check nor bound them",
    )
    parser.add_argument(
        "--max-growth",
        type=float,
        metavar="TIMES",
        help="limit folded constants to TIMES x the originals (default: 1.2)",
    )
    parser.add_argument(
        "--max-size-ratio",
        type=float,
        metavar="TIMES",
        help="fail if constants exceed TIMES x parameters (+256 KiB); by default, warn above 1.2 x",
    )
    parser.add_argument(
        "--weights",
        choices=_WEIGHTS,
        default="auto",
        help="store weights inside or outside the library, or auto (outside from 1 GiB; default)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show progress")


def _add_check(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add_command(
        commands,
        "check",
        _check,
        help="list the operators of a model that cannot be imported",
        description=_CHECK_HELP,
        epilog=_CHECK_EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="MODEL",
        help="an .onnx or .pt2 file, package.module:factory, or a .relay, .txt or .json file of a "
        "Relay program",
    )
    _add_params(parser)
    _add_shape(parser)
    _add_trust(parser)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def _add_verify(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add_command(
        commands,
        "verify",
        _verify,
        help="report all violations in a model or a TVM module",
        description=_VERIFY_HELP,
        epilog=_VERIFY_EXAMPLES,
    )
    parser.add_argument(
        "source",
        metavar="FILE",
        help="an .onnx or .pt2 file, package.module:factory, a .py file of TVMScript, which is "
        "executed (FILE.py:NAME if it has several modules), a .json file (tvm.ir.save_json), or a "
        ".relay, .txt or .json file of a Relay program, which is translated first",
    )
    _add_params(parser)
    _add_shape(parser)
    _add_trust(parser)
    parser.add_argument(
        "--warnings-as-errors", action="store_true", help="exit with 1 for warnings, too"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def _add_inspect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add_command(
        commands,
        "inspect",
        _inspect,
        help="show where the bytes of an artifact are",
        description=_INSPECT_HELP,
        epilog=_INSPECT_EXAMPLES,
    )
    parser.add_argument(
        "path",
        metavar="DIR|FILE",
        help="an artifact of 'tvm-fixes compile', or a library of TVM's export_library, whose "
        "constants have no names; or a .relay, .txt or .json file of a Relay program",
    )
    _add_params(parser)
    parser.add_argument(
        "--all", action="store_true", help="show all sections and constants, not only the largest"
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def _add_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        metavar="NAME=D0,D1,...",
        type=_shape,
        action="append",
        default=[],
        help="the shape of one input; repeat the option for more inputs. A name (batch,3,h,w) "
        "makes a dim of a PyTorch factory symbolic, or names an existing symbolic dim; equal "
        "names mean equal sizes. A number makes a symbolic dim of an ONNX model static; for "
        "PyTorch, it is the size used for the comparison",
    )


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="read a .pt2 file even if it may run code (pickles, custom objects, compiled code)",
    )


def _add_params(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--params",
        metavar="FILE",
        help="parameters of a Relay program, written by relay.save_param_dict; they become "
        "constants of the model",
    )


def _shapes(arguments: argparse.Namespace) -> dict[str, tuple[int | str, ...]]:
    shapes = dict(arguments.shape)
    if len(shapes) != len(arguments.shape):
        raise Failure("--shape: an input is given twice", WRONG_USE)
    return shapes


def _add_doctor(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "doctor",
        help="check this installation: versions, and each fix on and off",
        description="Check this installation: print its versions, and test each fix on and off. "
        "The exit status is 1 if something needs fixing.",
    )
    parser.set_defaults(command=_doctor)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def _compile(arguments: argparse.Namespace) -> _Result:
    shapes = _shapes(arguments)
    with terminal.stdout_to_stderr(), terminal.without_warnings():
        with terminal.loading():
            _import_package(with_torch=not arguments.source.endswith(".onnx"))
            from tvm_fixes.compiler import compile as compile_model
            from tvm_fixes.console import StepPrinter, render
            from tvm_fixes.errors import CompileError, UsageError, VerifyError
        given = {} if arguments.max_growth is None else {"max_growth": arguments.max_growth}
        try:
            with StepPrinter(terminal.console(stderr=True)) as printer:
                model = compile_model(
                    arguments.source,
                    target=arguments.target,
                    layout=arguments.layout,
                    shapes=shapes,
                    static=arguments.static,
                    output=arguments.output,
                    compare=not arguments.no_compare,
                    rtol=arguments.rtol,
                    atol=arguments.atol,
                    seed=arguments.seed,
                    verify=not arguments.no_verify,
                    verify_each=arguments.verify_each,
                    runtime_checks=arguments.runtime_checks,
                    unsafe_indices=arguments.unsafe_indices,
                    **given,
                    max_size_ratio=arguments.max_size_ratio,
                    weights=arguments.weights,
                    trust=arguments.trust,
                    params=arguments.params,
                    progress=None if arguments.quiet else printer,
                )
        except CompileError as error:
            status = WRONG_USE if isinstance(error, UsageError) else FAILED
            lines = isinstance(error, VerifyError)
            raise Failure(error.message, status, error.stage, lines=lines) from error
    report = model.report
    assert report is not None

    def write() -> None:
        if arguments.json:
            saved = arguments.output if report.equal is not False else None
            document = report.to_dict() | {"target": model.manifest.target, "output": saved}
            print(json.dumps(document, indent=2))
        else:
            render(report, terminal.console(), output=arguments.output)

    return FAILED if report.equal is False else EQUAL, write


def _check(arguments: argparse.Namespace) -> _Result:
    shapes = _shapes(arguments)
    with terminal.stdout_to_stderr(), terminal.without_warnings():
        with terminal.loading():
            _import_package(with_torch=not arguments.source.endswith(".onnx"))
            from tvm_fixes import check
            from tvm_fixes.console import render_preflight
            from tvm_fixes.errors import CompileError, UsageError
        try:
            found = check(arguments.source, shapes, trust=arguments.trust, params=arguments.params)
        except CompileError as error:
            status = WRONG_USE if isinstance(error, UsageError) else FAILED
            raise Failure(error.message, status, error.stage) from error

    def write() -> None:
        if arguments.json:
            print(found.to_json())
        else:
            render_preflight(found, terminal.console())

    return EQUAL if found.ok else FAILED, write


def _verify(arguments: argparse.Namespace) -> _Result:
    shapes = _shapes(arguments)
    with terminal.stdout_to_stderr(), terminal.without_warnings():
        with terminal.loading():
            _import_package(with_torch=not arguments.source.endswith(".onnx"))
            from tvm_fixes import verify
            from tvm_fixes.console import render_diagnostics
            from tvm_fixes.errors import CompileError, UsageError, VerifyError
            from tvm_fixes.source.module_file import read_module
        try:
            module = read_module(
                arguments.source, shapes, trust=arguments.trust, params=arguments.params
            )
            found = verify(module)
        except CompileError as error:
            status = WRONG_USE if isinstance(error, UsageError) else FAILED
            lines = isinstance(error, VerifyError)
            raise Failure(error.message, status, error.stage, lines=lines) from error
    is_wrong = found.errors or (arguments.warnings_as_errors and found.warnings)

    def write() -> None:
        if arguments.json:
            print(found.json())
        else:
            render_diagnostics(found, terminal.console())

    return FAILED if is_wrong else EQUAL, write


def _inspect(arguments: argparse.Namespace) -> _Result:
    with terminal.stdout_to_stderr():
        with terminal.loading():
            _import_package(with_torch=False)
            from tvm_fixes.console import render_inspection, render_program
            from tvm_fixes.errors import ArtifactError, CompileError, UsageError
            from tvm_fixes.runtime.inspection import inspect
            from tvm_fixes.source.relay_file import describe_file, is_program_name
        try:
            if is_program_name(arguments.path):
                program = describe_file(arguments.path, arguments.params)
                to_json, show = program.to_json, partial(render_program, program)
            elif arguments.params is not None:
                raise UsageError("--params can be given only for a Relay program")
            else:
                found = inspect(arguments.path)
                to_json = found.to_json
                show = partial(render_inspection, found, show_all=arguments.all)
        except (ArtifactError, CompileError) as error:
            status = WRONG_USE if isinstance(error, UsageError) else FAILED
            raise Failure(error.message, status) from error

    def write() -> None:
        if arguments.json:
            print(to_json())
        else:
            show(console=terminal.console())

    return EQUAL, write


def _doctor(arguments: argparse.Namespace) -> _Result:
    with terminal.stdout_to_stderr():
        with terminal.loading():
            doctor = _import_doctor()
        try:
            report = doctor.run()
        except ValueError as error:
            raise Failure(str(error), WRONG_USE) from error
        except OSError as error:
            raise Failure(f"the installation cannot be examined: {error}") from error

    def write() -> None:
        if arguments.json:
            print(report.to_json())
        else:
            doctor.render(report, terminal.console())

    return EQUAL if report.ok else FAILED, write


def _import_package(with_torch: bool) -> None:
    # TVM imports PyTorch if it can, which takes longer than everything else.
    is_hidden = not with_torch and "torch" not in sys.modules
    if is_hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tvm_fixes  # noqa: F401
    finally:
        if is_hidden:
            del sys.modules["torch"]


def _import_doctor() -> ModuleType:
    try:
        from tvm_fixes import doctor
    except ImportError:
        # The doctor reports why the package does not load. It needs only the package's modules, and
        # Python finds these through a package object even if the package's own code has not run.
        spec = importlib.util.find_spec("tvm_fixes")
        if spec is None:
            raise
        sys.modules["tvm_fixes"] = importlib.util.module_from_spec(spec)
        from tvm_fixes import doctor
    return doctor


class _Version(argparse.Action):
    """Prints the installed versions without importing the packages."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        versions = {}
        for package in ("tvm-fixes", "apache-tvm", "apache-tvm-ffi"):
            try:
                versions[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                versions[package] = "(not installed as a package)"
        text = "\n".join(f"{package} {version}" for package, version in versions.items())
        parser.exit(terminal.write_out(EQUAL, partial(print, text)))


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    name, separator, dims = text.rpartition("=")
    shape = tuple(_dim(dim.strip()) for dim in dims.split(",")) if dims.strip() else ()
    if not separator or not name or None in shape:
        raise argparse.ArgumentTypeError(f"expected NAME=batch,3,64,64, got {text!r}")
    return name, tuple(dim for dim in shape if dim is not None)


def _dim(text: str) -> int | str | None:
    if text.isdecimal():
        return int(text)
    return text if any(c.isalpha() or c == "_" for c in text) else None


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number >= 0, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
