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
"""The parser, and the arguments that several commands have.

Nothing here loads TVM, so that help and errors appear at once.
"""

import argparse
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from . import terminal
from .terminal import EQUAL, WRONG_USE, Failure

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

EXAMPLES = """\
examples:
  tvm-fixes compile model.onnx -o out/
  tvm-fixes compile model.pt2 --layout NHWC -o out/
  tvm-fixes compile package.module:factory --target x86_64/skylake-avx512
  tvm-fixes compile dynamic.onnx --shape image=1,3,64,64 --json
  tvm-fixes compile model.onnx --target cuda/sm_90 --no-compare -o out/
  tvm-fixes compile old.relay --params old.params -o out/
  tvm-fixes check model.onnx
  tvm-fixes verify model.onnx
  tvm-fixes opt --passes LegalizeOps,FuseOps module.py
  tvm-fixes inspect out/
  tvm-fixes compare model.onnx
  tvm-fixes profile out/
  tvm-fixes report out/ -o report.html
  tvm-fixes reduce model.onnx -o reduced/
  tvm-fixes bisect model.onnx
  tvm-fixes doctor
"""

LAYOUTS = ("NCHW", "NHWC", "NCHW4c", "NCHW8c", "NCHW16c")
"""The choices of ``--layout``, as in ``tvm_fixes.pipeline``, whose import takes seconds."""

# A copy of the choices in tvm_fixes.compiler, whose import takes seconds.
_WEIGHTS = ("auto", "inside", "outside")

_BUILDING = ("static", "verify", "runtime_checks", "unsafe_indices", "max_growth", "weights")

Result = tuple[int, Callable[[], None]]
"""The exit status of a command, and what writes its result to standard output."""

# Such an error of argparse has the word and the choices.
_WRONG_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with a suggestion for a misspelled word.

    It also reports an error if its help cannot be written to standard output.
    """

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser: Parser = getattr(parsed, "parser", self)
            hint = did_you_mean(unknown[0].partition("=")[0], parser._option_string_actions)
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print the error and a hint in one line, without the usage, and exit."""
        choice = _WRONG_CHOICE.search(message)
        if choice is not None:
            message += did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        text = terminal.printable(message).replace("\n", "\\n")
        self.exit(WRONG_USE, f"tvm-fixes: error: {text} (see `{self.prog} --help`)\n")

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        if file is not None:
            super().print_help(file)
            return
        status = terminal.write_out(EQUAL, partial(print, self.format_help(), end=""))
        if status != EQUAL:
            self.exit(status)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    import difflib

    # The package has the same for its names; its import would take seconds.
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def add_command(
    commands: Commands,
    name: str,
    command: Callable[[argparse.Namespace], Result],
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
    parser.set_defaults(run=command, parser=parser, commands=commands)
    return parser


def add_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        metavar="NAME=D0,D1,...",
        type=shape,
        action="append",
        default=[],
        help="the shape of one input; repeat the option for more inputs. A name (batch,3,h,w) "
        "makes a dim of a PyTorch factory symbolic, or names an existing symbolic dim; equal "
        "names mean equal sizes. A number makes a symbolic dim of an ONNX model static (--size "
        "keeps it symbolic); for PyTorch, it is the size used for the comparison",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        default="native",
        help="'native' (this CPU, the default), 'aarch64/cortex-a76' (a CPU, by LLVM's name), "
        "'cuda/sm_90' (a GPU architecture), 'cuda' (the GPU of this machine), a TVM target tag, or "
        "a target configuration as JSON",
    )


def add_loading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="read a .pt2 file even if it may run code (pickles, custom objects, compiled code)",
    )
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="import package.module or FILE.py before the model is read, such as a module that "
        "registers types or operators of a .pt2 file; repeat the option for more modules",
    )


def add_passes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pass",
        dest="user_passes",
        metavar="MODULE:NAME@after=PASS",
        action="append",
        default=[],
        help="run a pass of yours in the pipeline, which executes its module: package.module:NAME "
        "or FILE.py:NAME, after or before a pass of 'tvm-fixes opt --print-pipeline' (default: "
        "first); NAME is a pass, or a class or function without arguments that makes one; repeat "
        "the option for more passes",
    )
    parser.add_argument(
        "--traceback", action="store_true", help="print the traceback of a pass of yours that fails"
    )


@contextmanager
def user_passes(
    arguments: argparse.Namespace, more: Iterable[str] = ()
) -> Iterator[tuple[Any, ...]]:
    """Read the passes of ``--pass``, and more; at the end, print tracebacks for ``--traceback``."""
    from tvm_fixes.user_passes import read

    # A file, because passes also fail in child processes.
    with tempfile.TemporaryFile("w+", errors="replace") as log:

        def note(text: str) -> None:
            log.write(f"{text}\0")
            log.flush()

        try:
            passes = [*arguments.user_passes, *more]
            yield read(passes, note if arguments.traceback else None)
        finally:
            log.seek(0)
            for text in dict.fromkeys(log.read().split("\0")[:-1]):
                print(terminal.printable(text), end="", file=sys.stderr)


def add_static(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--static",
        action="store_true",
        help="make all dims static, with the sizes from --shape or PyTorch's example inputs",
    )


def add_building(parser: argparse.ArgumentParser) -> None:
    """Add the options with which a model is built otherwise: a problem may appear only then."""
    add_static(parser)
    parser.add_argument(
        "--no-verify", dest="verify", action="store_false", help="do not verify the module"
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
        default=argparse.SUPPRESS,
        metavar="TIMES",
        help="limit folded constants to TIMES x the originals (default: 1.2)",
    )
    parser.add_argument(
        "--weights",
        choices=_WEIGHTS,
        default="auto",
        help="store weights inside or outside the library, or auto (outside from 128 MiB; default)",
    )


def building(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of :func:`add_building`, as options of :func:`tvm_fixes.compile`."""
    return {name: value for name, value in vars(arguments).items() if name in _BUILDING}


def add_params(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--params",
        metavar="FILE",
        help="parameters of a Relay program, written by relay.save_param_dict; they become "
        "constants of the model",
    )


def add_layout(parser: argparse.ArgumentParser, help: str = "as for 'compile'") -> None:
    parser.add_argument("--layout", type=layout, choices=LAYOUTS, help=help)


def add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="seed of random inputs (default: 0)")


def add_magnitude(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--magnitude",
        type=positive,
        metavar="TIMES",
        help="multiply the floats of random inputs by TIMES (default: 1; outputs are also compared "
        "with 64 and 1/64, by 'compile' for a model with 16-bit floats)",
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inputs", metavar="FILE", help="an .npz file of inputs by name")


def add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size",
        metavar="NAME=N",
        type=size,
        action="append",
        default=[],
        help="the size of a symbolic dim in this run, which leaves it symbolic; repeat the option "
        "for more dims (default: the first sizes that the reference accepts; outputs are also "
        "compared at further ones)",
    )


def sizes_of(arguments: argparse.Namespace) -> dict[str, int]:
    sizes = dict(arguments.size)
    if len(sizes) != len(arguments.size):
        raise Failure("--size: a dim is given twice", WRONG_USE)
    return sizes


def size(text: str) -> tuple[str, int]:
    """Parse ``seq=16``."""
    name, separator, number = text.rpartition("=")
    if not separator or not name or not number.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"expected NAME=N, got {text!r}")
    return name, int(number)


def add_seconds(parser: argparse.ArgumentParser) -> None:
    text = "the time to measure for (default: 2)"
    parser.add_argument("--seconds", type=not_negative, default=2.0, help=text)


def add_tolerances(parser: argparse.ArgumentParser) -> None:
    for option, name in (("--rtol", "relative"), ("--atol", "absolute")):
        text = f"{name} tolerance; default depends on dtype"
        parser.add_argument(option, type=not_negative, help=text)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show progress")


def shapes_of(arguments: argparse.Namespace) -> dict[str, tuple[int | str, ...]]:
    shapes = dict(arguments.shape)
    if len(shapes) != len(arguments.shape):
        raise Failure("--shape: an input is given twice", WRONG_USE)
    return shapes


def shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """Parse ``image=batch,3,64,64``, or ``image=1x3x64x64`` for numbers."""
    name, separator, dims = text.rpartition("=")
    mark = "x" if re.fullmatch(r"\d+(x\d+)+", dims.strip()) else ","
    extents = tuple(_dim(dim.strip()) for dim in dims.split(mark)) if dims.strip() else ()
    if not separator or not name or None in extents:
        raise argparse.ArgumentTypeError(
            f"expected NAME=batch,3,64,64 or NAME=1x3x64x64, got {text!r}"
        )
    return name, tuple(dim for dim in extents if dim is not None)


def _dim(text: str) -> int | str | None:
    if text.isdecimal():
        return int(text)
    return text if any(c.isalpha() or c == "_" for c in text) else None


def layout(text: str) -> str:
    """The layout in its own case; an unknown one unchanged, which argparse rejects."""
    return next((known for known in LAYOUTS if known.lower() == text.lower()), text)


def not_negative(text: str) -> float:
    value = _number(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number >= 0, got {text!r}")
    return value


def positive(text: str) -> float:
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number > 0, got {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
