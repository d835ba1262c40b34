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
"""What the command line writes, and where to; outside the package, whose import loads TVM.

All text for a person goes through :func:`printable`: names come from models, and a model may be
anybody's.
"""

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

EQUAL, FAILED, WRONG_USE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

_DISABLE = "TVM_FIXES_DISABLE"


class Failure(Exception):
    """What ends a command with an exit status, and one line unless `lines` are meant."""

    def __init__(
        self, message: str, status: int = FAILED, stage: str | None = None, *, lines: bool = False
    ):
        super().__init__(message)
        self.message = message
        self.status = status
        self.stage = stage
        self.lines = lines

    def __str__(self) -> str:
        text = printable(self.message)
        return text if self.lines else text.replace("\n", "\\n")


def printable(text: str) -> str:
    """`text` with control characters, such as those of a terminal's escape sequences, as ``\\x1b``.

    Lines and tabs stay.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    # A byte of a file name that is not UTF-8.
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def open_streams() -> None:
    """Have standard streams wherever whoever started this process has closed them.

    A file that is opened later would take their numbers, and libraries would write into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def write_out(status: int, write: Callable[[], None]) -> int:
    """Write the result to standard output; `status`, or FAILED if that takes no more."""
    try:
        write()
        sys.stdout.flush()
    except OSError as error:
        # The interpreter's own flush at the end must not say so, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            print(f"tvm-fixes: error: standard output: {error.strerror}", file=sys.stderr)
        return FAILED
    return status


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keep what libraries say of themselves off the terminal, unless Python was told otherwise."""
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        yield


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Keep standard output for the result, whatever models and libraries print meanwhile."""
    sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        kept = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def console(*, stderr: bool = False) -> "Console":
    """A console of rich whose text is :func:`printable`."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class PrintableConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            # Before it is measured.
            return super().render_str(printable(text), **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    # Where it is no terminal, a line is as long as it needs to be: logs wrap or search themselves.
    # Rich's own notion of a terminal follows FORCE_COLOR, which asks for colours alone.
    made: Any = PrintableConsole(stderr=stderr)
    return made if made.file.isatty() else PrintableConsole(stderr=stderr, width=200)


def unforeseen(error: BaseException) -> Failure:
    """What to say of an exception that nothing has made a message of."""
    if isinstance(error, MemoryError):
        return Failure("out of memory")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return Failure(
        f"{type(error).__name__}: {text} ({frame.filename}:{frame.lineno}); this is a fault of "
        "tvm-fixes: please report it with what `python -X dev -m tvm_fixes` prints"
    )


def write_failure(failure: Failure, *, as_json: bool) -> None:
    """Print `failure` where the result as JSON is expected."""
    if as_json:
        error = {"stage": failure.stage, "message": failure.message}
        print(json.dumps({"error": error}, indent=2))


@contextmanager
def loading() -> Iterator[None]:
    """The seconds in which TVM and PyTorch load: shown on a terminal, and what fails in them."""
    try:
        os.getcwd()
    except OSError as error:
        # Libraries that PyTorch loads end the process where there is none.
        raise Failure(f"the working directory: {error.strerror}", WRONG_USE) from error
    try:
        shown = console(stderr=True)
        with shown.status("loading TVM …") if shown.file.isatty() else nullcontext():
            yield
    except (Exception, SystemExit) as error:
        # Importing the package asks for switches, too.
        if str(error).startswith(_DISABLE):
            raise Failure(str(error), WRONG_USE) from error
        reason = " ".join(str(error).split())
        raise Failure(f"TVM and its fixes cannot be loaded: {reason}") from error
    from tvm_fixes.support import switches

    try:
        switches.disabled()
    except ValueError as error:
        raise Failure(str(error), WRONG_USE) from error
