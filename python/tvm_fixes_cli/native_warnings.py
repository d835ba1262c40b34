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
"""Warnings that TVM's C++ code prints to standard error, each shown once, or not at all.

TVM has no switch for them.  A process of its own filters them, so that nothing is lost if native
code ends this one.
"""

import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

_WARNING = re.compile(rb"\[\d\d:\d\d:\d\d\] \S*: Warning: (.*)")

_WAIT_S = 5.0


@contextmanager
def filtered(*, quiet: bool) -> Iterator[int]:
    """Filter the standard error of the ``with`` block.

    Parameters
    ----------
    quiet : bool
        Drop all warnings, instead of only repeated ones.

    Yields
    ------
    descriptor : int
        The standard error of before, such as a terminal; closed at the end.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    command = [sys.executable, "-I", "-S", __file__, *["--quiet"] * quiet]
    # Not in this group of processes: Ctrl-C must not end it first.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    try:
        os.dup2(process.stdin.fileno(), 2)
        process.stdin.close()
        yield kept
    except BaseException as error:
        _clear_frames(error)
        raise
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        try:
            process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            pass  # a child process still has the pipe; the filter ends with it


def _clear_frames(error: BaseException) -> None:
    """Destroy the unfinished objects of the frames that an error left: TVM's warn when they end."""
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__


def _copy(quiet: bool) -> None:
    """Copy standard input to standard error at once, without warnings to drop."""
    shown: set[bytes] = set()
    rest = b""
    while chunk := os.read(0, 1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            found = _WARNING.fullmatch(line)
            if found is None:
                _write(line + b"\n")
            elif not quiet and found[1] not in shown:
                shown.add(found[1])
                _write(line + b"\n")
        if rest and not rest.startswith(b"["):
            _write(rest)
            rest = b""
    _write(rest)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(2, data) :]


if __name__ == "__main__":
    _copy(quiet="--quiet" in sys.argv)
