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
"""Ctrl-C: deferred in critical sections, and heard during long native calls."""

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

_abandoned: list[threading.Thread] = []


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer a Ctrl-C within the ``with`` block until its end.

    The block must be short.  Outside the main thread, it does nothing: Python raises
    ``KeyboardInterrupt`` only in the main thread.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *signalled: caught.append(signalled))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if caught:
            handler(*caught[0])


def interruptible(function: Callable[[], T]) -> T:
    """Call `function`, which may stay in native code forever, so that a Ctrl-C interrupts it.

    The main thread waits while `function` runs in a new thread; another thread calls it directly.
    After a Ctrl-C, the new thread continues to run: see :func:`leave`.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        return future.result()
    except KeyboardInterrupt:
        _abandoned.append(thread)
        raise


def leave(status: int) -> int:
    """End this process with `status` if a thread of :func:`interruptible` still runs.

    The interpreter's own shutdown would wait for resources of that thread.  Otherwise, return
    `status`.
    """
    if not any(thread.is_alive() for thread in _abandoned):
        return status
    for child in multiprocessing.active_children():
        child.kill()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)
