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
"""Command lines that a command prints, with the options that it was called with."""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

UNRELATED = frozenset(
    {"help", "json", "quiet", "output", "save_inputs", "all", "stock", "over", "traceback", "cache"}
)
"""Options that say where and how a result is written, or what is searched or compared besides."""

_DISABLE, _NAME = "TVM_FIXES_DISABLE", "tvm-fixes"


def command_line(
    arguments: argparse.Namespace, command: str, *, off: Sequence[str] = (), **changes: Any
) -> str:
    """A command line with the parsed options of another, as far as the command has them.

    Parameters
    ----------
    arguments : argparse.Namespace
        The options of this command.
    command : str
        The command to print.
    off : sequence of str
        Fixes to switch off, besides those that are off.
    **changes
        Other values of options, by destination.
    """
    values = {name: value for name, value in vars(arguments).items() if name not in UNRELATED}
    values |= changes
    words = [*_program(), command]
    for action in arguments.commands.choices[command]._actions:
        if action.dest in values:
            words += _words(action, values[action.dest])
    already = [one for one in os.environ.get(_DISABLE, "").split(",") if one.strip()]
    disabled = ",".join(dict.fromkeys([*already, *off]))
    prefix = f"{_DISABLE}={_quoted(disabled)} " if disabled else ""
    return prefix + " ".join(map(_quoted, words))


def _program() -> list[str]:
    """The words that start this program: as it was started, unless the shell finds it by name."""
    started = sys.argv[0]
    if started.endswith(os.path.join("tvm_fixes", "__main__.py")):
        python = "python" if shutil.which("python") == sys.executable else sys.executable
        return [python, "-m", "tvm_fixes"]
    found = shutil.which(_NAME)
    if os.path.basename(started) == _NAME and found != os.path.abspath(started):
        return [started]
    return [_NAME]


def _quoted(word: str) -> str:
    """A word of a shell's command; the terminal gets no control characters."""
    if word.isprintable():
        return shlex.quote(word)
    # Python decodes a byte of a file name that is not UTF-8 to a surrogate.
    escaped = (
        c if c.isprintable() and c not in "\\'" else "".join(f"\\x{b:02x}" for b in os.fsencode(c))
        for c in word
    )
    return f"$'{''.join(escaped)}'"


def _words(action: argparse.Action, value: Any) -> Iterator[str]:
    """The words that give an option its value; none for its default."""
    if value is None or value == action.default:
        return
    if not action.option_strings:
        yield str(value)
        return
    option = action.option_strings[-1]
    if action.nargs == 0:
        yield option
        return
    for one in value if isinstance(value, list | tuple) else [value]:
        text = _text(one)
        # A value that begins with a dash would be an option.
        yield from [f"{option}={text}"] if text.startswith("-") else [option, text]


def _text(value: Any) -> str:
    if isinstance(value, tuple):  # --shape, --size
        name, given = value
        return f"{name}={','.join(map(str, given)) if isinstance(given, tuple) else given}"
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
