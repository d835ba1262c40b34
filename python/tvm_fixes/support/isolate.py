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
"""Calls in forked children of this process, which report crashes and hangs as outcomes.

A child inherits the modules that its parent has loaded, so it starts in milliseconds; a new
interpreter would spend seconds on ``import tvm``.
"""

import ctypes
import faulthandler
import io
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import IO

from .signals import interrupts_deferred

# The option of prctl(2) for a signal when the thread that forked this process ends.
_PR_SET_PDEATHSIG = 1

_FORK = multiprocessing.get_context("fork")

_OUTPUT_LIMIT = 64 * 1024


class OutcomeKind(StrEnum):
    """How a call in a forked child ended."""

    VALUE = "value"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    EXIT = "exit"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call in a forked child.

    Attributes
    ----------
    kind : OutcomeKind
        ``VALUE``: the call returned.  ``EXCEPTION``: it raised, or its value does not pickle.
        ``SIGNAL``: a signal ended the child.  ``EXIT``: the child exited without an answer.
        ``TIMEOUT``: the child was killed after the time limit.
    value : object
        The value that the call returned if `kind` is ``VALUE``.
    name : str
        The exception's type or the signal's name; otherwise empty.
    message : str
        The exception's text, or a description of the outcome in one line; empty for ``VALUE``.
    output : str
        The end of the child's standard output and error, including its traceback.
    seconds : float
        Wall-clock time from the fork to the end of the child.
    """

    kind: OutcomeKind
    value: object = None
    name: str = ""
    message: str = ""
    output: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.kind is OutcomeKind.VALUE:
            return "returned"
        return f"{self.name}: {self.message}" if self.name else self.message


class ForkedChild:
    """A forked child, its deadline, and the unlinked files for its answer and output.

    They are files, not pipes: the child can write any amount without a reader, and a grandchild
    that keeps a file open does not delay the parent.
    """

    def __init__(self, fn: Callable[[], object], timeout: float | None) -> None:
        self._timeout = timeout
        self._answer = tempfile.TemporaryFile()
        self._output = tempfile.TemporaryFile()
        self._start = time.monotonic()
        self.deadline = math.inf if timeout is None else self._start + timeout
        with warnings.catch_warnings(), _children_allowed():
            # Python warns about locks that other threads hold during the fork.  The native
            # libraries hold none between calls, and _serve handles their thread pools.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            self._process = _FORK.Process(target=_serve, args=(fn, self._answer, self._output))
            self._process.start()
        self.sentinel: int = self._process.sentinel

    def finish(self, *, timed_out: bool) -> Outcome:
        """Kill the child and its process group, and read its answer."""
        assert self._process.pid is not None
        # Before the child is reaped, because its process id may be reused afterwards.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if timed_out:
            self._process.kill()
        self._process.join()
        seconds = time.monotonic() - self._start
        status = self._process.exitcode
        if status is not None:
            self._process.close()
        with self._answer, self._output:
            if timed_out:
                after = "" if self._timeout is None else f" after {self._timeout:g} s"
                outcome = Outcome(OutcomeKind.TIMEOUT, message=f"timed out{after}")
            elif status is not None and status < 0:
                outcome = Outcome(OutcomeKind.SIGNAL, name=_signal_name(-status), message="crashed")
            else:
                outcome = _read_answer(self._answer, status)
            return replace(outcome, output=_tail(self._output), seconds=seconds)


@contextmanager
def _children_allowed() -> Iterator[None]:
    """Let a worker of a ``multiprocessing.Pool`` fork.

    Such workers are daemonic and may not have children, lest those outlive them.
    :meth:`ForkedChild.finish` kills ours.
    """
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    is_daemonic = config.pop("daemon", None)
    try:
        yield
    finally:
        if is_daemonic is not None:
            config["daemon"] = is_daemonic


def start_forked(fn: Callable[[], object]) -> ForkedChild:
    """Call `fn` as :func:`run_forked` does, but return at once; the caller must finish the child.

    `fn` and the caller arrange their own communication.
    """
    with interrupts_deferred():
        return ForkedChild(fn, None)


def run_forked(fn: Callable[[], object], *, timeout: float | None) -> Outcome:
    """Call `fn` in a forked child of this process.

    Parameters
    ----------
    fn : callable
        Takes no arguments and returns a small value that pickles.  It runs in a new thread, so
        thread-local contexts (targets, pass contexts) are empty.  Its changes (environment,
        registries) end with the child.
    timeout : float or None
        Seconds after which the child is killed; None for no limit.

    Returns
    -------
    outcome : Outcome
        How the call ended; a failure of the call is an outcome, not an exception.

    Raises
    ------
    ValueError
        If `timeout` is not positive.
    """
    return run_all_forked([fn], timeout=timeout, jobs=1)[0]


@contextmanager
def forked(fn: Callable[[], object]) -> Iterator[list[Outcome]]:
    """Call `fn` as :func:`run_forked` does, while the ``with`` block runs.

    If the block raises, the child is killed.

    Yields
    ------
    list of Outcome
        Empty; it has the outcome after the block.
    """
    outcomes: list[Outcome] = []
    child = start_forked(fn)
    ended = False
    try:
        yield outcomes
        multiprocessing.connection.wait([child.sentinel])
        ended = True
    finally:
        with interrupts_deferred():
            outcomes.append(child.finish(timed_out=not ended))


def run_all_forked(
    fns: Sequence[Callable[[], object]], *, timeout: float | None, jobs: int
) -> list[Outcome]:
    """Call each of `fns` in its own forked child, at most `jobs` at a time.

    Parameters
    ----------
    fns : sequence of callable
        As `fn` of :func:`run_forked`.
    timeout : float or None
        Time limit of each call in seconds; None for no limit.
    jobs : int
        The maximum number of children at a time.

    Returns
    -------
    outcomes : list of Outcome
        In the order of `fns`.

    Raises
    ------
    ValueError
        If `timeout` or `jobs` is not positive.
    """
    if not (timeout is None or timeout > 0) or not jobs > 0:
        raise ValueError(f"timeout and jobs must be positive, got {timeout} and {jobs}")
    outcomes: dict[int, Outcome] = {}
    running: dict[int, ForkedChild] = {}
    pending = list(enumerate(fns))[::-1]
    try:
        while pending or running:
            while pending and len(running) < jobs:
                index, fn = pending.pop()
                with interrupts_deferred():
                    running[index] = ForkedChild(fn, timeout)
            first_deadline = min(child.deadline for child in running.values())
            left = None if timeout is None else max(0.0, first_deadline - time.monotonic())
            ended = multiprocessing.connection.wait(
                [child.sentinel for child in running.values()], left
            )
            now = time.monotonic()
            for index, child in list(running.items()):
                if child.sentinel in ended or child.deadline <= now:
                    with interrupts_deferred():
                        del running[index]
                        outcomes[index] = child.finish(timed_out=child.sentinel not in ended)
    finally:
        with interrupts_deferred():
            for child in running.values():
                child.finish(timed_out=True)
    return [outcomes[index] for index in range(len(fns))]


def _open_standard_descriptors() -> None:
    """Open ``/dev/null`` for closed ones, so that no file of ours takes the place of the output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor


_open_standard_descriptors()


def _serve(fn: Callable[[], object], answer: IO[bytes], output: IO[bytes]) -> None:
    """Run in the child: call `fn` and write the outcome to `answer`."""
    os.setpgrp()
    libc = ctypes.CDLL(None)
    # A child of a child has its own process group, so that killing its parent's does not end it.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid != os.getppid():
        os._exit(1)  # the parent ended before that call
    # The parent defers interrupts during the fork.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    # A test runner may have replaced these by files of the parent.
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.FileIO(output.fileno(), "w", closefd=False), write_through=True, errors="replace"
    )
    faulthandler.enable(output)
    # Make exit() of a library leave at once: destructors would wait for threads that the fork did
    # not keep.
    libc.on_exit(libc._exit, None)
    # TVM's and libgomp's worker pools belong to the thread that first used them.  The fork kept
    # this thread's pools but not their workers, so a parallel region would wait forever.  A new
    # thread makes its own pools.
    thread = threading.Thread(target=_call, args=(fn, answer))
    thread.start()
    thread.join()


def _call(fn: Callable[[], object], answer: IO[bytes]) -> None:
    try:
        encoded = pickle.dumps(Outcome(OutcomeKind.VALUE, value=fn()))
    except BaseException as error:
        traceback.print_exc()
        encoded = pickle.dumps(
            Outcome(OutcomeKind.EXCEPTION, name=type(error).__name__, message=str(error))
        )
    answer.write(encoded)
    answer.flush()


def _read_answer(answer: IO[bytes], status: int | None) -> Outcome:
    """The answer of a child with an exit status; None if this process ignores SIGCHLD."""
    answer.seek(0)
    encoded = answer.read()
    if not encoded:
        how = "ended" if status is None else f"exited with status {status}"
        return Outcome(OutcomeKind.EXIT, message=f"{how} without an answer")
    outcome = pickle.loads(encoded)
    assert isinstance(outcome, Outcome)
    return outcome


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _OUTPUT_LIMIT))
    return output.read().decode(errors="replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
