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
"""Calls in forked children of this process, where a crash or a hang is an answer.

A child starts from the modules that its parent has loaded, so it costs milliseconds where a new
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import IO

from .signals import interrupts_deferred

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
    """What became of a call in a forked child.

    Attributes
    ----------
    kind : OutcomeKind
        ``VALUE``: the call returned.  ``EXCEPTION``: it raised, or its value does not pickle.
        ``SIGNAL``: a signal ended the child.  ``EXIT``: the child left without an answer.
        ``TIMEOUT``: the time was up and the child was killed.
    value : object
        What the call returned, where `kind` is ``VALUE``.
    name : str
        The exception's type or the signal's name; otherwise empty.
    message : str
        The exception's text, or what happened in one line; empty for ``VALUE``.
    output : str
        The end of what the child wrote to its standard output and error, its traceback included.
    seconds : float
        Wall-clock time from the fork to the end.
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
    """One forked child, its deadline, and the unlinked files through which it answers.

    Files rather than pipes: an answer of any size is written without a reader, and a grandchild
    that holds the file open delays nobody.
    """

    def __init__(self, fn: Callable[[], object], timeout: float | None) -> None:
        self._timeout = timeout
        self._answer = tempfile.TemporaryFile()
        self._output = tempfile.TemporaryFile()
        self._process = _FORK.Process(target=_serve, args=(fn, self._answer, self._output))
        self._start = time.monotonic()
        self.deadline = math.inf if timeout is None else self._start + timeout
        with warnings.catch_warnings():
            # Python warns of locks that other threads hold across a fork.  _serve meets the
            # native libraries' pools by its thread; their locks are free between calls.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            self._process.start()
        self.sentinel: int = self._process.sentinel

    def finish(self, *, timed_out: bool) -> Outcome:
        """End the child and all that it started, and read its answer."""
        assert self._process.pid is not None
        # The group is signalled before the child is reaped: until then its number is not reused.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if timed_out:
            self._process.kill()
        self._process.join()
        seconds = time.monotonic() - self._start
        status = self._process.exitcode
        assert status is not None
        self._process.close()
        with self._answer, self._output:
            if timed_out:
                after = "" if self._timeout is None else f" after {self._timeout:g} s"
                outcome = Outcome(OutcomeKind.TIMEOUT, message=f"timed out{after}")
            elif status < 0:
                outcome = Outcome(OutcomeKind.SIGNAL, name=_signal_name(-status), message="crashed")
            else:
                outcome = _read_answer(self._answer, status)
            return replace(outcome, output=_tail(self._output), seconds=seconds)


def start_forked(fn: Callable[[], object]) -> ForkedChild:
    """Call `fn` as :func:`run_forked` does, and return meanwhile; the caller must finish the child.

    What goes back and forth is for `fn` and the caller to arrange.
    """
    with interrupts_deferred():
        return ForkedChild(fn, None)


def run_forked(fn: Callable[[], object], *, timeout: float | None) -> Outcome:
    """Call `fn` in a forked child of this process.

    Parameters
    ----------
    fn : callable
        Takes nothing; returns something small that pickles.  It runs on a thread of its own, so
        contexts that belong to a thread (targets, pass contexts) start afresh.  What it changes
        (environment, registries) ends with the child.
    timeout : float or None
        Seconds after which the child is killed; None: it has all the time that it takes.

    Returns
    -------
    outcome : Outcome
        How the call ended; whatever it does, this function does not raise for it.

    Raises
    ------
    ValueError
        If `timeout` is not positive.
    """
    return run_all_forked([fn], timeout=timeout, jobs=1)[0]


def run_all_forked(
    fns: Sequence[Callable[[], object]], *, timeout: float | None, jobs: int
) -> list[Outcome]:
    """Call each of `fns` in a forked child of its own, at most `jobs` at a time.

    Parameters
    ----------
    fns : sequence of callable
        As `fn` of :func:`run_forked`.
    timeout : float or None
        Seconds that each call has; None: all the time that it takes.
    jobs : int
        How many children may live at once.

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


def _serve(fn: Callable[[], object], answer: IO[bytes], output: IO[bytes]) -> None:
    """Run in the child: call `fn` and write what became of it to `answer`."""
    os.setpgrp()
    # The fork came while interrupts were deferred.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    # A test runner's replacements of these would write into the parent's files.
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.FileIO(output.fileno(), "w", closefd=False), write_through=True, errors="replace"
    )
    faulthandler.enable(output)
    # A library that calls exit() leaves at once: the destructors which that would run wait for
    # threads that a fork does not keep.
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    # TVM's and libgomp's worker pools belong to the thread that first used them.  The fork kept
    # the forking thread's pools but not their workers, so a parallel region on it would wait for
    # ever; a new thread makes its own.
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


def _read_answer(answer: IO[bytes], status: int) -> Outcome:
    answer.seek(0)
    encoded = answer.read()
    if not encoded:
        return Outcome(OutcomeKind.EXIT, message=f"left with status {status} and no answer")
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
