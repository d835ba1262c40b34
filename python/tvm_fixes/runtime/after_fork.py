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
"""Calls of compiled code around a fork.

The workers of TVM's thread pool belong to the thread that first ran a parallel kernel.  A fork
keeps that thread but not its workers, so its next parallel kernel would wait forever. Therefore,
calls from that thread run on a new thread, which creates its own pool.

A call on another thread holds locks of TVM, such as that of the memory pool, which nobody would
release in the child.  Therefore, a fork waits for the calls that run.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

_PATIENCE = 30.0
"""The seconds that a fork waits for calls."""


class Locked(Protocol):
    """An object with a lock that is held during each call of its compiled code."""

    lock: threading.RLock


_kept: int | None = None
_executor: ThreadPoolExecutor | None = None
_models: "weakref.WeakSet[Locked]" = weakref.WeakSet()
_forking = threading.RLock()
_held: list[threading.RLock] = []
_is_missed = False
"""Whether the fork that is under way waited in vain."""
_is_interrupted = False
"""Whether this process was forked during a call."""


def give_lock(model: Locked) -> None:
    """Give `model` the lock to hold during each call: a fork waits for it."""
    model.lock = threading.RLock()
    _models.add(model)


def guarded(function: Callable[..., Any], *last: Any) -> Callable[..., Any]:
    """`function` with the arguments `last`; its calls run on threads whose pools have workers."""

    def call(*arguments: Any) -> Any:
        if _kept is None:  # the usual case: this process was not forked
            return function(*arguments, *last)
        return _call(function, *arguments, *last)

    return call


def check() -> None:
    """Check that TVM's locks are free.

    Raises
    ------
    RuntimeError
        If this process was forked during a call.
    """
    if _is_interrupted:
        raise RuntimeError(
            "this process was forked during a call of a compiled model that took more than "
            f"{_PATIENCE:g} s; fork between calls, or start a new process"
        )


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    global _executor
    check()
    if threading.get_ident() != _kept:
        return function(*arguments)
    if _executor is None:
        _executor = ThreadPoolExecutor(1, "tvm-fixes")
    return _executor.submit(function, *arguments).result()


def _before() -> None:
    """Hold the locks of all models, so that no other thread is in a call."""
    global _is_missed
    _forking.acquire()
    end = time.monotonic() + _PATIENCE
    for lock in [model.lock for model in list(_models)]:
        if lock.acquire(timeout=max(end - time.monotonic(), 0)):
            _held.append(lock)
        else:
            _is_missed = True


def _in_parent() -> None:
    global _is_missed
    _is_missed = False
    while _held:
        _held.pop().release()
    _forking.release()


def _in_child() -> None:
    global _kept, _executor, _forking, _is_missed, _is_interrupted
    _kept, _executor, _forking = threading.get_ident(), None, threading.RLock()
    _is_interrupted, _is_missed = _is_interrupted or _is_missed, False
    _held.clear()
    for model in list(_models):
        model.lock = threading.RLock()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
