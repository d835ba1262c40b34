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
"""The option ``--print-completion``, with the package shtab."""

import argparse
import re
from functools import partial
from typing import Any

from . import terminal
from .terminal import EQUAL

SHELLS = ("bash", "zsh", "tcsh")

# The metavars of arguments that begin with the name of a file.
_FILES = re.compile("FILE|DIR|MODEL|MODULE")


class PrintCompletion(argparse.Action):
    """Prints a script with which a shell completes commands, options and files."""

    def __call__(self, parser: argparse.ArgumentParser, _: Any, shell: Any, *__: Any) -> None:
        try:
            import shtab  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            parser.error("--print-completion needs the package shtab: pip install shtab")
        _mark_files(parser, shtab.FILE)
        text = shtab.complete(parser, shell)
        parser.exit(terminal.write_out(EQUAL, partial(print, text)))


def _mark_files(parser: argparse.ArgumentParser, how: Any) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark_files(command, how)
        elif isinstance(action.metavar, str) and _FILES.search(action.metavar):
            action.complete = how  # type: ignore[attr-defined]
