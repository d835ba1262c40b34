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
"""The output of the command line; outside the package, whose import loads TVM.

All readable text goes through :func:`printable`, because names come from models, which may be
hostile.
"""

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

EQUAL, FAILED, WRONG_USE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

DISABLE = "TVM_FIXES_DISABLE"


class Failure(Exception):
    """Ends a command with an exit status and a message: one line, or several if `lines`."""

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
    """Escape the control characters of `text`, so that it cannot send commands to a terminal.

    For example, an escape becomes ``\\x1b``. Newlines and tabs are kept.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    # Python decodes a byte of a file name that is not UTF-8 to one of these surrogates.
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def size_text(count: int) -> str:
    """A number of bytes with a unit."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def command_text(label: str, command: str, purpose: str) -> str:
    """A command, and its purpose in the next line."""
    # Not a comment: an interactive zsh has none.
    return f"{label}: {command}\n{'':<{len(label) + 2}}{purpose}"


def open_streams() -> None:
    """Open the standard streams that the parent process closed.

    Otherwise, a file opened later takes the number of a closed stream, and libraries print to it.
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
    """Write the result to standard output; return `status`, or FAILED if writing fails."""
    try:
        write()
        sys.stdout.flush()
    except OSError as error:
        # Otherwise, the interpreter's own flush at exit reports the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            print(f"tvm-fixes: error: standard output: {error.strerror}", file=sys.stderr)
        return FAILED
    return status


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence the warnings of libraries, unless a ``-W`` option of Python asks for warnings."""
    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        yield


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect what models and libraries print to standard error; the result owns stdout."""
    sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        kept = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def console(*, stderr: bool = False, file: IO[str] | None = None) -> "Console":
    """Return a rich console that escapes its text with :func:`printable`."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class PrintableConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            # rich measures the text next, so it must be escaped before.
            return super().render_str(printable(text), **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    # A log keeps long lines: its viewer wraps them, and a search finds them whole.
    # rich's `is_terminal` follows FORCE_COLOR, which asks only for colours.
    terminal: Any = PrintableConsole(stderr=stderr, file=file)
    if terminal.file.isatty():
        return terminal
    return PrintableConsole(stderr=stderr, file=file, width=200)


def unforeseen(error: BaseException) -> Failure:
    """Return the failure for an exception that no other code handles."""
    if isinstance(error, MemoryError):
        return Failure("out of memory")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return Failure(
        f"{type(error).__name__}: {text} ({frame.filename}:{frame.lineno}); this is a fault of "
        "tvm-fixes: please report it with what `python -X dev -m tvm_fixes` prints"
    )


def write_failure(failure: Failure, *, as_json: bool) -> None:
    """Print `failure` as a JSON object if `as_json`; otherwise do nothing."""
    if as_json:
        error = {"stage": failure.stage, "message": failure.message}
        print(json.dumps({"error": error}, indent=2))


def not_loaded(error: BaseException) -> Failure:
    """Return the failure for an exception of an import of the package."""
    reason = " ".join(str(error).split())
    return Failure(f"TVM and its fixes cannot be loaded: {reason}")


@contextmanager
def loading() -> Iterator[None]:
    """Show on a terminal that TVM and PyTorch load, and turn an error of it into a failure."""
    try:
        os.getcwd()
    except OSError as error:
        # Without a working directory, libraries that PyTorch loads end the process.
        raise Failure(f"the working directory: {error.strerror}", WRONG_USE) from error
    try:
        shown = console(stderr=True)
        with shown.status("loading TVM …") if shown.file.isatty() else nullcontext():
            yield
    except (Exception, SystemExit) as error:
        # The import of the package reads the switches, too, and rejects unknown names.
        if str(error).startswith(DISABLE):
            raise Failure(str(error), WRONG_USE) from error
        raise not_loaded(error) from error
    from tvm_fixes.support import switches

    try:
        switches.disabled()
    except ValueError as error:
        raise Failure(str(error), WRONG_USE) from error
